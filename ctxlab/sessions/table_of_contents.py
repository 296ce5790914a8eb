"""Table of contents of a session, and access to each turn and step in full.

A turn is a user message with everything that answers it. A step is one reply of the model with its
tool calls and their results; see ``ctxlab.context.turns``. The result types contain only values that
can be written as JSON. Their field names are those of the design document.

References
----------
Design document "Session Table of Contents and Interaction Summaries" (see ``tests/SEEDS.md``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby, islice
from typing import Any

from ctxlab._utils.humanize import pluralize
from ctxlab.context.turns import TurnCounter, TurnLabel, headline
from ctxlab.errors import SpecError, UnknownTurn
from ctxlab.messages.types import Message
from ctxlab.sessions.base import SessionLibrary
from ctxlab.sessions.common import check_not_negative, interaction_id

_STEP_INDENT = "   "
_LONG_TURN = 500
"number of messages from which on a turn is not read as a whole"
_TAIL = 50
"number of messages that are read at a time to find the last reply of a turn"


@dataclass(frozen=True)
class ContentsStep:
    """Step of a turn in a session's table of contents."""

    label: str
    "label of the step, such as ``3.2``"
    headline: str
    "line of at most 100 characters, extracted from the step"


@dataclass(frozen=True)
class ContentsEntry:
    """Entry of a session's table of contents, which describes one interaction."""

    turn: int
    "number of the interaction, from 1"
    id: str
    "interaction id, ``SESSION:TURN``"
    summary: str
    "one-line summary of at most 100 characters"
    created: str | None
    "ISO 8601 time in UTC of the interaction's first message with a time; None if unknown"
    has_prompt: bool
    "True if the interaction begins with a user message; False if the assistant spoke first"
    has_response: bool
    "True if the interaction has an assistant message"
    total_steps: int
    "number of steps of the interaction"
    steps: list[ContentsStep]
    "the steps of the interaction that were requested, in order"


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
    "the entries as a numbered list; below a turn with several steps, the steps are indented"
    next: int | None = None
    "number of the first turn of the next page; None if this is the last page"


@dataclass(frozen=True)
class InteractionBrief:
    """Short description of an interaction or of one of its steps."""

    turn: int
    "number of the interaction, from 1"
    label: str
    "label of the turn or of the step, such as ``3`` or ``3.2``"
    id: str
    "interaction id, ``SESSION:TURN``"
    summary: str
    "one-line summary of at most 100 characters"


@dataclass(frozen=True)
class Interaction:
    """A user message with everything that answers it, or one step of this."""

    id: str
    "interaction id, ``SESSION:TURN``"
    session_id: str
    "session id"
    turn: int
    "number of the interaction, from 1"
    label: str
    "label of the turn or of the step, such as ``3`` or ``3.2``"
    total_steps: int
    "number of steps of the whole interaction"
    created: str | None
    "ISO 8601 time in UTC of the first message with a time; None if unknown"
    summary: str
    "one-line summary of at most 100 characters"
    prompt: str
    "text of the user message; an empty string if there is none"
    response: str
    "text of the last assistant message with text; an empty string if there is none"
    total_messages: int
    "number of messages of the turn or step, on all pages"
    first_message: int
    "position in the session of the first message of the turn or step, the same on each page"
    start: int
    "number of messages of the turn or step before this page"
    messages: list[dict[str, Any]]
    "messages of this page, in OpenAI's format"
    labels: list[str] = field(default_factory=list)
    "label of the step of each message of this page, such as ``3.2``"


@dataclass(frozen=True)
class InteractionWithContext:
    """An interaction or a step, with short descriptions of its neighbours.

    The neighbours of an interaction are interactions, and the neighbours of a step are steps.
    """

    turn: int
    "number of the interaction, from 1"
    label: str
    "label of the turn or of the step, such as ``3`` or ``3.2``"
    interaction: Interaction
    "the interaction or the step with its messages"
    previous: InteractionBrief | None = None
    "description of the previous interaction or step; None if there is none"
    next: InteractionBrief | None = None
    "description of the next interaction or step; None if there is none"


