"""File sessions keep a conversation for each file that is worked on, and resume it as it was left."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ctxlab.context.branch import Branch
from ctxlab.context.context import Context
from ctxlab.messages.file_access import touches
from ctxlab.messages.types import Message
from ctxlab.strategies.base import Base

__all__ = ["ENGINE", "file_sessions"]

ENGINE = "_engine"
"""Set in ``Message.extra`` of what the engine wrote in the user's name, which is of no file."""


@dataclass(frozen=True, repr=False)
class file_sessions(Base):
    """What is sent is the session of the active file: the head, that file's units, and what was asked.

    A message's active file is the one recorded with it, else the one that its tool calls touch, else
    the one before. A call stays with its results. Where calls touch several files the session stays if
    its file is among them, else the first file that is written, or read, becomes active. Steps behind
    this one edit the session, and their edits stay there: ``file_sessions() | tool_stubs() | panic()``.

    An agent also switches in the midst of its run. The newest unit goes into the session that it opens,
    and with it the newest user message and the ``carry`` units before, so that the agent sees what it
    was asked and why it came.

    A live agent knows which file is open, and its tools read others on the way: with ``follow=False``
    only the user's messages say the file, no file being one too, and a session begins with the system
    prompt and nothing else.

    A session grows for as long as its file is worked on, and with it what a request takes: the steps
    behind this one bound both.

    Source: seed design "Hybrid Session Management".

    >>> from ctxlab.context.budget import Budget
    >>> from ctxlab.context.history import History
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> asked = [("Hello", None), ("Fix a", "a.py"), ("Fix b", "b.py"), ("And a again", "a.py")]
    >>> talk = [Message("user", text, file=file) for text, file in asked]
    >>> context = Context(Budget(1000), History(TokenCounter("gpt-4o"), talk))
    >>> for length in (3, 4):
    ...     context.advance(length)
    ...     print([message.content for message in file_sessions(carry=0)(context).messages])
    ['Hello', 'Fix b']
    ['Hello', 'Fix a', 'And a again']
    """

    carry: int = 4
    "units before a switch that go along into the session, where tool calls are followed"
    follow: bool = True
    "tool calls switch the file too; False: only what the user has open does"

    def __call__(self, context: Context, /) -> Context:
        sessions: _Sessions | None = context.notes.get(self)
        if sessions is None:
            sessions = context.notes[self] = _Sessions()
        if not self.follow:
            return sessions.open(context)
        return sessions.route(context, self.carry)


class _Sessions:
    """The sessions of a conversation, and how far it has been routed to them."""

    def __init__(self) -> None:
        self.branches: dict[str | None, Branch] = {}
        self.file: str | None = None
        "the active file"
        self.asked: list[int] = []
        "positions of the newest user message, and of those right before it on the same file"
        self.done = 0

    def route(self, context: Context, carry: int) -> Branch:
        """The session of the active file, with everything up to now in its place."""
        history = context.history
        for position in range(self.done, context.length):
            message = history[position]
            before = self.file
            if history.starts[position] == position:
                self.file = message.file or _touched(message, before) or before
            if message.role == "user":
                follows = bool(self.asked) and self.asked[-1] == position - 1
                self.asked = [*(self.asked if follows and self.file == before else ()), position]
            if position >= history.head:
                branch = self._open(context)
                _take(context, branch, [*self._along(context, position, carry), position])
        self.done = context.length
        branch = self._open(context)
        branch.resume(context)
        return branch

    def open(self, context: Context) -> Branch:
        """The session of the file that the user has open; what the user says decides, and no call."""
        history, first = context.history, _shared(context)
        for position in range(self.done, context.length):
            message = history[position]
            if message.role == "user" and position >= first:
                self.file = message.file
            if position >= first:
                branch = self._open(context, first)
                _take(context, branch, [position])
                if branch.begins is None and message.role == "user":
                    branch.begins = position + 1
        self.done = context.length
        branch = self._open(context, first)
        branch.resume(context)
        return branch

    def _open(self, context: Context, head: int | None = None) -> Branch:
        """The session of the active file; a new one begins with the head."""
        branch = self.branches.get(self.file)
        if branch is None:
            branch = self.branches[self.file] = Branch(context)
            first = context.history.head if head is None else head
            _take(context, branch, range(min(first, context.length)))
        return branch

    def _along(self, context: Context, position: int, carry: int) -> list[int]:
        """What goes into a session before the message at ``position``, unless it is there."""
        starts = context.history.starts
        start = starts[position]
        for _ in range(carry):
            start = starts[start - 1] if start else 0
        first = context.history.head
        along = {*self.asked, *range(start, position)}
        return sorted(place for place in along if first <= place < position)


def _shared(context: Context) -> int:
    """How many messages at the beginning belong to every session: what the user says first does not."""
    history = context.history
    if not history.users or history.users[0] >= history.head:
        return history.head
    first = history.users[0]
    return first + (ENGINE in history[first].extra)


def _take(context: Context, branch: Branch, positions: Iterable[int]) -> None:
    """Those that are not there yet, as they stand in the context that is routed."""
    last = branch.taken[-1] if branch.taken else -1
    for position in positions:
        if position > last:
            index = context.find(position)
            entry = None if index is None else context.entries[index]
            branch.take(position, None if entry is None or entry.wide else entry)


def _touched(message: Message, active: str | None) -> str | None:
    """The file that a message's calls are about; a folder that is listed is none."""
    if not message.tool_calls:
        return None
    found = [touch for call in message.tool_calls if (touch := touches(call)) is not None]
    files = [touch for touch in found if touch.verb != "list"]
    if not files or any(touch.path == active for touch in files):
        return active
    return next((touch.path for touch in files if touch.verb != "read"), files[0].path)
