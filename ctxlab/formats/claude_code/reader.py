"""Reader for session logs of Claude Code.

Claude Code writes one row per event.

- Rows with the same ``message.id`` form one assistant message at the position of the first row. The
  usage of the message is taken from the row with the most output tokens. The tool results follow the
  message in the order in which they arrived. Other rows that arrived between call and result come
  after the results, so that calls and results stay together.
- A ``user`` row contains text, tool results, or both. Rows with ``isMeta`` are also sent to the model.
  Their messages have ``extra["meta"]``. ``toolUseResult`` repeats a result and is not read.
- A prompt that was typed while the model worked becomes a user message at the position at which the
  model received it (see ``queued_input``). Turns that the user abandoned are skipped (see
  ``branches``).
- Side chains (``isSidechain``) are conversations of subagents. They become separate recordings in the
  cluster of the main conversation.
- Compactions are stored as ``Recording.compactions``, and all messages are kept. A
  ``compact_boundary`` row and the following row with ``isCompactSummary`` become a ``Compaction`` with
  the summary; the summary is not a message. ``compactMetadata`` names the rows that the compaction
  kept, either in ``preservedMessages.uuids``, or in ``preservedSegment`` by the first row
  (``headUuid``) and the last row (``tailUuid``). A ``microcompact_boundary`` row names the calls whose
  results were cleared.
- If an answer was interrupted while the model was thinking, it is empty and is skipped.
- All other rows are skipped and counted by type. This includes error messages of the client
  (``isApiErrorMessage``, model ``<synthetic>``). The counts are stored in the first recording of the
  file. An interrupted answer is counted in the recording of its conversation.

References
----------
Session files (``~/.claude/projects``) that Claude Code 2.0 to 2.1.39 wrote. Only later versions, such as
2.1.195, name the rows that a compaction kept. The keys for these rows are taken from the notes and test
files of other open-source programs that read sessions.
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
    """Check whether a file contains rows in the format of Claude Code.

    Parameters
    ----------
    head : FileHead
        The beginning of the file, parsed as JSON.

    Returns
    -------
    bool
        True if at least one row has a type and keys that Claude Code writes.
    """
    return any(isinstance(row, dict) and _is_claude_code_row(row) for row in head.rows)


def read(source: Source) -> Iterator[Recording]:
    """Read the main conversation and the conversations of subagents.

    Parameters
    ----------
    source : Source
        The file to read. Skipped content is reported to ``Source.skip``.

    Yields
    ------
    Recording
        The conversations in the order of their first rows.
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
        known = "sessionId" in row or ("uuid" in row and "session_id" not in row)
        return known and isinstance(row.get("message"), dict)
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
    """Return the indices of all rows in abandoned turns of main conversations.

    ``keys`` contains the key of the conversation of each row.
    """
    mains: dict[str, list[int]] = {}
    for place, (row, key) in enumerate(zip(rows, keys, strict=True)):
        if not row.get("isSidechain"):
            mains.setdefault(key, []).append(place)
    found = ((places, find_abandoned_rows([rows[p] for p in places])) for places in mains.values())
    return {places[index] for places, abandoned in found for index in abandoned}


def _conversation_keys(rows: list[_Row]) -> Iterator[str]:
    """Yield for each row the key of its conversation.

    All sessions in the file form one main conversation with the key ``""``. But if the rows of
    several sessions are interleaved, each session is a separate main conversation, and its key is
    the session id. The key of a side chain is made from its ``agentId``, or from the uuid of its
    first row if it has no ``agentId``.
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
