"""Server-sent events of a turn; when the client disconnects, the turn is cancelled.

Each event is ``event: TYPE`` and ``data: {"type": TYPE, …}`` on one line of JSON. The types are
``text``, ``tool_call`` and ``tool_result``, and at the end ``done`` or ``error``. The models of the
events serve the OpenAPI document.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Literal

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from ctxlab.agent.events import event_to_dict
from ctxlab.serve.http.errors import exception_to_problem
from ctxlab.serve.http.turn_runner import TurnRunner

if TYPE_CHECKING:
    from ctxlab.agent.events import TurnResult

_PING_INTERVAL = 10.0
"seconds of silence after which a comment is sent, so that no proxy closes the connection"


class TurnEvent(BaseModel):
    """An event of a turn."""

    model_config = ConfigDict(extra="forbid")


class TextEvent(TurnEvent):
    """A piece of the agent's text."""

    type: Literal["text"]
    text: str


class ToolCallEvent(TurnEvent):
    """A tool is about to be called."""

    type: Literal["tool_call"]
    id: str
    name: str
    arguments: str = Field(description="Arguments as the model wrote them; JSON unless malformed.")


class ToolResultEvent(TurnEvent):
    """The result of a tool call, or its refusal."""

    type: Literal["tool_result"]
    id: str = Field(description="Id of the tool call.")
    name: str
    ok: bool
    data: Any = None
    error: str | None = None
    error_type: str | None = None
    tool_name: str | None = None
    duration_ms: int | None = None
    process_id: str | None = None


class DoneEvent(TurnEvent):
    """The turn has ended. This is the last event."""

    type: Literal["done"]
    text: str = Field(description="The whole reply; partial if finish is limit.")
    finish: Literal["answered", "limit"]
    iterations: int = Field(description="Number of requests that the agent sent to the model.")
    usage: dict[str, int] = Field(description="Billed tokens.")
    usd: float | None = Field(description="Cost in US dollars; null if no price is known.")


class ErrorEvent(TurnEvent):
    """The turn failed or was cancelled. This is the last event."""

    type: Literal["error"]
    title: str
    status: int = Field(description="Status that a response without streaming would have.")
    detail: str


_REFERENCES = [
    {"$ref": f"#/components/schemas/{kind.__name__}"}
    for kind in (TextEvent, ToolCallEvent, ToolResultEvent, DoneEvent, ErrorEvent)
]
_DATA_SCHEMA: Any = {"type": "string", "contentMediaType": "application/json"}
_DATA_SCHEMA["contentSchema"] = {"oneOf": _REFERENCES}
_EVENT_SCHEMA = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "event": {"enum": ["text", "tool_call", "tool_result", "done", "error"]},
        "data": _DATA_SCHEMA,
    },
}

EVENT_STREAM_RESPONSE: dict[str, Any] = {
    "description": "Server-sent events of the turn, each with this schema; done or error is the "
    "last one.",
    "content": {"text/event-stream": {"schema": _EVENT_SCHEMA}},
}
"""The response, as described in the OpenAPI document."""


class EventStreamResponse(StreamingResponse):
    """Response that streams the events of a turn; if it ends early, the turn is cancelled.

    Parameters
    ----------
    turn : TurnRunner
        Running turn.
    """

    media_type = "text/event-stream"

    def __init__(self, turn: TurnRunner) -> None:
        self._turn = turn
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(_stream_events(turn), headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response as an ASGI application."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._turn.cancel(_client_gone_problem())


async def wait_for_outcome_or_disconnect(turn: TurnRunner, request: Request) -> TurnResult:
    """Wait for the end of a turn; if the client disconnects first, cancel the turn.

    Parameters
    ----------
    turn : TurnRunner
        Running turn.
    request : Request
        Request of the client.

    Returns
    -------
    TurnResult
        Result of the turn.

    Raises
    ------
    HTTPException
        With status 503, if the client disconnected.
    """
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
    # json.dumps escapes non-ASCII characters: many clients treat some of them as line ends.
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def _client_gone_problem() -> HTTPException:
    return HTTPException(503, "the client disconnected")


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
