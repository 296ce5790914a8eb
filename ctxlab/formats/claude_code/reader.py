"""Read session logs of Claude Code.

Claude Code writes one row per event.

- Rows with the same ``message.id`` form one assistant message at the position of the first row. Its
  usage is that of the row with the most output tokens. Its tool results follow it in the order of
  arrival. Anything else that arrived in between comes after them, so that calls and results stay
  together.
- A ``user`` row may hold text, tool results, or both. Rows with ``isMeta`` are sent to the model
  and are kept (``extra["meta"]``). ``toolUseResult`` repeats a result and is not read.
- A prompt that was typed while the model worked becomes a user message where the model received it
  (``queued_input``). A turn that the user took back is left out (``branches``).
- Side chains (``isSidechain``: subagents) become separate recordings in the cluster of the parent.
- Compactions are recorded but not applied: a recording holds the whole conversation.
  ``compact_boundary`` and the row with ``isCompactSummary`` become a ``Compaction`` with the
  summary, which is not a message. ``microcompact_boundary`` names the calls whose results were
  cleared. ``compactMetadata`` names the rows that were kept: ``preservedMessages.uuids``, or
  ``preservedSegment`` with the first row (``headUuid``) and the last (``tailUuid``).
- An answer that was interrupted during thinking is empty and is left out.
- All other rows are counted in ``skipped`` by type, including error messages of the client
  (``isApiErrorMessage``, model ``<synthetic>``). The counts of a file are stored in its first
  recording, those of interrupted answers in their own recording.

References
----------
Session files of Claude Code 2.0 and 2.1 (``~/.claude/projects``), with examples up to 2.1.39. Only newer
clients name the rows that a compaction kept (seen for 2.1.195). That format is taken from the notes and
test fixtures of public readers.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any, TypeAlias

from ctxlab.formats.base import Format, Source
from ctxlab.formats.claude_code.branches import find_abandoned_rows
from ctxlab.formats.claude_code.conversation import ConversationBuilder
from ctxlab.formats.claude_code.queued_input import insert_queued_prompts
from ctxlab.formats.fields import get_text
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.types import Recording

_Row: TypeAlias = dict[str, Any]
_MESSAGE_TYPES = ("user", "assistant")
_KEYS_BY_TYPE = {"summary": "leafUuid", "file-history-snapshot": "snapshot", "system": "parentUuid"}


def sniff(head: FileHead) -> bool:
    """Return whether a file has rows in the format of Claude Code.

    Parameters
    ----------
    head : FileHead
        The beginning of the file.

    Returns
    -------
    bool
        True if at least one row matches.
    """
    return any(isinstance(row, dict) and _is_claude_code_row(row) for row in head.rows)


def read(source: Source) -> Iterator[Recording]:
    """Read the main conversation and its side chains.

    Parameters
    ----------
    source : Source
        The file to read.

    Yields
    ------
    Recording
        The conversations, in the order in which they begin.
    """
    chains: dict[str, ConversationBuilder] = {}
    numbered = list(_read_rows(source))
    rows = [row for _, row in numbered]
    keys = list(_conversation_keys(rows))
    abandoned = _abandoned_places(rows, keys)
    for place, row in enumerate(insert_queued_prompts(rows)):
        if place in abandoned:
            source.skip("row of a turn that was taken back")
            continue
        with source.handle_errors(numbered[place][0]):
            chains.setdefault(keys[place], ConversationBuilder(source.skip)).add(row)
    for key, chain in chains.items():
        id = f"{source.name}/{key}" if key else source.name
        yield from chain.build_recordings(id, cluster=chain.meta.get("sessionId", source.name))


FORMAT = Format("claude-code", "Claude Code sessions (~/.claude/projects)", sniff, read)


def _is_claude_code_row(row: _Row) -> bool:
    kind = row.get("type")
    if kind in _MESSAGE_TYPES:
        return isinstance(row.get("message"), dict) and ("uuid" in row or "sessionId" in row)
    return isinstance(kind, str) and _KEYS_BY_TYPE.get(kind) in row


def _read_rows(source: Source) -> Iterator[tuple[int, _Row]]:
    seen: set[str] = set()
    for line, row in source.read_jsonl():
        if not isinstance(row, dict):
            source.report_error(f"a row must be an object, got {type(row).__name__}", line)
            continue
        uuid = get_text(row, "uuid")
        if uuid in seen:
            source.skip("row written twice")
            continue
        if uuid:
            seen.add(uuid)
        yield line, row


def _abandoned_places(rows: list[_Row], keys: list[str]) -> set[int]:
    """Return the indices of abandoned rows of the main conversations."""
    mains: dict[str, list[int]] = {}
    for place, (row, key) in enumerate(zip(rows, keys, strict=True)):
        if not row.get("isSidechain"):
            mains.setdefault(key, []).append(place)
    found = ((places, find_abandoned_rows([rows[p] for p in places])) for places in mains.values())
    return {places[index] for places, abandoned in found for index in abandoned}


def _conversation_keys(rows: list[_Row]) -> Iterator[str]:
    """Yield the key of the conversation of each row; the main conversation is ``""``.

    The key of a side chain is its ``agentId``, or else the row at the root of its parents. Sessions
    that follow each other form one conversation; interleaved sessions are separate conversations.
    """
    said = (row for row in rows if row.get("type") in _MESSAGE_TYPES)
    sessions = (get_text(row, "sessionId") for row in said if not row.get("isSidechain"))
    runs = [session for session, _ in groupby(sessions)]
    several = len(runs) > len(set(runs))
    sides: dict[str, str] = {}
    for row in rows:
        if not row.get("isSidechain"):
            yield (get_text(row, "sessionId") or "") if several else ""
            continue
        uuid, parent = get_text(row, "uuid") or "", get_text(row, "parentUuid") or ""
        key = get_text(row, "agentId") or sides.get(parent) or uuid or "side"
        if uuid:
            sides[uuid] = key
        yield f"side-{key}"
