"""Summaries as products write them: wrapped in their own words, or taken unchecked."""

from __future__ import annotations

from collections.abc import Sequence

from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.errors import ModelUnavailable
from ctxlab.llm.base import Request
from ctxlab.messages.types import Message, message_text
from ctxlab.strategies.summaries.fold import summarize
from ctxlab.strategies.summaries.llm import load_prompt
from ctxlab.strategies.summaries.transcript import format_transcript

__all__ = ["MAX_WRAPPED_SUMMARY_TOKENS", "make_wrapped_summary", "write_unchecked_summary"]

MAX_WRAPPED_SUMMARY_TOKENS = 1500
"""Of a summary at most. The products set no limit but that of their model."""
_MIN_SUMMARY_TOKENS = 40
_MAX_RESULT_CHARS = 500
_EMPTY_SUMMARY = "(nothing was said)"


def make_wrapped_summary(
    context: Context,
    start: int,
    stop: int,
    model: str | None = None,
    prefix: str = "",
    suffix: str = "",
    max_tokens: int = MAX_WRAPPED_SUMMARY_TOKENS,
    input_chars: int | None = None,
    strip: bool = False,
) -> Message:
    """The summary of entries ``[start, stop)`` between the words that a product puts around it.

    A summary among the entries is extended. ``input_chars``: characters of them, from their end,
    that are looked at; None: all. ``strip``: white space around it goes. Without a model its lines
    are extracted, and it has half the tokens of what it stands for at most, since a compaction is
    to save something.
    """
    first = stop if input_chars is not None else start
    while input_chars is not None and input_chars > 0 and first > start:
        first -= 1
        input_chars -= _visible_chars(context.entries[first].message)
    entries = context.entries[first:stop]
    summaries = [e.message.text for e in entries if e.form is Form.SUMMARY]
    previous = "\n".join(text.removeprefix(prefix).removesuffix(suffix) for text in summaries)
    messages = [e.message for e in entries if e.form is not Form.SUMMARY]
    if model is None:
        max_tokens = min(max_tokens, max(_MIN_SUMMARY_TOKENS, sum(e.tokens for e in entries) // 2))
    said = write_unchecked_summary(context, previous, messages, max_tokens, model) or _EMPTY_SUMMARY
    return Message("user", prefix + (said.strip() if strip else said) + suffix)


def _visible_chars(message: Message) -> int:
    """Characters of a message in what a model is given to summarize: results are cut short there."""
    return (
        min(len(message.text), _MAX_RESULT_CHARS)
        if message.role == "tool"
        else len(message_text(message))
    )


def write_unchecked_summary(
    context: Context, previous: str, messages: Sequence[Message], max_tokens: int, model: str | None
) -> str:
    """What a model writes when it is asked once, taken as it is: longer than the text, cut, or odd.

    Where it does not answer, or says nothing, the lines are extracted in at most ``max_tokens`` tokens
    and that is reported, since a request without any summary would say nothing of the product. A model
    is told ``max_tokens`` in words and is not held to it.

    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.context.history import History
    >>> from ctxlab.llm import ScriptedClient
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> context = Context(Budget(99), History(TokenCounter("gpt-4o")))
    >>> context.history.client = ScriptedClient("A greeting, it was.", ModelUnavailable("busy"))
    >>> for _ in range(2):
    ...     write_unchecked_summary(context, "", [Message("user", "Hello")], 50, "gpt-4o")
    'A greeting, it was.'
    '- user: Hello'
    >>> context.events
    [(0, 'summary fallback: busy')]
    """
    if model is not None:
        rules = load_prompt("summary").replace("{words}", str(max_tokens * 3 // 4))
        told = "\n".join(
            [f"The summary so far: {previous}"] * bool(previous) + format_transcript(messages)
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
    return summarize(context, previous, messages, max_tokens)
