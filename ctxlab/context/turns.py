"""Number the turns and steps of a conversation, so that each of its messages can be found again.

A user message begins an *interaction*, which contains everything that answers the message, up to the
next user message. The *turn* is the number of the interaction, from 1. A *step* is a reply of the model
with its tool calls and their results. Steps are numbered within their turn: ``3.2`` is the second step
of turn 3. A user message belongs to the first step of its turn, and so does the first reply to it.

If an assistant message comes before the first user message, it begins turn 1, which then has no user
message. Messages before turn 1, such as the system prompt, belong to turn 0. A later system message
belongs to the step of the message before it.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from ctxlab.context.history import History
from ctxlab.errors import SpecError
from ctxlab.messages.types import Message, ToolCall

MAX_HEADLINE_CHARS = 100
"""Maximum number of characters of the line that describes a turn or a step."""

GET_TURN_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_turn",
        "description": "Gives a turn or a step of this conversation in full.",
        "parameters": {
            "type": "object",
            "properties": {"turn": {"type": "string", "description": "such as 3 or 3.2"}},
            "required": ["turn"],
        },
    },
}
"""Definition, in OpenAI's format, of the tool that returns a turn or a step in full."""

_LABEL_PATTERN = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,18}))?")
_MAX_ECHO_CHARS = 40
_MAIN_ARGUMENT_KEYS = (
    *("file_path", "path", "absolute_path", "notebook_path", "target_file", "file", "filename"),
    *("command", "cmd", "query", "pattern", "url"),
)
_MIN_CALL_CHARS = 30


class TurnLabel(NamedTuple):
    """Label of a turn, such as ``3``, or of a step, such as ``3.2``.

    Labels are ordered as in the conversation. A turn comes before its steps.

    Examples
    --------
    >>> str(TurnLabel(3)), str(TurnLabel(3, 2))
    ('3', '3.2')
    >>> TurnLabel.parse("3.2") < TurnLabel.parse("3.10")
    True
    """

    turn: int
    "number of the turn, from 1; 0 for messages before the first turn"
    step: int = 0
    "number of the step in its turn, from 1; 0 for the whole turn"

    def __str__(self) -> str:
        """Return the label as text, such as ``3`` or ``3.2``."""
        return f"{self.turn}.{self.step}" if self.step else str(self.turn)

    @classmethod
    def parse(cls, written: int | str) -> TurnLabel:
        """Convert a number or a text to a label.

        Parameters
        ----------
        written : int or str
            Label, such as ``3``, ``"3"`` or ``"3.2"``. A float is refused, because the steps
            ``3.1`` and ``3.10`` would be the same number.

        Returns
        -------
        TurnLabel
            The label of a turn or of a step.

        Raises
        ------
        SpecError
            If ``written`` is not a label.

        Examples
        --------
        >>> TurnLabel.parse(3), TurnLabel.parse("3.2")
        (TurnLabel(turn=3, step=0), TurnLabel(turn=3, step=2))
        >>> TurnLabel.parse("three")
        Traceback (most recent call last):
        ctxlab.errors.SpecError: Expected a turn such as 3 or a step such as 3.2, got 'three'
        """
        whole = isinstance(written, (int, str)) and not isinstance(written, bool)
        found = _LABEL_PATTERN.fullmatch(str(written).strip()) if whole else None
        numbers = [int(number) for number in found.groups() if number is not None] if found else [0]
        if min(numbers) < 1:
            shown = repr(written)
            shown = shown if len(shown) <= _MAX_ECHO_CHARS else f"{shown[:_MAX_ECHO_CHARS]}…"
            hint = "; pass a step as a string" if isinstance(written, float) else ""
            raise SpecError(f"Expected a turn such as 3 or a step such as 3.2, got {shown}{hint}")
        return cls(*numbers)


@dataclass
class TurnCounter:
    """Counter that assigns turns and steps to the messages of a conversation, one at a time.

    Examples
    --------
    >>> counter = TurnCounter()
    >>> roles = ("system", "user", "assistant", "tool", "assistant", "user")
    >>> [str(counter.add(Message(role))) for role in roles]
    ['0', '1.1', '1.1', '1.1', '1.2', '2.1']
    """

    turn: int = 0
    "turn of the last message; 0 before the first turn"
    step: int = 0
    "step of the last message in its turn; 0 before the first turn"
    replied: bool = True
    "True if the next assistant message begins a new step"

    def add(self, message: Message) -> TurnLabel:
        """Count the next message, and return the label of its step.

        Parameters
        ----------
        message : Message
            Next message of the conversation.

        Returns
        -------
        TurnLabel
            Label of the message's step; ``TurnLabel(0)`` before the first turn.
        """
        role = message.role
        if role == "user" or (role == "assistant" and not self.turn):
            self.turn, self.step = self.turn + 1, 1
        elif role == "assistant" and self.replied:
            self.step += 1
        if role in ("user", "assistant"):
            self.replied = role == "assistant"
        return TurnLabel(self.turn, self.step)


@dataclass
class _StepIndex:
    """Labels of the steps of a history, and the positions at which the steps begin."""

    starts: list[int] = field(default_factory=list)
    labels: list[TurnLabel] = field(default_factory=list)
    length: int = 0
    "number of messages of the history that are counted"
    counter: TurnCounter = field(default_factory=TurnCounter)


_STEP_INDEXES: WeakKeyDictionary[History, _StepIndex] = WeakKeyDictionary()


