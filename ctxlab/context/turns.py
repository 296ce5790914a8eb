"""Number the turns of a conversation, so that each can be named, listed in one line and fetched again.

A turn is a user's message with the reply to it. In the run of an agent each further step, a call
with its results, is a turn of its own. Turns are numbered from 1. Messages before the first turn
belong to none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from ctxlab.context.history import History
from ctxlab.messages.types import Message, ToolCall

MAX_HEADLINE_CHARS = 100
"""Maximum number of characters of a turn's headline."""

GET_TURN_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_turn",
        "description": "Gives a turn of this conversation in full, by its number in the contents.",
        "parameters": {
            "type": "object",
            "properties": {"number": {"type": "integer", "description": "counted from 1"}},
            "required": ["number"],
        },
    },
}
"""The tool with which an agent fetches a listed turn, in OpenAI's format."""

_MAIN_ARGUMENT_KEYS = (
    *("file_path", "path", "absolute_path", "notebook_path", "target_file", "file", "filename"),
    *("command", "cmd", "query", "pattern", "url"),
)
_MIN_CALL_CHARS = 30


@dataclass
class TurnCounter:
    """Numbers messages by turn, one at a time.

    Examples
    --------
    >>> turns = TurnCounter()
    >>> [turns.add(Message(role)) for role in ("system", "user", "assistant", "tool", "assistant")]
    [0, 1, 1, 1, 2]
    """

    number: int = 0
    "turn of the last message; 0 before the first turn"
    replied: bool = True
    "the assistant has spoken in this turn, so its next message begins another"

    def add(self, message: Message) -> int:
        """Return the turn that the next message belongs to.

        Parameters
        ----------
        message : Message
            The message.

        Returns
        -------
        int
            Number of the turn; 0 before the first.
        """
        role = message.role
        self.number += role == "user" or (role == "assistant" and self.replied)
        if role in ("user", "assistant"):
            self.replied = role == "assistant"
        return self.number


@dataclass
class _TurnIndex:
    """Positions at which the turns of a history begin, as far as the history was read."""

    starts: list[int] = field(default_factory=list)
    length: int = 0
    turns: TurnCounter = field(default_factory=TurnCounter)


_TURN_INDEXES: WeakKeyDictionary[History, _TurnIndex] = WeakKeyDictionary()


def turn_starts(history: History) -> Sequence[int]:
    """Return the positions at which turns begin; each message of a history is read once.

    Parameters
    ----------
    history : History
        The history.

    Returns
    -------
    sequence of int
        The positions, ascending.

    Examples
    --------
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> said = (("user", "fix it"), ("assistant", "done"), ("user", "thanks"), ("assistant", "bye"))
    >>> turn_starts(History(TokenCounter("gpt-4o"), [Message(*each) for each in said]))
    [0, 2]
    """
    known = _TURN_INDEXES.get(history)
    if known is None:
        known = _TURN_INDEXES[history] = _TurnIndex()
    for position in range(known.length, len(history)):
        if known.turns.add(history[position]) > len(known.starts):
            known.starts.append(position)
    known.length = len(history)
    return known.starts


def set_turn_offset(history: History, position: int, earlier_turns: int) -> None:
    """Set the number of earlier turns of a history that begins in the middle of a conversation.

    A conversation that is resumed from its newest part keeps its turn numbers this way. Call this
    before other functions read the turns of the history. Messages before ``position`` belong to the
    last of the earlier turns.

    Parameters
    ----------
    history : History
        The history.
    position : int
        Position of the message that begins the next turn.
    earlier_turns : int
        Number of earlier turns.

    Examples
    --------
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> said = (("user", "a summary"), ("user", "thanks"), ("assistant", "bye"))
    >>> history = History(TokenCounter("gpt-4o"), [Message(*each) for each in said])
    >>> set_turn_offset(history, 1, 40)
    >>> turn_at(history, 2), turn_span(history, 41), turn_span(history, 42)
    (41, (1, 3), (3, 3))
    """
    turns = TurnCounter(earlier_turns)
    _TURN_INDEXES[history] = _TurnIndex([0] * earlier_turns, position, turns)


def turn_at(history: History, position: int) -> int:
    """Return the turn that a message belongs to.

    Parameters
    ----------
    history : History
        The history.
    position : int
        Position of the message.

    Returns
    -------
    int
        Number of the turn; 0 before the first.
    """
    return bisect_right(turn_starts(history), position)


def turn_span(history: History, number: int) -> tuple[int, int]:
    """Return the positions ``[start, stop)`` of the messages of a turn.

    Parameters
    ----------
    history : History
        The history.
    number : int
        Number of the turn.

    Returns
    -------
    tuple of (int, int)
        Start and stop; an empty range if there is no such turn.
    """
    starts = turn_starts(history)
    if not 1 <= number <= len(starts):
        return (len(history), len(history))
    return starts[number - 1], starts[number] if number < len(starts) else len(history)


def headline(messages: Sequence[Message]) -> str:
    r"""Return one line that tells what a turn was about, without calling a model.

    The line contains the user's question and the called tools with their main arguments, or else
    what the assistant said.

    Parameters
    ----------
    messages : sequence of Message
        Messages of the turn.

    Returns
    -------
    str
        The line, of at most ``MAX_HEADLINE_CHARS`` characters.

    Examples
    --------
    >>> call = ToolCall("c1", "read", '{"limit": 20, "path": "src/io.py"}')
    >>> headline([Message("user", "Fix the bug\nin reading"), Message("assistant", tool_calls=(call,))])
    'Fix the bug · read src/io.py'
    >>> headline([Message("assistant", "All tests pass now.")])
    'All tests pass now.'
    """
    asked = [line for m in messages if m.role == "user" and (line := _first_line(m))][:1]
    said = [line for m in messages if m.role == "assistant" and (line := _first_line(m))][:1]
    calls = [call for m in messages for call in m.tool_calls]
    if calls:
        each = max(_MIN_CALL_CHARS, MAX_HEADLINE_CHARS // len(calls))
        said = [_format_call(call, each) for call in calls]
        asked = [_clip_text(line, MAX_HEADLINE_CHARS * 2 // 3) for line in asked]
    elif asked:
        said = []
    return _clip_text(" · ".join(asked + said) or "(nothing was said)", MAX_HEADLINE_CHARS)


def main_argument(call: ToolCall) -> str:
    """Return the most informative argument of a tool call: a path, command or query, else the first one.

    Parameters
    ----------
    call : ToolCall
        The tool call.

    Returns
    -------
    str
        The value as text; empty if the call has no arguments.

    Examples
    --------
    >>> main_argument(ToolCall("c1", "read", '{"limit": 20, "path": "src/io.py"}'))
    'src/io.py'
    >>> main_argument(ToolCall("c2", "wait", '{"seconds": 5}')), main_argument(ToolCall("c3", "ls"))
    ('5', '')
    """
    arguments = {path: str(leaf) for path, leaf in call.argument_leaves() if leaf is not None}
    main = (arguments[key] for key in _MAIN_ARGUMENT_KEYS if arguments.get(key))
    return next(main, next(iter(arguments.values()), ""))


def _first_line(message: Message) -> str:
    """Return the first non-empty line, shortened."""
    return " ".join(message.text.lstrip()[: 4 * MAX_HEADLINE_CHARS].partition("\n")[0].split())


def _format_call(call: ToolCall, limit: int) -> str:
    main = " ".join(main_argument(call)[: 4 * MAX_HEADLINE_CHARS].split())
    return _clip_text(f"{call.name} {main}".rstrip(), limit)


def _clip_text(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
