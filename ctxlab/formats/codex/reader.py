"""Read rollouts, which are the session logs of Codex CLI.

A rollout has one item per line: ``{timestamp, type, payload}``. The items of one answer are joined.
A ``response_item`` contains input or output of the model, ``compacted`` is a compaction, and
``turn_context`` contains the name of the model. An ``event_msg`` repeats an item for display; only
``token_count``, ``thread_rolled_back`` and the starts of subagents are read. In files from before
September 2025, the first line is ``{id, timestamp, instructions, git}``, and each other line contains
only the payload.

- ``base_instructions`` is sent before all items and becomes the system message. In the older
  files, ``instructions`` contains the user's ``AGENTS.md``. This text is added to the system
  message, unless another message also contains it, as in files since mid-2025.
- The first ``session_meta`` line describes the session of the file. If this session continues a copy
  of another session, more ``session_meta`` lines follow. They are skipped and counted.
- ``thread_rolled_back`` reports that the user took back the newest turns. Their messages are removed
  and counted as skipped.
- A subagent has a rollout of its own. ``meta["parent"]`` is the id of the recording that started it, and
  ``meta["call_id"]`` the id of the tool call (see ``subagents``). If the rollout of the parent is not
  found, ``meta["parent"]`` is the id of its thread. A subagent is in the cluster of its parent; if
  subagents start subagents, all are in the cluster of the first thread. ``meta["agent"]`` is the role
  of the subagent.
- ``meta["context_window"]`` is the newest context window that a ``token_count`` contains.

References
----------
github.com/openai/codex, ``codex-rs/protocol/src/protocol.rs`` (``RolloutItem``) and
``codex-rs/core/src/codex/rollout_reconstruction.rs`` of 2025 and 2026. The reader follows this code, and
was checked with rollouts of 0.36.0 to 0.144.5. Files from before September 2025 were not at hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from ctxlab.errors import ReadError
from ctxlab.formats.base import Format, SkipCallback, Source
from ctxlab.formats.codex.rollout import RolloutBuilder
from ctxlab.formats.codex.subagents import (
    find_agent_name,
    find_parent_thread,
    find_rollout,
    parse_start,
)
from ctxlab.formats.common.chat_format import build_session
from ctxlab.formats.fields import get_count, get_in, get_object, get_text, get_time, require_object
from ctxlab.formats.io.head import FileHead
from ctxlab.formats.io.related_files import recording_prefix
from ctxlab.messages.types import Compaction, Message, Recording

_LINE_TYPES = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
_META_KEYS = ("cli_version", "originator", "model_provider", "cwd")


def sniff(head: FileHead) -> bool:
    """Check whether a file is a Codex rollout in the current or the older form.

    Parameters
    ----------
    head : FileHead
        The beginning of the file.

    Returns
    -------
    bool
        True if a line has a known type and a payload, or if the first line is a header of the older
        form.
    """
    known = (row for row in head.rows if get_in(row, "type") in _LINE_TYPES)
    return _is_bare_meta(head.value) or any(isinstance(row.get("payload"), dict) for row in known)


def read(source: Source) -> Iterator[Recording]:
    """Read the conversation of a rollout.

    Parameters
    ----------
    source : Source
        The file to read.

    Yields
    ------
    Recording
        The conversation. Nothing is yielded if it has no messages.
    """
    rollout = _Rollout(source)
    conversation = rollout.build()
    if not conversation[0]:
        return
    session, parent = get_text(rollout.meta, "id"), find_parent_thread(rollout.meta)
    about: dict[str, Any] = {"session": session} if session else {}
    about |= {key: value for key in _META_KEYS if (value := get_text(rollout.meta, key))}
    if agent := find_agent_name(rollout.meta):
        about["agent"] = agent
    if rollout.window:
        about["context_window"] = rollout.window
    cluster = rollout.cluster
    if parent:
        about["parent"] = parent
        path = find_rollout(source, parent)
        index = _index_parent(path, source) if path else None
        if path and index:
            about["parent"] = recording_prefix(Path(source.path), source.name, path)
            cluster = index.cluster
            if call := index.calls.get(session or ""):
                about["call_id"] = call
    yield build_session(source.name, conversation, rollout.builder.models, cluster, about)


FORMAT = Format(
    "codex",
    "Codex CLI rollouts (~/.codex/sessions)",
    sniff,
    read,
    versions="0.36.0 to 0.144.5; files from before September 2025 from source",
    not_read=(
        "not in the file: most tool definitions; left out: definitions of dynamic tools, web "
        "searches, generated images, encrypted reasoning and summaries, turns that were "
        "taken back"
    ),
)


def _is_bare_meta(row: Any) -> bool:
    keys = get_object(row).keys()
    older = {"id", "timestamp"} <= keys and "type" not in keys
    return older and not keys.isdisjoint({"instructions", "cli_version"})


class _Rollout:
    """The content of one rollout."""

    def __init__(self, source: Source) -> None:
        self.builder = RolloutBuilder(source.skip)
        self.meta: dict[str, Any] | None = None
        self.window = 0
        "size of the model's context window in tokens; 0 if it is not logged"
        self.starts: dict[str, str] = {}
        "id of the thread of a subagent → id of the call that started it"
        for line, row in source.read_jsonl():
            with source.handle_errors(line):
                self._add_row(require_object(row, "a line"), source.skip)

    @property
    def cluster(self) -> str | None:
        """Cluster of the recording, as far as this rollout alone tells it."""
        id = get_text(self.meta, "id")
        if parent := find_parent_thread(self.meta):
            return get_text(self.meta, "session_id") or parent
        return get_text(self.meta, "forked_from_id") or id

    def build(self) -> tuple[tuple[Message, ...], tuple[Compaction, ...]]:
        """Return the messages and the compactions."""
        return self.builder.build_messages(_join_instructions(self.meta, self.builder))

    def _add_row(self, row: dict[str, Any], skip: SkipCallback) -> None:
        kind, payload = row.get("type"), row.get("payload")
        time = get_time(row, "timestamp")
        if _is_bare_meta(row) or kind == "session_meta":
            said = row if kind is None else require_object(payload, "payload of session_meta")
            if self.meta is None:
                self.meta = said
            else:
                skip("row of type session_meta")
        elif kind in _LINE_TYPES:
            self._add_line(kind, require_object(payload, "payload"), time)
        elif "payload" in row or not get_text(kind):
            skip(f"row of type {kind or row.get('record_type')}")
        else:
            self.builder.add_item(row, time)

    def _add_line(self, kind: str, payload: dict[str, Any], time: float | None) -> None:
        builder = self.builder
        if kind == "response_item":
            builder.add_item(payload, time)
        elif kind == "compacted":
            builder.add_compaction(payload)
        elif kind == "turn_context":
            builder.begin_turn(payload)
        elif payload.get("type") == "token_count":
            builder.add_token_count(payload.get("info"))
            window = get_count(payload, "info", "model_context_window")
            self.window = window or self.window
        elif payload.get("type") == "thread_rolled_back":
            builder.roll_back(get_count(payload, "num_turns"))
        elif start := parse_start(payload):
            self.starts.setdefault(*start)
        else:
            builder.skip(f"row of type event_msg/{payload.get('type')}")


class _ParentIndex(NamedTuple):
    """Information about subagents in the rollout of their parent."""

    cluster: str | None
    calls: dict[str, str]
    "id of the thread of a subagent → id of the call in the recording that started it"


def _index_parent(path: Path, source: Source) -> _ParentIndex | None:
    try:
        status = path.stat()
        return _index_parent_cached(path, status.st_mtime_ns, status.st_size)
    except (OSError, ReadError):
        source.skip(f"file {path.name}, which could not be read")
        return None


@lru_cache(maxsize=4)
def _index_parent_cached(path: Path, time: int, size: int) -> _ParentIndex:
    rollout = _Rollout(Source(path, path.name, "skip"))
    messages, _ = rollout.build()
    calls = {call.id for message in messages for call in message.tool_calls}
    kept = {thread: call for thread, call in rollout.starts.items() if call in calls}
    return _ParentIndex(rollout.cluster, kept)


def _join_instructions(meta: dict[str, Any] | None, builder: RolloutBuilder) -> str | None:
    base = get_in(meta, "base_instructions")
    base = get_text(base) or get_text(base, "text") or builder.instructions
    own = get_text(meta, "instructions")
    if own and builder.has_user_text(own):
        own = None
    return "\n\n".join(filter(None, (base, own))) or None