def get_contents(
    library: SessionLibrary,
    id: str,
    *,
    start: int = 1,
    limit: int | None = None,
    max_steps: int | None = None,
    first_step: int = 1,
) -> Contents:
    """Return the table of contents of a session.

    Each interaction is described by its stored summary. If no summary is stored, a line is extracted
    from the interaction. Lines of steps are always extracted. Only one interaction is kept in memory
    at a time, and of a long one only a part.

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
    max_steps : int, optional
        Maximum number of steps to list for each turn; 0 lists none. By default, list all steps.
    first_step : int, default 1
        Number of the first step to list for each turn.

    Returns
    -------
    Contents
        Table of contents with an entry for each turn from ``start`` on.

    Raises
    ------
    UnknownSession
        If no session has this id.
    SpecError
        If ``start`` or ``first_step`` is below 1, or ``limit`` or ``max_steps`` is negative.
    """
    if max_steps is not None:
        check_not_negative("max_steps", max_steps)
    if first_step < 1:
        raise SpecError(f"first_step must be at least 1 (the first step), got {first_step}")
    if start < 1:
        raise SpecError(f"start must be at least 1 (the first turn), got {start}")
    session, total, lines = library.get(id), library.count_turns(id), library.turn_summaries(id)
    count = max(0, total - start + 1) if limit is None else check_not_negative("limit", limit)
    steps = slice(first_step - 1, None if max_steps is None else first_step - 1 + max_steps)
    entries = list(_iter_entries(library, id, start, count, lines, steps))
    formatted = "\n".join(line for entry in entries for line in _format_entry(entry))
    after = start + len(entries)
    more = after if entries and after <= total else None
    return Contents(id, session.title, total, entries, formatted, more)


def get_turn(
    library: SessionLibrary,
    id: str,
    turn: int | str,
    *,
    start: int = 0,
    limit: int | None = None,
) -> InteractionWithContext:
    """Return one interaction or one step, with short descriptions of its neighbours.

    Parameters
    ----------
    library : SessionLibrary
        Library that contains the session.
    id : str
        Session id.
    turn : int or str
        Number of the interaction, such as ``3``, or label of a step, such as ``"3.2"``.
    start : int, default 0
        Number of messages to skip.
    limit : int, optional
        Maximum number of messages to return. By default, return all messages.

    Returns
    -------
    InteractionWithContext
        The interaction or step, and the previous and the next one.

    Raises
    ------
    UnknownSession
        If no session has this id.
    UnknownTurn
        If the session has no such turn or step.
    SpecError
        If ``turn`` is neither a turn nor a step, or if ``start`` or ``limit`` is negative.
    """
    label = TurnLabel.parse(turn)
    total_steps = library.count_steps(id, label.turn)
    if not library.read_turn(id, label.turn, label.step or 1)[1]:
        raise UnknownTurn(id, label.turn, library.count_turns(id), label.step, total_steps)
    lines = library.turn_summaries(id)
    about = _build_interaction(library, id, label, total_steps, lines, start, limit)
    earlier, later = TurnLabel(label.turn - 1), TurnLabel(label.turn + 1)
    if label.step:
        if label.step > 1:
            earlier = TurnLabel(label.turn, label.step - 1)
        else:
            earlier = TurnLabel(earlier.turn, library.count_steps(id, earlier.turn))
        first_of_next = TurnLabel(later.turn, 1)
        later = TurnLabel(label.turn, label.step + 1) if label.step < total_steps else first_of_next
    beside = (_load_brief(library, id, each, lines) for each in (earlier, later))
    return InteractionWithContext(label.turn, str(label), about, *beside)


def get_interaction(
    library: SessionLibrary, interaction_id: str, *, start: int = 0, limit: int | None = None
) -> InteractionWithContext:
    """Return an interaction by its id, with short descriptions of its neighbours.

    Parameters
    ----------
    library : SessionLibrary
        Library that contains the session.
    interaction_id : str
        ``SESSION:TURN``, with the number of the interaction.
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
        If the session has no such interaction.
    SpecError
        If the id is malformed, or if ``start`` or ``limit`` is negative.
    """
    id, colon, written = interaction_id.rpartition(":")
    if not (colon and written.isascii() and written.isdecimal() and len(written) < 19):
        raise SpecError(
            f"Expected an interaction id SESSION:TURN, as in the table of contents, got "
            f"{interaction_id!r:.200}"
        )
    if int(written) < 1:
        raise UnknownTurn(id, int(written), library.count_turns(id))
    return get_turn(library, id, written, start=start, limit=limit)


