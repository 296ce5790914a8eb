"""What stands behind the routes: workspaces that are served, turns at work, agents in memory.

An agent is in memory during a turn and for a while after it; then its session is resumed from the
store. So memory is bounded however many sessions there are.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxlab.errors import CtxlabError, SpecError, UnknownSession
from ctxlab.serve.http.errors import HTTPProblem
from ctxlab.serve.http.turn_runner import TurnRunner
from ctxlab.sessions.base import Session, SessionStore
from ctxlab.sessions.file_router import FileRouter

if TYPE_CHECKING:
    from ctxlab.agent.loop import Agent
    from ctxlab.agent.session import AgentSession
    from ctxlab.sessions.background_summaries import BackgroundSummarizer

__all__ = ["AgentPool", "ChatService", "Workspace"]

_CANCEL_TIMEOUT = 5.0
"seconds that cancelled turns are waited for"


class Workspace:
    """A workspace that is served: its store, its sessions by file, and the turn at work in it."""

    def __init__(
        self,
        path: Path,
        store_for: Callable[[Path], SessionStore],
        summaries_for: Callable[[SessionStore], BackgroundSummarizer],
    ) -> None:
        self.path = path
        self.store = store_for(path)
        self.file_router = FileRouter(self.store)
        self.active_turn: TurnRunner | None = None
        "one at a time, since one session of a workspace is active at a time"
        self._make_summaries = summaries_for
        self.start()

    def start(self) -> None:
        """Ready for a server that starts, perhaps once more."""
        self.lock = asyncio.Lock()
        "held while a session of it is opened or a turn begun"
        self.summaries = self._make_summaries(self.store)

    def close(self) -> None:
        """Lets go of its files, unless a turn that has not ended holds them."""
        self.summaries.close(1.0)
        if self.active_turn is None:
            self.store.close()

    def raise_if_busy(self) -> None:
        """Raises ``HTTPProblem`` (409) while a turn is at work."""
        if (turn := self.active_turn) is not None:
            session = turn.agent_session and turn.agent_session.id
            which = f"session {session!r}" if session else "a session"
            raise HTTPProblem(
                409, f"{which} of this workspace is at work: wait for its turn to end"
            )


class _PooledAgent(NamedTuple):
    agent_session: AgentSession
    message_count: int
    "stored when it was put here; more: another process has written"
    idle_since: float


class AgentPool:
    """Agents that wait for their next turn: at most so many, and each for at most so many seconds."""

    def __init__(self, max_agents: int, idle_timeout: float) -> None:
        self.max_agents, self.idle_timeout = max_agents, idle_timeout
        self._agents: OrderedDict[str, _PooledAgent] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._agents)

    def put(self, agent_session: AgentSession, message_count: int) -> None:
        """Keeps an agent, which may cost the one that has waited longest its place."""
        with self._lock:
            replaced = self._agents.pop(agent_session.id, None)
            self._agents[agent_session.id] = _PooledAgent(
                agent_session, message_count, time.monotonic()
            )
            evicted = [
                self._agents.popitem(last=False)[1] for _ in range(len(self) - self.max_agents)
            ]
        for pooled in [
            *evicted,
            *([replaced] if replaced and replaced.agent_session is not agent_session else []),
        ]:
            _kill_processes(pooled.agent_session)

    def take(self, session_id: str, message_count: int) -> AgentSession | None:
        """The agent of a session, if it knows all messages that are stored; it is no longer kept."""
        with self._lock:
            pooled = self._agents.pop(session_id, None)
        if pooled is None or pooled.message_count == message_count:
            return pooled and pooled.agent_session
        _kill_processes(pooled.agent_session)
        return None

    def discard(self, session_id: str) -> None:
        """Lets go of the agent of a session, where there is one."""
        with self._lock:
            pooled = self._agents.pop(session_id, None)
        if pooled is not None:
            _kill_processes(pooled.agent_session)

    def close_idle(self, idle_timeout: float | None = None) -> None:
        """Lets go of those that have waited too long."""
        latest = time.monotonic() - (self.idle_timeout if idle_timeout is None else idle_timeout)
        with self._lock:
            late = [id for id, seat in self._agents.items() if seat.idle_since <= latest]
            expired = [self._agents.pop(id) for id in late]
        for pooled in expired:
            _kill_processes(pooled.agent_session)


class ChatService:
    """Everything behind the routes. Raises ``SpecError`` for a workspace that is no folder."""

    def __init__(
        self,
        workspaces: Sequence[Path],
        agent_for: Callable[[Path], Agent],
        store_for: Callable[[Path], SessionStore],
        summaries_for: Callable[[SessionStore], BackgroundSummarizer],
        *,
        idle_timeout: float = 600.0,
        max_agents: int = 16,
    ) -> None:
        if not workspaces:
            raise SpecError("no workspace is given: name the folders that are to be served")
        self.workspaces: dict[Path, Workspace] = {}
        for path in workspaces:
            root = Path(path).expanduser().resolve()
            if not root.is_dir():
                raise SpecError(f"workspace {str(path)!r} is no folder")
            self.workspaces[root] = Workspace(root, store_for, summaries_for)
        self.agent_pool = AgentPool(max_agents, idle_timeout)
        self._agent_for = agent_for
        self._closed = False

    def start(self) -> None:
        """The server starts, perhaps once more, on the event loop that runs now."""
        self._closed = False
        for workspace in self.workspaces.values():
            workspace.start()

    def get_workspace(self, path: str) -> Workspace:
        """The workspace at a path, links followed; ``HTTPProblem`` (403) for one that is not served."""
        try:
            # A slash at the beginning is lost where a client or proxy tidies addresses up.
            workspace = self.workspaces.get(Path("/", path).resolve())
        except (OSError, ValueError, RuntimeError):  # too long, a null byte, links in a circle
            workspace = None
        if workspace is None:
            raise HTTPProblem(403, f"{path[:200]!r} is no workspace of this server")
        return workspace

    def find_workspace(self, session_id: str) -> Workspace:
        """The workspace that holds a session; ``UnknownSession`` where none does."""
        for workspace in self.workspaces.values():
            try:
                workspace.store.get(session_id)
            except UnknownSession:
                continue
            return workspace
        raise UnknownSession(session_id)

    def choose_workspace(self, workspace_path: str | None, session_id: str | None) -> Workspace:
        """Where a message belongs that may name a workspace or a session, or neither."""
        if workspace_path is not None:
            return self.get_workspace(workspace_path)
        if len(self.workspaces) == 1:
            return next(iter(self.workspaces.values()))
        if session_id:
            try:
                return self.find_workspace(session_id)
            except UnknownSession:
                pass
        raise HTTPProblem(422, "several workspaces are served: say which one in workspace")

    async def start_turn(
        self, workspace: Workspace, text: str, file: str | None, session_id: str | None = None
    ) -> TurnRunner:
        """Begins a turn of a session, or of the one that belongs to the file."""
        async with workspace.lock:
            self._raise_if_closed()
            workspace.raise_if_busy()

            def on_end(agent_session: AgentSession | None) -> None:
                try:
                    if agent_session is not None:
                        self._return_to_pool(workspace, agent_session)
                    elif turn.agent_session is not None:
                        _kill_processes(turn.agent_session)
                finally:
                    workspace.active_turn = None

            turn = TurnRunner(
                lambda: self._open_agent_session(workspace, session_id, file), on_end, text, file
            )
            workspace.active_turn = turn
            try:
                turn.start()
            except BaseException:  # there is no thread for it
                workspace.active_turn = None
                raise
            return turn

    async def open_session(self, workspace: Workspace, session_id: str | None) -> Session:
        """A new session, or one that is resumed; it is active from now on."""
        async with workspace.lock:
            self._raise_if_closed()
            workspace.raise_if_busy()
            return await asyncio.to_thread(self._open_session_blocking, workspace, session_id)

    async def close_session(self, workspace: Workspace, session_id: str) -> Session:
        """Closes a session; a turn at work in it is cancelled first."""
        turn = workspace.active_turn
        if (
            turn is not None
            and turn.agent_session is not None
            and turn.agent_session.id == session_id
        ):
            turn.cancel(HTTPProblem(409, "the session was closed, and with it the turn cancelled"))
            await asyncio.to_thread(turn.wait, _CANCEL_TIMEOUT)
        async with workspace.lock:
            self.agent_pool.discard(session_id)
            session = await asyncio.to_thread(workspace.store.get, session_id)
            if session.status != "active":
                return session
            return await asyncio.to_thread(workspace.store.set_status, session_id, "closed")

    def close(self) -> None:
        """Cancels what is at work, waits a few seconds for it, and lets go of everything."""
        self._closed = True
        turns = list(self._active_turns())
        for turn in turns:
            turn.cancel(HTTPProblem(503, "the server is about to end"))
        latest = time.monotonic() + _CANCEL_TIMEOUT
        for turn in turns:
            turn.wait(max(0.0, latest - time.monotonic()))
        self.agent_pool.close_idle(idle_timeout=0.0)
        for workspace in self.workspaces.values():
            workspace.close()

    def _active_turns(self) -> Iterator[TurnRunner]:
        for workspace in self.workspaces.values():
            if (turn := workspace.active_turn) is not None:
                yield turn

    def _raise_if_closed(self) -> None:
        if self._closed:
            raise HTTPProblem(503, "the server is about to end")

    def _open_session_blocking(self, workspace: Workspace, session_id: str | None) -> Session:
        from ctxlab.agent.session import AgentSession

        if session_id is None:
            agent_session = AgentSession.start(
                workspace.store, self._make_agent(workspace), summarizer=workspace.summaries
            )
        else:
            agent_session = self._open_agent_session(workspace, session_id, None)
        self._return_to_pool(workspace, agent_session)
        return workspace.store.get(agent_session.id)

    def _open_agent_session(
        self, workspace: Workspace, session_id: str | None, file: str | None
    ) -> AgentSession:
        """The live session of an id or else of a file, from memory or from the store."""
        from ctxlab.agent.session import AgentSession

        store, summaries = workspace.store, workspace.summaries
        created: list[AgentSession] = []

        def create(**told: Any) -> Session:
            created.append(
                AgentSession.start(store, self._make_agent(workspace), summarizer=summaries, **told)
            )
            return created[0].session

        session = (
            workspace.file_router.route(file, create)
            if session_id is None
            else store.get(session_id)
        )
        if created:
            return created[0]
        agent_session = self.agent_pool.take(session.id, session.messages)
        if agent_session is None:
            return AgentSession.resume(
                store, session.id, self._make_agent(workspace), summarizer=summaries
            )
        if session.status != "active":
            store.open(session.id)
        return agent_session

    def _make_agent(self, workspace: Workspace) -> Agent:
        try:
            return self._agent_for(workspace.path)
        except CtxlabError as error:
            raise HTTPProblem(503, str(error)) from error

    def _return_to_pool(self, workspace: Workspace, agent_session: AgentSession) -> None:
        self.agent_pool.put(agent_session, workspace.store.get(agent_session.id).messages)


def _kill_processes(agent_session: AgentSession) -> None:
    if agent_session.agent.processes is not None:
        agent_session.agent.processes.kill_all()
