"""Baselines: strategies named after the products whose defaults they are, with version and URL."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from ctxlab.context.context import Context
from ctxlab.errors import SpecError
from ctxlab.strategies.base import BaseStrategy, Pipeline, Strategy


class BaselineStrategy(BaseStrategy):
    """Base class of baselines with parameters that must be at least 1."""

    positive: ClassVar[tuple[str, ...]] = ()
    "names of these parameters"

    def __post_init__(self) -> None:
        """Check the parameters."""
        super().__post_init__()
        for name in self.positive:
            if (value := getattr(self, name)) is not None and value < 1:
                raise SpecError(f"{type(self).__name__}: {name} must be at least 1, got {value}")


@dataclass(frozen=True)
class Baseline:
    """A product's default strategy. Call it with parameters to change them."""

    name: str
    "name as written in an experiment: ``product.method``"
    strategy: Strategy
    "the ctxlab strategy, with the product's defaults"
    product_version: str
    "the product or package, and the version that was read"
    url: str
    "URL of the code or documentation"
    description: str
    "what the baseline does, in a few sentences"
    conformance_options: tuple[str, ...] = ()
    """parameters under which baseline and peer are compared, because defaults rarely act on short
    logs; empty if there is no package to install"""

    def __call__(self, **changes: Any) -> NamedStrategy:
        """Return the strategy with changed parameters; raise ``SpecError`` for an unknown parameter."""
        steps = self._steps
        known = self.parameters
        for name in changes.keys() - known:
            has = ", ".join(sorted(known)) or "none"
            raise SpecError(f"{self.name} has no parameter {name!r}; it has {has}")
        made = tuple(
            replace(step, **{f.name: changes[f.name] for f in fields(step) if f.name in changes})
            for step in steps
        )
        kept = tuple(sorted(changes.items()))
        return NamedStrategy(self.name, made[0] if len(made) == 1 else Pipeline(made), kept)

    @property
    def package(self) -> str | None:
        """Package whose code ``peer:<name>`` runs; None if there is none to install."""
        return self.product_version.rpartition(" ")[0] if self.conformance_options else None

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters that can be changed, with the product's defaults."""
        return {f.name: getattr(step, f.name) for step in self._steps for f in fields(step)}

    @property
    def _steps(self) -> tuple[Any, ...]:
        whole = self.strategy
        return whole.steps if isinstance(whole, Pipeline) else (whole,)


@dataclass(frozen=True, repr=False)
class NamedStrategy(BaseStrategy):
    """A strategy that is printed under the name of the product that it imitates."""

    name: str
    "name of the baseline"
    strategy: Strategy
    "the strategy that edits the context"
    changes: tuple[tuple[str, Any], ...] = ()
    "pairs of name and value of the changed parameters"

    def __call__(self, context: Context, /) -> Context:
        """Run the strategy."""
        return self.strategy(context)

    def __repr__(self) -> str:
        """Return the text form of the strategy."""
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.changes)})"
