"""Events of an agent's turn, in order: text, tool calls, tool results, and the final result."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import msgspec

from ctxlab.agent.tools.result import ToolResult
from ctxlab.messages.types import Message, ToolCall, Usage

FinishReason: TypeAlias = Literal["answered", "limit"]
"""How a turn ended: with an answer, or at the limit of model calls."""


@dataclass(frozen=True)
class TurnResult:
    """Result of a turn."""

    text: str
    "the answer; at the limit, the partial answer with its marker"
    finish: FinishReason
    "how the turn ended"
    iterations: int
    "number of model calls"
    messages: tuple[Message, ...] = field(repr=False)
    "all messages that the turn added to the conversation, in order"
    usage: Usage = field(default_factory=Usage)
    "sum over all replies; the strategy's own model calls are in ``manager.model_calls``"
    usd: float = 0.0
    "cost of all replies in USD; nan if no price is known"


@dataclass(frozen=True)
class TextDelta:
    """A piece of the assistant's text."""

    text: str
    "the piece"


@dataclass(frozen=True)
class ToolCallStarted:
    """A tool is about to be called."""

    call: ToolCall
    "the tool call"


@dataclass(frozen=True)
class ToolCallFinished:
    """A tool has returned, or its call was blocked."""

    call: ToolCall
    "the tool call"
    result: ToolResult
    "the tool result"


@dataclass(frozen=True)
class TurnFinished:
    """The turn is over; this is its last event."""

    result: TurnResult
    "result of the turn"


AgentEvent: TypeAlias = TextDelta | ToolCallStarted | ToolCallFinished | TurnFinished


def collect_result(events: Generator[AgentEvent, None, None]) -> TurnResult:
    """Run a turn to its end and return its result.

    Parameters
    ----------
    events : generator of AgentEvent
        Events of the turn.

    Returns
    -------
    TurnResult
        The result.
    """
    with closing(events):
        *_, last = events
    assert isinstance(last, TurnFinished)
    return last.result


def event_to_dict(event: AgentEvent) -> dict[str, Any]:
    """Convert an event to plain JSON data.

    Parameters
    ----------
    event : AgentEvent
        The event.

    Returns
    -------
    dict
        Its ``type`` is text, tool_call, tool_result or done.

    Examples
    --------
    >>> event_to_dict(TextDelta("Hi"))
    {'type': 'text', 'text': 'Hi'}
    >>> event_to_dict(ToolCallStarted(ToolCall("c1", "read", '{"path": "a.py"}')))
    {'type': 'tool_call', 'id': 'c1', 'name': 'read', 'arguments': '{"path": "a.py"}'}
    """
    match event:
        case TextDelta(text):
            return {"type": "text", "text": text}
        case ToolCallStarted(call):
            named = {"type": "tool_call", "id": call.id, "name": call.name}
            return named | {"arguments": call.arguments}
        case ToolCallFinished(call, result):
            named = {"type": "tool_result", "id": call.id, "name": call.name}
            return named | result.to_dict()
        case TurnFinished(done):
            ended = {"text": done.text, "finish": done.finish, "iterations": done.iterations}
            usd = None if math.isnan(done.usd) else done.usd
            spent = {"usage": msgspec.to_builtins(done.usage), "usd": usd}
            return {"type": "done", **ended, **spent}
