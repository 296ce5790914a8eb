"""Responses that stream a turn to the client as server-sent events.

An event consists of the two lines ``event: TYPE`` and ``data: {"type": TYPE, …}``. The type is
``text``, ``tool_call``, ``approval_required``, ``approval_decided`` or ``tool_result``. The last event
has the type ``done`` or ``error``. If the client disconnects, the turn is cancelled. The pydantic
models of the events are used only to describe the events in the OpenAPI document.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from ctxlab.agent.events import event_to_dict
from ctxlab.serve.http.errors import exception_to_problem
from ctxlab.serve.http.turn_runner import TurnRunner

if TYPE_CHECKING:
    from ctxlab.agent.events import TurnResult

_T = TypeVar("_T")
_PING_INTERVAL = 10.0
"seconds without an event after which a comment is sent, so that proxies keep the connection open"


class TurnEvent(BaseModel):
    """Base class of the events of a turn."""

    model_config = ConfigDict(extra="forbid")


class TextEvent(TurnEvent):
    """A piece of the text that the agent writes."""

    type: Literal["text"]
    text: str


class ToolCallEvent(TurnEvent):
    """Event that is sent before a tool is called."""

    type: Literal["tool_call"]
    id: str
    name: str
    arguments: str = Field(description="JSON arguments as the model wrote them; may be malformed.")


class ApprovalRequiredEvent(TurnEvent):
    """Event that asks the client whether a tool may be called. The turn waits for the answer."""

    type: Literal["approval_required"]
    id: str = Field(description="Id of the tool call.")
    name: str
    arguments: str
    command: str | None = Field(description="Shell command that the call runs, if it runs one.")
    diff: str | None = Field(description="Change of a file that the call makes, if it makes one.")
    hidden: str | None = Field(
        description="Why the diff does not show the text that is replaced, such as that it is not text."
    )
    kind: str | None = Field(description="What the decision 'kind' allows, such as 'git diff'.")
    choices: list[Literal["once", "kind", "tool", "no"]] = Field(
        description="Decisions that the answer may contain."
    )


class ApprovalDecidedEvent(TurnEvent):
    """Event that is sent when a tool call that needs approval was allowed or refused."""

    type: Literal["approval_decided"]
    id: str = Field(description="Id of the tool call.")
    name: str
    decision: Literal["once", "kind", "tool", "no"]
    reason: str = Field(description="Reason of a refusal, which the model is told.")


class ToolResultEvent(TurnEvent):
    """Event that is sent after a tool has returned or its call was blocked."""

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
    outcome: dict[str, Any] | None = Field(
        None, description="Short form of the result: summary, count and files."
    )


class DoneEvent(TurnEvent):
    """Last event of a turn that ended without an error."""

    type: Literal["done"]
    text: str = Field(description="Text of the reply; incomplete if finish is limit.")
    finish: Literal["answered", "limit"]
    iterations: int = Field(description="Number of requests that the agent sent to the model.")
    usage: dict[str, int] = Field(description="Numbers of billed tokens.")
    usd: float | None = Field(description="Cost in US dollars; null if a price is unknown.")


class ErrorEvent(TurnEvent):
    """Last event of a turn that failed or was cancelled."""

    type: Literal["error"]
    title: str
    status: int = Field(description="HTTP status that corresponds to the error.")
    detail: str


_REFERENCES = [
    {"$ref": f"#/components/schemas/{kind.__name__}"}
    for kind in (
        TextEvent,
        ToolCallEvent,
        ApprovalRequiredEvent,
        ApprovalDecidedEvent,
        ToolResultEvent,
        DoneEvent,
        ErrorEvent,
    )
]
_DATA_SCHEMA: Any = {"type": "string", "contentMediaType": "application/json"}
_DATA_SCHEMA["contentSchema"] = {"oneOf": _REFERENCES}
_EVENT_SCHEMA = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "event": {
            "enum": [
                *("text", "tool_call", "approval_required", "approval_decided"),
                *("tool_result", "done", "error"),
            ]
        },
        "data": _DATA_SCHEMA,
    },
}

EVENT_STREAM_RESPONSE: dict[str, Any] = {
    "description": "Server-sent events of the turn. Each event has this schema. The last event has "
    "the type done or error.",
    "content": {"text/event-stream": {"schema": _EVENT_SCHEMA}},
}
"""Description of an ``EventStreamResponse`` for the OpenAPI document."""


class EventStreamResponse(StreamingResponse):
    """Response that streams the events of a turn.

    If the response ends before the turn, for example because the client disconnects, the turn is
    cancelled.

    Parameters
    ----------
    turn : TurnRunner
        Runner of the turn.
    """

    media_type = "text/event-stream"

    def __init__(self, turn: TurnRunner) -> None:
        self._turn = turn
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(_stream_events(turn), headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response, then cancel the turn if it is still running.

        Starlette's own method does not wait for a disconnect if the server supports ASGI 2.4: sending
        fails then. But while a model is thinking, nothing is sent.
        """
        try:
            await _run_until_disconnect(self.stream_response(send), receive)
        except (ClientDisconnect, OSError):
            pass  # there is nobody to tell
        finally:
            self._turn.cancel(_client_gone_problem())


async def wait_for_outcome_or_disconnect(turn: TurnRunner, request: Request) -> TurnResult:
    """Wait until a turn ends. If the client disconnects before the end, cancel the turn.

    Parameters
    ----------
    turn : TurnRunner
        Runner of the turn.
    request : Request
        Request of the client that waits for the result.

    Returns
    -------
    TurnResult
        Result of the turn.

    Raises
    ------
    HTTPException
        With status 503, if the client disconnected.
    Exception
        The error that ended the turn.
    """
    try:
        return await _run_until_disconnect(turn.wait_for_outcome(), request.receive)
    except ClientDisconnect:
        raise _client_gone_problem() from None
    finally:
        turn.cancel(_client_gone_problem())


async def _run_until_disconnect(work: Coroutine[Any, Any, _T], receive: Receive) -> _T:
    """Return the result of ``work``; raise ClientDisconnect if the client disconnects before."""
    done = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await asyncio.wait({done, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not done.done():
            raise ClientDisconnect
        return await done
    finally:
        done.cancel()
        gone.cancel()


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
    # json.dumps escapes non-ASCII characters, some of which many clients treat as line breaks.
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def _client_gone_problem() -> HTTPException:
    return HTTPException(503, "the client disconnected")


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
