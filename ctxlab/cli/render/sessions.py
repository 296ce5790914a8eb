"""Render sessions, search hits and the details of one session as tables or JSON objects."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from ctxlab._utils.humanize import pluralize
from ctxlab.cli.dates import format_time
from ctxlab.cli.output import one_line
from ctxlab.cli.render.control_characters import strip_control_characters
from ctxlab.cli.render.table import Table
from ctxlab.context.turns import TurnLabel
from ctxlab.errors import SpecError
from ctxlab.evaluation.columns import Column
from ctxlab.sessions.table_of_contents import iso_timestamp

if TYPE_CHECKING:
    from ctxlab.sessions.base import Session
    from ctxlab.sessions.table_of_contents import Contents
    from ctxlab.sessions.text_search import SearchHit

_UNTITLED = "(untitled)"
_RANGE_PATTERN = re.compile(r"([0-9]{1,18})-([0-9]{1,18})?")


def session_to_row(session: Session) -> dict[str, Any]:
    """Convert a session to a dict for JSON output, with times in ISO 8601 and UTC.

    Parameters
    ----------
    session : Session
        Session to convert.

    Returns
    -------
    dict
        Fields of the session, except ``tools`` and ``meta``.
    """
    row = asdict(session)
    for name in ("tools", "meta"):
        row.pop(name)
    row["created"], row["updated"] = iso_timestamp(session.created), iso_timestamp(session.updated)
    for change in row["titles"]:
        change["changed_at"] = iso_timestamp(change["changed_at"])
    return row


def hit_to_row(hit: SearchHit) -> dict[str, Any]:
    """Convert a search hit to a dict for JSON output, with its time in ISO 8601 and UTC.

    Parameters
    ----------
    hit : SearchHit
        Search hit to convert.

    Returns
    -------
    dict
        Fields of the search hit.
    """
    return asdict(hit) | {"time": iso_timestamp(hit.time)}


def sessions_table(sessions: Sequence[Session], short_ids: Mapping[str, str]) -> Text:
    """Render sessions as a table with one row per session.

    Parameters
    ----------
    sessions : sequence of Session
        Sessions to show, in this order.
    short_ids : mapping of str to str
        Short form of each session id. An id that is not in the mapping is shown in full.

    Returns
    -------
    Text
        Printable table.
    """
    columns = [
        Column("title", [one_line(s.title) or _UNTITLED for s in sessions], left=True),
        Column("id", [one_line(short_ids.get(s.id, s.id)) for s in sessions], left=True),
        Column("updated", [format_time(s.updated) for s in sessions], left=True),
        Column("messages", [f"{s.messages:,}" for s in sessions], drop=1),
        Column("status", [s.status for s in sessions], drop=3, left=True),
        Column("agent", [one_line(s.agent or "–") for s in sessions], drop=2, left=True),
        Column("model", [one_line(s.model or "–") for s in sessions], drop=4, left=True),
    ]
    if not any(s.agent for s in sessions):
        del columns[-2]
    rows = [(i, "dim" if s.status == "archived" else "") for i, s in enumerate(sessions)]
    return Table(columns, rows, prose=True).text


def hits_table(hits: Sequence[SearchHit], short_ids: Mapping[str, str]) -> Text:
    """Render search hits as a table with one row per message that was found.

    Parameters
    ----------
    hits : sequence of SearchHit
        Search hits to show, in this order.
    short_ids : mapping of str to str
        Short form of each session id. An id that is not in the mapping is shown in full.

    Returns
    -------
    Text
        Printable table.
    """
    columns = [
        Column("snippet", [one_line(hit.snippet) for hit in hits], left=True),
        Column(
            "session",
            [one_line(short_ids.get(h.session_id, h.session_id)) for h in hits],
            left=True,
        ),
        Column("step", [hit.label for hit in hits]),
        Column("role", [hit.role for hit in hits], drop=1, left=True),
        Column("time", [format_time(hit.time) for hit in hits], drop=2, left=True),
    ]
    return Table(columns, prose=True).text


def session_details(session: Session, contents: Contents) -> RenderableType:
    """Render the properties of a session, its title history and its table of contents.

    Parameters
    ----------
    session : Session
        Session to describe.
    contents : Contents
        Table of contents of the session.

    Returns
    -------
    RenderableType
        Text and tables that the library rich can print.
    """
    known = {
        "id": session.id,
        "status": session.status + (", system session" if session.system else ""),
        "created": format_time(session.created),
        "updated": format_time(session.updated),
        "size": f"{pluralize(session.messages, 'message')} in {pluralize(contents.total_turns, 'turn')}",
        "model": session.model,
        "strategy": session.strategy,
        "agent": session.agent,
        "file": session.file,
    }
    text = Text(f"{one_line(session.title) or _UNTITLED}\n\n", "bold")
    for name, value in known.items():
        if value:
            text.append(f"{name:<10}{one_line(str(value))}\n", "")
    parts: list[RenderableType] = [text]
    if len(session.titles) > 1:
        columns = [
            Column(
                "titles, newest first", [one_line(each.title) for each in session.titles], left=True
            ),
            Column("turn", [str(each.turn or "–") for each in session.titles]),
            Column("since", [format_time(each.changed_at) for each in session.titles], left=True),
        ]
        parts += [Table(columns, prose=True).text, Text()]
    return Group(*parts, contents_text(contents))


def contents_text(contents: Contents) -> Text:
    """Render a table of contents with one line per turn and per step.

    Steps are indented and dimmed.

    Parameters
    ----------
    contents : Contents
        Table of contents of a session.

    Returns
    -------
    Text
        Printable lines, or ``(no turns yet)``.
    """
    if not contents.entries:
        return Text("(no turns yet)", "dim")
    text = Text()
    for line in contents.formatted.split("\n"):
        text.append(f"{strip_control_characters(line)}\n", "dim" if line.startswith(" ") else "")
    text.rstrip()
    return text


def parse_turns(text: str, total: int) -> list[TurnLabel]:
    """Parse a turn, a step or a range of turns, such as ``3``, ``3.2``, ``3-5`` or ``3-``.

    Parameters
    ----------
    text : str
        What to show. ``3-`` means all turns from 3 on.
    total : int
        Number of turns in the session. A range that ends after the last turn is shortened.

    Returns
    -------
    list of TurnLabel
        Labels of the turns, or of one step.

    Raises
    ------
    SpecError
        If ``text`` is not a turn, a step or a range of turns, if the range ends before it begins, or if
        the session has no turn with the first number.

    Examples
    --------
    >>> [str(label) for text in ("3", "3.2", "3-5", "8-") for label in parse_turns(text, 9)]
    ['3', '3.2', '3', '4', '5', '8', '9']
    """
    found = _RANGE_PATTERN.fullmatch(text.strip())
    if found is None:
        return [_known_label(TurnLabel.parse(text), total)]
    first = _known_label(TurnLabel.parse(found[1]), total).turn
    last = total if found[2] is None else min(int(found[2]), total)
    if last < first:
        raise SpecError(f"Expected turns such as 3-5, got {text!r}, which ends before it begins")
    return [TurnLabel(turn) for turn in range(first, last + 1)]


def _known_label(label: TurnLabel, total: int) -> TurnLabel:
    if not 1 <= label.turn <= total:
        raise SpecError(f"unknown turn {label.turn}; the session has {pluralize(total, 'turn')}")
    return label
