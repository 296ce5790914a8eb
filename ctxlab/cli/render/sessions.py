"""Sessions, what a search found, and what is known of one session, as tables and as rows of JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from ctxlab._utils.humanize import many
from ctxlab.cli.dates import when
from ctxlab.cli.output import one_line
from ctxlab.cli.render.format import (
    fitting,
    table,
)
from ctxlab.cli.render.transcript import clean
from ctxlab.errors import SpecError
from ctxlab.sessions.table_of_contents import iso

if TYPE_CHECKING:
    from ctxlab.sessions.base import (
        Hit,
        Session,
    )
    from ctxlab.sessions.table_of_contents import Contents

__all__ = [
    "as_dict",
    "contents_text",
    "facts",
    "hit_dict",
    "hits_table",
    "sessions_table",
    "turn_range",
]

_UNTITLED = "(untitled)"
_RANGE = re.compile(r"(\d+)(?:(-)(\d+)?)?")


def as_dict(session: Session) -> dict[str, Any]:
    """A session as a row of JSON: times are ISO 8601 in UTC."""
    row = asdict(session)
    for name in ("tools", "meta"):
        row.pop(name)
    row["created"], row["updated"] = iso(session.created), iso(session.updated)
    for change in row["titles"]:
        change["changed_at"] = iso(change["changed_at"])
    return row


def hit_dict(hit: Hit) -> dict[str, Any]:
    """What a search found as a row of JSON."""
    return asdict(hit) | {"time": iso(hit.time)}


def sessions_table(sessions: Sequence[Session], ids: Mapping[str, str]) -> RenderableType:
    """A line a session; ``ids``: what is shown of each id."""
    columns: dict[str, list[str]] = {
        "title": [one_line(s.title) or _UNTITLED for s in sessions],
        "id": [one_line(ids.get(s.id, s.id)) for s in sessions],
        "updated": [when(s.updated) for s in sessions],
        "messages": [f"{s.messages:,}" for s in sessions],
        "status": [s.status for s in sessions],
        "agent": [one_line(s.agent or "–") for s in sessions],
        "model": [one_line(s.model or "–") for s in sessions],
    }
    if not any(s.agent for s in sessions):
        del columns["agent"]
    heads = fitting(columns, ["model", "status", "agent", "messages"])
    rows = zip(*(columns[head] for head in heads), strict=True)
    left = {n for n, head in enumerate(heads) if head != "messages"}
    dim = ["dim" if s.status == "archived" else "" for s in sessions]
    return table(heads, list(zip(rows, dim, strict=True)), left)


def hits_table(hits: Sequence[Hit], ids: Mapping[str, str]) -> RenderableType:
    """A line a message that was found."""
    columns: dict[str, list[str]] = {
        "found": [one_line(hit.snippet) for hit in hits],
        "session": [one_line(ids.get(hit.session_id, hit.session_id)) for hit in hits],
        "turn": [str(hit.turn) for hit in hits],
        "role": [hit.role for hit in hits],
        "time": [when(hit.time) for hit in hits],
    }
    heads = fitting(columns, ["time", "role"])
    rows = [(cells, "") for cells in zip(*(columns[head] for head in heads), strict=True)]
    return table(heads, rows, {n for n, head in enumerate(heads) if head != "turn"})


def facts(session: Session, contents: Contents) -> RenderableType:
    """What is known of a session, the titles that it had with their turns, and its contents."""
    known = {
        "id": session.id,
        "status": session.status + (", of a system" if session.system else ""),
        "created": when(session.created),
        "updated": when(session.updated),
        "holds": f"{many(session.messages, 'message')} in {many(contents.total_turns, 'turn')}",
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
        rows = [
            ([one_line(each.title), str(each.turn or "–"), when(each.changed_at)], "")
            for each in session.titles
        ]
        parts += [table(["titles, newest first", "turn", "since"], rows, {0, 2}), Text()]
    return Group(*parts, contents_text(contents))


def contents_text(contents: Contents) -> Text:
    """The contents as they are printed: a line a turn, the steps of a run indented."""
    if not contents.entries:
        return Text("(no turns yet)", "dim")
    text = Text()
    for line in contents.formatted.split("\n"):
        text.append(f"{clean(line)}\n", "dim" if line.startswith(" ") else "")
    text.rstrip()
    return text


def turn_range(text: str, total: int) -> range:
    """The turns that ``3``, ``3-5`` or ``3-`` names, of so many.

    Raises ``SpecError`` for what is written otherwise and where the first of them is not there.

    >>> turn_range("3", 9), turn_range("3-5", 9), turn_range("8-", 9)
    (range(3, 4), range(3, 6), range(8, 10))
    """
    found = _RANGE.fullmatch(text.strip())
    if found is None or len(text) > 40:
        what = f"{text!r} names no turns" if text else "no turn is named"
        raise SpecError(f"{what}; write 3, 3-5 or 3-")
    first = int(found[1])
    last = first if not found[2] else total if found[3] is None else min(int(found[3]), total)
    if not 1 <= first <= total:
        raise SpecError(f"there is no turn {first}; the session has {many(total, 'turn')}")
    if last < first:
        raise SpecError(f"{text!r} names no turns: its end is before its beginning")
    return range(first, last + 1)
