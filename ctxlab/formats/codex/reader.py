"""Codex writes a rollout, a line an item; the items of one answer are put together.

A line is ``{timestamp, type, payload}``. ``response_item`` is what was sent and what came back,
``compacted`` a compaction, ``turn_context`` names the model; ``event_msg`` says for people what the
items say, and is read for two things: ``token_count`` and ``thread_rolled_back``. Until
September 2025 a line was the bare item, below a first line ``{id, timestamp, instructions, git}``.

- Instructions: ``base_instructions`` is what stands in a request before all items and becomes the
  system message. ``instructions``, which older files have, is the user's own (``AGENTS.md``); where a
  message says it again, as from mid-2025 on, it is no message by itself.
- The first ``session_meta`` is the file's own; those of the sessions that it was forked off are counted.
- ``thread_rolled_back`` takes back the newest turns of the user; they are counted.

Source: github.com/openai/codex, ``codex-rs/protocol/src/protocol.rs`` (``RolloutItem``) and
``codex-rs/core/src/codex/rollout_reconstruction.rs`` of 2025 and 2026. What a rollout looks like was
read there, since the files at hand are hand-written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ctxlab.formats.base import Format, Source
from ctxlab.formats.codex.rollout import RolloutBuilder
from ctxlab.formats.common.assistant_message import most_common_model
from ctxlab.formats.fields import (
    count_or_zero,
    get_nested,
    parse_iso_time,
    require_object,
    text_or_none,
)
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.types import Recording

__all__ = ["FORMAT", "read", "sniff"]

_LINE_TYPES = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
_META_KEYS = ("cli_version", "originator", "model_provider")


def sniff(head: FileHead) -> bool:
    """Whether a file has lines of a rollout, or begins as the older ones do."""
    return _is_bare_meta(head.value) or any(
        get_nested(row, "type") in _LINE_TYPES and isinstance(row.get("payload"), dict)
        for row in head.rows
    )


def read(source: Source) -> Iterator[Recording]:
    """The one conversation of the file."""
    builder = RolloutBuilder(source.skip)
    meta: dict[str, Any] | None = None
    for line, row in source.read_jsonl():
        with source.handle_errors(line):
            row = require_object(row, "a line")
            kind, payload = row.get("type"), row.get("payload")
            time = parse_iso_time(row.get("timestamp"))
            if _is_bare_meta(row) or kind == "session_meta":
                said = payload if kind == "session_meta" else row
                if not isinstance(said, dict):
                    raise ValueError("session_meta has an object as its payload")
                if meta is None:
                    meta = said
                else:
                    source.skip("row of type session_meta")
            elif kind in _LINE_TYPES:
                _process_line(builder, kind, payload, time)
            elif "payload" in row or not text_or_none(kind):
                source.skip(f"row of type {kind or row.get('record_type')}")
            else:
                builder.add_item(row, time)
    recording = builder.build_recording(source.name, _join_instructions(meta, builder))
    if recording is not None:
        yield _with_metadata(recording, meta or {}, builder)


FORMAT = Format("codex", "Codex CLI rollouts (~/.codex/sessions)", sniff, read)


def _is_bare_meta(row: Any) -> bool:
    return (
        isinstance(row, dict)
        and "type" not in row
        and {"id", "timestamp"} <= row.keys()
        and not row.keys().isdisjoint({"instructions", "cli_version"})
    )


def _process_line(builder: RolloutBuilder, kind: str, payload: Any, time: float | None) -> None:
    payload = require_object(payload, "payload")
    if kind == "response_item":
        builder.add_item(payload, time)
    elif kind == "compacted":
        builder.add_compaction(payload)
    elif kind == "turn_context":
        builder.begin_turn(payload)
    elif payload.get("type") == "token_count":
        builder.add_token_count(payload.get("info"))
    elif payload.get("type") == "thread_rolled_back":
        builder.roll_back(count_or_zero(payload.get("num_turns")))
    else:
        builder.skip(f"row of type event_msg/{payload.get('type')}")


def _join_instructions(meta: dict[str, Any] | None, builder: RolloutBuilder) -> str | None:
    base_instructions = get_nested(meta, "base_instructions")
    base = (
        text_or_none(base_instructions)
        or text_or_none(get_nested(base_instructions, "text"))
        or builder.instructions
    )
    own = text_or_none(get_nested(meta, "instructions"))
    if own and builder.has_user_text(own):
        own = None
    return "\n\n".join(filter(None, (base, own))) or None


def _with_metadata(
    recording: Recording, meta: dict[str, Any], builder: RolloutBuilder
) -> Recording:
    session = text_or_none(meta.get("id"))
    about: dict[str, Any] = {"session": session} if session else {}
    about |= {key: meta[key] for key in _META_KEYS if text_or_none(meta.get(key))}
    if len(builder.models) > 1:
        about["models"] = dict(builder.models)
    origin = text_or_none(meta.get("forked_from_id")) or session
    return Recording(
        recording.id,
        recording.messages,
        model=most_common_model(builder.models),
        compactions=recording.compactions,
        cluster=origin,
        meta=about,
    )
