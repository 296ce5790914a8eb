"""Strategy that shortens a request that exceeds its budget, without changing later requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.context.history import Entry, Form
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.base import BaseStrategy, summaries_end
from ctxlab.strategies.helpers.text import with_text


@dataclass(frozen=True, repr=False)
class panic(BaseStrategy):
    """Shortens large tool results, then drops the oldest messages, if a request exceeds its budget.

    The middle of a large tool result is cut out. The system prompt, the first user message, the
    summaries and tables of contents that follow it, and the last ``protect`` messages are never
    dropped. A tool call and its results are dropped together. If the protected messages alone are
    too large, their tool results are shortened too. If the request still does not fit, the event
    ``stuck`` is reported. The changes apply to this request only. Put this strategy last in a
    pipeline.

    Source: design note "Robustness", 10.8 (context overflow recovery).

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> talk = [{"role": "user", "content": f"line {i}"} for i in range(100)]
    >>> sent = build_messages(None, talk, strategy=panic(), limit=60, reserve=0)
    >>> sent[0]["content"], sent[1]["content"], len(sent)
    ('line 0', 'line 93', 8)
    """

    protect: int = 4
    "number of newest messages that are never dropped"
    large: int = 2000
    "number of characters above which a tool result is shortened"
    begin: int = 1000
    "number of characters to keep from the beginning of a shortened result"
    end: int = 500
    "number of characters to keep from the end of a shortened result"

    def __call__(self, context: Context, /) -> Context:
        """Return a shortened copy of the context if the request exceeds its budget."""
        if context.excess <= 0:
            return context
        context.report("panic")
        entries, first = context.entries, summaries_end(context)
        last = max(first, min(context.last_unit_start, len(entries) - self.protect))
        while last > first and not context.is_safe_cut(last):
            last -= 1
        # If the protected messages alone are too large, shorten their results as well.
        fixed, newest = _total_tokens(entries[:first]), _total_tokens(entries[last:])
        stop = last if fixed + newest <= context.available else len(entries)
        shortest = self._make_shortener(context)
        kept = [shortest(entry) for entry in entries[last:stop]]
        room = context.available - fixed - (newest if stop == last else _total_tokens(kept))
        # Start with the newest message, so that tokens are counted only for messages that are sent.
        older: list[Entry] = []
        for index in range(last - 1, first - 1, -1):
            entry = shortest(entries[index])
            room -= entry.tokens
            if room < 0:
                break
            older.append(entry)
        start = last - len(older)
        parted = min(context.next_safe_cut(start), last) - start
        fork = context.fork_with(first, stop, [*reversed(older[: len(older) - parted]), *kept])
        if fork.excess > 0:
            context.report("stuck")
        return fork

    def _make_shortener(self, context: Context) -> Callable[[Entry], Entry]:
        """Return a function that shortens an entry. Its results are cached across requests."""
        known: dict[int, tuple[Entry, Entry]] = context.strategy_state.setdefault(self, {})
        shorter = context.history.get_rewrite_cache(self.shorten)

        def shortest(entry: Entry) -> Entry:
            found = known.get(id(entry))
            if found is None:
                made, tokens = shorter.apply(entry)
                if made is None:
                    return entry
                short = Entry(made, tokens, Form.TRUNCATED, entry.start, entry.stop)
                # Keep a reference to the entry, so that its id is not reused.
                found = known[id(entry)] = entry, short
            return found[1]

        return shortest

    def shorten(self, message: Message, _: ToolCall | None) -> Message | None:
        """Cut the middle out of a large tool result.

        Parameters
        ----------
        message : Message
            Message to shorten.
        _ : ToolCall or None
            Tool call that produced the result; not used.

        Returns
        -------
        Message or None
            The shortened message; None if the message is not a tool result, or is not large.
        """
        text = message.text
        if message.role != "tool" or len(text) <= self.large:
            return None
        return with_text(message, text[: self.begin] + "\n...[truncated]...\n" + text[-self.end :])


def _total_tokens(entries: Sequence[Entry]) -> int:
    return sum([entry.tokens for entry in entries])
