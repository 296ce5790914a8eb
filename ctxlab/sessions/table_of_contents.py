"""Table of contents of a session, with one line per turn, and access to each turn in full.

The result types contain only values that can be written as JSON. Their field names are those of the
design document.

References
----------
Design document "Session Table of Contents and Interaction Summaries" (see ``tests/SEEDS.md``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby, islice, takewhile
from typing import Any

from ctxlab.context.turns import TurnCounter, headline
from ctxlab.errors import SpecError, UnknownTurn
from ctxlab.messages.types import Message
from ctxlab.sessions.base import SessionLibrary
from ctxlab.sessions.common import check_not_negative, interaction_id

_STEP_INDENT = "   "


@dataclass(frozen=True)
class ContentsEntry:
    """Entry of a session's table of contents, which describes one turn."""

    turn: int
    "turn number, from 1"
    id: str
    "interaction id, ``SESSION:TURN``"
    summary: str
    "one-line summary of at most 100 characters"
    created: str | None
    "ISO 8601 time in UTC of the turn's first message with a time; None if unknown"
    has_prompt: bool
    "True if the turn has a user message; otherwise the agent continued without a new prompt"
    has_response: bool
    "True if the turn has an assistant message"


@dataclass(frozen=True)
class Contents:
    """Table of contents of a session, or a page of it with only some of the turns."""

    session_id: str
    "session id"
    session_name: str
    "title of the session"
    total_turns: int
    "number of turns of the session, on all pages"
    entries: list[ContentsEntry]
    "entries of this page, in order of turns"
    formatted: str
    "the entries as a numbered list, in which turns without a user message are indented"


@dataclass(frozen=True)
class InteractionBrief:
    """Short description of a turn, or of an interaction: its number, id and one-line summary."""

    turn: int
    "turn number, from 1"
    id: str
    "interaction id, ``SESSION:TURN``"
    summary: str
    "one-line summary of at most 100 characters"


@dataclass(frozen=True)
class Interaction:
    """A single turn, or a turn with a user message and the following turns without one."""

    id: str
    "interaction id, ``SESSION:TURN``, with the number of the first turn"
    session_id: str
    "session id"
    turn: int
    "number of the interaction's first turn"
    last_turn: int
    "number of the interaction's last turn"
    created: str | None
    "ISO 8601 time in UTC of the interaction's first message with a time; None if unknown"
    summary: str
    "one-line summary of at most 100 characters"
    prompt: str
    "text of the user messages; an empty string if there are none"
    response: str
    "text of the last assistant message with text; an empty string if there is none"
    total_messages: int
    "number of messages of the interaction, on all pages"
    first_message: int
    "position in the session of the interaction's first message, the same on each page"
    start: int
    "number of messages of the interaction before this page"
    messages: list[dict[str, Any]]
    "messages of this page, in OpenAI's format"


@dataclass(frozen=True)
class InteractionWithContext:
    """A turn, or an interaction (a user message with all turns up to the next user message).

    The previous and the next one are described in a line each.
    """

    turn: int
    "number of the interaction's first turn"
    interaction: Interaction
    "the interaction with its messages"
    previous: InteractionBrief | None = None
    "description of the previous turn or interaction; None if there is none"
    next: InteractionBrief | None = None
    "description of the next turn or interaction; None if there is none"


def get_contents(
    library: SessionLibrary, id: str, *, start: int = 1, limit: int | None = None
) -> Contents:
    """Return the table of contents of a session.

    Each turn is described by its stored summary. If no summary is stored, a line is extracted from
    the turn. ``ctxlab.context.turns`` defines where a turn begins. Only one turn is kept in memory
    at a time.

    Parameters
    ----------
    library : SessionLibrary
        Library that contains the session.
    id : str
        Session id.
    start : int, default 1
        Number of the first turn to list.
    limit : int, optional
        Maximum number of entries. By default, continue to the last turn.

    Returns
    -------
    Contents
        Table of contents with an entry for each turn from ``start`` on.

    Raises
    ------
    UnknownSession
        If no session has this id.
    SpecError
        If ``start`` is below 1 or ``limit`` is negative.
    """
    if start < 1:
        raise SpecError(f"start must be at least 1 (the first turn), got {start}")
    session, total, lines = library.get(id), library.count_turns(id), library.turn_summaries(id)
    count = max(0, total - start + 1) if limit is None else check_not_negative("limit", limit)
    entries = [
        ContentsEntry(
            number,
            interaction_id(id, number),
            lines.get(number) or headline(messages),
            _first_timestamp(messages),
            _has_prompt(messages),
            any(m.role == "assistant" for m in messages),
        )
        for number, messages in islice(iter_turns(library, id, start), count)
    ]
    formatted = "\n".join(
        f"{'' if each.has_prompt else _STEP_INDENT}{each.turn}. {each.summary}" for each in entries
    )
    return Contents(id, session.title, total, entries, formatted)


