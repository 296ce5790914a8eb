"""A turn is told as server-sent events, and ends when nobody reads them any more.

Each event is ``event: TYPE`` and ``data: {"type": TYPE, …}`` in one line of JSON: ``text``,
``tool_call``, ``tool_result``, and at last ``done`` or ``error``; their shapes are for the OpenAPI
document.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Literal

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from ctxlab.agent.events import event_to_dict
from ctxlab.serve.http.errors import HTTPProblem, exception_to_problem
from ctxlab.serve.http.turn_runner import TurnRunner

if TYPE_CHECKING:
    from ctxlab.agent.events import TurnResult

__all__ = [
    "EVENT_STREAM_RESPONSE",
    "DoneEvent",
    "ErrorEvent",
    "EventStreamResponse",
    "TextEvent",
    "ToolCallEvent",
    "ToolResultEvent",
    "TurnEvent",
    "wait_for_outcome_or_disconnect",
]

_PING_INTERVAL = 10.0
"seconds of silence after which a comment is sent, so that nothing on the way hangs up"


class TurnEvent(BaseModel):
    """Something that happens in a turn."""

    model_config = ConfigDict(extra="forbid")


class TextEvent(TurnEvent):
    """A piece of what the agent says."""

    type: Literal["text"]
    text: str


class ToolCallEvent(TurnEvent):
    """A tool is about to be called."""

    type: Literal["tool_call"]
    id: str
    name: str
    arguments: str = Field(description="As the model wrote them: JSON, unless it erred.")


class ToolResultEvent(TurnEvent):
    """A tool has answered, or its call was refused."""

    type: Literal["tool_result"]
    id: str = Field(description="Of the call.")
    name: str
    ok: bool
    data: Any = None
    error: str | None = None
    error_type: str | None = None
    tool_name: str | None = None
    duration_ms: int | None = None
    process_id: str | None = None


class DoneEvent(TurnEvent):
    """The turn is over; nothing comes after this."""

    type: Literal["done"]
    text: str = Field(description="The whole answer; a partial one after too many steps.")
    finish: Literal["answered", "limit"]
    iterations: int = Field(description="Requests that the agent made of the model.")
    usage: dict[str, int] = Field(description="Tokens as they were billed.")
    usd: float | None = Field(description="What it cost; null where no price is known.")


class ErrorEvent(TurnEvent):
    """The turn failed, or was cancelled; nothing comes after this."""

    type: Literal["error"]
    title: str
    status: int = Field(description="The status that a plain answer would have had.")
    detail: str


_EVENT_TYPES = (TextEvent, ToolCallEvent, ToolResultEvent, DoneEvent, ErrorEvent)

EVENT_STREAM_RESPONSE: dict[str, Any] = {
    "description": "What happens, as server-sent events, each of this shape; after done or error "
    "nothing comes.",
    "content": {
        "text/event-stream": {
            "schema": {
                "type": "object",
                "required": ["event", "data"],
                "properties": {
                    "event": {"enum": ["text", "tool_call", "tool_result", "done", "error"]},
                    "data": {
                        "type": "string",
                        "contentMediaType": "application/json",
                        "contentSchema": {
                            "oneOf": [
                                {"$ref": f"#/components/schemas/{kind.__name__}"}
                                for kind in _EVENT_TYPES
                            ]
                        },
                    },
                },
            },
        }
    },
}
"""The response as OpenAPI describes it."""


class EventStreamResponse(StreamingResponse):
    """The events of a turn; where it ends early, so does the turn."""

    media_type = "text/event-stream"

    def __init__(self, turn: TurnRunner) -> None:
        self._turn = turn
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(_stream_events(turn), headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the response, as ASGI has it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._turn.cancel(_client_gone_problem())


async def wait_for_outcome_or_disconnect(turn: TurnRunner, request: Request) -> TurnResult:
    """How a turn ends; it is cancelled where the client goes away before."""
    outcome = asyncio.ensure_future(turn.wait_for_outcome())
    gone = asyncio.ensure_future(_wait_for_disconnect(request))
    try:
        await asyncio.wait({outcome, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not outcome.done():
            raise _client_gone_problem()
        return await outcome
    finally:
        outcome.cancel()
        gone.cancel()
        turn.cancel(_client_gone_problem())


async def _stream_events(turn: TurnRunner) -> AsyncIterator[bytes]:
    while True:
        try:
            event = await turn.next_event(_PING_INTERVAL)
        except TimeoutError:
            yield b": ping\n\n"
        except Exception as error:
            yield _encode_event({**exception_to_problem(error), "type": "error"})
            return
        else:
            if event is None:
                return
            yield _encode_event(event_to_dict(event))


def _encode_event(event: dict[str, Any]) -> bytes:
    # Letters beyond ASCII are escaped: many clients take some of them for the end of a line.
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def _client_gone_problem() -> HTTPProblem:
    return HTTPProblem(503, "the client went away")


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
