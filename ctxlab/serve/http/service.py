"""The desk of the HTTP server: which workspaces it serves, what is at work, which agents it remembers.

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

from ctxlab.errors import (
    CtxlabError,
    SpecError,
    UnknownSession,
)
from ctxlab.serve.http.errors import Refused
from ctxlab.serve.http.turn_runner import Turn
from ctxlab.sessions.base import (
    Session,
    Store,
)
from ctxlab.sessions.file_router import FileRouter

if TYPE_CHECKING:
    from ctxlab.agent.loop import Agent
    from ctxlab.agent.session import Live
    from ctxlab.sessions.background_summaries import Summaries

__all__ = ["Desk", "Place", "Seats"]

_ENDING = 5.0
"seconds that cancelled turns are waited for"


class Place:
    """A workspace that is served: its store, its sessions by file, and the turn at work in it."""

    def __init__(
        self,
        path: Path,
        store_for: Callable[[Path], Store],
        summaries_for: Callable[[Store], Summaries],
    ) -> None:
        self.path = path
        self.store = store_for(path)
        self.router = FileRouter(self.store)
        self.turn: Turn | None = None
        "one at a time, since one session of a workspace is active at a time"
        self._summaries_for = summaries_for
        self.begin()

    def begin(self) -> None:
        """Ready for a server that starts, perhaps once more."""
        self.gate = asyncio.Lock()
        "held while a session of it is opened or a turn begun"
        self.summaries = self._summaries_for(self.store)

    def close(self) -> None:
        """Lets go of its files, unless a turn that has not ended holds them."""
        self.summaries.close(1.0)
        if self.turn is None:
            self.store.close()

    def be_free(self) -> None:
        """Raises ``Refused`` (409) while a turn is at work."""
        if (turn := self.turn) is not None:
            session = turn.live and turn.live.id
            which = f"session {session!r}" if session else "a session"
            raise Refused(409, f"{which} of this workspace is at work: wait for its turn to end")


class _Seat(NamedTuple):
    live: Live
    messages: int
    "stored when it was put here; more: another process has written"
    since: float


class Seats:
    """Agents that wait for their next turn: at most so many, and each for at most so many seconds."""

    def __init__(self, most: int, idle: float) -> None:
        self.most, self.idle = most, idle
        self._seats: OrderedDict[str, _Seat] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._seats)

    def put(self, live: Live, messages: int) -> None:
        """Keeps an agent, which may cost the one that has waited longest its place."""
        with self._lock:
            before = self._seats.pop(live.id, None)
            self._seats[live.id] = _Seat(live, messages, time.monotonic())
            gone = [self._seats.popitem(last=False)[1] for _ in range(len(self) - self.most)]
        for seat in [*gone, *([before] if before and before.live is not live else [])]:
            _let_go(seat.live)

    def take(self, id: str, messages: int) -> Live | None:
        """The agent of a session, if it knows all messages that are stored; it is no longer kept."""
        with self._lock:
            seat = self._seats.pop(id, None)
        if seat is None or seat.messages == messages:
            return seat and seat.live
        _let_go(seat.live)
        return None

    def drop(self, id: str) -> None:
        """Lets go of the agent of a session, where there is one."""
        with self._lock:
            seat = self._seats.pop(id, None)
        if seat is not None:
            _let_go(seat.live)

    def sweep(self, idle: float | None = None) -> None:
        """Lets go of those that have waited too long."""
        latest = time.monotonic() - (self.idle if idle is None else idle)
        with self._lock:
            late = [id for id, seat in self._seats.items() if seat.since <= latest]
            gone = [self._seats.pop(id) for id in late]
        for seat in gone:
            _let_go(seat.live)


class Desk:
    """Everything behind the routes. Raises ``SpecError`` for a workspace that is no folder."""

    def __init__(
        self,
        workspaces: Sequence[Path],
        agent_for: Callable[[Path], Agent],
        store_for: Callable[[Path], Store],
        summaries_for: Callable[[Store], Summaries],
        *,
        idle: float = 600.0,
        most: int = 16,
    ) -> None:
        if not workspaces:
            raise SpecError("no workspace is given: name the folders that are to be served")
        self.places: dict[Path, Place] = {}
        for path in workspaces:
            root = Path(path).expanduser().resolve()
            if not root.is_dir():
                raise SpecError(f"workspace {str(path)!r} is no folder")
            self.places[root] = Place(root, store_for, summaries_for)
        self.seats = Seats(most, idle)
        self._agent_for = agent_for
        self._closed = False

    def begin(self) -> None:
        """The server starts, perhaps once more, on the event loop that runs now."""
        self._closed = False
        for place in self.places.values():
            place.begin()

    def place(self, path: str) -> Place:
        """The workspace at a path, links followed; ``Refused`` (403) for one that is not served."""
        try:
            # A slash at the beginning is lost where a client or proxy tidies addresses up.
            place = self.places.get(Path("/", path).resolve())
        except (OSError, ValueError, RuntimeError):  # too long, a null byte, links in a circle
            place = None
        if place is None:
            raise Refused(403, f"{path[:200]!r} is no workspace of this server")
        return place

    def place_of(self, id: str) -> Place:
        """The workspace that holds a session; ``UnknownSession`` where none does."""
        for place in self.places.values():
            try:
                place.store.get(id)
            except UnknownSession:
                continue
            return place
        raise UnknownSession(id)

    def place_for(self, workspace: str | None, id: str | None) -> Place:
        """Where a message belongs that may name a workspace or a session, or neither."""
        if workspace is not None:
            return self.place(workspace)
        if len(self.places) == 1:
            return next(iter(self.places.values()))
        if id:
            try:
                return self.place_of(id)
            except UnknownSession:
                pass
        raise Refused(422, "several workspaces are served: say which one in workspace")

    async def say(self, place: Place, text: str, file: str | None, id: str | None = None) -> Turn:
        """Begins a turn of a session, or of the one that belongs to the file."""
        async with place.gate:
            self._be_open()
            place.be_free()

            def over(live: Live | None) -> None:
                try:
                    if live is not None:
                        self._keep(place, live)
                    elif turn.live is not None:
                        _let_go(turn.live)
                finally:
                    place.turn = None

            turn = Turn(lambda: self._open(place, id, file), over, text, file)
            place.turn = turn
            try:
                turn.start()
            except BaseException:  # there is no thread for it
                place.turn = None
                raise
            return turn

    async def open(self, place: Place, id: str | None) -> Session:
        """A new session, or one that is resumed; it is active from now on."""
        async with place.gate:
            self._be_open()
            place.be_free()
            return await asyncio.to_thread(self._opened, place, id)

    async def end(self, place: Place, id: str) -> Session:
        """Closes a session; a turn at work in it is cancelled first."""
        turn = place.turn
        if turn is not None and turn.live is not None and turn.live.id == id:
            turn.cancel(Refused(409, "the session was closed, and with it the turn cancelled"))
            await asyncio.to_thread(turn.wait, _ENDING)
        async with place.gate:
            self.seats.drop(id)
            session = await asyncio.to_thread(place.store.get, id)
            if session.status != "active":
                return session
            return await asyncio.to_thread(place.store.mark, id, "closed")

    def close(self) -> None:
        """Cancels what is at work, waits a few seconds for it, and lets go of everything."""
        self._closed = True
        turns = list(self._turns())
        for turn in turns:
            turn.cancel(Refused(503, "the server is about to end"))
        latest = time.monotonic() + _ENDING
        for turn in turns:
            turn.wait(max(0.0, latest - time.monotonic()))
        self.seats.sweep(idle=0.0)
        for place in self.places.values():
            place.close()

    def _turns(self) -> Iterator[Turn]:
        for place in self.places.values():
            if (turn := place.turn) is not None:
                yield turn

    def _be_open(self) -> None:
        if self._closed:
            raise Refused(503, "the server is about to end")

    def _opened(self, place: Place, id: str | None) -> Session:
        from ctxlab.agent.session import Live

        if id is None:
            live = Live.start(place.store, self._agent(place), summaries=place.summaries)
        else:
            live = self._open(place, id, None)
        self._keep(place, live)
        return place.store.get(live.id)

    def _open(self, place: Place, id: str | None, file: str | None) -> Live:
        """The live session of an id or else of a file, from memory or from the store."""
        from ctxlab.agent.session import Live

        store, summaries = place.store, place.summaries
        made: list[Live] = []

        def create(**told: Any) -> Session:
            made.append(Live.start(store, self._agent(place), summaries=summaries, **told))
            return made[0].session

        session = place.router.route(file, create) if id is None else store.get(id)
        if made:
            return made[0]
        live = self.seats.take(session.id, session.messages)
        if live is None:
            return Live.resume(store, session.id, self._agent(place), summaries=summaries)
        if session.status != "active":
            store.open(session.id)
        return live

    def _agent(self, place: Place) -> Agent:
        try:
            return self._agent_for(place.path)
        except CtxlabError as error:
            raise Refused(503, str(error)) from error

    def _keep(self, place: Place, live: Live) -> None:
        self.seats.put(live, place.store.get(live.id).messages)


def _let_go(live: Live) -> None:
    if live.agent.processes is not None:
        live.agent.processes.kill_all()
