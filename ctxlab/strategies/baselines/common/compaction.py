"""Helpers for agents that compact at a share of their window, and the strategy ``fresh_start``.

Products compare the whole prompt, tool definitions included, with the whole window. Tokens are
counted by the experiment's counter, whatever estimate a product uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ctxlab.context.context import Context
from ctxlab.context.history import Entry, Form
from ctxlab.messages.types import Message
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.summaries.fold import SUMMARY_HEADER, fold_into_summary, summarize

MAX_SUMMARY_TOKENS = 4_000
"Default maximum tokens of a summary; recorded summaries have 2,000 to 4,000 tokens."


def window_tokens(context: Context) -> int:
    """Return the tokens of the context window, with the reply and the tool definitions.

    Parameters
    ----------
    context : Context
        The context.

    Returns
    -------
    int
        Number of tokens.
    """
    return context.available + context.budget.reserve + context.budget.fixed


def prompt_tokens(context: Context) -> int:
    """Return the tokens of the prompt as it would be sent now, with the tool definitions.

    Parameters
    ----------
    context : Context
        The context.

    Returns
    -------
    int
        Number of tokens.
    """
    return context.tokens + context.budget.fixed


def last_request_tokens(context: Context) -> int:
    """Return the tokens of the last request and its reply, without later messages.

    Parameters
    ----------
    context : Context
        The context.

    Returns
    -------
    int
        Number of tokens.
    """
    tokens = prompt_tokens(context)
    for entry in reversed(context.entries):
        if entry.message.role == "assistant":
            break
        tokens -= entry.tokens
    return tokens


def body_start(context: Context) -> int:
    """Return the index of the first entry after the system prompt.

    Parameters
    ----------
    context : Context
        The context.

    Returns
    -------
    int
        Index of the entry.
    """
    entries, index = context.entries, 0
    while index < len(entries) and entries[index].message.role == "system":
        index += 1
    return index


def newest_that_fit(entries: Sequence[Entry], room: float, lowest: int = 0) -> int:
    """Return the start of the newest entries that fit.

    Parameters
    ----------
    entries : sequence of Entry
        Entries of a context.
    room : float
        Tokens that they may have.
    lowest : int, default 0
        Smallest index to consider.

    Returns
    -------
    int
        Index of the first of them; the number of entries if none fits.
    """
    start = len(entries)
    while start > lowest and entries[start - 1].tokens <= room:
        start -= 1
        room -= entries[start].tokens
    return start


def drop_between(context: Context, kept: Sequence[int]) -> None:
    """Drop the entries between those that are kept.

    Parameters
    ----------
    context : Context
        The context to edit.
    kept : sequence of int
        Indices of the entries to keep, ascending. Entries before the first or after the last stay.
    """
    for before, after in reversed(list(pairwise(kept))):
        if before + 1 < after:
            context.drop(before + 1, after)


def is_user_message(entry: Entry) -> bool:
    """Return True if the user wrote a message; summaries and inserted messages do not count.

    Parameters
    ----------
    entry : Entry
        The entry of the message.

    Returns
    -------
    bool
        True if the user wrote it.
    """
    inserted = entry.start == entry.stop
    return entry.message.role == "user" and entry.form is not Form.SUMMARY and not inserted


def allowed_summary_tokens(context: Context, max_tokens: int) -> int:
    """Return the tokens that a summary may take, at most a tenth of the window.

    Parameters
    ----------
    context : Context
        The context.
    max_tokens : int
        Maximum tokens of the summary.

    Returns
    -------
    int
        Number of tokens.
    """
    return min(max_tokens, window_tokens(context) // 10)


class CompactingStrategy(BaseStrategy):
    """Base class of strategies that compact when the prompt reaches a limit."""

    summary_tokens: int = MAX_SUMMARY_TOKENS
    "tokens of the summary at most; never more than a tenth of the window"
    model: str | None = None
    "model that writes the summary; None: it is extracted and no model is called"

    def should_compact(self, context: Context, limit: float) -> bool:
        """Return True if the prompt has reached a limit and compaction is not postponed.

        Parameters
        ----------
        context : Context
            The context.
        limit : float
            Tokens at which compaction starts.

        Returns
        -------
        bool
            True if the strategy should compact now.
        """
        again: int = context.strategy_state.get((self, "again"), 0)
        return prompt_tokens(context) >= max(limit, again)

    def postpone(self, context: Context) -> None:
        """Postpone compaction until another twentieth of the window is used.

        Parameters
        ----------
        context : Context
            The context.
        """
        later = prompt_tokens(context) + window_tokens(context) // 20
        context.strategy_state[self, "again"] = later

    def compact(self, context: Context, start: int, stop: int, most: int | None = None) -> bool:
        """Replace entries ``[start, stop)`` by one summary; postpone compaction if it is rejected.

        Parameters
        ----------
        context : Context
            The context to edit.
        start, stop : int
            Range of entries to replace.
        most : int, optional
            Maximum tokens of the summary; None: ``summary_tokens``.

        Returns
        -------
        bool
            True if the entries were replaced.
        """
        if all(entry.form is Form.SUMMARY for entry in context.entries[start:stop]):
            return False  # no new messages since the last summary
        most = allowed_summary_tokens(context, self.summary_tokens if most is None else most)
        done = fold_into_summary(context, start, stop, most, self.model)
        if not done:
            self.postpone(context)
        return done

    def summarize(self, context: Context, entries: Sequence[Entry], going: int) -> Message | None:
        """Return a summary of entries, for the caller to insert.

        Parameters
        ----------
        context : Context
            The context.
        entries : sequence of Entry
            Entries to summarise.
        going : int
            Tokens of the messages that the summary replaces.

        Returns
        -------
        Message or None
            The summary as a user message; None if it would not save tokens.
        """
        summaries = [entry.message.text for entry in entries if entry.form is Form.SUMMARY]
        previous = "\n".join(text.removeprefix(SUMMARY_HEADER) for text in summaries)
        told = [e.message for e in entries if e.form is not Form.SUMMARY and e.start < e.stop]
        if not told:
            return None
        most = allowed_summary_tokens(context, self.summary_tokens)
        said = summarize(context, previous, told, most, self.model)
        message = Message("user", SUMMARY_HEADER + said)
        if context.history.counter.count_message(message) >= going:
            context.report("summary rejected: not shorter than the messages it replaces")
            self.postpone(context)
            return None
        context.report("summary")
        return message


@dataclass(frozen=True, repr=False)
class fresh_start(CompactingStrategy):
    """Replaces everything but the system prompt by one summary when the window fills up.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> roles = ("user", "assistant")
    >>> talk = [{"role": r, "content": f"{r} {i} " + "word " * 30} for i in range(12) for r in roles]
    >>> sent = build_messages("Be brief.", talk, strategy=fresh_start(), limit=900, reserve=0)
    >>> [m["content"][:14] for m in sent]
    ['Be brief.', 'Summary of the']
    """

    trigger: float = 0.8
    "share of the window at which compaction starts; a value above 1 is a number of tokens"
    summary_tokens: int = MAX_SUMMARY_TOKENS
    "tokens of the summary at most; never more than a tenth of the window"
    model: str | None = None
    "model that writes the summary; None: it is extracted and no model is called"

    def __call__(self, context: Context, /) -> Context:
        """Replace everything but the system prompt by one summary when the window fills up."""
        limit = self.trigger * window_tokens(context) if self.trigger <= 1 else self.trigger
        start, stop = body_start(context), len(context.entries)
        if start < stop and self.should_compact(context, limit):
            self.compact(context, start, stop)
        return context
