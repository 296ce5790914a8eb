"""Panic mode makes an overflowing request fit, for that request alone."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from ctxlab.context import Context
from ctxlab.conversation import Message, ToolCall
from ctxlab.history import Entry, Form, Rewrite
from ctxlab.strategies.base import Base
from ctxlab.strategies.text import with_text

__all__ = ["panic"]

_STANDS = (Form.SUMMARY, Form.POINTER)


@dataclass(frozen=True, repr=False)
class panic(Base):
    """Shortens large tool results in the middle, then drops the oldest messages that are not protected.

    Never dropped are the system prompt, the first user message, a summary, contents, and the last
    ``protect`` messages; pairs stay whole. Where these alone are too large, their tool results are
    shortened too, and what still does not fit is reported as ``stuck``. Put it last in a pipeline.

    >>> from ctxlab import build_messages
    >>> talk = [{"role": "user", "content": f"line {i}"} for i in range(100)]
    >>> sent = build_messages(None, talk, strategy=panic(), limit=60, reserve=0)
    >>> sent[0]["content"], sent[1]["content"], len(sent)
    ('line 0', 'line 93', 8)

    Source: seed design "Robustness", 10.8 (context overflow recovery).
    """

    protect: int = 4
    "newest messages that are never dropped"
    large: int = 2000
    "characters from which on a tool result counts as large"
    begin: int = 1000
    "characters kept of its beginning"
    end: int = 500
    "characters kept of its end"

    def __call__(self, context: Context, /) -> Context:
        if context.excess <= 0:
            return context
        context.report("panic")
        entries, least = context.entries, self._shortened(context)
        first = context.head
        while first < len(entries) and entries[first].form in _STANDS:
            first += 1
        last = max(first, min(context.tail, len(entries) - self.protect))
        while last > first and not context.is_cut(last):
            last -= 1
        # Where the newest alone are too large, their results are shortened as well.
        fixed = sum([entry.tokens for entry in entries[:first]])
        newest = sum([entry.tokens for entry in entries[last:]])
        stop = last if fixed + newest <= context.available else len(entries)
        room = context.available - fixed - (newest if stop == last else 0)
        # The earliest start from which what is shortened still fits.
        start = bisect_left(least.sums, least.sums[stop] - room, first, last)
        start = min(context.next_cut(start), last)
        fork = context.fork_with(first, stop, least.entries[start:stop])
        if fork.excess > 0:
            context.report("stuck")
        return fork

    def _shortened(self, context: Context) -> _Shortened:
        """The context with every large result shortened, kept up while it only grows."""
        known: _Shortened | None = context.notes.get(self)
        if known is None or known.version != context.version:
            known = context.notes[self] = _Shortened(context.version)
        known.extend(context, self.shorten)
        return known

    def shorten(self, message: Message, _: ToolCall | None) -> Message | None:
        """A large tool result with its middle left out; None where it is not large."""
        text = message.text
        if message.role != "tool" or len(text) <= self.large:
            return None
        return with_text(message, text[: self.begin] + "\n...[truncated]...\n" + text[-self.end :])


class _Shortened:
    """Entries of a context, the large ones shortened, and ``sums[i]``: tokens of the first ``i``."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.entries: list[Entry] = []
        self.sums = [0]

    def extend(self, context: Context, rewrite: Rewrite) -> None:
        """What was appended since."""
        shorter = context.history.rewrites(rewrite)
        for entry in context.entries[len(self.entries) :]:
            made, tokens = shorter.of(entry)
            if made is not None:
                entry = Entry(made, tokens, Form.TRUNCATED, entry.start, entry.stop)
            self.entries.append(entry)
            self.sums.append(self.sums[-1] + tokens)
