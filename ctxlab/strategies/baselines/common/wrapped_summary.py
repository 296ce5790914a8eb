"""Products put the same summary into words of their own, whatever its length."""

from __future__ import annotations

from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.messages.types import (
    Message,
    text_of,
)
from ctxlab.strategies.baselines.common.unchecked_summary import written

__all__ = ["SUMMARY_TOKENS", "wrapped_summary"]

SUMMARY_TOKENS = 1500
"""Of a summary at most. The products set no limit but that of their model."""

_LEAST = 40
_RESULT = 500
_NOTHING = "(nothing was said)"


def wrapped_summary(
    context: Context,
    start: int,
    stop: int,
    model: str | None = None,
    before: str = "",
    after: str = "",
    tokens: int = SUMMARY_TOKENS,
    sees: int | None = None,
    strip: bool = False,
) -> Message:
    """The summary of entries ``[start, stop)`` between the words that a product puts around it.

    A summary among the entries is extended. ``sees``: characters of them, from their end, that are
    looked at; None: all. ``strip``: white space around it goes. Without a model its lines are extracted,
    and it has half the tokens of what it stands for at most, since a compaction is to save something.
    """
    first = stop if sees is not None else start
    while sees is not None and sees > 0 and first > start:
        first -= 1
        sees -= _shown(context.entries[first].message)
    entries = context.entries[first:stop]
    summaries = [e.message.text for e in entries if e.form is Form.SUMMARY]
    previous = "\n".join(text.removeprefix(before).removesuffix(after) for text in summaries)
    messages = [e.message for e in entries if e.form is not Form.SUMMARY]
    if model is None:
        tokens = min(tokens, max(_LEAST, sum(e.tokens for e in entries) // 2))
    said = written(context, previous, messages, tokens, model) or _NOTHING
    return Message("user", before + (said.strip() if strip else said) + after)


def _shown(message: Message) -> int:
    """Characters of a message in what a model is given to summarize: results are cut short there."""
    return min(len(message.text), _RESULT) if message.role == "tool" else len(text_of(message))
