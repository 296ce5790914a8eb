"""Base classes of strategies that wrap another strategy, and functions for dry runs.

A dry run applies a strategy to a copy of the context, to find out how many tokens it would remove.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, fields, replace
from typing import Any

from ctxlab.context.context import Context
from ctxlab.errors import SpecError
from ctxlab.strategies.base import (
    MODEL_PARAMETERS,
    BaseStrategy,
    Strategy,
    as_strategy,
    models_used,
)


@dataclass(frozen=True, repr=False)
class WrapperStrategy(BaseStrategy):
    """Base class of strategies that wrap another strategy or a plain function."""

    strategy: Strategy
    "the wrapped strategy"

    def __post_init__(self) -> None:
        """Convert the wrapped value to a strategy if it is a plain function."""
        super().__post_init__()
        object.__setattr__(self, "strategy", as_strategy(self.strategy))

    def __repr__(self) -> str:
        """Return the wrapper as an expression, such as ``hysteresis(tool_stubs(), target=0.3)``."""
        return super().__repr__().replace("(strategy=", "(", 1)


@dataclass(frozen=True, repr=False)
class DryRunWrapper(WrapperStrategy):
    """Base class of wrappers that try a strategy on a copy of the context before they run it."""

    def __post_init__(self) -> None:
        """Raise SpecError if the wrapped strategy requires a model."""
        super().__post_init__()
        without_models(self.strategy)

    def dry_run(self, context: Context) -> Context:
        """Apply the wrapped strategy to a copy of the context, without calling a model.

        Parameters
        ----------
        context : Context
            Context to copy. It is not changed.

        Returns
        -------
        Context
            The context that the strategy would send.
        """
        return dry_run_strategy(context, without_models(self.strategy))


_CONTAINERS = (dict, list, set)


def dry_run_strategy(context: Context, strategy: Strategy) -> Context:
    """Apply a strategy to a copy of a context.

    The context itself, its events and its model calls are not changed. The run time is proportional
    to the length of the context, so dry runs should be rare.

    Of the values in ``strategy_state``, dicts, lists and sets are copied shallowly, and all other
    objects are shared with the copy. A strategy that stores another mutable object must replace the
    object instead of changing it.

    Parameters
    ----------
    context : Context
        Context to copy.
    strategy : Strategy
        Strategy to run.

    Returns
    -------
    Context
        The context that the strategy would send.

    Raises
    ------
    SpecError
        If the strategy returns a ``Branch``, as ``file_sessions`` does, because branches are not
        copied.
    """
    fork = context.fork()
    fork.events, fork.model_calls = [], []
    states = context.strategy_state.items()
    fork.strategy_state = {k: copy(v) if isinstance(v, _CONTAINERS) else v for k, v in states}
    sent = strategy(fork)
    if sent.is_persistent:
        why = "cannot be tried on a copy of the conversation; put it before the wrapper, not inside"
        raise SpecError(f"{strategy!r} {why}")
    return sent


def without_models(strategy: Any) -> Any:
    """Copy a strategy and set all models of the copy to None, so that a dry run calls no model.

    Parameters
    ----------
    strategy : object
        Strategy to copy. It is not changed. The strategies that it contains are copied in the same
        way.

    Returns
    -------
    object
        Copy of the strategy without models; the same object if the strategy has no models.

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
        if field.name in MODEL_PARAMETERS:
            changes[field.name] = None
        elif isinstance(value, tuple):
            changes[field.name] = tuple(map(without_models, value))
        elif isinstance(value, BaseStrategy):
            changes[field.name] = without_models(value)
    plain = replace(strategy, **changes)
    if models := models_used(plain):
        raise SpecError(
            f"this trigger tries {strategy!r} before each request, which would call "
            f"{', '.join(models)} each time; use the trigger hysteresis instead"
        )
    return plain


def appended_tokens(context: Context) -> int:
    """Return the number of tokens of all messages that were ever appended to a context.

    Parameters
    ----------
    context : Context
        Context of a conversation.

    Returns
    -------
    int
        Number of tokens, including the tokens of messages that were dropped later.
    """
    return context.history.tokens_before[context.history_length]


def next_dry_run(context: Context, min_tokens: int = 0) -> int:
    """Return the value of ``appended_tokens`` at which the next dry run is due.

    Between two dry runs, at least a sixteenth of the context's tokens must be appended. The total
    cost of dry runs is therefore proportional to the length of the conversation.

    Parameters
    ----------
    context : Context
        Context after the current dry run.
    min_tokens : int, default 0
        Minimum number of tokens that must be appended before the next dry run.

    Returns
    -------
    int
        Threshold for ``appended_tokens``.
    """
    return appended_tokens(context) + max(min_tokens, context.tokens // 16, 1)
