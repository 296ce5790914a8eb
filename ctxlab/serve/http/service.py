"""Service behind the routes: served workspaces, running turns and agents in memory.

An agent is in memory during a turn and for a while after it. Later its session is resumed from the
store. So memory use is bounded for any number of sessions.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.exceptions import HTTPException

from ctxlab.errors import CtxlabError, SpecError, UnknownSession
from ctxlab.serve.http.turn_runner import TurnRunner
from ctxlab.sessions.base import Session, SessionStore
from ctxlab.sessions.file_router import FileRouter

if TYPE_CHECKING:
    from ctxlab.agent.loop import Agent
    from ctxlab.agent.session import AgentSession
    from ctxlab.sessions.background_summaries import BackgroundSummarizer

_SHUTTING_DOWN = "the server is shutting down"
_CANCEL_TIMEOUT = 5.0
"seconds to wait for cancelled turns"


class Workspace:
    """Served workspace: its store, its sessions by file and its running turn.

    Parameters
    ----------
    path : Path
        Folder of the workspace.
    store_for : callable
        Function that returns the store of a workspace.
    summaries_for : callable
        Function that returns the summarizer of a store.
    """

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
        "the running turn; one at a time, since one session of a workspace is active at a time"
        self._make_summaries = summaries_for
        self.start()

    def start(self) -> None:
        """Prepare for a server start, which may be a restart."""
        self.lock = asyncio.Lock()
        "held while a session is opened or a turn is started"
        self.summaries = self._make_summaries(self.store)

    def close(self) -> None:
        """Close the store, unless an unfinished turn uses it."""
        self.summaries.close(1.0)
        if self.active_turn is None:
            self.store.close()


class _PooledAgent(NamedTuple):
    agent_session: AgentSession
    message_count: int
    "number of stored messages at that time; a larger one means that another process has written"
    idle_since: float


class AgentPool:
    """Idle agents in memory, limited in number and time.

    Parameters
    ----------
    max_agents : int
        Maximum number of agents.
    idle_timeout : float
        Maximum time that an agent is kept, in seconds.
    """

    def __init__(self, max_agents: int, idle_timeout: float) -> None:
        self.max_agents, self.idle_timeout = max_agents, idle_timeout
        self._agents: OrderedDict[str, _PooledAgent] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return the number of idle agents."""
        return len(self._agents)

    def put(self, agent_session: AgentSession, message_count: int) -> None:
        """Add an idle agent; if the pool is full, the agent that has been idle longest is removed.

        Parameters
        ----------
        agent_session : AgentSession
            Live session of the agent.
        message_count : int
            Number of stored messages of the session.
        """
        pooled = _PooledAgent(agent_session, message_count, time.monotonic())
        with self._lock:
            replaced = self._agents.pop(agent_session.id, pooled)
            self._agents[agent_session.id] = pooled
            surplus = len(self) - self.max_agents
            evicted = [self._agents.popitem(last=False)[1] for _ in range(surplus)]
        for each in (replaced, *evicted):
            if each.agent_session is not agent_session:
                _kill_processes(each.agent_session)

    def take(self, session_id: str, message_count: int) -> AgentSession | None:
        """Remove and return the agent of a session, if it knows all stored messages.

        Parameters
        ----------
        session_id : str
            Session id.
        message_count : int
            Number of stored messages of the session.

        Returns
        -------
        AgentSession or None
            The live session; None if the pool has none or it is out of date.
        """
        with self._lock:
            pooled = self._agents.pop(session_id, None)
        if pooled is None or pooled.message_count == message_count:
            return pooled and pooled.agent_session
        _kill_processes(pooled.agent_session)
        return None

    def discard(self, session_id: str) -> None:
        """Remove the agent of a session, if there is one.

        Parameters
        ----------
        session_id : str
            Session id.
        """
        self.take(session_id, message_count=-1)

    def close_idle(self, idle_timeout: float | None = None) -> None:
        """Remove agents that have been idle for too long.

        Parameters
        ----------
        idle_timeout : float, optional
            Time in seconds. By default, that of the pool.
        """
        latest = time.monotonic() - (self.idle_timeout if idle_timeout is None else idle_timeout)
        with self._lock:
            late = [id for id, seat in self._agents.items() if seat.idle_since <= latest]
            expired = [self._agents.pop(id) for id in late]
        for pooled in expired:
            _kill_processes(pooled.agent_session)


