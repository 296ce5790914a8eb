"""Events that an agent yields during a turn: text, tool calls, tool results and the end of the turn."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import msgspec

from ctxlab.agent.approval import ApprovalRequest, Decision
from ctxlab.agent.tools.result import ToolResult
from ctxlab.messages.types import Message, ToolCall, Usage

FinishReason: TypeAlias = Literal["answered", "limit"]
"""How a turn ended: the agent answered, or it reached the maximum number of model calls."""


@dataclass(frozen=True)
class TurnResult:
    """Answer of an agent to a user's message, with the cost of the turn."""

    text: str
    "text of the answer; if ``finish`` is ``limit``, the partial answer and a marker at its end"
    finish: FinishReason
    "``answered``, or ``limit`` if the maximum number of model calls was reached"
    iterations: int
    "number of model calls during the turn"
    messages: tuple[Message, ...] = field(repr=False)
    "all messages that the turn added to the conversation, in order"
    usage: Usage = field(default_factory=Usage)
    "billed tokens of all replies; model calls of the strategy are not included"
    usd: float = 0.0
    "cost of all replies in US dollars; nan if the price of any reply is unknown"


@dataclass(frozen=True)
class TextDelta:
    """Event for a piece of text that the model has sent during a turn."""

    text: str
    "the text of this piece only"


@dataclass(frozen=True)
class ToolCallStarted:
    """Event that is sent before a tool is called."""

    call: ToolCall
    "the tool call"


@dataclass(frozen=True)
class ApprovalRequired:
    """Event that is sent before the user is asked whether a tool may be called."""

    request: ApprovalRequest
    "the tool call, with its command or the change that it makes"


@dataclass(frozen=True)
class ApprovalDecided:
    """Event that is sent when a call that needs approval was allowed or refused."""

    request: ApprovalRequest
    "the tool call"
    decision: Decision
    "the decision; a refusal if nobody could be asked"


@dataclass(frozen=True)
class ToolCallFinished:
    """Event that is sent after a tool has returned or its call was blocked."""

    call: ToolCall
    "the tool call"
    result: ToolResult
    "result of the tool call"


@dataclass(frozen=True)
class TurnFinished:
    """Last event of a turn, which contains the result of the turn."""

    result: TurnResult
    "result of the turn"


AgentEvent: TypeAlias = (
    TextDelta
    | ToolCallStarted
    | ApprovalRequired
    | ApprovalDecided
    | ToolCallFinished
    | TurnFinished
)


def collect_result(events: Generator[AgentEvent, None, None]) -> TurnResult:
    """Consume all events of a turn and return its result.

    Parameters
    ----------
    events : generator of AgentEvent
        Events of a whole turn, as yielded by ``Agent.stream``. The generator is closed at the end.

    Returns
    -------
    TurnResult
        Result that the last event, ``TurnFinished``, contains.
    """
    with closing(events):
        *_, last = events
    assert isinstance(last, TurnFinished)
    return last.result


def event_to_dict(event: AgentEvent) -> dict[str, Any]:
    """Convert an event to a dict that can be written as JSON.

    Parameters
    ----------
    event : AgentEvent
        Event to convert.

    Returns
    -------
    dict
        Fields of the event. The key ``type`` is text, tool_call, approval_required, approval_decided,
        tool_result or done.

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
        case ApprovalRequired(request):
            named = {"type": "approval_required", "id": request.call.id, "name": request.call.name}
            change = request.change
            shown: dict[str, Any] = {
                "arguments": request.call.arguments,
                "command": request.command,
            }
            shown["diff"] = None if change is None else change.diff()
            shown["hidden"] = None if change is None else change.hidden or None
            return named | shown | {"kind": request.kind, "choices": list(request.choices)}
        case ApprovalDecided(request, decision):
            named = {"type": "approval_decided", "id": request.call.id, "name": request.call.name}
            answer = decision.scope if decision.allowed else "no"
            return named | {"decision": answer, "reason": decision.reason}
        case ToolCallFinished(call, result):
            named = {"type": "tool_result", "id": call.id, "name": call.name}
            return named | result.to_dict()
        case TurnFinished(done):
            ended = {"text": done.text, "finish": done.finish, "iterations": done.iterations}
            usd = None if math.isnan(done.usd) else done.usd
            spent = {"usage": msgspec.to_builtins(done.usage), "usd": usd}
            return {"type": "done", **ended, **spent}
