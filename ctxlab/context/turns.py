"""Number the turns of a conversation, so that an agent can list turns and fetch a turn by its number.

A user message begins a turn, and the assistant's reply to it belongs to the same turn. Each further
assistant message begins another turn, so the long run of an agent after one user message has many
turns. Tool results belong to the turn of their call. Turns are numbered from 1. Messages before the
first turn have the number 0.
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
"""Definition, in OpenAI's format, of the tool that returns a turn of the table of contents in full."""

_MAIN_ARGUMENT_KEYS = (
    *("file_path", "path", "absolute_path", "notebook_path", "target_file", "file", "filename"),
    *("command", "cmd", "query", "pattern", "url"),
)
_MIN_CALL_CHARS = 30


@dataclass
class TurnCounter:
    """Counter that assigns turn numbers to the messages of a conversation, one message at a time.

    Each reply of the model is a turn, together with its tool calls and their results. A user message
    belongs to the turn of the reply that follows.

    Examples
    --------
    >>> turns = TurnCounter()
    >>> [turns.add(Message(role)) for role in ("system", "user", "assistant", "tool", "assistant")]
    [0, 1, 1, 1, 2]
    """

    number: int = 0
    "turn number of the last message; 0 before the first turn"
    replied: bool = True
    "True if the next assistant message begins a new turn"

    def add(self, message: Message) -> int:
        """Return the turn number of the next message, and count the message.

        Parameters
        ----------
        message : Message
            Next message of the conversation.

        Returns
        -------
        int
            Turn number of the message; 0 before the first turn.
        """
        role = message.role
        self.number += role == "user" or (role == "assistant" and self.replied)
        if role in ("user", "assistant"):
            self.replied = role == "assistant"
        return self.number


@dataclass
class _TurnIndex:
    """Positions at which the turns of a history begin, for the first ``length`` messages."""

    starts: list[int] = field(default_factory=list)
    length: int = 0
    turns: TurnCounter = field(default_factory=TurnCounter)


_TURN_INDEXES: WeakKeyDictionary[History, _TurnIndex] = WeakKeyDictionary()


def turn_starts(history: History) -> Sequence[int]:
    """Return the positions of the first messages of all turns of a history.

    The result is cached. A later call reads only the messages that were appended since.

    Parameters
    ----------
    history : History
        History of the conversation.

    Returns
    -------
    sequence of int
        Positions in ascending order. The element with index ``i`` belongs to turn ``i + 1``.

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

    This keeps the turn numbers of a conversation that is resumed with only its newest messages. Call
    this function before any other function of this module is called with the history. Messages before
    ``position`` belong to the last of the earlier turns.

    Parameters
    ----------
    history : History
        History with the newest messages of the conversation.
    position : int
        Position in the history of the message that begins turn ``earlier_turns + 1``.
    earlier_turns : int
        Number of turns that precede this message in the conversation.

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
    """Return the number of the turn to which a message belongs.

    Parameters
    ----------
    history : History
        History of the conversation.
    position : int
        Position of the message in the history.

    Returns
    -------
    int
        Number of the turn; 0 for a message before the first turn.
    """
    return bisect_right(turn_starts(history), position)


def turn_span(history: History, number: int) -> tuple[int, int]:
    """Return the range of positions of the messages of a turn.

    Parameters
    ----------
    history : History
        History of the conversation.
    number : int
        Number of the turn, counted from 1.

    Returns
    -------
    tuple of (int, int)
        Position of the first message and position after the last message. If the history has no
        turn with this number, both are the length of the history.
    """
    starts = turn_starts(history)
    if not 1 <= number <= len(starts):
        return (len(history), len(history))
    return starts[number - 1], starts[number] if number < len(starts) else len(history)


def headline(messages: Sequence[Message]) -> str:
    r"""Return one line that describes a turn, without calling a model.

    The line contains the first line of the user message and the tool calls, each with its main
    argument. A turn without user message and without tool calls is described by the first line of
    the assistant's reply.

    Parameters
    ----------
    messages : sequence of Message
        Messages of the turn.

    Returns
    -------
    str
        One line of at most ``MAX_HEADLINE_CHARS`` characters.

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
    """Return the value of the most informative argument of a tool call.

    This is the path, the command or the query if the call has one, otherwise its first argument.

    Parameters
    ----------
    call : ToolCall
        Tool call with arguments in JSON.

    Returns
    -------
    str
        Value of the argument as a string; empty if the call has no arguments.

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
    """Return the first non-empty line of a message's text, clipped, with single spaces."""
    return " ".join(message.text.lstrip()[: 4 * MAX_HEADLINE_CHARS].partition("\n")[0].split())


def _format_call(call: ToolCall, limit: int) -> str:
    main = " ".join(main_argument(call)[: 4 * MAX_HEADLINE_CHARS].split())
    return _clip_text(f"{call.name} {main}".rstrip(), limit)


def _clip_text(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
