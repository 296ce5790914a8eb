"""The contents of a session list its turns in a line each; any of them can then be had in full.

Source: seed design "Session Table of Contents and Interaction Summaries", whose answer types these are:
what they hold is plain, and their names are those of the JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ctxlab.context.turns import (
    Turns,
    headline,
)
from ctxlab.errors import (
    SpecError,
    UnknownTurn,
)
from ctxlab.messages.types import Message
from ctxlab.sessions.base import Library

__all__ = [
    "Contents",
    "ContentsEntry",
    "Interaction",
    "InteractionBrief",
    "InteractionWithContext",
    "contents",
    "interaction",
    "interaction_id",
    "iso",
    "turn",
    "turns_from",
]

_STEP = "   "


@dataclass(frozen=True)
class ContentsEntry:
    """A line of the contents: one turn."""

    turn: int
    "counted from 1"
    id: str
    "of the interaction: session and turn with ``:`` between"
    summary: str
    "one line of at most 100 characters"
    created: str | None
    "ISO 8601 in UTC; None where nobody knows"
    has_prompt: bool
    "the user spoke; else it is a further step of an agent's run"
    has_response: bool


@dataclass(frozen=True)
class Contents:
    """The contents of a session, or a page of them."""

    session_id: str
    session_name: str
    total_turns: int
    entries: list[ContentsEntry]
    formatted: str
    "a numbered list of the entries, the steps of an agent's run indented"


@dataclass(frozen=True)
class InteractionBrief:
    """The turn beside another."""

    turn: int
    id: str
    summary: str


@dataclass(frozen=True)
class Interaction:
    """Messages that belong together: those of one turn, or a prompt with all that was done about it."""

    id: str
    session_id: str
    turn: int
    "the first that it holds"
    last_turn: int
    created: str | None
    summary: str
    prompt: str
    "what the user said; empty for a step"
    response: str
    "what the assistant said last"
    total_messages: int
    first_message: int
    "position in the session of its first message, whatever page is shown"
    start: int
    "of the page: how many messages of it stand before ``messages``"
    messages: list[dict[str, Any]]
    "in OpenAI's shape; a page of them where a page was asked for"


@dataclass(frozen=True)
class InteractionWithContext:
    """An interaction, and in brief what stands before and after it."""

    turn: int
    interaction: Interaction
    previous: InteractionBrief | None = None
    next: InteractionBrief | None = None


def contents(library: Library, id: str, *, start: int = 1, limit: int | None = None) -> Contents:
    """The contents of a session from turn ``start`` on; ``limit`` None: to its end.

    A line is what a model wrote and the store kept, else extracted from the turn. Turns are those of
    ``ctxlab.context.turns``. No more than a turn is held at a time.

    Raises ``UnknownSession``; ``SpecError`` for a start below 1 or a negative limit.
    """
    if start < 1:
        raise SpecError(f"turns count from 1: start is {start}")
    session, total = library.get(id), library.turns(id)
    count = max(0, total - start + 1) if limit is None else _not_negative("limit", limit)
    lines, entries = library.lines(id), list[ContentsEntry]()
    if start <= total and count:
        for number, messages in turns_from(library, id, start):
            if len(entries) == count:
                break
            entries.append(_entry(id, number, messages, lines.get(number)))
    formatted = "\n".join(
        f"{'' if each.has_prompt else _STEP}{each.turn}. {each.summary}" for each in entries
    )
    return Contents(id, session.title, total, entries, formatted)


def turn(
    library: Library, id: str, number: int, *, start: int = 0, limit: int | None = None
) -> InteractionWithContext:
    """One turn, and in brief the turns before and after it.

    ``start`` and ``limit`` give a page of its messages. Raises ``UnknownSession``, ``UnknownTurn``.
    """
    position, messages = _known(library, id, number)
    lines = library.lines(id)
    held = _Gathered(start, limit)
    held.add(messages)
    made = held.interaction(id, (number, number), position, lines)
    before, after = (_brief(library, id, beside, lines) for beside in (number - 1, number + 1))
    return InteractionWithContext(number, made, before, after)


def interaction(
    library: Library, interaction_id: str, *, start: int = 0, limit: int | None = None
) -> InteractionWithContext:
    """A whole interaction: the prompt and everything up to the next prompt, and those beside it.

    The id of any turn in it will do. What an agent did before anybody asked it is one as well.
    ``start`` and ``limit`` give a page of its messages. Raises ``UnknownSession``, ``UnknownTurn``, and
    ``SpecError`` for what is no id.
    """
    id, colon, written = interaction_id.rpartition(":")
    if not (colon and written.isascii() and written.isdecimal() and len(written) < 19):
        raise SpecError(
            f"{interaction_id!r} is no id of an interaction: it is SESSION:TURN, as contents show it"
        )
    number = int(written)
    position, there = _known(library, id, number)
    first = number
    while first > 1 and not _asked(there):
        first -= 1
        position, there = library.turn(id, first)
    lines, held, last = library.lines(id), _Gathered(start, limit), first
    following: InteractionBrief | None = None
    for later, messages in turns_from(library, id, first, position):
        if later > first and _asked(messages):
            following = _shown(id, later, messages, lines)
            break
        last = later
        held.add(messages)
    before = first - 1
    while before > 1 and not _asked(library.turn(id, before)[1]):
        before -= 1
    made = held.interaction(id, (first, last), position, lines)
    return InteractionWithContext(first, made, _brief(library, id, before, lines), following)


def turns_from(
    library: Library, id: str, start: int = 1, position: int | None = None
) -> Iterator[tuple[int, list[Message]]]:
    """The turns of a session from one on, each with its number, read one by one.

    ``position``: where turn ``start`` begins, where that is known.
    """
    if position is None:
        position = library.turn(id, start)[0]
    turns, number, held = Turns(start - 1), start, list[Message]()
    for message in library.read(id, position):
        if turns.add(message) > number:
            yield number, held
            number, held = turns.number, []
        held.append(message)
    if held:
        yield number, held


def interaction_id(id: str, turn: int) -> str:
    """The id of an interaction.

    >>> interaction_id("a", 3)
    'a:3'
    """
    return f"{id}:{turn}"


def iso(seconds: float | None) -> str | None:
    """A time as ISO 8601 in UTC; None where none is known.

    >>> iso(1_700_000_000.25), iso(0.0), iso(None)
    ('2023-11-14T22:13:20.250000Z', None, None)
    """
    if not seconds:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):  # a log may hold any number
        return None


def _known(library: Library, id: str, number: int) -> tuple[int, tuple[Message, ...]]:
    position, messages = library.turn(id, number) if number > 0 else (0, ())
    if not messages:
        raise UnknownTurn(id, number, library.turns(id))
    return position, messages


def _entry(id: str, number: int, messages: Iterable[Message], written: str | None) -> ContentsEntry:
    held = list(messages)
    return ContentsEntry(
        number,
        interaction_id(id, number),
        written or headline(held),
        _created(held),
        _asked(held),
        any(m.role == "assistant" for m in held),
    )


def _brief(
    library: Library, id: str, number: int, lines: Mapping[int, str]
) -> InteractionBrief | None:
    messages = library.turn(id, number)[1] if number > 0 else ()
    return _shown(id, number, messages, lines) if messages else None


def _shown(
    id: str, number: int, messages: Sequence[Message], lines: Mapping[int, str]
) -> InteractionBrief:
    line = lines.get(number) or headline(messages)
    return InteractionBrief(number, interaction_id(id, number), line)


class _Gathered:
    """What is told of turns that belong together, of which only a page is held."""

    def __init__(self, start: int, limit: int | None) -> None:
        self.start = _not_negative("start", start)
        self.stop = None if limit is None else start + _not_negative("limit", limit)
        self.first: Sequence[Message] = ()
        self.prompt: list[str] = []
        self.response = ""
        self.created: str | None = None
        self.total = 0
        self.page: list[dict[str, Any]] = []

    def add(self, turn: Sequence[Message]) -> None:
        """The next turn."""
        self.first = self.first or turn
        self.created = self.created or _created(turn)
        for message in turn:
            if message.role == "user":
                self.prompt.append(message.text)
            elif message.role == "assistant" and message.text.strip():
                self.response = message.text
            if self.start <= self.total and (self.stop is None or self.total < self.stop):
                self.page.append(message.to_dict())
            self.total += 1

    def interaction(
        self, id: str, turns: tuple[int, int], position: int, lines: Mapping[int, str]
    ) -> Interaction:
        """As it is answered."""
        return Interaction(
            id=interaction_id(id, turns[0]),
            session_id=id,
            turn=turns[0],
            last_turn=turns[1],
            created=self.created,
            summary=lines.get(turns[0]) or headline(self.first),
            prompt="\n".join(self.prompt),
            response=self.response,
            total_messages=self.total,
            first_message=position,
            start=self.start,
            messages=self.page,
        )


def _asked(messages: Iterable[Message]) -> bool:
    return any(m.role == "user" for m in messages)


def _created(messages: Iterable[Message]) -> str | None:
    return iso(next((m.time for m in messages if m.time), None))


def _not_negative(name: str, number: int) -> int:
    if number < 0:
        raise SpecError(f"{name} is {number}; 0 is the least")
    return number
