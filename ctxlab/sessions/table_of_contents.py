"""The contents of a session list its turns in a line each; any of them can then be had in full.

Source: seed design "Session Table of Contents and Interaction Summaries", whose answer types these are:
what they hold is plain, and their names are those of the JSON.
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

__all__ = [
    "Contents",
    "ContentsEntry",
    "Interaction",
    "InteractionBrief",
    "InteractionWithContext",
    "get_contents",
    "get_interaction",
    "get_turn",
    "interaction_id",
    "iso_timestamp",
    "iter_turns",
]

_STEP_INDENT = "   "


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


def get_contents(
    library: SessionLibrary, id: str, *, start: int = 1, limit: int | None = None
) -> Contents:
    """The contents of a session from turn ``start`` on; ``limit`` None: to its end.

    A line is what a model wrote and the store kept, else extracted from the turn. Turns are those of
    ``ctxlab.context.turns``. No more than a turn is held at a time.

    Raises ``UnknownSession``; ``SpecError`` for a start below 1 or a negative limit.
    """
    if start < 1:
        raise SpecError(f"turns count from 1: start is {start}")
    session, total = library.get(id), library.count_turns(id)
    count = max(0, total - start + 1) if limit is None else _check_not_negative("limit", limit)
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
    """One turn, and in brief the turns before and after it.

    ``start`` and ``limit`` give a page of its messages. Raises ``UnknownSession``, ``UnknownTurn``.
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
    """The turns of a session from one on, each with its number, read one by one.

    ``position``: where turn ``start`` begins, where that is known.
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


def interaction_id(id: str, turn: int) -> str:
    """The id of an interaction.

    >>> interaction_id("a", 3)
    'a:3'
    """
    return f"{id}:{turn}"


def iso_timestamp(seconds: float | None) -> str | None:
    """A time as ISO 8601 in UTC; None where none is known.

    >>> iso_timestamp(1_700_000_000.25), iso_timestamp(0.0), iso_timestamp(None)
    ('2023-11-14T22:13:20.250000Z', None, None)
    """
    if not seconds:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):  # a log may hold any number
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
    """What is told of turns that belong together, of which only a page is held."""

    def __init__(self, start: int, limit: int | None) -> None:
        self.start = _check_not_negative("start", start)
        self.stop = None if limit is None else start + _check_not_negative("limit", limit)
        self.first: Sequence[Message] = ()
        self.prompt: list[str] = []
        self.response = ""
        self.created: str | None = None
        self.total_messages = 0
        self.page: list[dict[str, Any]] = []

    def add(self, turn: Sequence[Message]) -> None:
        """The next turn."""
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
            total_messages=self.total_messages,
            first_message=position,
            start=self.start,
            messages=self.page,
        )


def _has_prompt(messages: Iterable[Message]) -> bool:
    return any(m.role == "user" for m in messages)


def _first_timestamp(messages: Iterable[Message]) -> str | None:
    return iso_timestamp(next((m.time for m in messages if m.time), None))


def _check_not_negative(name: str, number: int) -> int:
    if number < 0:
        raise SpecError(f"{name} is {number}; 0 is the least")
    return number
