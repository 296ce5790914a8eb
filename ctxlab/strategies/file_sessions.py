"""File sessions keep a conversation for each file that is worked on, and resume it as it was left."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ctxlab.context.branch import Branch
from ctxlab.context.context import Context
from ctxlab.messages.file_access import parse_file_access
from ctxlab.messages.types import Message
from ctxlab.strategies.base import BaseStrategy

__all__ = ["ENGINE_MESSAGE_KEY", "file_sessions"]

ENGINE_MESSAGE_KEY = "_engine"
"""Set in ``Message.extra`` of what the engine wrote in the user's name, which is of no file."""


@dataclass(frozen=True, repr=False)
class file_sessions(BaseStrategy):
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

    >>> from ctxlab.context.context import Budget
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
        sessions: _FileSessions | None = context.strategy_state.get(self)
        if sessions is None:
            sessions = context.strategy_state[self] = _FileSessions()
        if not self.follow:
            return sessions.route_by_user_file(context)
        return sessions.route(context, self.carry)


class _FileSessions:
    """The sessions of a conversation, and how far it has been routed to them."""

    def __init__(self) -> None:
        self.branches: dict[str | None, Branch] = {}
        self.active_file: str | None = None
        "the active file"
        self.user_positions: list[int] = []
        "positions of the newest user message, and of those right before it on the same file"
        self.routed_length = 0

    def route(self, context: Context, carry: int) -> Branch:
        """The session of the active file, with everything up to now in its place."""
        history = context.history
        for position in range(self.routed_length, context.history_length):
            message = history[position]
            before = self.active_file
            if history.unit_starts[position] == position:
                self.active_file = message.file or _accessed_file(message, before) or before
            if message.role == "user":
                follows = bool(self.user_positions) and self.user_positions[-1] == position - 1
                self.user_positions = [
                    *(self.user_positions if follows and self.active_file == before else ()),
                    position,
                ]
            if position >= history.head_length:
                branch = self._active_branch(context)
                _append_missing(
                    context, branch, [*self._carried_positions(context, position, carry), position]
                )
        self.routed_length = context.history_length
        branch = self._active_branch(context)
        branch.sync(context)
        return branch

    def route_by_user_file(self, context: Context) -> Branch:
        """The session of the file that the user has open; what the user says decides, and no call."""
        history, first = context.history, _shared_head(context)
        for position in range(self.routed_length, context.history_length):
            message = history[position]
            if message.role == "user" and position >= first:
                self.active_file = message.file
            if position >= first:
                branch = self._active_branch(context, first)
                _append_missing(context, branch, [position])
                if branch.head_end is None and message.role == "user":
                    branch.head_end = position + 1
        self.routed_length = context.history_length
        branch = self._active_branch(context, first)
        branch.sync(context)
        return branch

    def _active_branch(self, context: Context, head: int | None = None) -> Branch:
        """The session of the active file; a new one begins with the head."""
        branch = self.branches.get(self.active_file)
        if branch is None:
            branch = self.branches[self.active_file] = Branch(context)
            first = context.history.head_length if head is None else head
            _append_missing(context, branch, range(min(first, context.history_length)))
        return branch

    def _carried_positions(self, context: Context, position: int, carry: int) -> list[int]:
        """What goes into a session before the message at ``position``, unless it is there."""
        starts = context.history.unit_starts
        start = starts[position]
        for _ in range(carry):
            start = starts[start - 1] if start else 0
        first = context.history.head_length
        along = {*self.user_positions, *range(start, position)}
        return sorted(place for place in along if first <= place < position)


def _shared_head(context: Context) -> int:
    """How many messages at the beginning belong to every session: what the user says first does not."""
    history = context.history
    if not history.user_positions or history.user_positions[0] >= history.head_length:
        return history.head_length
    first = history.user_positions[0]
    return first + (ENGINE_MESSAGE_KEY in history[first].extra)


def _append_missing(context: Context, branch: Branch, positions: Iterable[int]) -> None:
    """Those that are not there yet, as they stand in the context that is routed."""
    last = branch.positions[-1] if branch.positions else -1
    for position in positions:
        if position > last:
            index = context.find_index(position)
            entry = None if index is None else context.entries[index]
            branch.add_from_history(
                position, None if entry is None or entry.is_aggregate else entry
            )


def _accessed_file(message: Message, active: str | None) -> str | None:
    """The file that a message's calls are about; a folder that is listed is none."""
    if not message.tool_calls:
        return None
    found = [touch for call in message.tool_calls if (touch := parse_file_access(call)) is not None]
    files = [touch for touch in found if touch.operation != "list"]
    if not files or any(touch.path == active for touch in files):
        return active
    return next((touch.path for touch in files if touch.operation != "read"), files[0].path)
