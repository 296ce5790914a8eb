"""Most products judge no summary: what the model wrote is what stands there from now on."""

from __future__ import annotations

from collections.abc import Sequence

from ctxlab.context.context import Context
from ctxlab.errors import ModelUnavailable
from ctxlab.llm.base import Request
from ctxlab.messages.types import Message
from ctxlab.strategies.summaries.fold import summarize
from ctxlab.strategies.summaries.llm import find_prompt
from ctxlab.strategies.summaries.transcript import transcript

__all__ = ["written"]


def written(
    context: Context, previous: str, messages: Sequence[Message], tokens: int, model: str | None
) -> str:
    """What a model writes when it is asked once, taken as it is: longer than the text, cut, or odd.

    Where it does not answer, or says nothing, the lines are extracted in at most ``tokens`` tokens and
    that is reported, since a request without any summary would say nothing of the product. A model is
    told ``tokens`` in words and is not held to it.

    >>> from ctxlab.context.budget import Budget
    >>> from ctxlab.context.history import History
    >>> from ctxlab.llm import ScriptedClient
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> context = Context(Budget(99), History(TokenCounter("gpt-4o")))
    >>> context.history.client = ScriptedClient("A greeting, it was.", ModelUnavailable("busy"))
    >>> for _ in range(2):
    ...     written(context, "", [Message("user", "Hello")], 50, "gpt-4o")
    'A greeting, it was.'
    '- user: Hello'
    >>> context.events
    [(0, 'summary fallback: busy')]
    """
    if model is not None:
        rules = find_prompt("summary").replace("{words}", str(tokens * 3 // 4))
        told = "\n".join(
            [f"The summary so far: {previous}"] * bool(previous) + transcript(messages)
        )
        asked = Message("system", rules), Message("user", told)
        try:
            reply = context.ask(Request(model, asked))
        except ModelUnavailable as error:
            context.report(f"summary fallback: {error}")
        else:
            if reply.text.strip():
                return reply.text
            context.report("summary fallback: the model said nothing")
    return summarize(context, previous, messages, tokens)
