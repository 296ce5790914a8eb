"""Memory of an agent: tools that search and read this session and earlier ones.

A context strategy drops old messages from the requests, and a new session starts without those of
earlier ones. The store keeps them all. The tools use ``ctxlab.sessions.navigation``, as the MCP server
does. Their definitions are short, because each request contains them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field, SkipValidation

from ctxlab._utils.humanize import pluralize
from ctxlab.agent.tools.result import PAGE_CHARS, ToolResult, failed_result
from ctxlab.agent.tools.tool import Tool, tool_from_function
from ctxlab.errors import CtxlabError, UnknownSession
from ctxlab.sessions.base import SessionLibrary
from ctxlab.sessions.navigation.results import ContentsPage, Found, FoundPage
from ctxlab.sessions.navigation.tools import SessionTools

ALL_SESSIONS = "all"
"""Value of the argument ``session`` of ``session_contents`` that lists the sessions."""

_MAX_ENTRIES, _MAX_STEPS, _MAX_HITS = 40, 5, 10

_Session = Annotated[str, Field(max_length=500)]
_Start = Annotated[int, Field(ge=1, le=10**12)]
_Offset = Annotated[int, Field(ge=0, le=10**12)]
_Query = Annotated[str, Field(min_length=1, max_length=1_000)]
# ``TurnLabel.parse`` validates the value, so that there is one error message.
_Turn = Annotated[int | str, SkipValidation]


class SessionMemory:
    """Sessions that an agent can search and read, in results that fit a page.

    Sessions that a program marks for internal use (``Session.system``) are left out.

    Parameters
    ----------
    library : SessionLibrary
        Sessions to read.
    session_id : str
        Id of the agent's own session.
    page_chars : int, optional
        Maximum number of characters of a result.

    Examples
    --------
    >>> import tempfile
    >>> from ctxlab.messages.types import Message
    >>> from ctxlab.sessions.sqlite.store import SqliteStore
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = SqliteStore(folder)
    ...     for id, text in (("a", "The port is 8080."), ("b", "Which port?")):
    ...         _ = store.create(id=id), store.append(id, Message("user", text))
    ...     print(SessionMemory(store, "b").search("port").data.splitlines()[-1])
    ...     store.close()
    > The port is 8080.
    """

    def __init__(
        self, library: SessionLibrary, session_id: str, *, page_chars: int = PAGE_CHARS
    ) -> None:
        self.session_id = session_id
        self.page_chars = page_chars
        self._tools = SessionTools(library, session_id)

    def contents(self, session: str = "", start: int = 1) -> ToolResult:
        """Return the table of contents of a session, or the list of sessions.

        Parameters
        ----------
        session : str, optional
            Id of a session, or ``all`` to list the sessions. By default, the agent's own session.
        start : int, optional
            Number of the first turn, or of the first session of the list.

        Returns
        -------
        ToolResult
            One line for each turn and step, or for each session.
        """
        if session == ALL_SESSIONS:
            return self._list(start - 1)
        for limit, steps in ((_MAX_ENTRIES, _MAX_STEPS), *_shrinking(_MAX_ENTRIES)):
            page: ContentsPage = self._tools.session_toc(
                session_id=self._check(session), start=start, limit=limit, max_steps=steps
            )
            if len(text := page.text()) <= self.page_chars:
                break
        return _result(text, pluralize(page.total_turns, "turn"), page.total_turns)

    def search(self, query: str, session: str = "", offset: int = 0) -> ToolResult:
        """Search all sessions or one session for messages that contain all words of a query.

        The current turn is left out: it contains the question, and the agent sees it anyway.

        Parameters
        ----------
        query : str
            Words to search for.
        session : str, optional
            Id of a session. By default, all sessions are searched.
        offset : int, optional
            Number of matches to skip.

        Returns
        -------
        ToolResult
            For each message, its session, the label of its step, and a piece of its text.
        """
        now = self._tools.library.count_turns(self.session_id)
        seen = (self.session_id, now)
        following: int | None = offset
        shown: list[tuple[int, Found]] = []
        while following is not None and not shown:
            page = self._search_page(query, session, following)
            hits = enumerate(page.results, following + 1)
            shown = [(number, hit) for number, hit in hits if (hit.session_id, hit.turn) != seen]
            following = page.next_offset
        page = replace(page, results=[hit for _, hit in shown])
        while len(text := page.text()) > self.page_chars and len(shown) > 1:
            shown.pop()
            page = replace(page, results=[hit for _, hit in shown], next_offset=shown[-1][0])
        return _result(text, pluralize(len(shown), "match", "matches"), len(shown))

    def turn(self, turn: int | str, session: str = "", offset: int = 0) -> ToolResult:
        """Return a turn or a step in full, or the next page of it.

        Parameters
        ----------
        turn : int or str
            Number of a turn, such as ``3``, or label of a step, such as ``"3.2"``.
        session : str, optional
            Id of a session. By default, the agent's own session.
        offset : int, optional
            Number of characters to skip.

        Returns
        -------
        ToolResult
            Messages of the turn or step, each line quoted with ``>``.
        """
        limit = self.page_chars
        while True:
            page = self._tools.get_turn(
                turn=turn, session_id=self._check(session), offset=offset, max_characters=limit
            )
            text = page.text()
            if len(text) <= self.page_chars or limit == 1:
                return _result(text, f"turn {page.label} of {page.session_name!r}")
            # Headings and quotation marks have a share in the text that depends on its lines.
            limit = max(1, min(limit - 1, limit * self.page_chars // len(text)))

    def _search_page(self, query: str, session: str, offset: int) -> FoundPage:
        if not session:
            return self._tools.search_all_sessions(query=query, limit=_MAX_HITS, offset=offset)
        id = self._check(session)
        return self._tools.search_session(
            query=query, session_id=id, limit=_MAX_HITS, offset=offset
        )

    def _list(self, offset: int) -> ToolResult:
        limit = _MAX_ENTRIES
        while True:
            page = self._tools.list_sessions(limit=limit, offset=offset)
            more = f"\nContinue with start={page.next_offset + 1}." if page.next_offset else ""
            text = replace(page, next_offset=None).text() + more
            if len(text) <= self.page_chars or limit == 1:
                return _result(text, pluralize(page.total, "session"), page.total)
            limit //= 2

    def _check(self, session: str) -> str:
        """Return the id of a session that the agent may read; the own session if it is empty."""
        id = session or self.session_id
        if id != self.session_id and self._tools.find(id).system:
            raise UnknownSession(id)
        return id


def memory_tools(find: Callable[[], SessionMemory | None]) -> tuple[Tool, ...]:
    """Build the tools ``session_contents``, ``search_sessions`` and ``get_turn``.

    ``get_turn`` also serves the strategy ``contents``.

    Parameters
    ----------
    find : callable
        Function that returns the sessions to read; None if no session is stored yet.

    Returns
    -------
    tuple of Tool
        Tools in the order given above.
    """

    def use(work: Callable[[SessionMemory], ToolResult]) -> ToolResult:
        if (memory := find()) is None:
            return failed_result(
                "no session is stored; there is nothing to read", "execution_error"
            )
        try:
            return work(memory)
        except CtxlabError as error:
            return failed_result(str(error), "invalid_args")

    def session_contents(session: _Session = "", start: _Start = 1) -> ToolResult:
        """List the turns and steps of this session, or of another one.

        Args:
            session: id of another session, or "all" to list the sessions
            start: first turn to list
        """
        return use(lambda memory: memory.contents(session, start))

    def search_sessions(query: _Query, session: _Session = "", offset: _Offset = 0) -> ToolResult:
        """Search this and all earlier sessions for messages with all words of a query.

        Args:
            session: id of the only session to search
        """
        return use(lambda memory: memory.search(query, session, offset))

    def get_turn(turn: _Turn, session: _Session = "", offset: _Offset = 0) -> ToolResult:
        """Read a turn (3) or a step ("3.2") of this session, or of another one, in full.

        Args:
            session: id of another session
        """
        return use(lambda memory: memory.turn(turn, session, offset))

    functions: tuple[Callable[..., Any], ...] = (session_contents, search_sessions, get_turn)
    return tuple(tool_from_function(each, read_only=True) for each in functions)


def _shrinking(limit: int) -> list[tuple[int, int]]:
    """Return pairs of a maximum number of turns and of steps, of which the last is the smallest."""
    pairs = []
    while limit > 1:
        limit //= 2
        pairs.append((limit, _MAX_STEPS))
    return [*pairs, (1, 0)]


def _result(text: str, summary: str, count: int | None = None) -> ToolResult:
    outcome: dict[str, Any] = {"summary": summary}
    if count is not None:
        outcome["count"] = count
    return ToolResult(ok=True, data=text, outcome=outcome)
