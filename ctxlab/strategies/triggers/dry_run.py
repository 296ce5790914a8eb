"""A strategy can be tried: what it would send is known, and nothing of the trial stays."""

from __future__ import annotations

from copy import copy
from dataclasses import fields, replace
from typing import Any

from ctxlab.context.context import Context
from ctxlab.errors import SpecError
from ctxlab.strategies.base import (
    Base,
    Strategy,
    models_asked,
)

__all__ = ["appended", "next_trial", "tried", "without_models"]

_CONTAINERS = (dict, list, set)


def tried(context: Context, strategy: Strategy) -> Context:
    """A fork as the strategy would send it; the context, its events and its account stay as they are.

    The price is the length of the context, so a trial must be rare. A strategy that changes an object
    of its own in ``notes``, in place of setting another, would be told of the trial: containers are
    copied, other objects are not. Raises ``SpecError`` for one that routes the conversation, since the
    branches that it keeps cannot be copied.
    """
    fork = context.fork()
    fork.events, fork.spent = [], []
    fork.notes = {
        owner: copy(note) if isinstance(note, _CONTAINERS) else note
        for owner, note in context.notes.items()
    }
    then = strategy(fork)
    if then.lasting:
        raise SpecError(f"{strategy!r} keeps branches and cannot be tried: put it before this one")
    return then


def without_models(strategy: Any) -> Any:
    """The strategy as it is where no model may be called, since a trial must not be paid for.

    Raises ``SpecError`` where it cannot do without one.
    """
    if not models_asked(strategy):
        return strategy
    changes: dict[str, Any] = {}
    for field in fields(strategy):
        value = getattr(strategy, field.name)
        if field.name in ("model", "embedding"):
            changes[field.name] = None
        elif isinstance(value, tuple):
            changes[field.name] = tuple(map(without_models, value))
        elif isinstance(value, Base):
            changes[field.name] = without_models(value)
    plain = replace(strategy, **changes)
    if models := models_asked(plain):
        raise SpecError(f"{strategy!r} cannot be tried without asking {', '.join(models)}")
    return plain


def appended(context: Context) -> int:
    """Tokens of all that was appended so far, whatever became of it."""
    return context.history.before[context.length]


def next_trial(context: Context, tokens: int = 0) -> int:
    """``appended`` when a strategy may be tried again: after so many tokens more.

    At least a sixteenth of what the context holds, which spreads the price of a trial over what was
    appended, however long the conversation.
    """
    return appended(context) + max(tokens, context.tokens // 16, 1)
