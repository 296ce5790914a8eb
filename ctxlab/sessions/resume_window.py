"""The window is the newest part of a conversation, bounded, with a summary of all that fell out of it.

It is what a session is resumed from, whatever its length. It knows no disk: a store feeds it messages
and keeps what it gives.

Source: seed design "Workspace-scoped sessions" (``recent_messages``, rolling summary, retention).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TypeAlias

from ctxlab._utils.jsonio import dump_json
from ctxlab.errors import SpecError
from ctxlab.messages.types import Message
from ctxlab.sessions.base import (
    Plan,
    Resume,
)
from ctxlab.sessions.common import clean
from ctxlab.sessions.message_units import (
    INTERRUPTED,
    Unit,
    interrupted,
)
from ctxlab.sessions.trim import (
    row_of,
    trimmed,
)
from ctxlab.strategies.helpers.text import clip
from ctxlab.strategies.summaries.extractive import extract

__all__ = ["Caps", "Window", "Write"]

Write: TypeAlias = Callable[[str, Sequence[Message], int], str]
"""The summary so far, extended by what the messages say, in so many characters."""

_LEAST = {"messages": 1, "message_chars": 64, "total_chars": 256, "summary_chars": 0}
_AT_ONCE = 64


@dataclass(frozen=True)
class Caps:
    """How much of a session a resume begins with at most.

    >>> Caps(messages=0)
    Traceback (most recent call last):
    ctxlab.errors.SpecError: Caps: messages is 0; it is at least 1
    """

    messages: int = 40
    "in the window"
    message_chars: int = 4000
    "characters of a message's text and arguments"
    total_chars: int = 60_000
    "characters of the window as JSON"
    summary_chars: int = 6000
    "characters of the summary"

    def __post_init__(self) -> None:
        for each in fields(self):
            if (given := getattr(self, each.name)) < (least := _LEAST[each.name]):
                raise SpecError(f"Caps: {each.name} is {given}; it is at least {least}")


class Window:
    """The newest messages within the caps; what falls out of them is folded into the summary.

    A call is never parted from its results, and one that has none yet counts as if it had. Results are
    cut before they are kept. A result whose call has gone, or never was, goes into the summary. Adding a
    message costs what the caps allow, whatever went before. ``summary`` and ``recent`` are those of an
    earlier window. ``write`` extends the summary; ``falls``: once a message has to go, so many go
    together, for a ``write`` that is dear.

    >>> window = Window(Caps(messages=2))
    >>> window.extend(Message("user", f"line {i}") for i in range(4))
    >>> [m.content for m in window.recent], window.summary
    (['line 2', 'line 3'], '- user: line 0\\n- user: line 1')
    """

    def __init__(
        self,
        caps: Caps | None = None,
        summary: str = "",
        recent: Iterable[Message] = (),
        *,
        write: Write = extract,
        falls: int = 1,
    ) -> None:
        self.caps = caps or Caps()
        self._write = write
        self._falls = min(falls, self.caps.messages)
        self._units: deque[_Kept] = deque()
        self._waiting: dict[str, _Kept] = {}
        self._fallen: list[Message] = []
        self._count, self._size = 0, 1
        self._summary = _within(summary, self.caps.summary_chars)
        self.extend(recent)

    def extend(self, messages: Iterable[Message]) -> None:
        """Several messages, in order."""
        for message in messages:
            self.add(message)

    def add(self, message: Message) -> None:
        """The next message of the conversation."""
        kept = trimmed(message, self.caps.message_chars)
        if kept.role == "tool":
            unit = self._waiting.get(kept.tool_call_id or "")
            if kept.content == INTERRUPTED:
                return  # nothing is known yet: the call stays open, and its result may still come
            if unit is None:
                self._fall([kept])
                return
            del self._waiting[kept.tool_call_id or ""]
            self._size -= unit.size
            unit.answer(kept)
            self._size += unit.size
        elif kept.content or kept.tool_calls:
            unit = _Kept(kept)
            self._units.append(unit)
            self._waiting.update(dict.fromkeys(unit.open, unit))
            self._count += len(unit)
            self._size += unit.size
        self._bound()

    @property
    def summary(self) -> str:
        """Of everything that stands before ``recent``."""
        if self._fallen:
            said = self._write(self._summary, tuple(self._fallen), self.caps.summary_chars)
            self._summary = clean(_within(said, self.caps.summary_chars)) or ""
            self._fallen.clear()
        return self._summary

    @property
    def recent(self) -> tuple[Message, ...]:
        """The newest messages; every call is answered and no result is orphaned."""
        return tuple(message for unit in self._units for message in unit)

    @property
    def json(self) -> str:
        """``recent`` as a JSON array in OpenAI's chat shape, within ``total_chars``."""
        return f"[{','.join(dump_json(row_of(message)) for message in self.recent)}]"

    def resume(self, plan: Plan | None = None) -> Resume:
        """What a session goes on from."""
        return Resume(self.summary, self.recent, plan)

    def _bound(self) -> None:
        caps = self.caps
        if self._count <= caps.messages and self._size <= caps.total_chars:
            return
        most = caps.messages - self._falls + 1
        room = caps.total_chars * most // caps.messages
        while len(self._units) > 1 and (self._count > most or self._size > room):
            self._drop()
        if self._units and self._size > caps.total_chars:
            self._squeeze(self._units[0])
        if self._count > caps.messages or self._size > caps.total_chars:
            self._drop()

    def _drop(self) -> None:
        """The oldest unit falls out."""
        unit = self._units.popleft()
        self._count -= len(unit)
        self._size -= unit.size
        for id in unit.open:
            if self._waiting.get(id) is unit:
                del self._waiting[id]
        self._fall(unit.said)

    def _squeeze(self, unit: _Kept) -> None:
        """A unit that is too large by itself keeps less of each of its messages."""
        limit, self._size = self.caps.message_chars // 2, self._size - unit.size
        while unit.size + self._size > self.caps.total_chars and limit >= _AT_ONCE:
            unit.shorten(limit)
            limit //= 2
        self._size += unit.size

    def _fall(self, messages: Iterable[Message]) -> None:
        for message in messages:
            # The system prompt was not said in it: a resume takes it from the transcript, and in a short
            # summary it would stand where the task does.
            if message.role != "system" or self._fallen or self._summary:
                self._fallen.append(message)
        if len(self._fallen) >= max(4 * self.caps.messages, _AT_ONCE):
            _ = self.summary  # what has fallen is bounded too


class _Kept(Unit):
    """A unit of the window with its size as JSON."""

    def __init__(self, first: Message) -> None:
        super().__init__(first)
        self.size = sum(map(_size, self))

    def answer(self, result: Message) -> None:
        call = self.open[result.tool_call_id or ""]
        super().answer(result)
        self.size += _size(result) - _size(interrupted(call))

    def shorten(self, limit: int) -> None:
        self.said = [trimmed(message, limit) for message in self.said]
        self.size = sum(map(_size, self))


def _size(message: Message) -> int:
    """Characters in a JSON array, the comma behind it included."""
    return len(dump_json(row_of(message))) + 1


def _within(summary: str, limit: int) -> str:
    """A summary that is too long loses lines of its middle, and the ends of lines that are very long."""
    if len(summary) <= limit:
        return summary
    lines = [clip(line, max(limit // 4, 1)) for line in summary.splitlines()]
    return extract("\n".join(lines), (), limit)
