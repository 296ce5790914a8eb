"""pi appends an entry a line; those from the newest one back to the root are the conversation.

The first entry is the header (``type: session``); then come ``message``, ``compaction``, and what the
user changed (model, thinking level, labels). Since version 2 an entry names its parent, so that a
session is a tree; before, the one above it is its parent. The active branch ends in the last entry of
the file. Entries of other branches, and those that never reach a model, are counted.

- A compaction takes effect before the next message. What it kept are the messages from its first kept
  entry up to it: ``firstKeptEntryId``, or in version 1 ``firstKeptEntryIndex``, which counts the
  entries of the file from 0 with the header. pi cannot parse a line that holds two objects and does
  not count it, so neither does the index; its messages are read all the same.
- Neither system prompt nor tool definitions are recorded.
- A session that was branched or forked off another begins as a copy of it and is in its cluster.
- ``meta`` names the session, its version and, where there were several, how often each model answered.

Source: github.com/badlogic/pi-mono, session files of versions 1 to 3
(``packages/coding-agent/src/core/session-manager.ts`` and ``docs/session.md``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any, TypeAlias

from ctxlab.formats.base import Format, Source
from ctxlab.formats.common.assistant_message import most_common_model
from ctxlab.formats.fields import count_or_zero, get_nested, require_object, text_or_none
from ctxlab.formats.io.head import FileHead
from ctxlab.formats.pi.messages import EntryConverter
from ctxlab.messages.types import Compaction, Message, Recording

__all__ = ["FORMAT", "read", "sniff"]

_Rows: TypeAlias = list[tuple[int, Any]]


def sniff(head: FileHead) -> bool:
    """Whether a file has the header of a session."""
    return any(
        get_nested(row, "type") == "session" and text_or_none(row.get("id")) and "cwd" in row
        for row in head.rows
    )


def read(source: Source) -> Iterator[Recording]:
    """The one conversation of the file: its active branch."""
    rows = list(source.read_jsonl())
    header: dict[str, Any] = next(
        (row for _, row in rows if get_nested(row, "type") == "session"), {}
    )
    path = _active_path([row for _, row in rows])
    active = frozenset(path)
    for index, (_, row) in enumerate(rows):
        if index not in active and row is not header:
            source.skip("entry of another branch")
    converter = EntryConverter(
        source.skip, keeps_interrupted_text=count_or_zero(header.get("version")) < 2
    )
    messages, compactions = _read_branch(source, rows, path, converter)
    if not messages:
        return
    yield Recording(
        source.name,
        tuple(messages),
        model=most_common_model(converter.models),
        compactions=tuple(compactions),
        cluster=_parent_session_id(header) or text_or_none(header.get("id")),
        meta=_build_meta(header, converter.models),
    )


FORMAT = Format("pi", "pi sessions (~/.pi/agent/sessions)", sniff, read)


def _read_branch(
    source: Source, rows: _Rows, path: Sequence[int], converter: EntryConverter
) -> tuple[list[Message], list[Compaction]]:
    """The messages of a branch, and where it was compacted."""
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
            places[text_or_none(row.get("id")) or ""] = index
            kind = row.get("type")
            if kind == "compaction":
                first = starts.get(_first_kept_index(row, places, counted), len(messages))
                kept = tuple(range(first, len(messages)))
                compactions.append(_build_compaction(row, len(messages), kept))
            elif kind != "session":
                messages += converter.convert(row)
    return messages, compactions


def _active_path(rows: Sequence[Any]) -> list[int]:
    """Indices of the entries from the root to the last.

    A parent stands above its child, so the way up ends. Where a line was lost, the entry below it
    goes on from the one above, since a conversation without its beginning would be the worse guess.

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
        parents.append(-1 if parent is None else places.get(text_or_none(parent) or "", index - 1))
        if id := text_or_none(row.get("id")):
            places[id] = index
    path, index = [], len(rows) - 1
    while index >= 0:
        path.append(index)
        index = parents[index]
    return path[::-1]


def _first_kept_index(row: dict[str, Any], places: dict[str, int], counted: list[int]) -> int:
    """Index of the row from which on a compaction kept everything; -1 where it names none."""
    if id := text_or_none(row.get("firstKeptEntryId")):
        return places.get(id, -1)
    number = row.get("firstKeptEntryIndex")
    if isinstance(number, int) and not isinstance(number, bool) and 0 <= number < len(counted):
        return counted[number]
    return -1


def _build_compaction(row: dict[str, Any], position: int, kept: tuple[int, ...]) -> Compaction:
    tokens = count_or_zero(row.get("tokensBefore")) or None
    return Compaction(
        position, summary=text_or_none(row.get("summary")), kept=kept, tokens_before=tokens
    )


def _parent_session_id(header: dict[str, Any]) -> str | None:
    """The session that this one was branched off, by the file that held it (``<time>_<id>.jsonl``)."""
    file = text_or_none(header.get("branchedFrom")) or text_or_none(header.get("parentSession"))
    return PurePosixPath(file.replace("\\", "/")).stem.rpartition("_")[2] or None if file else None


def _build_meta(header: dict[str, Any], models: Counter[str]) -> dict[str, Any]:
    meta: dict[str, Any] = {"session": header["id"]} if text_or_none(header.get("id")) else {}
    if version := count_or_zero(header.get("version")):
        meta["version"] = version
    if len(models) > 1:
        meta["models"] = dict(models)
    return meta
