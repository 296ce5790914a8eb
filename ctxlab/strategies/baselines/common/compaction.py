"""Helpers for baselines that compact once a share of the window is used, and ``fresh_start``.

Products compare the size of the whole prompt, including the tool definitions, with the size of the
whole context window. ctxlab counts tokens with its own token counter, even if the product estimates
them in another way.
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
"Default maximum tokens of a summary; the summaries in recordings have 2,000 to 4,000 tokens."


def window_tokens(context: Context) -> int:
    """Return the size of the context window, including the room for reply and tool definitions.

    Parameters
    ----------
    context : Context
        Context with the token budget.

    Returns
    -------
    int
        Size in tokens.
    """
    return context.available + context.budget.reserve + context.budget.overhead


def threshold_tokens(context: Context, trigger: float) -> float:
    """Return the size of a request at which a strategy starts.

    Parameters
    ----------
    context : Context
        Context with the token budget.
    trigger : float
        Up to 1, a share of the context window; above 1, a number of tokens.

    Returns
    -------
    float
        Number of tokens.
    """
    return trigger if trigger > 1 else trigger * window_tokens(context)


def prompt_tokens(context: Context) -> int:
    """Return the size of the next request, including the tool definitions.

    Parameters
    ----------
    context : Context
        Context with the messages of the request.

    Returns
    -------
    int
        Size in tokens.
    """
    return context.tokens + context.budget.overhead


def last_request_tokens(context: Context) -> int:
    """Return the size of the last request and its reply, without the messages after the reply.

    Parameters
    ----------
    context : Context
        Context with the messages of the request.

    Returns
    -------
    int
        Size in tokens.
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
        Context to search.

    Returns
    -------
    int
        Index of the entry; the number of entries if all of them are system messages.
    """
    entries, index = context.entries, 0
    while index < len(entries) and entries[index].message.role == "system":
        index += 1
    return index


def newest_that_fit(entries: Sequence[Entry], room: float, lowest: int = 0) -> int:
    """Return the smallest index from which all entries up to the end fit ``room``.

    Parameters
    ----------
    entries : sequence of Entry
        Entries of a context.
    room : float
        Maximum total tokens of the entries from the returned index to the end.
    lowest : int, default 0
        Smallest index to return.

    Returns
    -------
    int
        Index of the oldest entry that fits; the number of entries if not even the last one fits.
    """
    start = len(entries)
    while start > lowest and entries[start - 1].tokens <= room:
        start -= 1
        room -= entries[start].tokens
    return start


def start_of_recent(entries: Sequence[Entry], tokens: float, lowest: int, stop: int) -> int:
    """Return the largest index from which the entries before ``stop`` have at least ``tokens`` tokens.

    Parameters
    ----------
    entries : sequence of Entry
        Entries of a context.
    tokens : float
        Minimum total tokens of the entries from the returned index to ``stop``.
    lowest : int
        Smallest index to return, even if the entries from it have fewer tokens.
    stop : int
        Index after the last entry that is counted.

    Returns
    -------
    int
        Index of the oldest entry that is needed to reach the size.
    """
    index = stop
    while index > lowest and tokens > 0:
        index -= 1
        tokens -= entries[index].tokens
    return index


def drop_between(context: Context, kept: Sequence[int]) -> None:
    """Drop the entries that lie between kept entries.

    Parameters
    ----------
    context : Context
        The context to edit.
    kept : sequence of int
        Indices of the entries to keep, in ascending order. Entries before the first index or after
        the last index are kept too.
    """
    for before, after in reversed(list(pairwise(kept))):
        if before + 1 < after:
            context.drop(before + 1, after)


def is_user_message(entry: Entry) -> bool:
    """Return True if an entry is a user message of the recording, not one inserted by a strategy.

    Parameters
    ----------
    entry : Entry
        Entry of a context.

    Returns
    -------
    bool
        True for a user message; False for other roles, summaries and inserted messages.
    """
    inserted = entry.start == entry.stop
    return entry.message.role == "user" and entry.form is not Form.SUMMARY and not inserted


def allowed_summary_tokens(context: Context, max_tokens: int) -> int:
    """Limit the tokens of a summary to a tenth of the context window.

    Parameters
    ----------
    context : Context
        Context with the token budget.
    max_tokens : int
        Maximum tokens of the summary.

    Returns
    -------
    int
        The smaller one of ``max_tokens`` and a tenth of the window.
    """
    return min(max_tokens, window_tokens(context) // 10)


class CompactingStrategy(BaseStrategy):
    """Base class of strategies that compact when the request reaches a given size."""

    summary_tokens: int = MAX_SUMMARY_TOKENS
    "maximum number of tokens of the summary, limited to a tenth of the context window"
    model: str | None = None
    "name of the model that writes the summary; None: make an extractive summary without a model"

    def should_compact(self, context: Context, limit: float) -> bool:
        """Return True if the request has reached ``limit`` and compaction is not postponed.

        Parameters
        ----------
        context : Context
            Context of the next request.
        limit : float
            Number of tokens at which compaction starts.

        Returns
        -------
        bool
            True if the strategy should compact now.
        """
        again: int = context.strategy_state.get((self, "again"), 0)
        return prompt_tokens(context) >= max(limit, again)

    def postpone(self, context: Context) -> None:
        """Postpone compaction until the request has grown by a twentieth of the window.

        Parameters
        ----------
        context : Context
            Context of the next request.
        """
        later = prompt_tokens(context) + window_tokens(context) // 20
        context.strategy_state[self, "again"] = later

    def compact(self, context: Context, start: int, stop: int, most: int | None = None) -> bool:
        """Replace entries ``[start, stop)`` by one summary.

        A summary that is not shorter than the entries is rejected, and compaction is postponed.

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
            True if the entries were replaced. False if the summary was rejected, or if all entries
            are summaries.
        """
        if all(entry.form is Form.SUMMARY for entry in context.entries[start:stop]):
            return False  # no new messages since the last summary
        most = allowed_summary_tokens(context, self.summary_tokens if most is None else most)
        done = fold_into_summary(context, start, stop, most, self.model)
        if not done:
            self.postpone(context)
        return done

    def summarize(self, context: Context, entries: Sequence[Entry], going: int) -> Message | None:
        """Return a summary of entries, which the caller inserts into the context.

        Parameters
        ----------
        context : Context
            Context of the entries; its messages are not edited.
        entries : sequence of Entry
            Entries to summarise.
        going : int
            Number of tokens of the messages that the summary replaces.

        Returns
        -------
        Message or None
            Summary as a user message; None if it would not save tokens or if all entries are
            summaries or inserted messages.
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
    """Replaces everything except the system prompt by one summary when the window is nearly full.

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
    "share of the context window at which compaction starts; a value above 1 is a number of tokens"
    summary_tokens: int = MAX_SUMMARY_TOKENS
    "maximum number of tokens of the summary, limited to a tenth of the context window"
    model: str | None = None
    "name of the model that writes the summary; None: make an extractive summary without a model"

    def __call__(self, context: Context, /) -> Context:
        """Replace everything except the system prompt by one summary when the window is nearly full."""
        start, stop = body_start(context), len(context.entries)
        if start < stop and self.should_compact(context, self._find_limit(context)):
            self.compact(context, start, stop)
        return context

    def _find_limit(self, context: Context) -> float:
        """Return the number of tokens at which compaction starts."""
        return threshold_tokens(context, self.trigger)
