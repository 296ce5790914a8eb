"""Read sessions of pi.

pi appends one entry per line. The conversation consists of the entries from the root to the newest
one. The first entry is the header (``type: session``). Then come ``message``, ``compaction``, and
changes by the user (model, thinking level, labels). Since version 2, an entry names its parent, so
that a session is a tree. In version 1, the parent is the previous entry. The active branch ends at
the last entry of the file. Entries of other branches, and entries that the model never receives,
are counted.

- A compaction takes effect before the next message. It kept the messages from its first kept entry
  up to the compaction. This is ``firstKeptEntryId``, or in version 1 ``firstKeptEntryIndex``, which
  counts the entries of the file from 0, including the header. pi cannot parse a line that holds two
  objects and does not count it, so the index is interpreted without such lines; their messages are
  read nevertheless.
- System prompt and tool definitions are not recorded.
- A session that was branched or forked from another one begins as a copy of it and is in its
  cluster.
- ``meta`` holds the session id, its version and, if several models answered, their numbers of
  answers.

References
----------
github.com/badlogic/pi-mono, session files of versions 1 to 3
(``packages/coding-agent/src/core/session-manager.ts`` and ``docs/session.md``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any, TypeAlias

from ctxlab.formats.base import Format, Source
from ctxlab.formats.common.assistant_message import most_common_model
from ctxlab.formats.fields import get_count, get_in, get_text, require_object
from ctxlab.formats.io.head import FileHead
from ctxlab.formats.pi.messages import EntryConverter
from ctxlab.messages.types import Compaction, Message, Recording

_Rows: TypeAlias = list[tuple[int, Any]]


def sniff(head: FileHead) -> bool:
    """Return whether a file has the header of a pi session.

    Parameters
    ----------
    head : FileHead
        The beginning of the file.

    Returns
    -------
    bool
        True if there is a header.
    """
    return any(
        get_in(row, "type") == "session" and get_text(row, "id") and "cwd" in row
        for row in head.rows
    )


def read(source: Source) -> Iterator[Recording]:
    """Read the active branch of a session.

    Parameters
    ----------
    source : Source
        The file to read.

    Yields
    ------
    Recording
        The conversation, if it has messages.
    """
    rows = list(source.read_jsonl())
    header: dict[str, Any] = next((row for _, row in rows if get_in(row, "type") == "session"), {})
    path = _active_path([row for _, row in rows])
    active = frozenset(path)
    for index, (_, row) in enumerate(rows):
        if index not in active and row is not header:
            source.skip("entry of another branch")
    converter = EntryConverter(source.skip, keeps_interrupted_text=get_count(header, "version") < 2)
    messages, compactions = _read_branch(source, rows, path, converter)
    if not messages:
        return
    yield Recording(
        source.name,
        tuple(messages),
        model=most_common_model(converter.models),
        compactions=tuple(compactions),
        cluster=_parent_session_id(header) or get_text(header, "id"),
        meta=_build_meta(header, converter.models),
    )


FORMAT = Format("pi", "pi sessions (~/.pi/agent/sessions)", sniff, read)


def _read_branch(
    source: Source, rows: _Rows, path: Sequence[int], converter: EntryConverter
) -> tuple[list[Message], list[Compaction]]:
    """Return the messages and compactions of a branch."""
    messages: list[Message] = []
    compactions: list[Compaction] = []
    starts: dict[int, int] = {}
    places: dict[str, int] = {}
    on_line = Counter(line for line, _ in rows)
    counted = [index for index, (line, _) in enumerate(rows) if on_line[line] == 1]
    for index in path:
        line, row = rows[index]
        starts[index] = len(messages)
        with source.handle_errors(line):
            row = require_object(row, "an entry")
            places[get_text(row, "id") or ""] = index
            kind = row.get("type")
            if kind == "compaction":
                first = starts.get(_first_kept_index(row, places, counted), len(messages))
                kept = tuple(range(first, len(messages)))
                compactions.append(_build_compaction(row, len(messages), kept))
            elif kind != "session":
                messages += converter.convert(row)
    return messages, compactions


def _active_path(rows: Sequence[Any]) -> list[int]:
    """Return the indices of the entries from the root to the last entry.

    A parent comes before its child, so the path always ends. If the parent is missing because a
    line was lost, the previous entry is used: dropping the beginning of the conversation would be
    worse.

    >>> parents = {"a": None, "b": "a", "c": "a"}
    >>> _active_path([{"id": id, "parentId": parent} for id, parent in parents.items()])
    [0, 2]
    """
    places: dict[str, int] = {}
    parents: list[int] = []
    for index, row in enumerate(rows):
        if not isinstance(row, dict) or "parentId" not in row:
            parents.append(index - 1)
            continue
        parent = row["parentId"]
        parents.append(-1 if parent is None else places.get(get_text(parent) or "", index - 1))
        if id := get_text(row, "id"):
            places[id] = index
    path, index = [], len(rows) - 1
    while index >= 0:
        path.append(index)
        index = parents[index]
    return path[::-1]


def _first_kept_index(row: dict[str, Any], places: dict[str, int], counted: list[int]) -> int:
    """Return the index of the first row that a compaction kept, or -1 if it names none."""
    if id := get_text(row, "firstKeptEntryId"):
        return places.get(id, -1)
    number = row.get("firstKeptEntryIndex")
    if isinstance(number, int) and not isinstance(number, bool) and 0 <= number < len(counted):
        return counted[number]
    return -1


def _build_compaction(row: dict[str, Any], position: int, kept: tuple[int, ...]) -> Compaction:
    tokens = get_count(row, "tokensBefore") or None
    return Compaction(position, summary=get_text(row, "summary"), kept=kept, tokens_before=tokens)


def _parent_session_id(header: dict[str, Any]) -> str | None:
    """Return the id of the session this one was forked from (file ``<time>_<id>.jsonl``)."""
    file = get_text(header, "branchedFrom") or get_text(header, "parentSession")
    return PurePosixPath(file.replace("\\", "/")).stem.rpartition("_")[2] or None if file else None


def _build_meta(header: dict[str, Any], models: Counter[str]) -> dict[str, Any]:
    meta: dict[str, Any] = {"session": header["id"]} if get_text(header, "id") else {}
    if version := get_count(header, "version"):
        meta["version"] = version
    if len(models) > 1:
        meta["models"] = dict(models)
    return meta
