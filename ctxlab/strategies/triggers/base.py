"""Base classes of strategies that wrap another strategy, triggers, and functions for dry runs.

A dry run applies a strategy to a copy of the context, to find out how many tokens it would remove.
"""

from __future__ import annotations

from collections.abc import Callable
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
        """Return the wrapper as an expression, such as ``in_batches(tool_stubs(), target=0.3)``."""
        return super().__repr__().replace("(strategy=", "(", 1)


DEFAULT_TRIGGER = 0.8
"""Default share of the available tokens above which a wrapped strategy runs."""


def trigger_tokens(context: Context, trigger: float, headroom: int | None = None) -> float:
    """Return the number of tokens of the messages above which a trigger runs its strategy.

    Parameters
    ----------
    context : Context
        Context of the next request.
    trigger : float
        Up to 1, a share of the available tokens; above 1, a number of tokens of the messages.
    headroom : int, optional
        Number of tokens of the limit that must stay free. It replaces ``trigger``. Unlike the
        available tokens, it includes the reserve for the reply.

    Returns
    -------
    float
        Number of tokens of the messages: at most the available tokens, because a request that exceeds
        them has no room; negative if the headroom exceeds the limit.

    Examples
    --------
    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.context.history import History
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> context = Context(Budget(1000, reserve=100, fixed=50), History(TokenCounter("gpt-4o")))
    >>> trigger_tokens(context, 0.8), trigger_tokens(context, 500), trigger_tokens(context, 0.8, 250)
    (680.0, 500, 700)
    """
    whole = context.available
    if headroom is not None:
        return min(whole, context.budget.limit - context.budget.overhead - headroom)
    return trigger * whole if trigger <= 1 else min(whole, trigger)


def run_with_target(context: Context, target: float, run: Callable[[Context], Context]) -> Context:
    """Run a strategy with a smaller budget.

    If the request then fits the whole budget, the event ``stuck`` of the strategy is removed: only the
    smaller budget was missed.

    Parameters
    ----------
    context : Context
        Context of the next request.
    target : float
        Budget of the strategy: up to 1, a share of the available tokens; above 1, a number of tokens.
    run : callable
        The strategy.

    Returns
    -------
    Context
        The context that the strategy returned, with the whole budget restored.
    """
    whole, told = context.available, len(context.events)
    share = target if target <= 1 else min(1.0, target / max(whole, 1))
    sent = context.run_with_budget_share(share, run)
    if sent.tokens <= whole:
        context.events[told:] = [each for each in context.events[told:] if each[1] != "stuck"]
    return sent


def retry_above(tokens: int, available: int) -> int:
    """Return the size at which a strategy runs again that left the context above its trigger.

    Parameters
    ----------
    tokens : int
        Tokens of the messages after the run.
    available : int
        Maximum number of tokens of the messages.

    Returns
    -------
    int
        Number of tokens: half of the free tokens are used, or the context has grown by half.
    """
    return tokens + min(max(available - tokens, 0), tokens) // 2


def check_trigger(strategy: BaseStrategy, trigger: float, headroom: int | None) -> None:
    """Raise SpecError if both a trigger and a headroom are given.

    Parameters
    ----------
    strategy : BaseStrategy
        Strategy with the parameters.
    trigger : float
        Value of ``trigger``.
    headroom : int or None
        Value of ``headroom``.

    Raises
    ------
    SpecError
        If ``headroom`` is given and ``trigger`` is not ``DEFAULT_TRIGGER``.
    """
    if headroom is not None and trigger != DEFAULT_TRIGGER:
        name = type(strategy).__name__
        raise SpecError(
            f"{name}: expected trigger or headroom, got trigger {trigger} and headroom {headroom}; "
            "remove one of them"
        )


def check_target(strategy: BaseStrategy, target: float, name: str, trigger: float) -> None:
    """Raise SpecError if a target exceeds a trigger that is given in the same unit.

    Parameters
    ----------
    strategy : BaseStrategy
        Strategy with the parameters.
    target : float
        Value of ``target``.
    name : str
        Name of the parameter with the trigger.
    trigger : float
        Value of the trigger. The value 0, which means any size, allows every target.

    Raises
    ------
    SpecError
        If both are shares or both are numbers of tokens, and the target is greater.
    """
    if trigger and target > trigger and (target <= 1) == (trigger <= 1):
        kind = type(strategy).__name__
        raise SpecError(f"{kind}: expected target <= {name} ({trigger}), got target {target}")


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
            f"this trigger tries {strategy!r} on copies of the context, which would call "
            f"{', '.join(models)} each time; use in_batches without tokens instead"
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