def get_turn(
    library: SessionLibrary, id: str, number: int, *, start: int = 0, limit: int | None = None
) -> InteractionWithContext:
    """Return one turn, with short descriptions of the turns before and after it.

    Parameters
    ----------
    library : SessionLibrary
        Library that contains the session.
    id : str
        Session id.
    number : int
        Turn number, from 1.
    start : int, default 0
        Number of the turn's messages to skip.
    limit : int, optional
        Maximum number of messages to return. By default, return all messages.

    Returns
    -------
    InteractionWithContext
        The turn, the previous turn and the next turn.

    Raises
    ------
    UnknownSession
        If no session has this id.
    UnknownTurn
        If the session has no such turn.
    SpecError
        If ``start`` or ``limit`` is negative.
    """
    position, messages = _read_turn(library, id, number)
    lines = library.turn_summaries(id)
    made = _build_interaction(id, [(number, messages)], position, lines, start, limit)
    before, after = (_load_brief(library, id, beside, lines) for beside in (number - 1, number + 1))
    return InteractionWithContext(number, made, before, after)


def get_interaction(
    library: SessionLibrary, interaction_id: str, *, start: int = 0, limit: int | None = None
) -> InteractionWithContext:
    """Return an interaction, with short descriptions of the interactions before and after it.

    An interaction consists of a turn with a user message and the following turns without one. If a
    session starts with turns without a user message, these turns also form an interaction.

    Parameters
    ----------
    library : SessionLibrary
        Library that contains the session.
    interaction_id : str
        ``SESSION:TURN``, with the number of any turn of the interaction.
    start : int, default 0
        Number of the interaction's messages to skip.
    limit : int, optional
        Maximum number of messages to return. By default, return all messages.

    Returns
    -------
    InteractionWithContext
        The interaction, the previous interaction and the next interaction.

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
        hint = "use SESSION:TURN, as in the table of contents"
        raise SpecError(f"invalid interaction id {interaction_id!r}; {hint}")
    first = int(written)
    position, messages = _read_turn(library, id, first)
    while first > 1 and not _has_prompt(messages):
        first -= 1
        position, messages = library.read_turn(id, first)
    turns = iter_turns(library, id, first, position)
    own = takewhile(lambda turn: turn[0] == first or not _has_prompt(turn[1]), turns)
    lines, before = library.turn_summaries(id), first - 1
    made = _build_interaction(id, own, position, lines, start, limit)
    while before > 1 and not _has_prompt(library.read_turn(id, before)[1]):
        before -= 1
    beside = (_load_brief(library, id, each, lines) for each in (before, made.last_turn + 1))
    return InteractionWithContext(first, made, *beside)


def iter_turns(
    library: SessionLibrary, id: str, start: int = 1, position: int | None = None
) -> Iterator[tuple[int, list[Message]]]:
    """Yield the turns of a session, reading one turn at a time.

    Parameters
    ----------
    library : SessionLibrary
        Library that contains the session.
    id : str
        Session id.
    start : int, default 1
        Number of the first turn to yield.
    position : int, optional
        Position of the first message of turn ``start``. By default, the position is looked up.

    Yields
    ------
    number : int
        Turn number.
    messages : list of Message
        Messages of the turn.
    """
    if position is None:
        position = library.read_turn(id, start)[0]
    turns = TurnCounter(start - 1)
    for number, messages in groupby(library.read_messages(id, position), turns.add):
        yield number, list(messages)


def iso_timestamp(seconds: float | None) -> str | None:
    """Format a time as ISO 8601 in UTC.

    Parameters
    ----------
    seconds : float or None
        Time in seconds since 1970.

    Returns
    -------
    str or None
        Formatted time; None if ``seconds`` is None, 0 or out of range.

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


def _read_turn(library: SessionLibrary, id: str, number: int) -> tuple[int, tuple[Message, ...]]:
    position, messages = library.read_turn(id, number) if number > 0 else (0, ())
    if not messages:
        raise UnknownTurn(id, number, library.count_turns(id))
    return position, messages


def _load_brief(
    library: SessionLibrary, id: str, number: int, lines: Mapping[int, str]
) -> InteractionBrief | None:
    messages = library.read_turn(id, number)[1] if number > 0 else ()
    if not messages:
        return None
    line = lines.get(number) or headline(messages)
    return InteractionBrief(number, interaction_id(id, number), line)


def _build_interaction(
    id: str,
    turns: Iterable[tuple[int, Sequence[Message]]],
    position: int,
    lines: Mapping[int, str],
    start: int,
    limit: int | None,
) -> Interaction:
    """Combine turns into an interaction that contains one page of their messages.

    The page begins after the first ``start`` messages and has at most ``limit`` messages.
    """
    check_not_negative("start", start)
    stop = math.inf if limit is None else start + check_not_negative("limit", limit)
    first = last = total = 0
    summary, created, prompts, response, page = "", None, list[str](), "", list[dict[str, Any]]()
    for last, messages in turns:
        first = first or last
        summary = summary or lines.get(first) or headline(messages)
        created = created or _first_timestamp(messages)
        for message in messages:
            if message.role == "user":
                prompts.append(message.text)
            elif message.role == "assistant" and message.text.strip():
                response = message.text
            if start <= total < stop:
                page.append(message.to_dict())
            total += 1
    return Interaction(
        id=interaction_id(id, first),
        session_id=id,
        turn=first,
        last_turn=last,
        created=created,
        summary=summary,
        prompt="\n".join(prompts),
        response=response,
        total_messages=total,
        first_message=position,
        start=start,
        messages=page,
    )


def _has_prompt(messages: Iterable[Message]) -> bool:
    return any(m.role == "user" for m in messages)


def _first_timestamp(messages: Iterable[Message]) -> str | None:
    return iso_timestamp(next((m.time for m in messages if m.time), None))