def iter_turns(
    library: SessionLibrary, id: str, start: int = 1, max_messages: int | None = None
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
    max_messages : int, optional
        Maximum number of messages to yield for each turn. By default, all messages of the turn.

    Yields
    ------
    turn : int
        Turn number.
    messages : list of Message
        Messages of the turn.
    """
    position = library.read_turn(id, start, 1)[0]
    counter = TurnCounter(start - 1)
    numbered = groupby(library.read_messages(id, position), lambda each: counter.add(each).turn)
    for turn, messages in numbered:
        yield turn, list(islice(messages, max_messages))


def split_steps(messages: Iterable[Message]) -> list[list[Message]]:
    """Split the messages of a turn into steps.

    Parameters
    ----------
    messages : iterable of Message
        All messages of one turn.

    Returns
    -------
    list of list of Message
        Messages of each step.

    Examples
    --------
    >>> roles = ("user", "assistant", "tool", "assistant")
    >>> [len(step) for step in split_steps(Message(role) for role in roles)]
    [3, 1]
    """
    return [list(step) for _, step in groupby(messages, TurnCounter().add)]


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


def turn_headline(steps: Sequence[Sequence[Message]]) -> str:
    """Return a line that describes a turn, without calling a model.

    Parameters
    ----------
    steps : sequence of sequence of Message
        Messages of each step of the turn.

    Returns
    -------
    str
        The beginning of the user message. In a turn with a single step, the tool calls are added.

    Examples
    --------
    >>> steps = [[Message("user", "Fix it"), Message("assistant", "Let me see.")], []]
    >>> turn_headline(steps)
    'Fix it'
    """
    prompts = [message for message in steps[0] if message.role == "user"]
    return headline(prompts if prompts and len(steps) > 1 else steps[0])


def _iter_entries(
    library: SessionLibrary, id: str, start: int, count: int, lines: Mapping[int, str], steps: slice
) -> Iterator[ContentsEntry]:
    """Yield the entries of ``count`` turns. ``steps`` selects the listed steps of each turn."""
    following = start
    while following < start + count:
        for turn, messages in iter_turns(library, id, following, _LONG_TURN):
            following, is_long = turn + 1, len(messages) == _LONG_TURN
            yield _build_entry(library, id, turn, messages, lines, steps, is_long)
            if is_long or following == start + count:
                break  # begin again after the long turn, without reading the rest of it
        else:
            return


def _build_entry(
    library: SessionLibrary,
    id: str,
    turn: int,
    messages: Sequence[Message],
    lines: Mapping[int, str],
    steps: slice,
    is_long: bool,
) -> ContentsEntry:
    """Build the entry of a turn. If ``is_long``, ``messages`` has only the first ones of the turn."""
    found = split_steps(messages)
    total = library.count_steps(id, turn) if is_long else len(found)
    shown = _iter_steps(library, id, turn, steps) if is_long else found[steps]
    return ContentsEntry(
        turn,
        interaction_id(id, turn),
        lines.get(turn) or turn_headline(found),
        _first_timestamp(messages),
        _has_role(messages, "user"),
        _has_role(messages, "assistant"),
        total,
        [
            ContentsStep(str(TurnLabel(turn, number)), _step_headline(step))
            for number, step in enumerate(shown, steps.start + 1)
        ],
    )


def _iter_steps(
    library: SessionLibrary, id: str, turn: int, steps: slice
) -> Iterator[Sequence[Message]]:
    """Yield the selected steps of a turn, reading one step at a time."""
    first = steps.start + 1
    position, messages = library.read_turn(id, turn, first)
    if not messages:
        return
    counter = TurnCounter(turn, first - 1) if first > 1 else TurnCounter(turn - 1)
    numbered = groupby(library.read_messages(id, position), counter.add)
    count = None if steps.stop is None else steps.stop - steps.start
    for label, step in islice(numbered, count):
        if label.turn != turn:
            return
        yield list(step)


def _step_headline(step: Sequence[Message]) -> str:
    """Describe a step below the line of its turn, which describes the user message already."""
    reply = [message for message in step if message.role != "user"]
    return headline(reply or step)


def _format_entry(entry: ContentsEntry) -> Iterator[str]:
    yield f"{entry.turn}. {entry.summary}"
    if entry.total_steps == 1 or not entry.steps:
        return
    for step in entry.steps:
        yield f"{_STEP_INDENT}{step.label} {step.headline}"
    if left := entry.total_steps - TurnLabel.parse(entry.steps[-1].label).step:
        yield f"{_STEP_INDENT}… {pluralize(left, 'more step')}"


def _load_brief(
    library: SessionLibrary, id: str, label: TurnLabel, lines: Mapping[int, str]
) -> InteractionBrief | None:
    if label.turn < 1:
        return None
    # Of a turn, only the first step and the number of steps are needed.
    messages = library.read_turn(id, label.turn, label.step or 1)[1]
    if not messages:
        return None
    line = headline(messages)
    if not label.step:
        more = library.count_steps(id, label.turn) > 1
        line = lines.get(label.turn) or turn_headline([messages, ()] if more else [messages])
    return InteractionBrief(label.turn, str(label), interaction_id(id, label.turn), line)


def _build_interaction(
    library: SessionLibrary,
    id: str,
    label: TurnLabel,
    total_steps: int,
    lines: Mapping[int, str],
    start: int,
    limit: int | None,
) -> Interaction:
    """Build an interaction or a step that contains one page of its messages.

    The page begins after the first ``start`` messages and has at most ``limit`` messages. Of a long
    interaction, only this page and a few other messages are read.
    """
    check_not_negative("start", start)
    position, first_step = library.read_turn(id, label.turn, label.step or 1)
    stop = position + len(first_step)
    if not label.step:
        stop = library.read_turn(id, label.turn + 1, 1)[0]
    begin = min(position + start, stop)
    end = stop if limit is None else min(stop, begin + check_not_negative("limit", limit))
    page = list(library.read_messages(id, begin, end))
    line = None if label.step else lines.get(label.turn)
    whole = [first_step] if label.step or total_steps == 1 else [first_step, ()]
    return Interaction(
        id=interaction_id(id, label.turn),
        session_id=id,
        turn=label.turn,
        label=str(label),
        total_steps=total_steps,
        created=_first_timestamp(first_step) or (_first_timestamp(page) if not start else None),
        summary=line or (headline(first_step) if label.step else turn_headline(whole)),
        prompt="\n".join(message.text for message in first_step if message.role == "user"),
        response=_last_response(library, id, position, stop),
        total_messages=stop - position,
        first_message=position,
        start=start,
        messages=[message.to_dict() for message in page],
        labels=_step_labels(library, id, label, total_steps, begin, page),
    )


def _last_response(library: SessionLibrary, id: str, position: int, stop: int) -> str:
    """Return the last text of the assistant in ``[position, stop)``; "" if there is none."""
    while stop > position:
        begin = max(position, stop - _TAIL)
        for message in reversed(list(library.read_messages(id, begin, stop))):
            if message.role == "assistant" and message.text.strip():
                return message.text
        stop = begin
    return ""


def _step_labels(
    library: SessionLibrary,
    id: str,
    label: TurnLabel,
    total_steps: int,
    position: int,
    page: Sequence[Message],
) -> list[str]:
    """Return the label of the step of each message of a page that begins at ``position``."""
    if label.step or not page:
        return [str(label)] * len(page)

    def step_start(step: int) -> int:
        return library.read_turn(id, label.turn, step)[0]

    step = bisect_right(range(1, total_steps + 1), position, key=step_start)
    counter = TurnCounter(label.turn, step - 1) if step > 1 else TurnCounter(label.turn - 1)
    for message in library.read_messages(id, step_start(step), position):
        counter.add(message)
    return [str(counter.add(message)) for message in page]


def _has_role(messages: Iterable[Message], role: str) -> bool:
    return any(message.role == role for message in messages)


def _first_timestamp(messages: Iterable[Message]) -> str | None:
    return iso_timestamp(next((m.time for m in messages if m.time), None))