class ChatService:
    """Service behind the routes of the HTTP server.

    Parameters
    ----------
    workspaces : sequence of Path or str
        Folders that are served.
    agent_for : callable
        Function that creates the agent of a session in a workspace.
    store_for : callable
        Function that returns the store of a workspace.
    summaries_for : callable
        Function that returns the summarizer of a store.
    agent_pool : AgentPool
        Idle agents in memory.

    Raises
    ------
    SpecError
        If no workspace is given, or if one is not a folder.
    """

    def __init__(
        self,
        workspaces: Sequence[Path | str],
        agent_for: Callable[[Path], Agent],
        store_for: Callable[[Path], SessionStore],
        summaries_for: Callable[[SessionStore], BackgroundSummarizer],
        agent_pool: AgentPool,
    ) -> None:
        if not workspaces:
            raise SpecError("expected at least one workspace, got none; name the folders to serve")
        self.workspaces: dict[Path, Workspace] = {}
        for path in workspaces:
            root = Path(path).expanduser().resolve()
            if not root.is_dir():
                raise SpecError(f"workspace {str(path)!r} is not a folder")
            self.workspaces[root] = Workspace(root, store_for, summaries_for)
        self.agent_pool = agent_pool
        self._agent_for = agent_for
        self._closed = False

    def start(self) -> None:
        """Prepare for a server start on the running event loop; it may be a restart."""
        self._closed = False
        for workspace in self.workspaces.values():
            workspace.start()

    def get_workspace(self, path: str) -> Workspace:
        """Return the workspace at a path, following symbolic links.

        Parameters
        ----------
        path : str
            Path of the workspace.

        Returns
        -------
        Workspace
            The workspace.

        Raises
        ------
        HTTPException
            With status 403, if the workspace is not served.
        """
        try:
            # Clients and proxies that normalize URLs drop a leading slash.
            workspace = self.workspaces.get(Path("/", path).resolve())
        except (OSError, ValueError, RuntimeError):  # too long, a null byte, a link loop
            workspace = None
        if workspace is None:
            raise HTTPException(403, f"{path[:200]!r} is not a workspace of this server")
        return workspace

    def find_workspace(self, session_id: str) -> Workspace:
        """Return the workspace that holds a session.

        Parameters
        ----------
        session_id : str
            Session id.

        Returns
        -------
        Workspace
            The workspace.

        Raises
        ------
        UnknownSession
            If no workspace holds the session.
        """
        for workspace in self.workspaces.values():
            with suppress(UnknownSession):
                workspace.store.get(session_id)
                return workspace
        raise UnknownSession(session_id)

    def choose_workspace(self, workspace_path: str | None, session_id: str | None) -> Workspace:
        """Return the workspace for a message, by its path, by a session, or the only one.

        Parameters
        ----------
        workspace_path : str or None
            Path of the workspace.
        session_id : str or None
            Session whose workspace is chosen if no path is given.

        Returns
        -------
        Workspace
            The workspace.

        Raises
        ------
        HTTPException
            With status 403, if the path is not served; with 422, if several workspaces are served
            and neither argument selects one.
        """
        if workspace_path is not None:
            return self.get_workspace(workspace_path)
        if len(self.workspaces) == 1:
            return next(iter(self.workspaces.values()))
        if session_id:
            with suppress(UnknownSession):
                return self.find_workspace(session_id)
        raise HTTPException(422, "several workspaces are served; choose one with workspace")

    async def start_turn(
        self, workspace: Workspace, text: str, file: str | None, session_id: str | None = None
    ) -> TurnRunner:
        """Start a turn of a session, or of the session that belongs to a file.

        Parameters
        ----------
        workspace : Workspace
            Workspace of the session.
        text : str
            Message of the user.
        file : str or None
            File that the user has open.
        session_id : str, optional
            Session id. By default, the session of ``file``.

        Returns
        -------
        TurnRunner
            The running turn.

        Raises
        ------
        HTTPException
            With status 409, if a turn is running; with 503, if the server is shutting down.
        """
        async with workspace.lock:
            self._raise_if_unavailable(workspace)

            def on_end(agent_session: AgentSession | None) -> None:
                try:
                    if agent_session is not None:
                        self._return_to_pool(workspace, agent_session)
                    elif turn.agent_session is not None:
                        _kill_processes(turn.agent_session)
                finally:
                    workspace.active_turn = None

            open_session = partial(self._open_agent_session, workspace, session_id, file)
            turn = TurnRunner(open_session, on_end, text, file)
            workspace.active_turn = turn
            try:
                turn.start()
            except BaseException:  # no thread could be started
                workspace.active_turn = None
                raise
            return turn

    async def open_session(self, workspace: Workspace, session_id: str | None) -> Session:
        """Create a session or resume one, and make it active.

        Parameters
        ----------
        workspace : Workspace
            Workspace of the session.
        session_id : str or None
            Session to resume; None creates one.

        Returns
        -------
        Session
            The session.

        Raises
        ------
        HTTPException
            With status 409, if a turn is running; with 503, if the server is shutting down or the
            agent cannot be created.
        UnknownSession
            If the workspace has no such session.
        """
        async with workspace.lock:
            self._raise_if_unavailable(workspace)
            return await asyncio.to_thread(self._open_session_blocking, workspace, session_id)

    async def close_session(self, workspace: Workspace, session_id: str) -> Session:
        """Close a session; a running turn of the session is cancelled first.

        Parameters
        ----------
        workspace : Workspace
            Workspace of the session.
        session_id : str
            Session id.

        Returns
        -------
        Session
            The closed session.

        Raises
        ------
        UnknownSession
            If the workspace has no such session.
        """
        turn = workspace.active_turn
        if turn is not None and turn.session_id == session_id:
            turn.cancel(HTTPException(409, "the turn was cancelled because the session was closed"))
            await asyncio.to_thread(turn.wait, _CANCEL_TIMEOUT)
        async with workspace.lock:
            self.agent_pool.discard(session_id)
            session = await asyncio.to_thread(workspace.store.get, session_id)
            if session.status != "active":
                return session
            return await asyncio.to_thread(workspace.store.set_status, session_id, "closed")

    def close(self) -> None:
        """Cancel running turns, wait a few seconds for them, and close all stores."""
        self._closed = True
        running = [workspace.active_turn for workspace in self.workspaces.values()]
        turns = [turn for turn in running if turn is not None]
        for turn in turns:
            turn.cancel(HTTPException(503, _SHUTTING_DOWN))
        latest = time.monotonic() + _CANCEL_TIMEOUT
        for turn in turns:
            turn.wait(max(0.0, latest - time.monotonic()))
        self.agent_pool.close_idle(idle_timeout=0.0)
        for workspace in self.workspaces.values():
            workspace.close()

    def _raise_if_unavailable(self, workspace: Workspace) -> None:
        if self._closed:
            raise HTTPException(503, _SHUTTING_DOWN)
        if (turn := workspace.active_turn) is not None:
            which = f"session {turn.session_id!r}" if turn.session_id else "a session"
            why = f"{which} of this workspace is running a turn; wait for its end"
            raise HTTPException(409, why)

    def _open_session_blocking(self, workspace: Workspace, session_id: str | None) -> Session:
        if session_id is None:
            agent_session = self._start_agent_session(workspace)
        else:
            agent_session = self._open_agent_session(workspace, session_id, None)
        self._return_to_pool(workspace, agent_session)
        return workspace.store.get(agent_session.id)

    def _open_agent_session(
        self, workspace: Workspace, session_id: str | None, file: str | None
    ) -> AgentSession:
        """Return the live session of an id or of a file, from memory or from the store."""
        from ctxlab.agent.session import AgentSession

        created: list[AgentSession] = []

        def create(**about: Any) -> Session:
            created.append(self._start_agent_session(workspace, **about))
            return created[0].session

        store = workspace.store
        if session_id is None:
            session = workspace.file_router.route(file, create)
        else:
            session = store.get(session_id)
        if created:
            return created[0]
        known = self.agent_pool.take(session.id, session.messages)
        if known is None:
            agent, summaries = self._make_agent(workspace), workspace.summaries
            return AgentSession.resume(store, session.id, agent, summarizer=summaries)
        if session.status != "active":
            store.open(session.id)
        return known

    def _start_agent_session(self, workspace: Workspace, **about: Any) -> AgentSession:
        from ctxlab.agent.session import AgentSession

        agent, summaries = self._make_agent(workspace), workspace.summaries
        return AgentSession.start(workspace.store, agent, summarizer=summaries, **about)

    def _make_agent(self, workspace: Workspace) -> Agent:
        try:
            return self._agent_for(workspace.path)
        except CtxlabError as error:
            raise HTTPException(503, str(error)) from error

    def _return_to_pool(self, workspace: Workspace, agent_session: AgentSession) -> None:
        self.agent_pool.put(agent_session, workspace.store.get(agent_session.id).messages)


def _kill_processes(agent_session: AgentSession) -> None:
    if agent_session.agent.processes is not None:
        agent_session.agent.processes.kill_all()
