"""Preview the request for one extra question without changing the context.

A replay previews the probes of a recording this way. Hundreds of probes can have the same position,
and they must not affect what a strategy remembers from request to request.
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
    """Return a copy of a context in which the user asks one extra question; leave the context unchanged.

    Edits of the copy last for one request, like those of a fork. The copy has a history of its own
    that ends with the question, and a ledger of its own: the events and model calls in its
    ``events`` and ``model_calls`` belong to the question. Its ``budget_read`` tells whether the
    strategy read the budget.

    The values in ``strategy_state`` are copied deeply. Messages and entries are not, because they
    are immutable. An object that is large, or that cannot be copied by default, can define
    ``__deepcopy__``. State that a strategy keeps elsewhere, such as in a closure or a module, is
    not copied. The cost is that of copying the lists of the context and its history, and
    ``strategy_state``.

    Parameters
    ----------
    context : Context
        The context.
    question : Message
        Message of the user.
    oracle_info : OracleInfo, optional
        What an oracle may know of the question.

    Returns
    -------
    Context
        The copy.

    Raises
    ------
    EditError
        If the message is not one of the user.
    StrategyError
        If ``strategy_state`` cannot be copied.

    Examples
    --------
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
        raise EditError(f"expected a question of role user, got role {question.role}")
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
    preview.strategy_state = _copy_strategy_state(context, preview)
    return preview


def _copy_strategy_state(context: Context, preview: Context) -> dict[Any, Any]:
    """Copy ``strategy_state`` deeply; references to the context become references to the copy."""
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
                f"the value of {owner!r} in strategy_state cannot be copied, so no question can be "
                f"previewed: {type(error).__name__}: {error}; define __deepcopy__ on its type"
            ) from error
    return copied
