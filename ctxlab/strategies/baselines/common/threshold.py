"""What agents that compact at a share of their window have in common: how full it is, and one summary.

Products compare the whole prompt, tool definitions included, with the whole window. Tokens are
counted as the experiment counts them, whatever a product estimates with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.context.history import (
    Entry,
    Form,
)
from ctxlab.messages.types import Message
from ctxlab.strategies.base import Base
from ctxlab.strategies.summaries.fold import (
    HEADER,
    fold_summary,
    summarize,
)

__all__ = [
    "SUMMARY_TOKENS",
    "allowance",
    "billed",
    "body",
    "compact",
    "fresh_start",
    "is_said_by_user",
    "ready",
    "rejected",
    "summary_of",
    "used",
    "window",
]

SUMMARY_TOKENS = 4_000
"""Of a summary at most, where the product sets no bound: recorded ones have 2,000 to 4,000 tokens."""


def window(context: Context) -> int:
    """Tokens of the context window, reply and tool definitions included."""
    return context.available + context.budget.reserve + context.budget.fixed


def used(context: Context) -> int:
    """Tokens of the prompt as it would be sent now."""
    return context.tokens + context.budget.fixed


def billed(context: Context) -> int:
    """Tokens of the last request and its answer: what has come since is not counted yet."""
    tokens = used(context)
    for entry in reversed(context.entries):
        if entry.message.role == "assistant":
            break
        tokens -= entry.tokens
    return tokens


def body(context: Context) -> int:
    """Index of the first entry after the system prompt."""
    entries, index = context.entries, 0
    while index < len(entries) and entries[index].message.role == "system":
        index += 1
    return index


def is_said_by_user(entry: Entry) -> bool:
    """Whether it is a message that the user wrote: neither a summary nor put there by a strategy."""
    inserted = entry.start == entry.stop
    return entry.message.role == "user" and entry.form is not Form.SUMMARY and not inserted


def ready(context: Context, owner: Base, limit: float) -> bool:
    """Whether the prompt has reached a limit, and has grown since a summary of it was rejected."""
    again: int = context.notes.get((owner, "again"), 0)
    return used(context) >= max(limit, again)


def rejected(context: Context, owner: Base) -> None:
    """Nothing is tried again before another twentieth of the window is used."""
    context.notes[owner, "again"] = used(context) + window(context) // 20


def allowance(context: Context, tokens: int) -> int:
    """Tokens that a summary may have: a tenth of the window at most."""
    return min(tokens, window(context) // 10)


def compact(
    context: Context,
    owner: Base,
    start: int,
    stop: int,
    tokens: int = SUMMARY_TOKENS,
    model: str | None = None,
) -> bool:
    """Entries ``[start, stop)`` become one summary; whether they did."""
    if all(entry.form is Form.SUMMARY for entry in context.entries[start:stop]):
        return False  # nothing has come since the last one
    done = fold_summary(context, start, stop, allowance(context, tokens), model)
    if not done:
        rejected(context, owner)
    return done


def summary_of(
    context: Context,
    owner: Base,
    entries: Sequence[Entry],
    going: int,
    tokens: int = SUMMARY_TOKENS,
    model: str | None = None,
) -> Message | None:
    """A summary of entries that need not stand where it will; None if ``going`` tokens are no more."""
    summaries = [entry.message.text for entry in entries if entry.form is Form.SUMMARY]
    previous = "\n".join(text.removeprefix(HEADER) for text in summaries)
    told = [e.message for e in entries if e.form is not Form.SUMMARY and e.start < e.stop]
    if not told:
        return None
    said = summarize(context, previous, told, allowance(context, tokens), model)
    message = Message("user", HEADER + said)
    if context.history.counter.message(message) >= going:
        context.report("summary rejected: longer than what it stands for")
        rejected(context, owner)
        return None
    context.report("summary")
    return message


@dataclass(frozen=True, repr=False)
class fresh_start(Base):
    """Once the window is used up to a limit, one summary stands for everything but the system prompt.

    >>> from ctxlab import build_messages
    >>> roles = ("user", "assistant")
    >>> talk = [{"role": r, "content": f"{r} {i} " + "word " * 30} for i in range(12) for r in roles]
    >>> sent = build_messages("Be brief.", talk, strategy=fresh_start(), limit=900, reserve=0)
    >>> [m["content"][:14] for m in sent]
    ['Be brief.', 'Summary of the']
    """

    trigger: float = 0.8
    "share of the window at which it compacts; above 1 it is a number of tokens"
    summary_tokens: int = SUMMARY_TOKENS
    "of the summary at most, and at most a tenth of the window"
    model: str | None = None
    "model that writes the summary; None: its lines are extracted and no model is called"

    def __call__(self, context: Context, /) -> Context:
        limit = self.trigger * window(context) if self.trigger <= 1 else self.trigger
        if ready(context, self, limit):
            start, stop = body(context), len(context.entries)
            if start < stop:
                compact(context, self, start, stop, self.summary_tokens, self.model)
        return context
