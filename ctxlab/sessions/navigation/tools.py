"""Tools that read and search past sessions: the methods of ``SessionTools``.

The MCP server offers these methods as they are, and their docstrings are the tool descriptions that
models read. The memory of an agent (``ctxlab.agent.memory``) uses some of them. No tool changes a
session.

References
----------
Design documents "Session Table of Contents and Interaction Summaries",
"Session MCP Server" (see ``tests/SEEDS.md``).
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated

from pydantic import Field, SkipValidation

from ctxlab.errors import SessionError, SpecError, UnknownSession
from ctxlab.sessions import table_of_contents as contents
from ctxlab.sessions.base import Session, SessionLibrary, SessionStatus
from ctxlab.sessions.common import check_session_id
from ctxlab.sessions.navigation.pagination import paginate_interaction
from ctxlab.sessions.navigation.results import (
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
from ctxlab.sessions.table_of_contents import InteractionWithContext
from ctxlab.sessions.text_search import query_words

DEFAULT_MAX_CHARACTERS = 20_000
"""Default maximum number of characters of recorded text in a result."""

_N_RECENT_TURNS = 5

_ID = Field(max_length=500, description="Id from list_sessions. Default: the current session.")
_SessionId = Annotated[str | None, _ID]
_TurnNumber = Annotated[int, Field(ge=1, le=10**12, description="Turn number, from 1.")]
_LABEL_HELP = 'Number of a turn, such as 3, or label of a step, such as "3.2".'
# ``TurnLabel.parse`` validates the value, so that there is one error message.
_TurnOrStep = Annotated[int | str, SkipValidation, Field(description=_LABEL_HELP)]
_NEXT_HELP = "Where to continue: next_offset of the last result."
_Offset = Annotated[int, Field(ge=0, le=10**12, description=_NEXT_HELP)]
_Limit = Annotated[int, Field(ge=1, le=100, description="Maximum number of entries.")]
_SIZE_HELP = "Maximum characters of recorded text in the result."
_MaxCharacters = Annotated[int, Field(ge=100, le=100_000, description=_SIZE_HELP)]
_QUERY_HELP = "Words that a message must all contain. There is no query syntax."
_Query = Annotated[str, Field(max_length=1_000, description=_QUERY_HELP)]
_TIME_HELP = "ISO 8601 date or time; UTC unless it has a time zone."
_DateOrTime = Annotated[str | None, Field(max_length=40, description=_TIME_HELP)]


class SessionTools:
    """Tools that read and search the sessions of a library.

    Parameters
    ----------
    library : SessionLibrary
        Sessions to read.
    current_session_id : str, optional
        Id of the current session. By default, the active session is used, or the most recently
        updated one if no session is active.
    """

    def __init__(self, library: SessionLibrary, current_session_id: str | None = None) -> None:
        self.library = library
        self.current_session_id = current_session_id

    def current_session(self) -> Overview:
        """Return an overview of the current session: title, size and one line per recent turn.

        Use it first, to learn what is being worked on and how many turns there are. A turn is a
        message of the user with everything that answers it. Then session_toc lists all turns, and
        get_turn returns a turn in full.
        """
        session = self.find(None)
        total = self.library.count_turns(session.id)
        first = max(1, total - _N_RECENT_TURNS + 1)
        newest = contents.get_contents(self.library, session.id, start=first, max_steps=0)
        line = SessionLine.from_session(session)
        return Overview(**vars(line), total_turns=newest.total_turns, recent=newest.entries)

    def session_toc(
        self,
        *,
        session_id: _SessionId = None,
        start: _TurnNumber = 1,
        limit: Annotated[int, Field(ge=1, le=200, description="Maximum number of turns.")] = 50,
        max_steps: Annotated[
            int, Field(ge=0, le=100, description="Maximum number of steps to list for each turn.")
        ] = 10,
    ) -> ContentsPage:
        """Return the table of contents of a session, with one line for each turn and step.

        Use it to find where something was done. A turn is a message of the user with everything that
        answers it. A step, such as 3.2, is one reply of the agent with its tool calls. Then get_turn
        returns a turn or a step in full. To see the newest turns of a long session, pass a start
        near total_turns. To leave out the steps, pass max_steps=0.
        """
        session = self.find(session_id)
        page = contents.get_contents(
            self.library, session.id, start=start, limit=limit, max_steps=max_steps
        )
        return ContentsPage(**vars(page))

    def session_title_history(self, *, session_id: _SessionId = None) -> TitleHistory:
        """List the titles of a session, newest first, each with the turn that it comes from.

        Use it to see how the topic of a long session changed, and to find the turn in which a topic
        began.
        """
        session = self.find(session_id)
        titles = [TitleHistoryEntry.from_change(each) for each in session.titles]
        return TitleHistory(session.id, session.title, titles)

    def search_session(
        self,
        *,
        query: _Query,
        session_id: _SessionId = None,
        limit: _Limit = 20,
        offset: _Offset = 0,
    ) -> FoundPage:
        """Search one session for messages that contain all words of a query, best first.

        Use it to recall a detail of this session: an error, a file, a decision. get_turn with
        the turn or the label of a result returns the whole turn or only the step. A query with fewer
        words finds more messages.
        """
        return self._search(query, self.find(session_id).id, limit, offset)

    def search_all_sessions(
        self, *, query: _Query, limit: _Limit = 20, offset: _Offset = 0
    ) -> FoundPage:
        """Search all sessions for messages that contain all words of a query, best first.

        Use it to learn if something was done before, in any session. get_turn with the session_id
        and the turn or the label of a result returns the whole turn or only the step.
        """
        return self._search(query, None, limit, offset)

    def list_sessions(
        self,
        *,
        query: Annotated[
            str | None, Field(max_length=1_000, description="Words that the title must contain.")
        ] = None,
        status: Annotated[
            SessionStatus | None,
            Field(description="Only sessions with this status. Default: all but archived ones."),
        ] = None,
        since: _DateOrTime = None,
        before: _DateOrTime = None,
        limit: _Limit = 20,
        offset: _Offset = 0,
    ) -> SessionsPage:
        """List sessions, most recently updated first.

        Use it to find a session by its title or its time. search_all_sessions finds a session by
        its messages.
        """
        since_time, before_time = _parse_time(since), _parse_time(before)
        known = self.library.sessions(query, since=since_time, before=before_time, status=status)
        found = [SessionLine.from_session(each) for each in known if not each.system]
        stop = offset + limit
        return SessionsPage(found[offset:stop], len(found), stop if stop < len(found) else None)

    def get_turn(
        self,
        *,
        turn: _TurnOrStep,
        session_id: _SessionId = None,
        offset: _Offset = 0,
        max_characters: _MaxCharacters = DEFAULT_MAX_CHARACTERS,
    ) -> TurnAnswer:
        """Return one turn or one step in full: messages, tool calls and tool results.

        Use it after session_toc or a search. turn=3 returns a message of the user with everything
        that answers it; turn="3.2" returns only the second step of it. A long turn is cut off; to
        continue, call get_turn again with next_offset as offset.
        """
        session = self.find(session_id)
        found = contents.get_turn(self.library, session.id, turn)
        return self._turn_result(session, found, offset, max_characters)

    def get_turns(
        self,
        *,
        start: _TurnNumber,
        end: Annotated[
            int | None, Field(ge=1, le=10**12, description="Last turn. Default: start + 9.")
        ] = None,
        session_id: _SessionId = None,
        max_characters: _MaxCharacters = DEFAULT_MAX_CHARACTERS,
    ) -> TurnsAnswer:
        """Return several turns in full, in order, as many as fit into one result.

        Use it to read a part of a session. To continue, call get_turns again with next_turn as
        start.
        """
        last = start + 9 if end is None else end
        if last < start:
            raise SpecError(f"expected end to be {start} (the value of start) or more, got {last}")
        session = self.find(session_id)
        total = self.library.count_turns(session.id)
        shown, left, following, rest = list[RecordedTurn](), max_characters, start, None
        while left > 0 and rest is None and following <= max(start, min(last, total)):
            whole = contents.get_turn(self.library, session.id, following).interaction
            page, rest = paginate_interaction(whole, 0, left)
            if rest is not None and shown:
                rest = None  # leave the whole turn to the next result
                break
            shown.append(page)
            following, left = following + 1, left - page.total_characters
        more = following if following <= (total if end is None else min(last, total)) else None
        cut = None if rest is None else following - 1
        return TurnsAnswer(session.id, session.title, total, shown, more, cut, rest)

    def get_interaction(
        self,
        *,
        interaction_id: Annotated[
            str,
            Field(max_length=600, description="Id from session_toc, a title history or a search."),
        ],
        offset: _Offset = 0,
        max_characters: _MaxCharacters = DEFAULT_MAX_CHARACTERS,
    ) -> TurnAnswer:
        """Return a turn by its interaction id: a message of the user with everything that answers it.

        Use it with an id from session_title_history, session_toc or a search. A long turn is
        cut off; to continue, call get_interaction again with next_offset as offset.
        """
        if id := interaction_id.rpartition(":")[0]:
            self.find(id)
        found = contents.get_interaction(self.library, interaction_id)
        session = self.find(found.interaction.session_id)
        return self._turn_result(session, found, offset, max_characters)

    def find(self, session_id: str | None) -> Session:
        """Return the session with the given id; the current session if the id is None or empty.

        Parameters
        ----------
        session_id : str or None
            Id of a session.

        Returns
        -------
        Session
            Metadata of the session.

        Raises
        ------
        UnknownSession
            If no session has this id.
        SpecError
            If no id is given and no session is stored.
        """
        if chosen := session_id or self.current_session_id:
            try:
                check_session_id(chosen)
            except SessionError:  # an invalid id must not become part of a file name
                raise UnknownSession(chosen) from None
            return self.library.get(chosen)
        for known in (self.library.sessions(status="active"), self.library.sessions()):
            for session in known:
                if not session.system:
                    return session
        raise SpecError("no session is stored yet; start or import a session first")

    def _search(self, query: str, session_id: str | None, limit: int, offset: int) -> FoundPage:
        if not query_words(query):
            raise SpecError("the query contains no words; pass one or more words to search for")
        hits = self.library.search(query, session_id, limit=limit + 1, offset=offset)
        names = dict.fromkeys((hit.session_id for hit in hits), "")
        for id in names:
            with suppress(SessionError):  # it was deleted in the meantime
                names[id] = self.library.get(id).title
        found = [Found.from_hit(hit, names[hit.session_id]) for hit in hits[:limit]]
        return FoundPage(query, found, offset + limit if len(hits) > limit else None)

    def _turn_result(
        self, session: Session, found: InteractionWithContext, offset: int, limit: int
    ) -> TurnAnswer:
        page, more = paginate_interaction(found.interaction, offset, limit)
        total, beside = self.library.count_turns(session.id), (found.previous, found.next)
        return TurnAnswer(found.turn, found.label, session.title, total, page, *beside, more)


def _parse_time(text: str | None) -> float | None:
    """Convert an ISO 8601 date or time to seconds since 1970; return None for an empty value."""
    if not text:
        return None
    try:
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        form = "2026-11-22 or 2026-11-22T10:30Z"
        raise SpecError(f"expected a date or time such as {form}, got {text!r}") from None
