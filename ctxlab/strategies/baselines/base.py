"""Baselines: strategies that reproduce the defaults of products, with the version and URL of each."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import product
from typing import Any, ClassVar

from ctxlab.context.context import Context
from ctxlab.errors import SpecError
from ctxlab.strategies.base import BaseStrategy, Pipeline, Strategy
from ctxlab.strategies.baselines.settings import (
    DEFAULT_SIZES,
    RequestSizes,
    Setting,
    WrittenSetting,
    write_settings,
)

_MAX_VARIANTS = 12
"maximum number of configurations in which several settings are changed"


class BaselineStrategy(BaseStrategy):
    """Base class of strategies that require some of their parameters to be at least 1."""

    positive: ClassVar[tuple[str, ...]] = ()
    "names of the parameters that must be None or at least 1"

    def __post_init__(self) -> None:
        """Raise ``SpecError`` if a parameter in ``positive`` is less than 1."""
        super().__post_init__()
        for name in self.positive:
            if (value := getattr(self, name)) is not None and value < 1:
                raise SpecError(f"{type(self).__name__}: {name} must be at least 1, got {value}")


class ComposedStrategy(BaselineStrategy):
    """Base class of strategies of products that are composed of other strategies.

    A subclass has the parameters of the product, and ``compose`` returns the composition.
    """

    def compose(self) -> Strategy:
        """Return the composition for the parameters of this strategy.

        Returns
        -------
        Strategy
            Strategy made of others, such as ``observation_mask() | in_batches(rolling_summary())``.
        """
        raise NotImplementedError

    def __call__(self, context: Context, /) -> Context:
        """Edit the context with the composition."""
        return _compose(self)(context)


@lru_cache(maxsize=256)
def _compose(strategy: ComposedStrategy) -> Strategy:
    return strategy.compose()


@dataclass(frozen=True)
class Baseline:
    """Default strategy of a product. Calling a baseline returns its strategy with other parameters."""

    name: str
    "name of the baseline in an experiment: ``product`` or ``product.method``"
    strategy: Strategy
    "ctxlab's implementation of the strategy, with the product's default parameters"
    product_version: str
    "name of the product or package, and the version or commit that was reimplemented"
    url: str
    "URL of the original code or documentation"
    description: str
    "what the baseline does, in a few sentences; shown in listings"
    conformance_options: tuple[str, ...] = ()
    """sets of parameters with which tests compare the baseline with the upstream package, because the
    default parameters rarely change a short recording. Empty if no package can be installed"""
    settings: tuple[Setting, ...] = ()
    "setting of the product for each parameter; also lists those that users cannot change"
    superseded_by: str = ""
    "name of the baseline of a newer version of the product; empty if this is the newest"
    formats: tuple[str, ...] = ()
    "formats of the logs that the product writes, as ``ctxlab formats`` names them"
    window: int | None = None
    """context window that the product uses unless its logs contain longer requests; None: the input
    limit of the model"""
    caches_summaries: bool = False
    """True if the request for a summary begins like the conversation, so that the prompt cache serves
    it; False if it begins otherwise, or if that is unknown"""

    def __call__(self, **changes: Any) -> NamedStrategy:
        """Return the strategy with changed parameters; raise ``SpecError`` if a name is unknown."""
        steps = self._steps
        known = self.parameters
        for name in changes.keys() - known:
            has = ", ".join(sorted(known)) or "none"
            raise SpecError(f"{self.name} has no parameter {name!r}; known parameters: {has}")
        made = tuple(
            replace(step, **{f.name: changes[f.name] for f in fields(step) if f.name in changes})
            for step in steps
        )
        kept = tuple(sorted(changes.items()))
        return NamedStrategy(self.name, made[0] if len(made) == 1 else Pipeline(made), kept)

    def variants(self, sizes: RequestSizes = DEFAULT_SIZES) -> tuple[NamedStrategy, ...]:
        """Return the default and the configurations that differ from it in settings of the product.

        They are all combinations of the values of ``Setting.values_to_try``. If there are more than
        twelve, they differ from the default in one setting only.

        Parameters
        ----------
        sizes : RequestSizes, optional
            Sizes of requests, from which thresholds of compaction are derived.

        Returns
        -------
        tuple of NamedStrategy
            The default first; only the default if the product has no settings to try.

        Examples
        --------
        >>> from ctxlab.strategies.baselines import BASELINES
        >>> BASELINES["codex"].variants()[:3]
        (codex(), codex(trigger=0.25), codex(trigger=0.4))
        """
        defaults = self.parameters
        tried = {
            each.parameter: each.values_to_try(defaults[each.parameter], sizes)
            for each in self.settings
        }
        options = [[{}, *({name: value} for value in values)] for name, values in tried.items()]
        changes = [dict(ChainMap(*chosen)) for chosen in product(*options)]
        if len(changes) > _MAX_VARIANTS:
            changes = [each for each in changes if len(each) <= 1]
        return tuple(filter(None, (self._try(each) for each in changes)))

    def _try(self, changes: dict[str, Any]) -> NamedStrategy | None:
        """Return the strategy with changed parameters; None if they do not fit each other."""
        try:
            return self(**changes)
        except SpecError:
            return None

    def write_settings(self, changes: Mapping[str, Any], window: int) -> list[WrittenSetting]:
        """Return what a user of the product writes to change parameters of the baseline.

        Parameters
        ----------
        changes : mapping of str to object
            New values by name of the parameter.
        window : int
            Context window in tokens.

        Returns
        -------
        list of WrittenSetting
            One text for each file, call or dialog; empty if nothing is changed.
        """
        chosen = (
            (each, changes[each.parameter]) for each in self.settings if each.parameter in changes
        )
        return write_settings(chosen, window)

    @property
    def package(self) -> str | None:
        """Name of the upstream package that ``peer:<name>`` runs; None if it cannot be installed."""
        return self.product_version.rpartition(" ")[0] if self.conformance_options else None

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters that can be changed, with the product's default values."""
        return {f.name: getattr(step, f.name) for step in self._steps for f in fields(step)}

    @property
    def _steps(self) -> tuple[Any, ...]:
        whole = self.strategy
        return whole.steps if isinstance(whole, Pipeline) else (whole,)


@dataclass(frozen=True, repr=False)
class NamedStrategy(BaseStrategy):
    """Strategy of a baseline, printed as the name of the baseline and the changed parameters."""

    name: str
    "name of the baseline"
    strategy: Strategy
    "strategy that edits the context"
    changes: tuple[tuple[str, Any], ...] = ()
    "name and new value of each changed parameter"

    def __call__(self, context: Context, /) -> Context:
        """Edit the context with the strategy of the baseline."""
        return self.strategy(context)

    def __repr__(self) -> str:
        """Return the name and the changed parameters, such as ``codex(trigger=0.5)``."""
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.changes)})"
