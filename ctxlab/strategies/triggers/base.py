"""Base class of strategies that wrap another strategy, and helpers for dry runs."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, fields, replace
from typing import Any

from ctxlab.context.context import Context
from ctxlab.errors import SpecError
from ctxlab.strategies.base import BaseStrategy, Strategy, as_strategy, models_used


@dataclass(frozen=True, repr=False)
class WrapperStrategy(BaseStrategy):
    """Base class of wrappers. It accepts a plain function, and prints the inner strategy first."""

    strategy: Strategy
    "the wrapped strategy"

    def __post_init__(self) -> None:
        """Wrap a plain function as a strategy."""
        super().__post_init__()
        object.__setattr__(self, "strategy", as_strategy(self.strategy))

    def __repr__(self) -> str:
        """Return the text form, in which the wrapped strategy has no keyword."""
        return super().__repr__().replace("(strategy=", "(", 1)


@dataclass(frozen=True, repr=False)
class DryRunWrapper(WrapperStrategy):
    """Base class of wrappers that first try the strategy on a fork and without its models."""

    def __post_init__(self) -> None:
        """Raise SpecError if the strategy does not support dry runs."""
        super().__post_init__()
        without_models(self.strategy)

    def dry_run(self, context: Context) -> Context:
        """Return the context that the strategy would send without its models.

        Parameters
        ----------
        context : Context
            The context, which does not change.

        Returns
        -------
        Context
            A fork.
        """
        return dry_run_strategy(context, without_models(self.strategy))


_CONTAINERS = (dict, list, set)


def dry_run_strategy(context: Context, strategy: Strategy) -> Context:
    """Run a strategy on a fork and return the result; the context itself does not change.

    A dry run costs time in proportion to the length of the context, so it must be rare. Containers
    in ``strategy_state`` are copied, other objects are not. A strategy must therefore replace such
    an object instead of changing it.

    Parameters
    ----------
    context : Context
        The context; its events and model calls do not change.
    strategy : Strategy
        The strategy to run.

    Returns
    -------
    Context
        The context that the strategy would send.

    Raises
    ------
    SpecError
        If the strategy routes the conversation to branches, which cannot be copied.
    """
    fork = context.fork()
    fork.events, fork.model_calls = [], []
    states = context.strategy_state.items()
    fork.strategy_state = {k: copy(v) if isinstance(v, _CONTAINERS) else v for k, v in states}
    sent = strategy(fork)
    if sent.is_persistent:
        why = "keeps branches and does not support dry runs; put it before the wrapper"
        raise SpecError(f"{strategy!r} {why}")
    return sent


def without_models(strategy: Any) -> Any:
    """Return a strategy with all its models set to None, so that a dry run calls no model.

    Parameters
    ----------
    strategy : object
        The strategy.

    Returns
    -------
    object
        The strategy without models; the same object if it has none.

    Raises
    ------
    SpecError
        If the strategy requires a model.
    """
    if not models_used(strategy):
        return strategy
    changes: dict[str, Any] = {}
    for field in fields(strategy):
        value = getattr(strategy, field.name)
        if field.name in ("model", "embedding"):
            changes[field.name] = None
        elif isinstance(value, tuple):
            changes[field.name] = tuple(map(without_models, value))
        elif isinstance(value, BaseStrategy):
            changes[field.name] = without_models(value)
    plain = replace(strategy, **changes)
    if models := models_used(plain):
        raise SpecError(f"{strategy!r} does not support dry runs: it requires {', '.join(models)}")
    return plain


def appended_tokens(context: Context) -> int:
    """Return the tokens of all messages appended so far, including those dropped since.

    Parameters
    ----------
    context : Context
        The context.

    Returns
    -------
    int
        Number of tokens.
    """
    return context.history.tokens_before[context.history_length]


def next_dry_run(context: Context, min_tokens: int = 0) -> int:
    """Return the value of ``appended_tokens`` at which the next dry run is due.

    At least a sixteenth of the context's tokens must be appended before, so that the cost of dry
    runs stays proportional to the length of the conversation.

    Parameters
    ----------
    context : Context
        The context.
    min_tokens : int, default 0
        Minimum number of tokens to append before the next dry run.

    Returns
    -------
    int
        Number of tokens.
    """
    return appended_tokens(context) + max(min_tokens, context.tokens // 16, 1)
