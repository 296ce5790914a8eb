"""In an aside one more question is asked, and nothing of it stays: what would be sent for it is known.

A replay asks the questions of a recording so, hundreds of them at the same place, whatever a strategy
remembers from request to request.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from ctxlab.context.context import Context
from ctxlab.context.history import Foresight
from ctxlab.errors import (
    EditError,
    StrategyError,
)
from ctxlab.messages.types import Message

__all__ = ["aside"]

_PLAIN = (int, float, str, bytes, type(None))


def aside(context: Context, question: Message, foresight: Foresight | None = None) -> Context:
    """A context apart in which the user says one thing more; the context itself stays as it is.

    Its edits last for one request, as those of a fork do. It has a history of its own that ends with
    the question, and an account of its own: what a strategy reports there, and the models that it asks,
    stand in its ``events`` and ``spent``, for they belong to the question. Whether the strategy looked
    at the budget stands in its ``looked``.

    What strategies keep in ``notes`` is copied deeply, containers and objects alike; messages and
    entries, which are never changed, are not. An object that is large, or cannot be copied so, says by
    ``__deepcopy__`` how it is; one that refuses raises ``StrategyError``. What a strategy keeps anywhere
    else, in a closure or a module, is not its own in an aside. ``foresight``: what an oracle
    may know of the question. Raises ``EditError`` for a message that is not the user's.

    The price is copying the lists of the context and of its history, and the notes.

    >>> from ctxlab.context.budget import Budget
    >>> from ctxlab.context.history import History
    >>> from ctxlab.strategies import random_drop
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> said = [Message("user", f"line {i}") for i in range(9)]
    >>> context = Context(Budget(40), History(TokenCounter("gpt-4o"), said))
    >>> context.advance(9)
    >>> sent = random_drop()(aside(context, Message("user", "Which line?")))
    >>> [m.content for m in sent.messages], len(context.messages), len(context.history), context.notes
    (['line 0', 'line 1', 'line 6', 'line 7', 'Which line?'], 9, 9, {})
    """
    if question.role != "user":
        raise EditError(
            f"what is asked aside is a message of the user's, not of the {question.role}'s"
        )
    history = context.history.with_question(context.length, question)
    history.foresight = foresight
    asked = history.entries[-1]
    apart = Context.__new__(Context)
    apart.__dict__.update(context.__dict__)
    apart.history = history
    apart.entries = [*context.entries, asked]
    apart.tokens += asked.tokens
    apart.length += 1
    apart.events, apart.spent = [], []
    apart.forked, apart.lasting = True, False
    apart.notes = _copied(context, apart) if context.notes else {}
    return apart


def _copied(context: Context, apart: Context) -> dict[Any, Any]:
    """The notes, in which the context and all that is its own are those of the aside."""
    history = context.history
    memo: dict[int, Any] = {
        id(context): apart,
        id(history): apart.history,
        id(context.events): apart.events,
        id(context.spent): apart.spent,
        id(history.counter): history.counter,
        id(history.client): history.client,
    }
    notes = {}
    for owner, note in context.notes.items():
        try:
            notes[owner] = note if isinstance(note, _PLAIN) else deepcopy(note, memo)
        except Exception as error:
            raise StrategyError(
                f"what {owner!r} keeps in its notes cannot be copied, so nothing can be asked aside: "
                f"{type(error).__name__}: {error}"
            ) from error
    return notes
