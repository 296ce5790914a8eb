"""Token counts of the parts of the next request."""

from __future__ import annotations

from ctxlab.agent.manager import ContextManager
from ctxlab.context.history import Form
from ctxlab.messages.types import Message
from ctxlab.strategies.file_sessions import ENGINE_MESSAGE_KEY
from ctxlab.tokens.counter import TokenCounter

CONTEXT_PARTS = ("system", "tools", "summary", "messages", "reserve", "free")
"""The parts of the context window, in display order; together they add up to the limit."""

_SUMMARY_FORMS = (Form.SUMMARY, Form.POINTER)


def compute_context_breakdown(manager: ContextManager) -> dict[str, int]:
    """Return the tokens of the next request by part.

    The counts assume that the user speaks next; that message itself is not counted.

    Parameters
    ----------
    manager : ContextManager
        Manager of the conversation.

    Returns
    -------
    dict of str to int
        ``system``: system prompts, and the tokens that open the reply. ``tools``: tool definitions.
        ``summary``: messages that stand for older ones, tables of contents included. ``messages``:
        all other messages. ``reserve``: tokens kept for the reply. ``free``: the rest; negative if
        the request does not fit. ``limit``: the model's context window, the sum of all parts.

    Examples
    --------
    >>> manager = ContextManager("panic()", "gpt-4o", limit=1000, reserve=100)
    >>> manager.append(Message("system", "Be brief."))
    >>> manager.append(Message("user", "hello world"))
    >>> compute_context_breakdown(manager)
    {'system': 10, 'tools': 0, 'summary': 0, 'messages': 6, 'reserve': 100, 'free': 884, 'limit': 1000}
    """
    history, budget = manager.history, manager.budget
    users = [message for message in history if message.role == "user"]
    question = Message("user", "?", file=users[-1].file if users else None)
    found = dict.fromkeys(CONTEXT_PARTS, 0)
    for entry in manager.preview(question):
        if entry.message is question:
            continue
        if entry.form in _SUMMARY_FORMS or ENGINE_MESSAGE_KEY in entry.message.extra:
            found["summary"] += entry.tokens
        elif entry.message.role == "system":
            found["system"] += entry.tokens
        else:
            found["messages"] += entry.tokens
    found["tools"] = budget.fixed - TokenCounter.REPLY_TOKENS
    found["system"] += TokenCounter.REPLY_TOKENS
    found["reserve"] = budget.reserve
    found["free"] = budget.limit - sum(found.values())
    return found | {"limit": budget.limit}
