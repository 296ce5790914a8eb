"""Strategy that makes an overflowing request fit, for that request only."""

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
    """Shortens large tool results in the middle, then drops the oldest unprotected messages.

    Protected are the system prompt, the first user message, summaries, contents, and the last
    ``protect`` messages. Calls stay with their results. If the protected messages alone are too
    large, their tool results are shortened too. If the request still does not fit, ``stuck`` is
    reported. Put this strategy last in a pipeline.

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
    "a tool result with more characters than this is shortened"
    begin: int = 1000
    "characters to keep from the beginning of a large result"
    end: int = 500
    "characters to keep from the end of a large result"

    def __call__(self, context: Context, /) -> Context:
        """Return a fork that fits, if the request does not."""
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
        # Start at the newest, so that only messages that are sent are counted.
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
        """Return a function that shortens an entry; results are cached, so that requests share them."""
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
        """Return a large tool result without its middle.

        Parameters
        ----------
        message : Message
            A message.
        _ : ToolCall or None
            The call of the result; not used.

        Returns
        -------
        Message or None
            The shortened message; None if it is not a large tool result.
        """
        text = message.text
        if message.role != "tool" or len(text) <= self.large:
            return None
        return with_text(message, text[: self.begin] + "\n...[truncated]...\n" + text[-self.end :])


def _total_tokens(entries: Sequence[Entry]) -> int:
    return sum([entry.tokens for entry in entries])
