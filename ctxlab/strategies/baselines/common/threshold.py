"""What agents that compact at a share of their window have in common: how full it is, and one summary.

Products compare the whole prompt, tool definitions included, with the whole window. Tokens are
counted as the experiment counts them, whatever a product estimates with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.context.history import Entry, Form
from ctxlab.messages.types import Message
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.summaries.fold import SUMMARY_HEADER, fold_into_summary, summarize

__all__ = [
    "MAX_SUMMARY_TOKENS",
    "allowed_summary_tokens",
    "body_start",
    "compact_entries",
    "fresh_start",
    "is_user_message",
    "last_request_tokens",
    "make_summary_message",
    "postpone_compaction",
    "prompt_tokens",
    "should_compact",
    "window_tokens",
]

MAX_SUMMARY_TOKENS = 4_000
"""Of a summary at most, where the product sets no bound: recorded ones have 2,000 to 4,000 tokens."""


def window_tokens(context: Context) -> int:
    """Tokens of the context window, reply and tool definitions included."""
    return context.available + context.budget.reserve + context.budget.fixed


def prompt_tokens(context: Context) -> int:
    """Tokens of the prompt as it would be sent now."""
    return context.tokens + context.budget.fixed


def last_request_tokens(context: Context) -> int:
    """Tokens of the last request and its answer: what has come since is not counted yet."""
    tokens = prompt_tokens(context)
    for entry in reversed(context.entries):
        if entry.message.role == "assistant":
            break
        tokens -= entry.tokens
    return tokens


def body_start(context: Context) -> int:
    """Index of the first entry after the system prompt."""
    entries, index = context.entries, 0
    while index < len(entries) and entries[index].message.role == "system":
        index += 1
    return index


def is_user_message(entry: Entry) -> bool:
    """Whether it is a message that the user wrote: neither a summary nor put there by a strategy."""
    inserted = entry.start == entry.stop
    return entry.message.role == "user" and entry.form is not Form.SUMMARY and not inserted


def should_compact(context: Context, strategy: BaseStrategy, limit: float) -> bool:
    """Whether the prompt has reached a limit, and has grown since a summary of it was rejected."""
    again: int = context.strategy_state.get((strategy, "again"), 0)
    return prompt_tokens(context) >= max(limit, again)


def postpone_compaction(context: Context, strategy: BaseStrategy) -> None:
    """Nothing is tried again before another twentieth of the window is used."""
    context.strategy_state[strategy, "again"] = (
        prompt_tokens(context) + window_tokens(context) // 20
    )


def allowed_summary_tokens(context: Context, max_tokens: int) -> int:
    """Tokens that a summary may have: a tenth of the window at most."""
    return min(max_tokens, window_tokens(context) // 10)


def compact_entries(
    context: Context,
    strategy: BaseStrategy,
    start: int,
    stop: int,
    max_tokens: int = MAX_SUMMARY_TOKENS,
    model: str | None = None,
) -> bool:
    """Entries ``[start, stop)`` become one summary; whether they did."""
    if all(entry.form is Form.SUMMARY for entry in context.entries[start:stop]):
        return False  # nothing has come since the last one
    done = fold_into_summary(
        context, start, stop, allowed_summary_tokens(context, max_tokens), model
    )
    if not done:
        postpone_compaction(context, strategy)
    return done


def make_summary_message(
    context: Context,
    strategy: BaseStrategy,
    entries: Sequence[Entry],
    replaced_tokens: int,
    max_tokens: int = MAX_SUMMARY_TOKENS,
    model: str | None = None,
) -> Message | None:
    """A summary of entries, which may be put elsewhere; None where it would not save tokens.

    ``replaced_tokens``: tokens of what goes for it.
    """
    summaries = [entry.message.text for entry in entries if entry.form is Form.SUMMARY]
    previous = "\n".join(text.removeprefix(SUMMARY_HEADER) for text in summaries)
    told = [e.message for e in entries if e.form is not Form.SUMMARY and e.start < e.stop]
    if not told:
        return None
    said = summarize(context, previous, told, allowed_summary_tokens(context, max_tokens), model)
    message = Message("user", SUMMARY_HEADER + said)
    if context.history.counter.count_message(message) >= replaced_tokens:
        context.report("summary rejected: longer than what it stands for")
        postpone_compaction(context, strategy)
        return None
    context.report("summary")
    return message


@dataclass(frozen=True, repr=False)
class fresh_start(BaseStrategy):
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
    summary_tokens: int = MAX_SUMMARY_TOKENS
    "of the summary at most, and at most a tenth of the window"
    model: str | None = None
    "model that writes the summary; None: its lines are extracted and no model is called"

    def __call__(self, context: Context, /) -> Context:
        limit = self.trigger * window_tokens(context) if self.trigger <= 1 else self.trigger
        if should_compact(context, self, limit):
            start, stop = body_start(context), len(context.entries)
            if start < stop:
                compact_entries(context, self, start, stop, self.summary_tokens, self.model)
        return context
