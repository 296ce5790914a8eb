"""The session tools: nine functions over a ``Library`` by which a model finds its way in past sessions.

Source: seed design "Session Table of Contents and Interaction Summaries", "Session MCP Server". Their
docstrings are what a model reads of them. They read and change nothing.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from ctxlab.errors import (
    SessionError,
    SpecError,
    UnknownSession,
)
from ctxlab.serve.mcp.pagination import page_of
from ctxlab.serve.mcp.schemas import (
    ContentsPage,
    Found,
    FoundPage,
    Overview,
    RecordedTurn,
    SessionLine,
    SessionsPage,
    TitleHistory,
    TitleHistoryEntry,
    TurnAnswer,
    TurnsAnswer,
)
from ctxlab.sessions import table_of_contents as contents
from ctxlab.sessions.base import (
    Hit,
    Library,
    Session,
    Status,
)
from ctxlab.sessions.common import check_id
from ctxlab.sessions.table_of_contents import (
    InteractionWithContext,
    interaction_id,
    iso,
)
from ctxlab.sessions.text_search import words_of

__all__ = ["CHARACTERS", "TOOLS", "SessionTools"]

CHARACTERS = 20_000
"""Characters of recorded text in an answer, where nothing else is asked for."""

TOOLS = (
    *("current_session", "session_toc", "session_title_history", "search_session"),
    *("search_all_sessions", "list_sessions", "get_turn", "get_turns", "get_interaction"),
)
"""Names of the tools, which are methods of ``SessionTools``."""

_RECENT = 5

_SessionId = Annotated[
    str | None,
    Field(max_length=500, description="As list_sessions shows it. Left out: the current session."),
]
_Turn = Annotated[int, Field(ge=1, le=10**12, description="Number of the turn, counted from 1.")]
_Offset = Annotated[
    int, Field(ge=0, le=10**12, description="Where to go on: next_offset of the answer before.")
]
_Limit = Annotated[int, Field(ge=1, le=100, description="How many at most.")]
_Characters = Annotated[
    int, Field(ge=100, le=100_000, description="Characters of recorded text in the answer.")
]
_Query = Annotated[
    str, Field(max_length=1_000, description="Words, all of which a message must hold. No syntax.")
]
_When = Annotated[
    str | None, Field(max_length=40, description="A date or time in ISO 8601; UTC if it says none.")
]


class SessionTools:
    """The tools over one library.

    ``current``: the id of the current session; None: the active one, else the one updated last.
    """

    def __init__(self, library: Library, current: str | None = None) -> None:
        self.library = library
        self.current = current

    def functions(self) -> dict[str, TypeAdapter[Any]]:
        """Each tool by name, behind a check of its arguments."""
        # Made here, where the names stand that annotations speak of.
        return {name: TypeAdapter(getattr(self, name)) for name in TOOLS}

    def current_session(self) -> Overview:
        """Gives an overview of the current session: title, size and its newest turns in a line each.

        Use it first, to learn what is worked on and how many turns there are. Then session_toc lists
        all turns and get_turn gives one in full.
        """
        session = self._session(None)
        total = self.library.turns(session.id)
        newest = contents.contents(self.library, session.id, start=max(1, total - _RECENT + 1))
        return Overview(
            **vars(_line(session)),
            total_turns=newest.total_turns,
            recent=newest.entries,
        )

    def session_toc(
        self,
        *,
        session_id: _SessionId = None,
        start: _Turn = 1,
        limit: Annotated[int, Field(ge=1, le=200, description="Turns at most.")] = 50,
    ) -> ContentsPage:
        """Lists the turns of a session, one line each: its table of contents.

        Use it to find where something was done, before get_turn or get_turns fetch it in full. To see
        the newest turns of a long session, give a start near total_turns.
        """
        session = self._session(session_id)
        page = contents.contents(self.library, session.id, start=start, limit=limit)
        after = start + len(page.entries)
        more = after if page.entries and after <= page.total_turns else None
        return ContentsPage(**vars(page), next=more)

    def session_title_history(self, *, session_id: _SessionId = None) -> TitleHistory:
        """Lists the titles that a session had, newest first, each with the turn that it came with.

        Use it to see how the topic of a long session changed, and to jump to where a topic began.
        """
        session = self._session(session_id)
        titles = [
            TitleHistoryEntry(each.title, iso(each.changed_at), each.turn, each.interaction_id)
            for each in session.titles
        ]
        return TitleHistory(session.id, session.title, titles)

    def search_session(
        self,
        *,
        query: _Query,
        session_id: _SessionId = None,
        limit: _Limit = 20,
        offset: _Offset = 0,
    ) -> FoundPage:
        """Finds the messages of one session that hold all words of a query, the best first.

        Use it to recall a detail of this session: an error, a file, a decision. get_turn gives what
        stands around a hit. Fewer words find more.
        """
        return self._found(query, self._session(session_id).id, limit, offset)

    def search_all_sessions(
        self, *, query: _Query, limit: _Limit = 20, offset: _Offset = 0
    ) -> FoundPage:
        """Finds the messages of all sessions that hold all words of a query, the best first.

        Use it to learn whether something was done before, in whatever session. get_turn with the
        session_id and turn of a hit gives what stands around it.
        """
        return self._found(query, None, limit, offset)

    def list_sessions(
        self,
        *,
        query: Annotated[
            str | None, Field(max_length=1_000, description="Words in the title.")
        ] = None,
        status: Annotated[
            Status | None, Field(description="Left out: all that are not archived.")
        ] = None,
        since: _When = None,
        before: _When = None,
        limit: _Limit = 20,
        offset: _Offset = 0,
    ) -> SessionsPage:
        """Lists sessions, the one that was updated last first.

        Use it to find a session by its title or by when it was worked on; search_all_sessions finds
        one by what was said in it.
        """
        found = [
            each
            for each in self.library.sessions(
                query or None, since=_time(since), before=_time(before), status=status
            )
            if not each.system
        ]
        page = found[offset : offset + limit]
        more = offset + limit if offset + limit < len(found) else None
        return SessionsPage([_line(each) for each in page], len(found), more)

    def get_turn(
        self,
        *,
        turn: _Turn,
        session_id: _SessionId = None,
        offset: _Offset = 0,
        max_characters: _Characters = CHARACTERS,
    ) -> TurnAnswer:
        """Gives one turn in full: what was said, which tools were called and what they returned.

        Use it after session_toc or a search. A long turn is cut: next_offset says where to go on.
        """
        session = self._session(session_id)
        found = contents.turn(self.library, session.id, turn)
        return self._answer(session, found, offset, max_characters)

    def get_turns(
        self,
        *,
        start: _Turn,
        end: Annotated[
            int | None, Field(ge=1, le=10**12, description="The last turn. Left out: start + 9.")
        ] = None,
        session_id: _SessionId = None,
        max_characters: _Characters = CHARACTERS,
    ) -> TurnsAnswer:
        """Gives several turns in full, one after the other, as many as one answer holds.

        Use it to read a stretch of a session. next_turn says where to go on.
        """
        last = start + 9 if end is None else end
        if last < start:
            raise SpecError(f"end is {last}, which is before start, {start}")
        session = self._session(session_id)
        total = self.library.turns(session.id)
        shown, left, cut, rest = list[RecordedTurn](), max_characters, None, None
        following = start
        for number in range(start, max(start, min(last, total)) + 1):
            whole = contents.turn(self.library, session.id, number).interaction
            page, rest = page_of(whole, 0, left)
            if rest is not None and shown:
                rest = None  # it is whole on an answer of its own, or cut there
                break
            shown.append(page)
            following, left = number + 1, left - page.total_characters
            if rest is not None:
                cut = number
            if rest is not None or left <= 0:
                break
        more = following if following <= (total if end is None else min(last, total)) else None
        return TurnsAnswer(session.id, session.title, total, shown, more, cut, rest)

    def get_interaction(
        self,
        *,
        interaction_id: Annotated[
            str, Field(max_length=600, description="As contents, titles and searches show it.")
        ],
        offset: _Offset = 0,
        max_characters: _Characters = CHARACTERS,
    ) -> TurnAnswer:
        """Gives a whole interaction by its id: a prompt of the user and all that was done about it.

        Use it to follow an id from session_title_history, session_toc or a search. A long one is
        cut: next_offset says where to go on.
        """
        if id := interaction_id.rpartition(":")[0]:
            self._session(id)
        found = contents.interaction(self.library, interaction_id)
        session = self._session(found.interaction.session_id)
        return self._answer(session, found, offset, max_characters)

    def _session(self, id: str | None) -> Session:
        """The session of that id; None or empty: the current one."""
        if chosen := id or self.current:
            try:
                check_id(chosen)
            except SessionError:  # what cannot be an id never comes near a file
                raise UnknownSession(chosen) from None
            return self.library.get(chosen)
        statuses: tuple[Status | None, ...] = ("active", None)
        for status in statuses:
            for session in self.library.sessions(status=status):
                if not session.system:
                    return session
        raise SpecError("no session is stored yet")

    def _found(self, query: str, id: str | None, limit: int, offset: int) -> FoundPage:
        if not words_of(query):
            raise SpecError("the query holds no word: give one or more words to search for")
        hits = self.library.search(query, id, limit=limit + 1, offset=offset)
        names = dict[str, str]()
        for hit in hits[:limit]:
            if hit.session_id not in names:
                names[hit.session_id] = ""
                with suppress(SessionError):  # it was deleted since
                    names[hit.session_id] = self.library.get(hit.session_id).title
        found = [_hit(hit, names[hit.session_id]) for hit in hits[:limit]]
        return FoundPage(query, found, offset + limit if len(hits) > limit else None)

    def _answer(
        self, session: Session, found: InteractionWithContext, offset: int, limit: int
    ) -> TurnAnswer:
        page, more = page_of(found.interaction, offset, limit)
        total = self.library.turns(session.id)
        return TurnAnswer(found.turn, session.title, total, page, found.previous, found.next, more)


def _line(session: Session) -> SessionLine:
    return SessionLine(
        session.id,
        session.title,
        session.status,
        session.model,
        iso(session.created),
        iso(session.updated),
        session.messages,
    )


def _hit(hit: Hit, name: str) -> Found:
    id = interaction_id(hit.session_id, hit.turn) if hit.turn else ""
    return Found(
        hit.session_id,
        name,
        hit.turn,
        id,
        hit.position,
        hit.role,
        hit.snippet,
        hit.score,
        iso(hit.time),
    )


def _time(text: str | None) -> float | None:
    """Seconds since 1970."""
    if not text:
        return None
    try:
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise SpecError(f"{text!r} is no date: write 2026-11-22 or 2026-11-22T10:30Z") from None