def _step_index(history: History) -> _StepIndex:
    """Return the index of a history. It is cached; a later call reads only appended messages."""
    known = _STEP_INDEXES.get(history)
    if known is None:
        known = _STEP_INDEXES[history] = _StepIndex()
    for position in range(known.length, len(history)):
        label = known.counter.add(history[position])
        if label.turn and (not known.labels or label != known.labels[-1]):
            known.starts.append(position)
            known.labels.append(label)
    known.length = len(history)
    return known


def set_turn_offset(history: History, position: int, before: TurnCounter) -> None:
    """Set the numbers of a history that begins in the middle of a conversation.

    This keeps the turns and steps of a conversation that is resumed with only its newest messages.
    Call this function before any other function of this module is called with the history. Messages
    before ``position`` count as part of the last step of ``before``.

    Parameters
    ----------
    history : History
        History with the newest messages of the conversation.
    position : int
        Position in the history of the first message that ``before`` does not include.
    before : TurnCounter
        Counter that has counted all earlier messages of the conversation.

    Examples
    --------
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> said = (("user", "a summary"), ("assistant", "still at it"), ("user", "thanks"))
    >>> history = History(TokenCounter("gpt-4o"), [Message(*each) for each in said])
    >>> set_turn_offset(history, 1, TurnCounter(40, 7))
    >>> [str(step_at(history, position)) for position in range(3)]
    ['40.7', '40.8', '41.1']
    """
    known = _STEP_INDEXES[history] = _StepIndex(length=position, counter=replace(before))
    if before.turn:
        known.starts.append(0)
        known.labels.append(TurnLabel(before.turn, before.step))


def step_at(history: History, position: int) -> TurnLabel:
    """Return the label of the step to which a message belongs.

    Parameters
    ----------
    history : History
        History of the conversation.
    position : int
        Position of the message in the history.

    Returns
    -------
    TurnLabel
        Label of the step; ``TurnLabel(0)`` for a message before the first turn.
    """
    known = _step_index(history)
    index = bisect_right(known.starts, position)
    return known.labels[index - 1] if index else TurnLabel(0)


def steps_between(history: History, start: int, stop: int) -> Sequence[TurnLabel]:
    """Return the labels of the steps to which the messages of a range belong.

    Parameters
    ----------
    history : History
        History of the conversation.
    start : int
        Position of the first message.
    stop : int
        Position after the last message.

    Returns
    -------
    sequence of TurnLabel
        Labels in ascending order. Messages before the first turn have none.

    Examples
    --------
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> roles = ("system", "user", "assistant", "assistant", "user")
    >>> history = History(TokenCounter("gpt-4o"), [Message(role) for role in roles])
    >>> [str(label) for label in steps_between(history, 0, 4)]
    ['1.1', '1.2']
    """
    known = _step_index(history)
    if start >= stop:
        return []
    first = max(1, bisect_right(known.starts, start)) - 1
    return known.labels[first : bisect_left(known.starts, stop)]


def turn_span(history: History, label: TurnLabel) -> tuple[int, int]:
    """Return the range of positions of the messages of a turn or of a step.

    Parameters
    ----------
    history : History
        History of the conversation.
    label : TurnLabel
        Label of the turn or of the step.

    Returns
    -------
    tuple of (int, int)
        Position of the first message and position after the last message. If the history has no
        such turn or step, both are the length of the history.

    Examples
    --------
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> roles = ("system", "user", "assistant", "assistant", "user")
    >>> history = History(TokenCounter("gpt-4o"), [Message(role) for role in roles])
    >>> turn_span(history, TurnLabel(1)), turn_span(history, TurnLabel(1, 2))
    ((1, 4), (3, 4))
    """
    known = _step_index(history)
    turn, step = label
    first = bisect_left(known.labels, TurnLabel(turn, step))
    last = bisect_left(known.labels, TurnLabel(turn, step + 1) if step else TurnLabel(turn + 1))
    if turn < 1 or first == last:
        return len(history), len(history)
    stop = known.starts[last] if last < len(known.starts) else len(history)
    return known.starts[first], stop


def contents_label(history: History, step: TurnLabel, length: int) -> TurnLabel:
    """Return the label with which a table of contents lists a step.

    Parameters
    ----------
    history : History
        History of the conversation.
    step : TurnLabel
        Label of a step.
    length : int
        Number of messages of the history that exist when the table is written.

    Returns
    -------
    TurnLabel
        The label of the turn if the step is the only one of a turn that is complete, because another
        turn follows. Otherwise the label of the step.

    Examples
    --------
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> roles = ("user", "assistant", "user", "assistant")
    >>> history = History(TokenCounter("gpt-4o"), [Message(role) for role in roles])
    >>> [str(contents_label(history, TurnLabel(turn, 1), 4)) for turn in (1, 2)]
    ['1', '2.1']
    """
    known = _step_index(history)
    following = bisect_right(known.labels, step)
    ended = following < len(known.labels) and known.starts[following] < length
    only = ended and step.step == 1 and known.labels[following].turn > step.turn
    return TurnLabel(step.turn) if only else step


def headline(messages: Sequence[Message]) -> str:
    r"""Return one line that describes a step or a turn, without calling a model.

    The line contains the first line of the user message and the tool calls, each with its main
    argument. Without a user message and tool calls, it is the first line of the assistant's reply.

    Parameters
    ----------
    messages : sequence of Message
        Messages of the step or of the turn.

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
