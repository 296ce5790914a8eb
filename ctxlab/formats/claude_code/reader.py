"""Reader for session logs of Claude Code.

Claude Code writes one row per event.

- Rows with the same ``message.id`` form one assistant message at the position of the first row. The
  usage of the message is taken from the row with the most output tokens. The tool results follow the
  message in the order in which they arrived. Other rows that arrived between call and result come
  after the results, so that calls and results stay together.
- A ``user`` row contains text, tool results, or both. Rows with ``isMeta`` are also sent to the model.
  Their messages have ``extra["meta"]``. ``toolUseResult`` repeats a result. Only the id and the final
  answer of a subagent are read from it.
- A prompt that was typed while the model worked becomes a user message at the position at which the
  model received it (see ``queued_input``). Turns that the user abandoned are skipped (see
  ``branches``).
- Conversations of subagents become separate recordings in the cluster of the main conversation (see
  ``subagents``). ``meta["parent"]`` is the id of the recording that started the subagent, and
  ``meta["call_id"]`` the id of its tool call. Without ``call_id``, the call is not in the file, or it is
  in a turn that the user abandoned. A compaction or another task of the client has no call.
- Attachments that were sent to the model become user messages (see ``attachments``).
- Compactions are stored as ``Recording.compactions``, and all messages are kept. A
  ``compact_boundary`` row and the following row with ``isCompactSummary`` become a ``Compaction`` with
  the summary; the summary is not a message. ``compactMetadata`` names the rows that the compaction
  kept, either in ``preservedMessages.uuids``, or in ``preservedSegment`` by the first row
  (``headUuid``) and the last row (``tailUuid``). A ``microcompact_boundary`` row names the calls whose
  results were cleared. If none of these results is in the file, it is not a compaction.
- If the file begins in the middle of a session, ``meta["starts_after"]`` is the uuid of the row before
  its first row. Earlier messages are then missing, but the first bills contain them.
- If an answer was interrupted while the model was thinking, it is empty and is skipped.
- All other rows are skipped and counted by type. This includes error messages of the client
  (``isApiErrorMessage``, model ``<synthetic>``). The counts are stored in the first recording of the
  file. An interrupted answer is counted in the recording of its conversation.

References
----------
Session files (``~/.claude/projects``) that Claude Code 2.0 to 2.1.219 wrote. Only later versions, such
as 2.1.195, name the rows that a compaction kept. The keys for these rows are taken from the notes and
test files of other open-source programs that read sessions.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

from ctxlab.errors import ReadError
from ctxlab.formats.base import Format, Source
from ctxlab.formats.claude_code.branches import find_abandoned_rows
from ctxlab.formats.claude_code.conversation import ConversationBuilder
from ctxlab.formats.claude_code.queued_input import insert_queued_prompts
from ctxlab.formats.claude_code.subagents import (
    CallIndex,
    final_answer,
    find_subagent_file,
    has_own_file,
    unwrap_progress,
)
from ctxlab.formats.fields import get_objects, get_text
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.types import Recording

_Row: TypeAlias = dict[str, Any]
_MESSAGE_TYPES = ("user", "assistant")
_KEYS_BY_TYPE = {
    "summary": "leafUuid",
    "attachment": "attachment",
    "file-history-snapshot": "snapshot",
    "system": "parentUuid",
}


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
    calls = CallIndex()
    numbered = list(_read_rows(source))
    for number, row, key in _select_rows([row for _, row in numbered], source):
        with source.handle_errors(numbered[number][0]):
            chains.setdefault(key, ConversationBuilder(source.skip)).add(row)
            calls.add(row, key)
    chains = {key: chain for key, chain in chains.items() if chain.has_messages}
    ids = {key: f"{source.name}/{key}" if key else source.name for key in chains}
    _set_parents(chains, ids, calls, source)
    if "" in chains and (before := _find_missing_start([row for _, row in numbered])):
        chains[""].meta["starts_after"] = before
    for key, chain in chains.items():
        session = chains.get("", chain).meta.get("sessionId", source.name)
        yield from chain.build_recordings(ids[key], session)


FORMAT = Format(
    "claude-code",
    "Claude Code sessions (~/.claude/projects)",
    sniff,
    read,
    versions="2.0.76 to 2.1.219; attachments of later versions from notes of other programs",
    not_read=(
        "not in files up to 2.1.219: system prompt, tool definitions; left out: abandoned "
        "turns, progress of tools, output of most hooks, file history, tool references, "
        "pages of PDF files"
    ),
)


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


def _select_rows(rows: list[_Row], source: Source) -> Iterator[tuple[int, _Row, str]]:
    """Yield the rows of all conversations that are read, with their indices and conversation keys.

    Rows of abandoned turns, and progress rows of subagents that are also in other rows or in a file
    of their own, are skipped.
    """
    keys = list(_conversation_keys(rows))
    abandoned = _abandoned_places(rows, keys)
    seen = {uuid for row in rows if (uuid := get_text(row, "uuid"))}
    side_keys, own_files = set(keys), dict[str, bool]()
    waiting: dict[str, bool] = {}
    "id of a subagent in progress rows → whether its final answer is still missing"
    for place, row in enumerate(insert_queued_prompts(rows)):
        inner = unwrap_progress(row)
        if place in abandoned:
            source.skip("row of a turn that was taken back")
        elif inner is None:
            yield place, row, keys[place]
        else:
            key, agent = f"side-{inner['agentId']}", inner["agentId"]
            if agent not in own_files:
                own_files[agent] = has_own_file(source, agent)
            uuid = get_text(inner, "uuid")
            if own_files[agent]:
                source.skip("progress row of a subagent that has its own file")
            elif key in side_keys or uuid in seen:
                source.skip("progress row that repeats a row of a subagent")
            else:
                if uuid:
                    seen.add(uuid)
                waiting[agent] = not _ends_conversation(inner)
                yield place, inner, key
        answer = None if place in abandoned else final_answer(inner or row)
        if answer and waiting.pop(answer["agentId"], False):
            yield place, answer, f"side-{answer['agentId']}"


def _find_missing_start(rows: list[_Row]) -> str | None:
    """Return the uuid of the row before the first row if the file lacks the start of the session."""
    first = next((row for row in rows if "parentUuid" in row and not row.get("isSidechain")), {})
    parent = get_text(first, "parentUuid")
    return None if parent in {get_text(row, "uuid") for row in rows} else parent


def _ends_conversation(row: _Row) -> bool:
    """Check whether a row is an answer without tool calls."""
    content = get_objects(row, "message", "content")
    calls = any(block.get("type") == "tool_use" for block in content)
    return row.get("type") == "assistant" and not calls


def _set_parents(
    chains: dict[str, ConversationBuilder], ids: dict[str, str], calls: CallIndex, source: Source
) -> None:
    """Add the parent and the call of each subagent to the ``meta`` of its conversation."""
    sides = [key for key in chains if key.startswith("side-")]
    file = None
    if sides and len(sides) == len(chains):
        file = find_subagent_file(source, chains[sides[0]].meta.get("sessionId", ""))
    if file:
        calls.add_parent_file(_index_calls(file.parent, source), sides[0], file.call)
    matched = calls.match_calls(sides)
    for key in sides:
        meta, call = chains[key].meta, matched.get(key)
        parent = calls.calls[call] if call else None
        if parent in ids:
            meta["parent"] = ids[parent]
        elif file:
            meta["parent"] = f"{file.parent_name}/{parent}" if parent else file.parent_id
        elif main := ids.get("") or ids.get(meta.get("sessionId", "")):
            meta["parent"], call = main, None
        if call:
            meta["call_id"] = call


def _index_calls(path: Path, source: Source) -> CallIndex:
    """Return the calls in another file. Malformed rows and rows of abandoned turns are left out."""
    try:
        status = path.stat()
        return _index_calls_cached(path, status.st_mtime_ns, status.st_size)
    except (OSError, ReadError):
        source.skip(f"file {path.name}, which could not be read")
        return CallIndex()


@lru_cache(maxsize=4)
def _index_calls_cached(path: Path, time: int, size: int) -> CallIndex:
    other, calls = Source(path, path.name, "skip"), CallIndex()
    rows = [row for _, row in _read_rows(other)]
    for _, row, key in _select_rows(rows, other):
        calls.add(row, key)
    return calls


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
