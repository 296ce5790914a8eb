"""A strategy around another decides when that one is asked, and how."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, fields, replace
from typing import Any

from ctxlab.context.context import Context
from ctxlab.errors import SpecError
from ctxlab.strategies.base import BaseStrategy, Strategy, as_strategy, models_used

__all__ = [
    "WrapperStrategy",
    "appended_tokens",
    "dry_run_strategy",
    "next_dry_run",
    "without_models",
]


@dataclass(frozen=True, repr=False)
class WrapperStrategy(BaseStrategy):
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


_CONTAINERS = (dict, list, set)


def dry_run_strategy(context: Context, strategy: Strategy) -> Context:
    """A fork as the strategy would send it; the context, its events and its calls stay as they are.

    The price is the length of the context, so a trial must be rare. Containers in ``strategy_state``
    are copied and other objects are not: a strategy must set another object there and not change its
    own. Raises ``SpecError`` for one that routes the conversation, since the branches that it keeps
    cannot be copied.
    """
    fork = context.fork()
    fork.events, fork.model_calls = [], []
    fork.strategy_state = {
        owner: copy(note) if isinstance(note, _CONTAINERS) else note
        for owner, note in context.strategy_state.items()
    }
    sent = strategy(fork)
    if sent.is_persistent:
        raise SpecError(f"{strategy!r} keeps branches and cannot be tried: put it before this one")
    return sent


def without_models(strategy: Any) -> Any:
    """The strategy as it is where no model may be called, since a trial must not be paid for.

    Raises ``SpecError`` where it cannot do without one.
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
        raise SpecError(f"{strategy!r} cannot be tried without asking {', '.join(models)}")
    return plain


def appended_tokens(context: Context) -> int:
    """Tokens of all that was appended so far, whatever became of it."""
    return context.history.tokens_before[context.history_length]


def next_dry_run(context: Context, min_tokens: int = 0) -> int:
    """``appended_tokens`` when a strategy may be tried again: after so many tokens more.

    At least a sixteenth of what the context holds, which spreads the price of a trial over what was
    appended, however long the conversation.
    """
    return appended_tokens(context) + max(min_tokens, context.tokens // 16, 1)
