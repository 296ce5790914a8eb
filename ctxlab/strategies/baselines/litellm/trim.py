"""litellm's ``trim_messages``, faults included: what it leaves is seldom a valid request."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.context.history import (
    Entry,
    Form,
)
from ctxlab.messages.types import Message
from ctxlab.strategies.base import Base
from ctxlab.strategies.helpers.text import with_text
from ctxlab.tokens.counter import TokenCounter
from ctxlab.tokens.images import image_tokens

__all__ = ["trim_messages"]

_MESSAGE, _REQUEST = 3, 3
"""Tokens of a message and of a request beyond their texts."""

_PIECE = 1024
"""Characters that are counted at a time: a token that spans two pieces is counted twice."""

_ATTEMPTS = 10
"""How often a message is shortened before it is left out."""

_SMALL = 64
"""Room in tokens below which few older messages can fit, so that they are looked up, not tried."""


@dataclass(frozen=True, repr=False)
class trim_messages(Base):
    """The newest messages that fit, then what can be shortened in the middle to fill what is left.

    It looks at the whole conversation before each request. All system messages become one. The newest
    tool results are sent whatever their size. Where a message has no text to shorten it gives up and
    sends everything.

    Source: litellm, ``litellm.utils.trim_messages``.

    >>> from ctxlab.context.budget import Budget
    >>> from ctxlab.context.history import History
    >>> asked = "Tell me all about the sea, please, and the ships"
    >>> said = [Message("user", asked), Message("user", "Bye")]
    >>> context = Context(Budget(99), History(TokenCounter("gpt-4o"), said))
    >>> context.advance(2)
    >>> [m.content for m in trim_messages(max_tokens=19)(context).messages]
    ['Tell m.. ships', 'Bye']
    """

    max_tokens: int | None = None
    "tokens of the request; None: a share of what the budget allows"
    trim_ratio: float = 0.75
    "that share"

    def __call__(self, context: Context, /) -> Context:
        room = self.max_tokens
        if room is None:
            room = int(context.available * self.trim_ratio)
        entries = context.entries
        # Nobody else has edited: what is known of the history holds. Else it is looked at anew.
        ledger = context.notes.get(self) if context.version == 0 else None
        if ledger is None:
            ledger = _Ledger(context.history.counter)
            if context.version == 0:
                context.notes[self] = ledger
        ledger.grow(entries)
        tail = len(entries)
        while tail and entries[tail - 1].message.role == "tool":
            tail -= 1
        if ledger.before[tail] + _REQUEST < room:
            return context
        try:
            kept = ledger.fill(entries, tail, room, context.turn)
        except TypeError:
            context.report("litellm gives up: a message has no text to shorten")
            return context
        same = int(bool(kept) and kept[0] is entries[0])
        fork = context.fork_with(same, len(entries), kept[same:])
        fork.strange = True  # what is left out may stand anywhere
        return fork


class _Ledger:
    """What litellm counts for each message, and where the small ones are."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._stubborn = 10 if "gpt" in counter.model else 0  # in less room nothing is shortened
        self.before = [0]
        self.systems: list[int] = []
        self._textless: list[int] = []
        self._by_frame: dict[int, list[int]] = defaultdict(list)
        self._by_size: dict[int, list[int]] = defaultdict(list)

    def grow(self, entries: Sequence[Entry]) -> None:
        """What came since."""
        for index in range(len(self.before) - 1, len(entries)):
            message = entries[index].message
            frame = self._frame(message)
            size = frame + self._content(message)
            self.before.append(self.before[-1] + size)
            if message.role == "system":
                self.systems.append(index)
                continue
            if not isinstance(message.content, str):
                self._textless.append(index)
            if frame <= _SMALL:
                self._by_frame[frame].append(index)
            if size <= self._stubborn:
                self._by_size[size].append(index)

    def fill(self, entries: Sequence[Entry], tail: int, room: int, turn: int) -> list[Entry]:
        """What is sent; raises ``TypeError`` where litellm does."""
        first: list[Entry] = []
        if self.systems:
            system = self._system(entries, room, turn)
            room -= self._size(system.message) + _REQUEST
            if room == 0:
                return [system]
            first.append(system)
        kept: list[Entry] = []
        used, index = _REQUEST, tail
        while (left := room - used) > 3:
            index = self._next(index, left)
            if index < 0:
                break
            entry = entries[index]
            size = self.before[index + 1] - self.before[index]
            if size > left and left > self._stubborn:
                message = self._shortened(entry.message, left)
                size, old = self._size(message), entry
                tokens = self._counter.message(message)
                entry = Entry(message, tokens, Form.TRUNCATED, old.start, old.stop, turn)
            if size <= left:
                kept.append(entry)
                used += size
        return [*first, *reversed(kept), *entries[tail:]]

    def _system(self, entries: Sequence[Entry], room: int, turn: int) -> Entry:
        found = [entries[index] for index in self.systems]
        message = found[0].message
        if len(found) > 1:
            message = Message("system", "\n".join(_text(entry.message) for entry in found))
        if self._size(message) + _REQUEST > room:
            message = self._shortened(message, room)
        if message is found[0].message:
            return found[0]
        tokens = self._counter.message(message)
        return Entry(message, tokens, Form.TRUNCATED, found[0].start, found[0].stop, turn)

    def _next(self, index: int, left: int) -> int:
        """The newest message before ``index`` that might be sent, or that ends it all."""
        if left <= self._stubborn:
            return _newest(self._by_size, index, left)
        if left > _SMALL:
            index -= 1
            while index >= 0 and index in self.systems:
                index -= 1
            return index
        textless = bisect_left(self._textless, index) - 1
        stop = self._textless[textless] if textless >= 0 else -1
        return max(stop, _newest(self._by_frame, index, left))

    def _shortened(self, message: Message, room: int) -> Message:
        if room <= self._stubborn:
            return message
        for _ in range(_ATTEMPTS):
            size = self._size(message) + _REQUEST
            if size <= room:
                break
            text = _text(message)
            half = max(0, int(len(text) * (room / size)) - 1) // 2
            # Where half is 0 the second part is the whole text, as it is there.
            message = with_text(message, text[:half] + ".." + text[-half:])
        return message

    def _size(self, message: Message) -> int:
        return self._frame(message) + self._content(message)

    def _frame(self, message: Message) -> int:
        """Tokens of a message without its content; the names of tools are not counted."""
        size = _MESSAGE + self._text(message.role)
        size += sum(self._text(call.arguments) for call in message.tool_calls)
        if message.tool_call_id:
            size += self._text(message.tool_call_id)
        if message.name is not None:
            size += self._text(message.name) + 1
        return size

    def _content(self, message: Message) -> int:
        content = message.content
        if not isinstance(content, tuple):
            return self._text(content or "")
        family = self._counter.family
        return sum(
            self._text(str(part.get("text") or ""))
            if part.get("type") == "text"
            else image_tokens(part, family)
            for part in content
        )

    def _text(self, text: str) -> int:
        count = self._counter.text
        return sum(count(text[i : i + _PIECE]) for i in range(0, len(text), _PIECE))


def _newest(shelves: dict[int, list[int]], index: int, most: int) -> int:
    """The last position before ``index`` on a shelf of at most ``most``; -1 where there is none."""
    newest = -1
    for size in range(_MESSAGE, most + 1):
        if shelf := shelves.get(size):
            at = bisect_left(shelf, index) - 1
            newest = max(newest, shelf[at] if at >= 0 else -1)
    return newest


def _text(message: Message) -> str:
    if not isinstance(message.content, str):
        raise TypeError("no text")
    return message.content
