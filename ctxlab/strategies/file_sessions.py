"""Strategy that sorts the messages by file and sends only those about the active file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ctxlab.context.branch import Branch
from ctxlab.context.context import Context
from ctxlab.messages.file_access import normalize_path, parse_file_access
from ctxlab.messages.types import Message
from ctxlab.strategies.base import BaseStrategy

ENGINE_MESSAGE_KEY = "_engine"
"""Key in ``Message.extra`` of user messages that were written by the agent engine, not by the user.
They do not belong to any file."""


@dataclass(frozen=True, repr=False)
class file_sessions(BaseStrategy):
    """Sends the beginning of the conversation and the messages about the active file, but no others.

    The beginning is the system prompt and the first user message. The session of a file
    consists of the beginning and the messages about the file.

    A step is a tool call with its results, or a single message. The active file of a step is the
    file recorded with its first message. If none is recorded, it is the file that the tool calls
    access; if they access none, the active file does not change. If calls access several files, the
    active file does not change when it is one of them. Otherwise the first file written becomes
    active, or the first file read if none is written.

    In a pipeline such as ``file_sessions() | tool_stubs() | panic()``, the later strategies edit the
    session, and their edits persist. Use them to limit the size of a session, which grows as long as
    its file is active.

    An agent may switch to another file while it works on a task. The step that causes the switch
    goes into the new session, together with the newest user message and the ``carry`` steps before
    it, so that the session contains the task and the reason for the switch.

    With ``follow=False``, only user messages set the active file, as in an editor where the user
    has one file open while tools read others. All user messages without a file, and the replies
    to them, share one session. With this setting, the beginning of a session is the system prompt,
    and the first user message only if ctxlab's agent wrote it.

    Source: design note "Hybrid Session Management".

    Examples
    --------
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
    "number of steps before a switch that are copied into the new session, if ``follow`` is True"
    follow: bool = True
    "True: tool calls and user messages set the active file; False: only user messages set it"

    def __call__(self, context: Context, /) -> Context:
        """Return a context that contains only the session of the active file."""
        sessions: _FileSessions | None = context.strategy_state.get(self)
        if sessions is None:
            sessions = context.strategy_state[self] = _FileSessions()
        return sessions.route(context, self.carry, self.follow)


def _file_of(message: Message) -> str | None:
    return normalize_path(message.file) if message.file else None


class _FileSessions:
    """Messages of one conversation, sorted by the file they are about.

    ``branches`` contains one branch for each file: the session of this file. ``routed_length`` is the
    number of messages of the conversation that have been sorted so far.
    """

    def __init__(self) -> None:
        self.branches: dict[str | None, Branch] = {}
        self.active_file: str | None = None
        self.user_positions: list[int] = []
        """positions of the newest user message and of the user messages directly before it, if
        they have the same active file, each with the results of its tool calls"""
        self.routed_length = 0

    def route(self, context: Context, carry: int, follow: bool) -> Branch:
        """Add each new message to the branch of its file, and return the branch of the active file."""
        head = context.history.head_length if follow else _shared_head(context)
        for position in range(self.routed_length, context.history_length):
            if follow:
                self._route_by_access(context, position, head, carry)
            elif position >= head:
                self._route_by_user_file(context, position, head)
        self.routed_length = context.history_length
        branch = self._active_branch(context, head)
        branch.sync(context)
        return branch

    def _route_by_access(self, context: Context, position: int, head: int, carry: int) -> None:
        """Add a message to the session of the file recorded with it or accessed by its tool calls."""
        message, before = context.history[position], self.active_file
        if context.history.unit_starts[position] == position:
            own = _file_of(message)
            self.active_file = own or _accessed_file(message, before) or before
        if message.role == "user":
            follows = self.user_positions[-1:] == [position - 1] and self.active_file == before
            self.user_positions = [*self.user_positions, position] if follows else [position]
        elif context.history.unit_starts[position] in self.user_positions:
            self.user_positions = [*self.user_positions, position]
        if position >= head:
            carried = self._carried_positions(context, position, carry)
            _append_missing(context, self._active_branch(context, head), [*carried, position])

    def _route_by_user_file(self, context: Context, position: int, head: int) -> None:
        """Add a message to the session of the file recorded with the newest user message."""
        message = context.history[position]
        # A resumed session may begin in a turn whose user message is no longer there.
        if message.role == "user" or self.active_file is None:
            self.active_file = _file_of(message)
        branch = self._active_branch(context, head)
        _append_missing(context, branch, [position])
        if branch.head_end is None:
            branch.head_end = position + (message.role == "user")

    def _active_branch(self, context: Context, head: int) -> Branch:
        """Return the branch of the active file. A new branch gets the first ``head`` messages."""
        branch = self.branches.get(self.active_file)
        if branch is None:
            branch = self.branches[self.active_file] = Branch(context)
            _append_missing(context, branch, range(min(head, context.history_length)))
        return branch

    def _carried_positions(self, context: Context, position: int, carry: int) -> list[int]:
        """Return the positions of earlier messages to add to a session before a new message.

        The new message is at ``position``. The result contains the newest user messages, the
        ``carry`` steps before the step of the new message, and the earlier messages of this step.
        """
        starts = context.history.unit_starts
        start = starts[position]
        for _ in range(carry):
            start = starts[start - 1] if start else 0
        first = context.history.head_length
        along = {*self.user_positions, *range(start, position)}
        return sorted(place for place in along if first <= place < position)


def _shared_head(context: Context) -> int:
    """Return the number of leading messages that all sessions share if ``follow`` is False.

    These are the system messages, and the first user message if ctxlab wrote it, not the user.
    """
    history = context.history
    if not history.user_positions or history.user_positions[0] >= history.head_length:
        return history.head_length
    first = history.user_positions[0]
    return first + (ENGINE_MESSAGE_KEY in history[first].extra)


def _append_missing(context: Context, branch: Branch, positions: Iterable[int]) -> None:
    """Append messages of a context to a branch, in the form that they have in the context.

    The form is, for example, verbatim or a stub. A message that the context no longer contains is
    appended verbatim. Positions up to the last one of the branch are skipped.
    """
    last = branch.positions[-1] if branch.positions else -1
    for position in positions:
        if position > last:
            index = context.find_index(position)
            entry = None if index is None else context.entries[index]
            verbatim = entry is None or entry.is_aggregate
            branch.add_from_history(position, None if verbatim else entry)


def _accessed_file(message: Message, active: str | None) -> str | None:
    """Return the file that is active after a message's tool calls; None if there are no calls.

    Return ``active`` if the calls access that file or no file. Otherwise return the first file
    written, or the first file read if none is written. Calls that only list a folder are ignored.
    """
    if not message.tool_calls:
        return None
    found = filter(None, map(parse_file_access, message.tool_calls))
    files = [touch for touch in found if touch.operation != "list"]
    if not files or any(touch.path == active for touch in files):
        return active
    return next((touch.path for touch in files if touch.operation != "read"), files[0].path)
