"""Claude Code writes a row an event; a conversation is put together from them.

- The rows of one ``message.id`` are one assistant message, placed where its first row stands; its
  usage is that of the row with most output. Its tool results follow it in the order in which they
  came, and what else arrived in between comes after them, so that calls and results stay paired.
- A ``user`` row may hold text, tool results, or both. Rows with ``isMeta`` are sent to the model
  and kept (``extra["meta"]``). ``toolUseResult`` repeats a result and is not read.
- What was typed while the model worked is a user's message where the model got it
  (``queued_input``). A turn that the user took back is left out (``branches``).
- Side chains (``isSidechain``: subagents) are recordings of their own in the parent's cluster.
- Compaction is marked and not carried out: a recording holds the whole conversation.
  ``compact_boundary`` and the row with ``isCompactSummary`` become a ``Compaction`` with the
  summary, which is no message here; ``microcompact_boundary`` names the calls whose results were
  cleared. What stayed is named in ``compactMetadata``: ``preservedMessages.uuids``, or
  ``preservedSegment`` with ``headUuid`` and ``tailUuid``, the first row and the last.
- An answer that was broken off while the model was thinking says nothing and is left out.
- Every other row is counted in ``skipped`` by its type, the client's own error messages
  (``isApiErrorMessage``, model ``<synthetic>``) too. The counts of a file stand in its first
  recording, those of answers broken off in their own.

Source: session files of Claude Code 2.0 and 2.1 (``~/.claude/projects``). The files at hand reach
to 2.1.39; what stayed after a compaction is named by newer clients only (seen for 2.1.195) and is
read as public readers of such files describe it, in notes and in the fixtures of their tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any, TypeAlias

from ctxlab.formats.base import Format, Source
from ctxlab.formats.claude_code.branches import find_abandoned_rows
from ctxlab.formats.claude_code.conversation import ConversationBuilder
from ctxlab.formats.claude_code.queued_input import insert_queued_prompts
from ctxlab.formats.fields import text_or_none
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.types import Recording

__all__ = ["FORMAT", "read", "sniff"]

_Row: TypeAlias = dict[str, Any]
_MESSAGE_TYPES = ("user", "assistant")


def sniff(head: FileHead) -> bool:
    """Whether a file has rows as Claude Code writes them."""
    return any(isinstance(row, dict) and _is_claude_code_row(row) for row in head.rows)


def read(source: Source) -> Iterator[Recording]:
    """The main conversation and its side chains, in the order in which they begin."""
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
        recording = chain.build_recording(id, cluster=chain.meta.get("sessionId", source.name))
        if recording is not None:
            yield recording


FORMAT = Format("claude-code", "Claude Code sessions (~/.claude/projects)", sniff, read)


def _is_claude_code_row(row: _Row) -> bool:
    kind = row.get("type")
    if kind in _MESSAGE_TYPES:
        return isinstance(row.get("message"), dict) and ("uuid" in row or "sessionId" in row)
    required_keys = {
        "summary": "leafUuid",
        "file-history-snapshot": "snapshot",
        "system": "parentUuid",
    }
    return isinstance(kind, str) and required_keys.get(kind) in row


def _read_rows(source: Source) -> Iterator[tuple[int, _Row]]:
    seen: set[str] = set()
    for line, row in source.read_jsonl():
        if not isinstance(row, dict):
            source.report_error(f"a row is an object, not {type(row).__name__}", line)
            continue
        uuid = text_or_none(row.get("uuid"))
        if uuid in seen:
            source.skip("row written twice")
            continue
        if uuid:
            seen.add(uuid)
        yield line, row


def _abandoned_places(rows: list[_Row], keys: list[str]) -> set[int]:
    """Places of the rows that were taken back, in the main conversations."""
    mains: dict[str, list[int]] = {}
    for place, (row, key) in enumerate(zip(rows, keys, strict=True)):
        if not row.get("isSidechain"):
            mains.setdefault(key, []).append(place)
    return {
        places[index]
        for places in mains.values()
        for index in find_abandoned_rows([rows[place] for place in places])
    }


def _conversation_keys(rows: list[_Row]) -> Iterator[str]:
    """For each row, the conversation that it belongs to; the main one is ``""``.

    A side chain is known by its ``agentId``, else by the row in which its parents end. Sessions
    that follow one another are one conversation; sessions that take turns are several.
    """
    mains = [
        row for row in rows if not row.get("isSidechain") and row.get("type") in _MESSAGE_TYPES
    ]
    runs = [session for session, _ in groupby(text_or_none(row.get("sessionId")) for row in mains)]
    several = len(runs) > len(set(runs))
    sides: dict[str, str] = {}
    for row in rows:
        if not row.get("isSidechain"):
            yield (text_or_none(row.get("sessionId")) or "") if several else ""
            continue
        uuid, parent = (
            text_or_none(row.get("uuid")) or "",
            text_or_none(row.get("parentUuid")) or "",
        )
        key = text_or_none(row.get("agentId")) or sides.get(parent) or uuid or "side"
        if uuid:
            sides[uuid] = key
        yield f"side-{key}"
