"""Table of contents of a session, one line per turn, and access to each turn in full.

The result types follow the seed design: their fields hold plain values and are named like the keys
of the JSON.

References
----------
Seed design "Session Table of Contents and Interaction Summaries".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ctxlab.context.turns import TurnCounter, headline
from ctxlab.errors import SpecError, UnknownTurn
from ctxlab.messages.types import Message
from ctxlab.sessions.base import SessionLibrary
from ctxlab.sessions.common import check_not_negative, interaction_id

_STEP_INDENT = "   "


@dataclass(frozen=True)
class ContentsEntry:
    """Entry of the table of contents: one turn."""

    turn: int
    "turn number, from 1"
    id: str
    "interaction id, ``SESSION:TURN``"
    summary: str
    "one line of at most 100 characters"
    created: str | None
    "ISO 8601 time in UTC; None if unknown"
    has_prompt: bool
    "the turn has a user message; otherwise it is a further step of an agent's run"
    has_response: bool
    "the turn has an assistant message"


@dataclass(frozen=True)
class Contents:
    """Table of contents of a session, or a page of it."""

    session_id: str
    "session id"
    session_name: str
    "title of the session"
    total_turns: int
    "number of turns of the session"
    entries: list[ContentsEntry]
    "the entries of this page"
    formatted: str
    "numbered list of the entries; the steps of an agent's run are indented"


@dataclass(frozen=True)
class InteractionBrief:
    """Number, id and summary of a turn."""

    turn: int
    "turn number, from 1"
    id: str
    "interaction id, ``SESSION:TURN``"
    summary: str
    "one line of at most 100 characters"


@dataclass(frozen=True)
class Interaction:
    """One turn, or a prompt with all the steps up to the next prompt."""

    id: str
    "interaction id, ``SESSION:TURN``"
    session_id: str
    "session id"
    turn: int
    "number of its first turn"
    last_turn: int
    "number of its last turn"
    created: str | None
    "ISO 8601 time in UTC of its first message with a time; None if unknown"
    summary: str
    "one line of at most 100 characters"
    prompt: str
    "text of the user messages; empty for a step"
    response: str
    "the last text of the assistant"
    total_messages: int
    "number of messages, on all pages"
    first_message: int
    "position in the session of its first message, independent of the page"
    start: int
    "number of messages before this page"
    messages: list[dict[str, Any]]
    "messages of this page, in OpenAI's format"


@dataclass(frozen=True)
class InteractionWithContext:
    """Interaction with brief descriptions of its neighbors."""

    turn: int
    "number of its first turn"
    interaction: Interaction
    "the interaction"
    previous: InteractionBrief | None = None
    "the turn or interaction before it"
    next: InteractionBrief | None = None
    "the turn or interaction after it"


def get_contents(
    library: SessionLibrary, id: str, *, start: int = 1, limit: int | None = None
) -> Contents:
    """Return the table of contents of a session.

    The line of a turn is its stored summary; without one it is extracted from the turn. Turns are
    those of ``ctxlab.context.turns``. Only one turn is held in memory at a time.

    Parameters
    ----------
    library : SessionLibrary
        Library that holds the session.
    id : str
        Session id.
    start : int, default 1
        First turn.
    limit : int, optional
        Maximum number of entries. By default, continue to the last turn.

    Returns
    -------
    Contents
        The entries from ``start`` on.

    Raises
    ------
    UnknownSession
        If no session has this id.
    SpecError
        If ``start`` is below 1 or ``limit`` is negative.
    """
    if start < 1:
        raise SpecError(f"start must be at least 1, the number of the first turn; got {start}")
    session, total = library.get(id), library.count_turns(id)
    count = max(0, total - start + 1) if limit is None else check_not_negative("limit", limit)
    lines, entries = library.turn_summaries(id), list[ContentsEntry]()
    if start <= total and count:
        for number, messages in iter_turns(library, id, start):
            if len(entries) == count:
                break
            entries.append(_make_entry(id, number, messages, lines.get(number)))
    formatted = "\n".join(
        f"{'' if each.has_prompt else _STEP_INDENT}{each.turn}. {each.summary}" for each in entries
    )
    return Contents(id, session.title, total, entries, formatted)


def get_turn(
    library: SessionLibrary, id: str, number: int, *, start: int = 0, limit: int | None = None
) -> InteractionWithContext:
    """Return one turn with brief descriptions of the turns before and after it.

    Parameters
    ----------
    library : SessionLibrary
        Library that holds the session.
    id : str
        Session id.
    number : int
        Turn number, from 1.
    start : int, default 0
        Number of messages to skip.
    limit : int, optional
        Maximum number of messages. By default, all.

    Returns
    -------
    InteractionWithContext
        The turn and its neighbors.

    Raises
    ------
    UnknownSession
        If no session has this id.
    UnknownTurn
        If the session has no such turn.
    SpecError
        If ``start`` or ``limit`` is negative.
    """
    position, messages = _read_existing_turn(library, id, number)
    lines = library.turn_summaries(id)
    held = _InteractionBuilder(start, limit)
    held.add(messages)
    made = held.build(id, (number, number), position, lines)
    before, after = (_load_brief(library, id, beside, lines) for beside in (number - 1, number + 1))
    return InteractionWithContext(number, made, before, after)


def get_interaction(
    library: SessionLibrary, interaction_id: str, *, start: int = 0, limit: int | None = None
) -> InteractionWithContext:
    """Return a prompt with all the steps up to the next prompt, and its neighbors.

    Steps before the first prompt of a session are an interaction too.

    Parameters
    ----------
    library : SessionLibrary
        Library that holds the session.
    interaction_id : str
        Id of any turn of the interaction, ``SESSION:TURN``.
    start : int, default 0
        Number of messages to skip.
    limit : int, optional
        Maximum number of messages. By default, all.

    Returns
    -------
    InteractionWithContext
        The interaction and its neighbors.

    Raises
    ------
    UnknownSession
        If no session has this id.
    UnknownTurn
        If the session has no such turn.
    SpecError
        If the id is malformed, or if ``start`` or ``limit`` is negative.
    """
    id, colon, written = interaction_id.rpartition(":")
    if not (colon and written.isascii() and written.isdecimal() and len(written) < 19):
        raise SpecError(
            f"invalid interaction id {interaction_id!r}; use SESSION:TURN, as in the contents"
        )
    number = int(written)
    position, there = _read_existing_turn(library, id, number)
    first = number
    while first > 1 and not _has_prompt(there):
        first -= 1
        position, there = library.read_turn(id, first)
    lines, held, last = library.turn_summaries(id), _InteractionBuilder(start, limit), first
    following: InteractionBrief | None = None
    for later, messages in iter_turns(library, id, first, position):
        if later > first and _has_prompt(messages):
            following = _make_brief(id, later, messages, lines)
            break
        last = later
        held.add(messages)
    before = first - 1
    while before > 1 and not _has_prompt(library.read_turn(id, before)[1]):
        before -= 1
    made = held.build(id, (first, last), position, lines)
    return InteractionWithContext(first, made, _load_brief(library, id, before, lines), following)


def iter_turns(
    library: SessionLibrary, id: str, start: int = 1, position: int | None = None
) -> Iterator[tuple[int, list[Message]]]:
    """Yield the turns of a session, reading them one by one.

    Parameters
    ----------
    library : SessionLibrary
        Library that holds the session.
    id : str
        Session id.
    start : int, default 1
        First turn.
    position : int, optional
        Position of the first message of turn ``start``. By default, it is looked up.

    Yields
    ------
    number : int
        Turn number.
    messages : list of Message
        The turn's messages.
    """
    if position is None:
        position = library.read_turn(id, start)[0]
    turns, number, held = TurnCounter(start - 1), start, list[Message]()
    for message in library.read_messages(id, position):
        if turns.add(message) > number:
            yield number, held
            number, held = turns.number, []
        held.append(message)
    if held:
        yield number, held


def iso_timestamp(seconds: float | None) -> str | None:
    """Format a time as ISO 8601 in UTC.

    Parameters
    ----------
    seconds : float or None
        Time in seconds since 1970.

    Returns
    -------
    str or None
        The formatted time; None if the time is unknown, 0 or out of range.

    Examples
    --------
    >>> iso_timestamp(1_700_000_000.25), iso_timestamp(0.0), iso_timestamp(None)
    ('2023-11-14T22:13:20.250000Z', None, None)
    """
    if not seconds:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):  # logs may contain times out of range
        return None


def _read_existing_turn(
    library: SessionLibrary, id: str, number: int
) -> tuple[int, tuple[Message, ...]]:
    position, messages = library.read_turn(id, number) if number > 0 else (0, ())
    if not messages:
        raise UnknownTurn(id, number, library.count_turns(id))
    return position, messages


def _make_entry(
    id: str, number: int, messages: Iterable[Message], written: str | None
) -> ContentsEntry:
    held = list(messages)
    return ContentsEntry(
        number,
        interaction_id(id, number),
        written or headline(held),
        _first_timestamp(held),
        _has_prompt(held),
        any(m.role == "assistant" for m in held),
    )


def _load_brief(
    library: SessionLibrary, id: str, number: int, lines: Mapping[int, str]
) -> InteractionBrief | None:
    messages = library.read_turn(id, number)[1] if number > 0 else ()
    return _make_brief(id, number, messages, lines) if messages else None


def _make_brief(
    id: str, number: int, messages: Sequence[Message], lines: Mapping[int, str]
) -> InteractionBrief:
    line = lines.get(number) or headline(messages)
    return InteractionBrief(number, interaction_id(id, number), line)


class _InteractionBuilder:
    """Collects the fields of an interaction turn by turn, holding one page of its messages."""

    def __init__(self, start: int, limit: int | None) -> None:
        self.start = check_not_negative("start", start)
        self.stop = None if limit is None else start + check_not_negative("limit", limit)
        self.first: Sequence[Message] = ()
        self.prompt: list[str] = []
        self.response = ""
        self.created: str | None = None
        self.total_messages = 0
        self.page: list[dict[str, Any]] = []

    def add(self, turn: Sequence[Message]) -> None:
        """Add the next turn."""
        self.first = self.first or turn
        self.created = self.created or _first_timestamp(turn)
        for message in turn:
            if message.role == "user":
                self.prompt.append(message.text)
            elif message.role == "assistant" and message.text.strip():
                self.response = message.text
            if self.start <= self.total_messages and (
                self.stop is None or self.total_messages < self.stop
            ):
                self.page.append(message.to_dict())
            self.total_messages += 1

    def build(
        self, id: str, turns: tuple[int, int], position: int, lines: Mapping[int, str]
    ) -> Interaction:
        """Return the interaction."""
        return Interaction(
            id=interaction_id(id, turns[0]),
            session_id=id,
            turn=turns[0],
            last_turn=turns[1],
            created=self.created,
            summary=lines.get(turns[0]) or headline(self.first),
            prompt="\n".join(self.prompt),
            response=self.response,
            total_messages=self.total_messages,
            first_message=position,
            start=self.start,
            messages=self.page,
        )


def _has_prompt(messages: Iterable[Message]) -> bool:
    return any(m.role == "user" for m in messages)


def _first_timestamp(messages: Iterable[Message]) -> str | None:
    return iso_timestamp(next((m.time for m in messages if m.time), None))
