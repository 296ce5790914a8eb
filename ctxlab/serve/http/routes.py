"""The addresses of the HTTP server; what they do is done by the desk and by ``ctxlab.sessions``.

Source: seed designs "Hybrid Session Management" (``POST /chat``), "Workspace-Scoped Sessions" (sessions
of a workspace) and "Session Table of Contents" (``/api/v1``).
"""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from starlette.responses import StreamingResponse

from ctxlab.serve.http.errors import (
    Refused,
    documented,
)
from ctxlab.serve.http.schemas import (
    ChatAnswer,
    ChatRequest,
    Found,
    Health,
    Limit,
    MessageRequest,
    Offset,
    SearchAnswer,
    SessionAnswer,
    SessionId,
    SessionRequest,
    TurnNumber,
    Words,
    utc,
)
from ctxlab.serve.http.service import Desk
from ctxlab.serve.http.sse import (
    EVENTS,
    EventStream,
    awaited,
)
from ctxlab.sessions.base import Status
from ctxlab.sessions.table_of_contents import (
    Contents,
    InteractionWithContext,
    contents,
    turn,
)

__all__ = ["routes"]

_ALWAYS = (400, 401, 403, 408, 413, 422, 500)
_TOTAL = {"X-Total-Count": {"description": "How many there are.", "schema": {"type": "integer"}}}


async def _json_only(request: Request) -> None:
    """Refuses a body that says it is something else; a form of a web page is one."""
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json" and not (
        kind.startswith("application/") and kind.endswith("+json")
    ):
        raise Refused(415, "send JSON, as application/json")


def _with_file(message: str, file: str | None) -> str:
    """A message with the file in front that the user has open, on its first line."""
    return message if file is None else f"[file: {' '.join(file.split())}] {message}"


def routes(desk: Desk) -> APIRouter:
    """The routes of a desk."""
    router = APIRouter(responses=documented(*_ALWAYS))
    posted = [Depends(_json_only)]

    @router.get("/health", tags=["server"], summary="Whether the server answers")
    async def health() -> Health:
        return Health()

    @router.post(
        "/chat",
        tags=["chat"],
        summary="Say something; the open file decides which session goes on",
        dependencies=posted,
        responses=documented(409, 415, 502, 503),
    )
    async def chat(said: ChatRequest, request: Request) -> ChatAnswer:
        place = await asyncio.to_thread(desk.place_for, said.workspace, said.session_id)
        file = said.active_file or None
        work = await desk.say(place, _with_file(said.message, file), file)
        outcome = await awaited(work, request)
        return ChatAnswer(
            response=outcome.text,
            session_id=(await work.opened()).id,
            active_file=file,
            finish=outcome.finish,
            iterations=outcome.iterations,
        )

    @router.get(
        "/workspaces/{path:path}/sessions",
        tags=["sessions"],
        summary="The sessions of a workspace, the one that was updated last first",
        responses={200: {"headers": _TOTAL}, **documented(404)},  # a line break is no address
    )
    async def workspace_sessions(
        path: Annotated[
            str,
            Path(
                description="Of the workspace, percent-encoded: %2Fhome%2Fme%2Fproject.",
                max_length=4096,
            ),
        ],
        response: Response,
        status: Annotated[
            Status | None, Query(description="Only these; archived ones are not told else.")
        ] = None,
        limit: Limit = 1000,
        offset: Offset = 0,
    ) -> list[SessionAnswer]:
        place = desk.place(path)
        known = await asyncio.to_thread(place.store.sessions, status=status)
        told = [each for each in known if not each.system]
        response.headers["X-Total-Count"] = str(len(told))
        return [SessionAnswer.of(each) for each in told[offset : offset + limit]]

    @router.post(
        "/sessions",
        tags=["sessions"],
        summary="Create a session, or resume one",
        status_code=201,
        dependencies=posted,
        responses={
            200: {"model": SessionAnswer, "description": "The session is resumed."},
            201: {"description": "A new session."},
            **documented(404, 409, 415, 503),
        },
    )
    async def create_or_resume(said: SessionRequest, response: Response) -> SessionAnswer:
        place = desk.place(said.workspace_path)
        session = await desk.open(place, said.session_id)
        if said.session_id is not None:
            response.status_code = 200
        return SessionAnswer.of(session)

    @router.post(
        "/sessions/{id}/messages",
        tags=["chat"],
        summary="Say something to a session, and be told what happens",
        dependencies=posted,
        response_class=StreamingResponse,
        responses={200: EVENTS, **documented(404, 409, 415, 503)},
    )
    async def send(id: SessionId, said: MessageRequest) -> Response:
        place = await asyncio.to_thread(desk.place_of, id)
        file = said.active_file or None
        work = await desk.say(place, _with_file(said.message, file), file, id)
        await work.opened()
        return EventStream(work)

    @router.delete(
        "/sessions/{id}",
        tags=["sessions"],
        summary="End a session: it is closed, and can be resumed",
        responses=documented(404),
    )
    async def end(id: SessionId) -> SessionAnswer:
        place = await asyncio.to_thread(desk.place_of, id)
        return SessionAnswer.of(await desk.end(place, id))

    @router.get(
        "/api/v1/sessions/{id}/toc",
        tags=["contents"],
        summary="The table of contents of a session: a numbered line for each turn",
        responses=documented(404),
    )
    async def toc(
        id: SessionId,
        start: Annotated[int, Query(description="The first turn.", ge=1, le=2**31 - 1)] = 1,
        limit: Limit = 1000,
    ) -> Contents:
        store = (await asyncio.to_thread(desk.place_of, id)).store
        return await asyncio.to_thread(contents, store, id, start=start, limit=limit)

    @router.get(
        "/api/v1/sessions/{id}/turns/{turn}",
        tags=["contents"],
        summary="A turn in full, and the ones beside it in a line",
        response_model_exclude_none=True,
        responses=documented(404),
    )
    async def one_turn(
        id: SessionId,
        number: TurnNumber,
        start: Annotated[
            int, Query(description="Messages of the turn that are left out.", ge=0, le=2**31 - 1)
        ] = 0,
        limit: Limit = 200,
    ) -> InteractionWithContext:
        store = (await asyncio.to_thread(desk.place_of, id)).store
        return await asyncio.to_thread(turn, store, id, number, start=start, limit=limit)

    @router.get(
        "/api/v1/sessions/{id}/search",
        tags=["contents"],
        summary="The messages of a session that hold all the words",
        responses=documented(404),
    )
    async def search(
        id: SessionId, q: Words, limit: Limit = 20, offset: Offset = 0
    ) -> SearchAnswer:
        store = (await asyncio.to_thread(desk.place_of, id)).store
        hits = await asyncio.to_thread(store.search, q, id, limit=limit, offset=offset)
        return SearchAnswer(
            session_id=id,
            query=q,
            results=[
                Found(
                    turn=hit.turn,
                    role=hit.role,
                    snippet=hit.snippet,
                    score=hit.score,
                    created=None if hit.time is None else utc(hit.time),
                )
                for hit in hits
            ],
        )

    return router
