"""Service that handles the requests of the HTTP API.

It manages the served workspaces, the running turns and the agents in memory. An agent is kept in
memory during a turn and until it has been idle for some time. If the session continues later, a new
agent loads it from the store. This limits memory use for any number of sessions.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.exceptions import HTTPException

from ctxlab.errors import CtxlabError, SessionError, SpecError, UnknownSession
from ctxlab.serve.http.turn_runner import TurnRunner
from ctxlab.sessions.base import Session, SessionStatus, SessionStore
from ctxlab.sessions.file_router import FileRouter

if TYPE_CHECKING:
    from ctxlab.agent.loop import Agent
    from ctxlab.agent.session import AgentSession
    from ctxlab.sessions.background_summaries import BackgroundSummarizer
    from ctxlab.sessions.text_search import SearchHit

_SHUTTING_DOWN = "the server is shutting down; try again when it has restarted"
_CANCEL_TIMEOUT = 5.0
"maximum time to wait until cancelled turns end, in seconds"


class Workspace:
    """Workspace that the server serves, with its session store and its running turn.

    Parameters
    ----------
    path : Path
        Folder of the workspace.
    store_for : callable
        Function that takes the path of a workspace and returns its session store.
    summaries_for : callable
        Function that takes a session store and returns the summarizer of its sessions.
    """

    def __init__(
        self,
        path: Path,
        store_for: Callable[[Path], SessionStore],
        summaries_for: Callable[[SessionStore], BackgroundSummarizer],
    ) -> None:
        self.path = path
        self.store = store_for(path)
        self.file_router = FileRouter(self.store, path)
        self.active_turn: TurnRunner | None = None
        "the running turn, or None; a workspace runs one turn at a time"
        self._make_summaries = summaries_for
        self.start()

    def start(self) -> None:
        """Create a new lock and a new summarizer, when the server starts or restarts."""
        self.lock = asyncio.Lock()
        "lock that is held while a session is opened or closed, or a turn is started"
        self.summaries = self._make_summaries(self.store)

    def close(self) -> None:
        """Close the summarizer, and close the store unless a turn is still using it."""
        self.summaries.close(1.0)
        if self.active_turn is None:
            self.store.close()


class _PooledAgent(NamedTuple):
    agent_session: AgentSession
    message_count: int
    "number of stored messages of the session when the agent became idle"
    idle_since: float


class AgentPool:
    """Pool that keeps idle agents in memory.

    The session of an agent in the pool can continue without being loaded from the store.

    Parameters
    ----------
    max_agents : int
        Maximum number of idle agents.
    idle_timeout : float
        Maximum time for which an idle agent is kept, in seconds.
    """

    def __init__(self, max_agents: int, idle_timeout: float) -> None:
        self.max_agents, self.idle_timeout = max_agents, idle_timeout
        self._agents: OrderedDict[str, _PooledAgent] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return the number of idle agents."""
        return len(self._agents)

    def put(self, agent_session: AgentSession, message_count: int) -> None:
        """Add an idle agent. If the pool is full, remove the agent that has been idle longest.

        If the pool already has another agent for the session, that agent is replaced. The child
        processes of removed and replaced agents are killed.

        Parameters
        ----------
        agent_session : AgentSession
            Session that is connected to the agent.
        message_count : int
            Number of messages of the session in the store.
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
        """Remove and return the agent of a session, unless the agent is out of date.

        An agent is out of date if another process added messages to the session after the agent was
        put into the pool. Such an agent is removed as well.

        Parameters
        ----------
        session_id : str
            Id of the session.
        message_count : int
            Number of messages of the session in the store.

        Returns
        -------
        AgentSession or None
            Session that is connected to the agent. None if the pool has no agent for the session,
            or if the agent is out of date.
        """
        with self._lock:
            pooled = self._agents.pop(session_id, None)
        if pooled is None or pooled.message_count == message_count:
            return pooled and pooled.agent_session
        _kill_processes(pooled.agent_session)
        return None

    def discard(self, session_id: str) -> None:
        """Remove the agent of a session, if the pool has one, and kill its child processes.

        Parameters
        ----------
        session_id : str
            Id of the session.
        """
        self.take(session_id, message_count=-1)

    def close_idle(self, idle_timeout: float | None = None) -> None:
        """Remove agents that have been idle for too long, and kill their child processes.

        Parameters
        ----------
        idle_timeout : float, optional
            Maximum idle time in seconds. By default, the ``idle_timeout`` of the pool.
        """
        latest = time.monotonic() - (self.idle_timeout if idle_timeout is None else idle_timeout)
        with self._lock:
            late = [id for id, seat in self._agents.items() if seat.idle_since <= latest]
            expired = [self._agents.pop(id) for id in late]
        for pooled in expired:
            _kill_processes(pooled.agent_session)


class ChatService:
    """Service that opens and closes sessions and starts turns for the routes of the HTTP API.

    Parameters
    ----------
    workspaces : sequence of Path or str
        Folders to serve, as workspaces.
    agent_for : callable
        Function that takes the path of a workspace and returns a new agent for a session.
    store_for : callable
        Function that takes the path of a workspace and returns its session store.
    summaries_for : callable
        Function that takes a session store and returns the summarizer of its sessions.
    agent_pool : AgentPool
        Pool of idle agents.

    Raises
    ------
    SpecError
        If no workspace is given, or if a workspace is not a folder.
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
            raise SpecError("Expected at least one workspace, got none; pass the folders to serve")
        self.workspaces: dict[Path, Workspace] = {}
        for path in workspaces:
            root = Path(path).expanduser().resolve()
            if not root.is_dir():
                raise SpecError(f"Expected an existing folder as workspace, got {str(path)!r}")
            self.workspaces[root] = Workspace(root, store_for, summaries_for)
        self.agent_pool = agent_pool
        self._agent_for = agent_for
        self._closed = False

    def start(self) -> None:
        """Create new locks and summarizers for all workspaces, when the server starts or restarts."""
        self._closed = False
        for workspace in self.workspaces.values():
            workspace.start()

    def get_workspace(self, path: str) -> Workspace:
        """Return the served workspace at a path.

        Parameters
        ----------
        path : str
            Absolute path of the workspace. The slash at the beginning may be missing. Symbolic
            links are followed.

        Returns
        -------
        Workspace
            Workspace at this path.

        Raises
        ------
        HTTPException
            With status 403, if no served workspace is at this path.
        """
        try:
            # Clients and proxies that normalize URLs remove a leading slash from the path.
            workspace = self.workspaces.get(Path("/", path).resolve())
        except (OSError, ValueError, RuntimeError):  # too long, null byte, link loop
            workspace = None
        if workspace is None:
            raise HTTPException(
                403,
                f"Expected a workspace of this server, got {path[:200]!r}; "
                f"choose from {', '.join(map(str, self.workspaces))}",
            )
        return workspace

    def find_workspace(self, session_id: str) -> Workspace:
        """Return the workspace that a session belongs to.

        Parameters
        ----------
        session_id : str
            Id of the session.

        Returns
        -------
        Workspace
            Workspace of the session.

        Raises
        ------
        UnknownSession
            If the stores of all served workspaces have no session with this id.
        """
        for workspace in self.workspaces.values():
            with suppress(UnknownSession):
                workspace.store.get(session_id)
                return workspace
        raise UnknownSession(session_id)

    def list_sessions(
        self, title_words: str | None, status: SessionStatus | None
    ) -> list[tuple[Workspace, Session]]:
        """Return the sessions of all workspaces with their workspaces, most recently updated first.

        Sessions that programs use internally are left out.

        Parameters
        ----------
        title_words : str or None
            Words that the title must contain.
        status : {'active', 'closed', 'archived'} or None
            Status of the sessions. If None, archived sessions are left out.

        Returns
        -------
        list of tuple of (Workspace, Session)
            The sessions and their workspaces.
        """
        found = [
            (workspace, session)
            for workspace in self.workspaces.values()
            for session in workspace.store.sessions(title_words, status=status)
            if not session.system
        ]
        return sorted(found, key=lambda each: each[1].updated, reverse=True)

    def search_sessions(self, query: str, limit: int, offset: int) -> list[tuple[SearchHit, str]]:
        """Search the sessions of all workspaces for messages that contain all words of a query.

        Scores of different stores cannot be compared. So the best hit of each workspace comes first,
        then the second hit of each, and so on.

        Parameters
        ----------
        query : str
            Words to find.
        limit : int
            Maximum number of hits.
        offset : int
            Number of hits to skip.

        Returns
        -------
        list of tuple of (SearchHit, str)
            The hits and the titles of their sessions.
        """
        stores = [workspace.store for workspace in self.workspaces.values()]
        if len(stores) == 1:
            hits = [(hit, stores[0]) for hit in stores[0].search(query, limit=limit, offset=offset)]
        else:
            per_store = [
                [(hit, store) for hit in store.search(query, limit=offset + limit)]
                for store in stores
            ]
            ranked = chain.from_iterable(zip_longest(*per_store))
            hits = [hit for hit in ranked if hit is not None][offset : offset + limit]
        titles = dict.fromkeys((hit.session_id for hit, _ in hits), "")
        for hit, store in hits:
            if not titles[hit.session_id]:
                with suppress(SessionError):  # it was deleted in the meantime
                    titles[hit.session_id] = store.get(hit.session_id).title
        return [(hit, titles[hit.session_id]) for hit, _ in hits]

    def choose_workspace(self, workspace_path: str | None, session_id: str | None) -> Workspace:
        """Return the workspace that receives a message.

        If ``workspace_path`` is given, the workspace at this path is returned. Otherwise, if only
        one workspace is served, it is returned. If several workspaces are served, the workspace of
        the session ``session_id`` is returned.

        Parameters
        ----------
        workspace_path : str or None
            Path of a served workspace.
        session_id : str or None
            Id of a session in a served workspace.

        Returns
        -------
        Workspace
            Workspace that receives the message.

        Raises
        ------
        HTTPException
            With status 403, if ``workspace_path`` is not the path of a served workspace. With
            status 422, if several workspaces are served and the arguments select none of them.
        """
        if workspace_path is not None:
            return self.get_workspace(workspace_path)
        if len(self.workspaces) == 1:
            return next(iter(self.workspaces.values()))
        if session_id:
            with suppress(UnknownSession):
                return self.find_workspace(session_id)
        raise HTTPException(
            422,
            "Expected a value for 'workspace', because several workspaces are served; "
            f"choose from {', '.join(map(str, self.workspaces))}",
        )

    async def start_turn(
        self,
        workspace: Workspace,
        text: str,
        file: str | None,
        session_id: str | None = None,
        *,
        can_ask: bool = False,
    ) -> TurnRunner:
        """Start a turn in a session, which is chosen by its id or by the open file.

        Parameters
        ----------
        workspace : Workspace
            Workspace of the session.
        text : str
            Message of the user.
        file : str or None
            Path of the file that the user has open.
        session_id : str, optional
            Id of the session. By default, the session that belongs to ``file`` is used, or, if
            ``file`` is None, the session for messages without an open file. It is created if it
            does not exist.
        can_ask : bool, default False
            True if the client reads the events of the turn, so that it can be asked to approve calls.

        Returns
        -------
        TurnRunner
            Runner of the started turn.

        Raises
        ------
        HTTPException
            With status 409, if a turn is running in the workspace. With status 503, if the server
            is shutting down.
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
            turn = TurnRunner(open_session, on_end, text, file, can_ask=can_ask)
            workspace.active_turn = turn
            try:
                turn.start()
            except BaseException:  # no thread could be started
                workspace.active_turn = None
                raise
            return turn

    async def open_session(self, workspace: Workspace, session_id: str | None) -> Session:
        """Create or resume a session, and set its status to ``active``.

        Parameters
        ----------
        workspace : Workspace
            Workspace of the session.
        session_id : str or None
            Id of the session to resume. If None, a session is created.

        Returns
        -------
        Session
            Metadata of the created or resumed session.

        Raises
        ------
        HTTPException
            With status 409, if a turn is running in the workspace. With status 503, if the server
            is shutting down or the agent cannot be created.
        UnknownSession
            If the workspace has no session with this id.
        """
        async with workspace.lock:
            self._raise_if_unavailable(workspace)
            return await asyncio.to_thread(self._open_session_blocking, workspace, session_id)

    async def close_session(self, workspace: Workspace, session_id: str) -> Session:
        """Close a session. If the session has a running turn, cancel the turn first.

        If the status of the session is not ``active``, its metadata is returned unchanged.

        Parameters
        ----------
        workspace : Workspace
            Workspace of the session.
        session_id : str
            Id of the session.

        Returns
        -------
        Session
            Metadata of the session after it was closed.

        Raises
        ------
        UnknownSession
            If the workspace has no session with this id.
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
        """Cancel running turns, wait at most five seconds until they end, and close all stores."""
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
            why = f"{which} of this workspace is running a turn; wait until the turn ends"
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
        """Open the session with the given id, or the session of ``file`` if the id is None.

        The session is connected to an agent, which is taken from the pool or created.
        """
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
