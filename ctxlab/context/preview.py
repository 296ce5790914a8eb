"""Build the request for one extra question without changing the context.

A replay uses previews to ask the probes of a recording, which are questions with known answers.
Hundreds of probes can be asked at the same position, and none of them may change the data that a
strategy keeps between requests.
"""

from __future__ import annotations

from copy import copy, deepcopy
from typing import Any

from ctxlab.context.context import Context
from ctxlab.context.history import OracleInfo
from ctxlab.errors import EditError, StrategyError
from ctxlab.messages.types import Message

_IMMUTABLE_TYPES = (int, float, str, bytes, type(None))


def preview_question(
    context: Context, question: Message, oracle_info: OracleInfo | None = None
) -> Context:
    """Return a copy of a context in which the user asks one extra question.

    The original context is not changed. A strategy may edit the copy to build the request. These
    edits apply only to this one request. The copy has its own history, which ends with the question,
    and its own lists ``events`` and ``model_calls``, which are empty at first.

    The values in ``strategy_state`` are copied deeply, except for messages and entries, which are
    immutable. A type that is large, or that ``copy.deepcopy`` cannot copy, can define
    ``__deepcopy__``. Data that a strategy keeps elsewhere, such as in a closure or a module, is not
    copied. The run time is proportional to the length of the history and the size of
    ``strategy_state``.

    Parameters
    ----------
    context : Context
        Context to copy.
    question : Message
        User message with the question.
    oracle_info : OracleInfo, optional
        Evidence of the question, for the control ``oracle``. By default, the control has no
        knowledge of the question.

    Returns
    -------
    Context
        Copy of the context whose last message is the question.

    Raises
    ------
    EditError
        If the role of the question is not ``user``.
    StrategyError
        If a value in ``strategy_state`` cannot be copied.

    Examples
    --------
    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.context.history import History
    >>> from ctxlab.strategies import random_decay
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> said = [Message("user", f"line {i}") for i in range(9)]
    >>> context = Context(Budget(40), History(TokenCounter("gpt-4o"), said))
    >>> context.advance(9)
    >>> sent = random_decay()(preview_question(context, Message("user", "Which line?")))
    >>> [m.content for m in sent.messages], len(context.messages), context.strategy_state
    (['line 0', 'line 1', 'line 6', 'line 7', 'Which line?'], 9, {})
    >>> len(context.history)
    9
    """
    if question.role != "user":
        raise EditError(f"expected a question of role user, got role {question.role!r}")
    history = context.history.with_question(context.history_length, question)
    history.oracle_info = oracle_info
    asked = history.entries[-1]
    preview = copy(context)
    preview.history = history
    preview.entries = [*context.entries, asked]
    preview.tokens += asked.tokens
    preview.history_length += 1
    preview.events, preview.model_calls = [], []
    preview.is_fork, preview.is_persistent = True, False
    preview.drop_earlier_reasoning()
    preview.strategy_state = copy_strategy_state(context, preview)
    return preview


def copy_strategy_state(context: Context, other: Context) -> dict[Any, Any]:
    """Return a deep copy of ``strategy_state`` for a copy of a context.

    References to the context, its history, its events and its model calls are replaced by references
    to those of the other context. Messages and entries are shared, because they are immutable.

    Parameters
    ----------
    context : Context
        Context whose ``strategy_state`` is copied.
    other : Context
        Copy of the context.

    Returns
    -------
    dict
        Strategy → copy of its data.

    Raises
    ------
    StrategyError
        If a value cannot be copied.
    """
    history = context.history
    memo: dict[int, Any] = {
        id(context): other,
        id(history): other.history,
        id(context.events): other.events,
        id(context.model_calls): other.model_calls,
        id(history.counter): history.counter,
        id(history.client): history.client,
    }
    copied = {}
    for owner, note in context.strategy_state.items():
        try:
            copied[owner] = note if isinstance(note, _IMMUTABLE_TYPES) else deepcopy(note, memo)
        except Exception as error:
            raise StrategyError(
                f"the value of {owner!r} in strategy_state cannot be copied "
                f"({type(error).__name__}: {error}); define __deepcopy__ in the class of the value"
            ) from error
    return copied
