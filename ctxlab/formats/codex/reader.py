"""Codex writes a rollout, a line an item; the items of one answer are put together.

A line is ``{timestamp, type, payload}``. ``response_item`` is what was sent and what came back,
``compacted`` a compaction, ``turn_context`` names the model; ``event_msg`` says for people what the
items say, and is read for two things: ``token_count`` and ``thread_rolled_back``. Until September 2025
a line was the bare item, below a first line ``{id, timestamp, instructions, git}``.

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

from ctxlab.formats.base import (
    Format,
    Source,
)
from ctxlab.formats.codex.turns import Turns
from ctxlab.formats.common.assistant_message import model_of
from ctxlab.formats.io.head import Head
from ctxlab.formats.optional_fields import (
    iso_time,
    text,
    whole_number,
    within,
)
from ctxlab.formats.required_fields import an_object
from ctxlab.messages.types import Recording

__all__ = ["FORMAT", "read", "sniff"]

_KINDS = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
_META = ("cli_version", "originator", "model_provider")


def sniff(head: Head) -> bool:
    """Whether a file has lines of a rollout, or begins as the older ones do."""
    return _is_bare_meta(head.value) or any(
        within(row, "type") in _KINDS and isinstance(row.get("payload"), dict) for row in head.rows
    )


def read(source: Source) -> Iterator[Recording]:
    """The one conversation of the file."""
    turns = Turns(source.skip)
    meta: dict[str, Any] | None = None
    for line, row in source.rows():
        with source.guard(line):
            row = an_object(row, "a line")
            kind, payload = row.get("type"), row.get("payload")
            time = iso_time(row.get("timestamp"))
            if _is_bare_meta(row) or kind == "session_meta":
                said = payload if kind == "session_meta" else row
                if not isinstance(said, dict):
                    raise ValueError("session_meta has an object as its payload")
                if meta is None:
                    meta = said
                else:
                    source.skip("row of type session_meta")
            elif kind in _KINDS:
                _take(turns, kind, payload, time)
            elif "payload" in row or not text(kind):
                source.skip(f"row of type {kind or row.get('record_type')}")
            else:
                turns.item(row, time)
    recording = turns.recording(source.name, _instructions(meta, turns))
    if recording is not None:
        yield _about(recording, meta or {}, turns)


FORMAT = Format("codex", "Codex CLI rollouts (~/.codex/sessions)", sniff, read)


def _is_bare_meta(row: Any) -> bool:
    return (
        isinstance(row, dict)
        and "type" not in row
        and {"id", "timestamp"} <= row.keys()
        and not row.keys().isdisjoint({"instructions", "cli_version"})
    )


def _take(turns: Turns, kind: str, payload: Any, time: float | None) -> None:
    payload = an_object(payload, "payload")
    if kind == "response_item":
        turns.item(payload, time)
    elif kind == "compacted":
        turns.compacted(payload)
    elif kind == "turn_context":
        turns.context(payload)
    elif payload.get("type") == "token_count":
        turns.token_count(payload.get("info"))
    elif payload.get("type") == "thread_rolled_back":
        turns.roll_back(whole_number(payload.get("num_turns")))
    else:
        turns.leave_out(f"row of type event_msg/{payload.get('type')}")


def _instructions(meta: dict[str, Any] | None, turns: Turns) -> str | None:
    given = within(meta, "base_instructions")
    base = text(given) or text(within(given, "text")) or turns.instructions
    own = text(within(meta, "instructions"))
    if own and turns.says(own):
        own = None
    return "\n\n".join(filter(None, (base, own))) or None


def _about(recording: Recording, meta: dict[str, Any], turns: Turns) -> Recording:
    session = text(meta.get("id"))
    about: dict[str, Any] = {"session": session} if session else {}
    about |= {key: meta[key] for key in _META if text(meta.get(key))}
    if len(turns.models) > 1:
        about["models"] = dict(turns.models)
    origin = text(meta.get("forked_from_id")) or session
    return Recording(
        recording.id,
        recording.messages,
        model=model_of(turns.models),
        compactions=recording.compactions,
        cluster=origin,
        meta=about,
    )
