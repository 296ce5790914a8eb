"""A strategy around another decides when that one is asked, and how."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ctxlab.strategies.base import (
    Base,
    Strategy,
    as_strategy,
)

__all__ = ["Around"]


@dataclass(frozen=True, repr=False)
class Around(Base):
    """What such strategies share: a plain function may be given, and the inner one is printed first."""

    strategy: Strategy
    "the strategy that is asked"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "strategy", as_strategy(self.strategy))

    def __repr__(self) -> str:
        inner = repr(self.strategy)
        changed = [
            f"{f.name}={value!r}"
            for f in fields(self)
            if f.name != "strategy" and (value := getattr(self, f.name)) != f.default
        ]
        return f"{type(self).__name__}({', '.join([inner, *changed])})"
