"""A turn is told as events, in order: text, a call, its result, and at last the outcome."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import msgspec

from ctxlab.agent.tools.result import ToolResult
from ctxlab.messages.types import Message, ToolCall, Usage

__all__ = [
    "AgentEvent",
    "FinishReason",
    "TextDelta",
    "ToolCallFinished",
    "ToolCallStarted",
    "TurnFinished",
    "TurnResult",
    "collect_result",
    "event_to_dict",
]

FinishReason: TypeAlias = Literal["answered", "limit"]
"""How a turn ended: with an answer, or because the model was called as often as it may be."""


@dataclass(frozen=True)
class TurnResult:
    """What came of a turn."""

    text: str
    "the answer; the partial one with its marker where the limit was reached"
    finish: FinishReason
    iterations: int
    "how often the model was called"
    messages: tuple[Message, ...] = field(repr=False)
    "all that the turn added to the conversation, in order"
    usage: Usage = field(default_factory=Usage)
    "of all replies together; what a strategy asked on its own account is in ``manager.model_calls``"
    usd: float = 0.0
    "of all replies together; nan where no price is known"


@dataclass(frozen=True)
class TextDelta:
    """A piece of what the assistant says."""

    text: str


@dataclass(frozen=True)
class ToolCallStarted:
    """A tool is about to be called."""

    call: ToolCall


@dataclass(frozen=True)
class ToolCallFinished:
    """A tool has answered, or its call was refused."""

    call: ToolCall
    result: ToolResult


@dataclass(frozen=True)
class TurnFinished:
    """The turn is over; nothing comes after this."""

    result: TurnResult


AgentEvent: TypeAlias = TextDelta | ToolCallStarted | ToolCallFinished | TurnFinished


def collect_result(events: Generator[AgentEvent, None, None]) -> TurnResult:
    """What came of a turn, once all its events are over."""
    outcome: TurnResult | None = None
    with closing(events):
        for event in events:
            if isinstance(event, TurnFinished):
                outcome = event.result
    assert outcome is not None
    return outcome


def event_to_dict(event: AgentEvent) -> dict[str, Any]:
    """An event as plain JSON data with its ``type``: text, tool_call, tool_result or done.

    >>> event_to_dict(TextDelta("Hi"))
    {'type': 'text', 'text': 'Hi'}
    >>> event_to_dict(ToolCallStarted(ToolCall("c1", "read", '{"path": "a.py"}')))
    {'type': 'tool_call', 'id': 'c1', 'name': 'read', 'arguments': '{"path": "a.py"}'}
    """
    if isinstance(event, TextDelta):
        return {"type": "text", "text": event.text}
    if isinstance(event, ToolCallStarted):
        call = event.call
        return {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
    if isinstance(event, ToolCallFinished):
        call = event.call
        return {
            "type": "tool_result",
            "id": call.id,
            "name": call.name,
            **event.result.to_dict(),
        }
    done = event.result
    return {
        "type": "done",
        "text": done.text,
        "finish": done.finish,
        "iterations": done.iterations,
        "usage": msgspec.to_builtins(done.usage),
        "usd": None if math.isnan(done.usd) else done.usd,
    }
