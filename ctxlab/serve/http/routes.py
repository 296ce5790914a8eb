"""Routes of the HTTP API. They call ``ChatService`` and the functions of ``ctxlab.sessions``.

References
----------
Design documents "Hybrid Session Management" (``POST /chat``), "Workspace-Scoped Sessions" (sessions
of a workspace) and "Session Table of Contents" (``/api/v1``), listed in ``tests/SEEDS.md``.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

from fastapi import APIRouter, Depends, Request, Response
from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse

from ctxlab.errors import UnknownSession
from ctxlab.serve.http.errors import problem_responses
from ctxlab.serve.http.schemas import (
    ApprovalAnswer,
    CallId,
    ChatAnswer,
    ChatRequest,
    FirstMessage,
    FirstStep,
    FirstTurn,
    Found,
    FoundInSession,
    Health,
    Limit,
    MaxSteps,
    MessageRequest,
    Offset,
    SearchAllAnswer,
    SearchAnswer,
    SearchQuery,
    SessionAnswer,
    SessionEntry,
    SessionId,
    SessionRequest,
    SessionsAnswer,
    SessionWithTitles,
    StatusFilter,
    TitleEntry,
    TitleQuery,
    TurnOrStep,
    WorkspacePath,
)
from ctxlab.serve.http.service import ChatService
from ctxlab.serve.http.sse import (
    EVENT_STREAM_RESPONSE,
    EventStreamResponse,
    wait_for_outcome_or_disconnect,
)
from ctxlab.sessions import table_of_contents as contents
from ctxlab.sessions.base import SessionStore

_COMMON_STATUSES = (400, 401, 403, 408, 413, 422, 500)
_TOTAL_COUNT: dict[str, Any] = {
    "description": "Total number of sessions, regardless of limit and offset.",
    "schema": {"type": "integer"},
}


async def _require_json(request: Request) -> None:
    """Raise an error with status 415 if the content type of a request is not JSON."""
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if not re.fullmatch(r"application/(.*\+)?json", kind):
        raise HTTPException(415, f"Expected the content type application/json, got {kind[:100]!r}")


def _prefix_active_file(message: str, file: str | None) -> str:
    """Add the path of the open file to the beginning of a message, unless the path is None."""
    if file is None:
        return message
    line = "".join(char if char.isprintable() else " " for char in file)
    return f"[file: {line}] {message}"


def _count_turns(store: SessionStore, id: str) -> int | None:
    """Return the number of turns of a session; None if the session was deleted in the meantime."""
    try:
        return store.count_turns(id)
    except UnknownSession:
        return None


def make_router(service: ChatService) -> APIRouter:
    """Create the routes of the HTTP API.

    Parameters
    ----------
    service : ChatService
        Service that handles the requests.

    Returns
    -------
    APIRouter
        Router with all routes of the API.
    """
    router = APIRouter(responses=problem_responses(*_COMMON_STATUSES))
    json_body = [Depends(_require_json)]

    @router.get("/health", tags=["server"], summary="Check that the server is running")
    async def health() -> Health:
        return Health()

    @router.post(
        "/chat",
        tags=["chat"],
        summary="Send a message to the session that belongs to the open file",
        dependencies=json_body,
        responses=problem_responses(409, 415, 502, 503),
    )
    async def chat(said: ChatRequest, request: Request) -> ChatAnswer:
        choose = service.choose_workspace
        workspace = await asyncio.to_thread(choose, said.workspace, said.session_id)
        file = workspace.file_router.normalize(said.active_file)
        text = _prefix_active_file(said.message, file)
        turn = await service.start_turn(workspace, text, file)
        outcome = await wait_for_outcome_or_disconnect(turn, request)
        return ChatAnswer(
            response=outcome.text,
            session_id=(await turn.wait_until_open()).id,
            active_file=file,
            finish=outcome.finish,
            iterations=outcome.iterations,
        )

    @router.get(
        "/workspaces/{path:path}/sessions",
        tags=["sessions"],
        summary="List the sessions of a workspace, most recently updated first",
        responses={
            200: {"headers": {"X-Total-Count": _TOTAL_COUNT}},
            **problem_responses(404),  # a path with a line break matches no route
        },
    )
    def workspace_sessions(
        path: WorkspacePath,
        response: Response,
        status: StatusFilter = None,
        limit: Limit = 1000,
        offset: Offset = 0,
    ) -> list[SessionAnswer]:
        workspace = service.get_workspace(path)
        known = workspace.store.sessions(status=status)
        visible = [each for each in known if not each.system]
        response.headers["X-Total-Count"] = str(len(visible))
        return [SessionAnswer.from_session(each) for each in visible[offset : offset + limit]]

    @router.post(
        "/sessions",
        tags=["sessions"],
        summary="Create or resume a session",
        status_code=201,
        dependencies=json_body,
        responses={
            200: {"model": SessionAnswer, "description": "The session was resumed."},
            201: {"description": "A session was created."},
            **problem_responses(404, 409, 415, 503),
        },
    )
    async def create_or_resume(said: SessionRequest, response: Response) -> SessionAnswer:
        workspace = service.get_workspace(said.workspace_path)
        session = await service.open_session(workspace, said.session_id)
        if said.session_id is not None:
            response.status_code = 200
        return SessionAnswer.from_session(session)

    @router.post(
        "/sessions/{id}/messages",
        tags=["chat"],
        summary="Send a message to a session and stream the events of the turn",
        dependencies=json_body,
        response_class=StreamingResponse,
        responses={200: EVENT_STREAM_RESPONSE, **problem_responses(404, 409, 415, 503)},
    )
    async def send(id: SessionId, said: MessageRequest) -> Response:
        workspace = await asyncio.to_thread(service.find_workspace, id)
        file = workspace.file_router.normalize(said.active_file)
        text = _prefix_active_file(said.message, file)
        # A session that is chosen by its id is one conversation, whatever files are open.
        turn = await service.start_turn(workspace, text, None, id, can_ask=True)
        await turn.wait_until_open()
        return EventStreamResponse(turn)

    @router.post(
        "/sessions/{id}/approvals/{call:path}",
        tags=["chat"],
        summary="Answer the event approval_required: allow or refuse a tool call",
        dependencies=json_body,
        responses=problem_responses(404, 409, 415),
    )
    async def approve(id: SessionId, call: CallId, said: ApprovalAnswer) -> ApprovalAnswer:
        workspace = await asyncio.to_thread(service.find_workspace, id)
        turn = workspace.active_turn
        if turn is None or turn.session_id != id or not turn.answer(call, said.to_decision()):
            why = "no tool call with this id waits for an answer; it may have been answered already"
            raise HTTPException(409, why)
        return said

    @router.delete(
        "/sessions/{id}",
        tags=["sessions"],
        summary="Close a session; it can be resumed later",
        responses=problem_responses(404),
    )
    async def end(id: SessionId) -> SessionAnswer:
        workspace = await asyncio.to_thread(service.find_workspace, id)
        return SessionAnswer.from_session(await service.close_session(workspace, id))

    @router.get(
        "/api/v1/sessions",
        tags=["contents"],
        summary="List the sessions of all workspaces, most recently updated first",
    )
    def all_sessions(
        q: TitleQuery = "", status: StatusFilter = None, limit: Limit = 50, offset: Offset = 0
    ) -> SessionsAnswer:
        known = service.list_sessions(q, status)
        page = [
            SessionEntry.from_session(each, str(workspace.path), total_turns)
            for workspace, each in known[offset : offset + limit]
            if (total_turns := _count_turns(workspace.store, each.id)) is not None
        ]
        return SessionsAnswer(total_sessions=len(known), sessions=page)

    @router.get(
        "/api/v1/search",
        tags=["contents"],
        summary="Search all sessions for messages that contain all words of a query",
    )
    def search_all(q: SearchQuery, limit: Limit = 20, offset: Offset = 0) -> SearchAllAnswer:
        hits = service.search_sessions(q, limit + 1, offset)
        results = [FoundInSession.from_hit(hit, session_name=title) for hit, title in hits[:limit]]
        more = offset + limit if len(hits) > limit else None
        return SearchAllAnswer(query=q, results=results, next_offset=more)

    @router.get(
        "/api/v1/sessions/{id}",
        tags=["contents"],
        summary="Get a session with its title history, without its messages",
        responses=problem_responses(404),
    )
    def one_session(id: SessionId) -> SessionWithTitles:
        workspace = service.find_workspace(id)
        session = workspace.store.get(id)
        total_turns = workspace.store.count_turns(id)
        titles = [TitleEntry.from_change(each) for each in session.titles]
        return SessionWithTitles.from_session(
            session, str(workspace.path), total_turns, title_history=titles
        )

    @router.get(
        "/api/v1/sessions/{id}/toc",
        tags=["contents"],
        summary="Get the table of contents of a session, with one line per turn and per step",
        responses=problem_responses(404),
    )
    def toc(
        id: SessionId,
        start: FirstTurn = 1,
        limit: Limit = 1000,
        max_steps: MaxSteps = 100,
        first_step: FirstStep = 1,
    ) -> contents.Contents:
        store = service.find_workspace(id).store
        return contents.get_contents(
            store, id, start=start, limit=limit, max_steps=max_steps, first_step=first_step
        )

    @router.get(
        "/api/v1/sessions/{id}/turns/{turn}",
        tags=["contents"],
        summary="Get the messages of a turn or step, and one line each on the previous and the next",
        response_model_exclude_none=True,
        responses=problem_responses(404),
    )
    def one_turn(
        id: SessionId, turn: TurnOrStep, start: FirstMessage = 0, limit: Limit = 200
    ) -> contents.InteractionWithContext:
        store = service.find_workspace(id).store
        return contents.get_turn(store, id, turn, start=start, limit=limit)

    @router.get(
        "/api/v1/sessions/{id}/search",
        tags=["contents"],
        summary="Search a session for messages that contain all words of a query",
        responses=problem_responses(404),
    )
    def search(
        id: SessionId, q: SearchQuery, limit: Limit = 20, offset: Offset = 0
    ) -> SearchAnswer:
        hits = service.find_workspace(id).store.search(q, id, limit=limit, offset=offset)
        results = [Found.from_hit(hit) for hit in hits]
        return SearchAnswer(session_id=id, query=q, results=results)

    return router
