"""A baseline names a strategy after the product whose default it is, with version and link."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from ctxlab.context.context import Context
from ctxlab.errors import SpecError
from ctxlab.strategies.base import BaseStrategy, Pipeline, Strategy

__all__ = ["Baseline", "NamedStrategy"]


@dataclass(frozen=True)
class Baseline:
    """A product's default; called with parameters, it is the strategy with those changed."""

    name: str
    "``product.method``, as it is written in an experiment"
    strategy: Strategy
    "what it is in terms of ctxlab, with the product's defaults"
    product_version: str
    "the product or package, and the version that was read"
    url: str
    "where that can be read"
    description: str
    "what it does, in a sentence"
    package: str | None = None
    "the distribution whose code ``peer:<name>`` runs; None where there is none to install"
    conformance_options: tuple[str, ...] = ()
    "parameters under which baseline and peer are compared, since defaults seldom bite on short logs"

    def __call__(self, **changes: Any) -> NamedStrategy:
        """The strategy under the product's name; raises ``SpecError`` for a parameter that it lacks."""
        steps = self._steps
        known = self.parameters
        for name in changes.keys() - known:
            raise SpecError(
                f"{self.name} has no parameter {name!r}; it has {', '.join(sorted(known)) or 'none'}"
            )
        made = tuple(
            replace(step, **{f.name: changes[f.name] for f in fields(step) if f.name in changes})
            for step in steps
        )
        kept = tuple(sorted(changes.items()))
        return NamedStrategy(self.name, made[0] if len(made) == 1 else Pipeline(made), kept)

    @property
    def parameters(self) -> dict[str, Any]:
        """What can be changed, with the product's defaults."""
        return {f.name: getattr(step, f.name) for step in self._steps for f in fields(step)}

    @property
    def _steps(self) -> tuple[Any, ...]:
        whole = self.strategy
        return whole.steps if isinstance(whole, Pipeline) else (whole,)


@dataclass(frozen=True, repr=False)
class NamedStrategy(BaseStrategy):
    """A strategy that goes by the name of the product that it imitates."""

    name: str
    strategy: Strategy
    changes: tuple[tuple[str, Any], ...] = ()

    def __call__(self, context: Context, /) -> Context:
        return self.strategy(context)

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.changes)})"
