"""Preview the request for one extra question without changing the context.

A replay previews the probe questions of a recording so, hundreds of them at the same position, whatever
a strategy remembers from request to request.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from ctxlab.context.context import Context
from ctxlab.context.history import OracleInfo
from ctxlab.errors import EditError, StrategyError
from ctxlab.messages.types import Message

__all__ = ["preview_question"]

_IMMUTABLE_TYPES = (int, float, str, bytes, type(None))


def preview_question(
    context: Context, question: Message, oracle_info: OracleInfo | None = None
) -> Context:
    """A context apart in which the user says one thing more; the context itself stays as it is.

    Its edits last for one request, as those of a fork do. It has a history of its own that ends with
    the question, and a ledger of its own: what a strategy reports there, and the models that it asks,
    stand in its ``events`` and ``model_calls``, for they belong to the question. Whether the strategy
    read the budget stands in its ``budget_read``.

    What strategies keep in ``strategy_state`` is copied deeply, containers and objects alike; messages
    and entries, which are never changed, are not. An object that is large, or cannot be copied so, says
    by ``__deepcopy__`` how it is; one that refuses raises ``StrategyError``. What a strategy keeps
    anywhere else, in a closure or a module, is not copied for a preview. ``oracle_info``: what an
    oracle may know of the question. Raises ``EditError`` for a message that is not the user's.

    The price is copying the lists of the context and of its history, and ``strategy_state``.

    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.context.history import History
    >>> from ctxlab.strategies import random_drop
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> said = [Message("user", f"line {i}") for i in range(9)]
    >>> context = Context(Budget(40), History(TokenCounter("gpt-4o"), said))
    >>> context.advance(9)
    >>> sent = random_drop()(preview_question(context, Message("user", "Which line?")))
    >>> [m.content for m in sent.messages], len(context.messages), context.strategy_state
    (['line 0', 'line 1', 'line 6', 'line 7', 'Which line?'], 9, {})
    >>> len(context.history)
    9
    """
    if question.role != "user":
        raise EditError(f"Expected a question of role user, got role {question.role}")
    history = context.history.with_question(context.history_length, question)
    history.oracle_info = oracle_info
    asked = history.entries[-1]
    preview = Context.__new__(Context)
    preview.__dict__.update(context.__dict__)
    preview.history = history
    preview.entries = [*context.entries, asked]
    preview.tokens += asked.tokens
    preview.history_length += 1
    preview.events, preview.model_calls = [], []
    preview.is_fork, preview.is_persistent = True, False
    preview.strategy_state = (
        _copy_strategy_state(context, preview) if context.strategy_state else {}
    )
    return preview


def _copy_strategy_state(context: Context, preview: Context) -> dict[Any, Any]:
    """A deep copy of ``strategy_state`` in which the context and its parts are those of the preview."""
    history = context.history
    memo: dict[int, Any] = {
        id(context): preview,
        id(history): preview.history,
        id(context.events): preview.events,
        id(context.model_calls): preview.model_calls,
        id(history.counter): history.counter,
        id(history.client): history.client,
    }
    copied = {}
    for owner, note in context.strategy_state.items():
        try:
            copied[owner] = note if isinstance(note, _IMMUTABLE_TYPES) else deepcopy(note, memo)
        except Exception as error:
            raise StrategyError(
                f"what {owner!r} keeps in strategy_state cannot be copied, so no question "
                f"can be previewed: {type(error).__name__}: {error}"
            ) from error
    return copied
