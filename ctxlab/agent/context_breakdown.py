"""The next request is made of parts, and each takes its tokens of the context window."""

from __future__ import annotations

from ctxlab.agent.manager import ContextManager
from ctxlab.context.history import Form
from ctxlab.messages.types import Message
from ctxlab.strategies.file_sessions import ENGINE
from ctxlab.tokens.counter import TokenCounter

__all__ = ["PARTS", "parts_of"]

PARTS = ("system", "tools", "summary", "messages", "reserve", "free")
"""In the order in which they stand in the window; together they are the limit."""

_STANDING = (Form.SUMMARY, Form.POINTER)


def parts_of(manager: ContextManager) -> dict[str, int]:
    """Tokens of the next request by part, and the limit, which is their sum.

    ``system``: system prompts and the opening of the reply. ``tools``: the definitions. ``summary``:
    what stands for older messages, lists of contents included. ``messages``: all others, as they would
    be sent if the user spoke now, whose words are not counted. ``reserve``: kept for the reply.

    >>> manager = ContextManager("panic()", "gpt-4o", limit=1000, reserve=100)
    >>> manager.append(Message("system", "Be brief."))
    >>> manager.append(Message("user", "hello world"))
    >>> parts_of(manager)
    {'system': 10, 'tools': 0, 'summary': 0, 'messages': 6, 'reserve': 100, 'free': 884, 'limit': 1000}
    """
    history, budget = manager.history, manager.budget
    users = [message for message in history if message.role == "user"]
    question = Message("user", "?", file=users[-1].file if users else None)
    found = dict.fromkeys(PARTS, 0)
    for entry in manager.outlook(question):
        if entry.message is question:
            continue
        if entry.form in _STANDING or ENGINE in entry.message.extra:
            found["summary"] += entry.tokens
        elif entry.message.role == "system":
            found["system"] += entry.tokens
        else:
            found["messages"] += entry.tokens
    found["tools"] = budget.fixed - TokenCounter.REPLY
    found["system"] += TokenCounter.REPLY
    found["reserve"] = budget.reserve
    found["free"] = budget.limit - sum(found.values())
    return found | {"limit": budget.limit}
