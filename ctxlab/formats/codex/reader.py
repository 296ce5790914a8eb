"""Read rollouts, which are the session logs of Codex CLI.

A rollout has one item per line: ``{timestamp, type, payload}``. The items of one answer are joined.
A ``response_item`` contains input or output of the model, ``compacted`` is a compaction, and
``turn_context`` contains the name of the model. An ``event_msg`` repeats an item for display; only
``token_count`` and ``thread_rolled_back`` are read. In files from before September 2025, the first
line is ``{id, timestamp, instructions, git}``, and each other line contains only the payload.

- ``base_instructions`` is sent before all items and becomes the system message. In the older
  files, ``instructions`` contains the user's ``AGENTS.md``. This text is added to the system
  message, unless another message also contains it, as in files since mid-2025.
- The first ``session_meta`` line describes the session of the file. If this session continues a copy
  of another session, more ``session_meta`` lines follow. They are skipped and counted.
- ``thread_rolled_back`` reports that the user took back the newest turns. Their messages are removed
  and counted as skipped.

References
----------
github.com/openai/codex, ``codex-rs/protocol/src/protocol.rs`` (``RolloutItem``) and
``codex-rs/core/src/codex/rollout_reconstruction.rs`` of 2025 and 2026. The reader follows this code, and
was checked with rollouts of 0.36.0 to 0.144.5. Files from before September 2025 were not at hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ctxlab.formats.base import Format, Source
from ctxlab.formats.codex.rollout import RolloutBuilder
from ctxlab.formats.common.chat_format import build_session
from ctxlab.formats.fields import get_count, get_in, get_object, get_text, get_time, require_object
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.types import Recording

_LINE_TYPES = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
_META_KEYS = ("cli_version", "originator", "model_provider")


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
    builder = RolloutBuilder(source.skip)
    meta: dict[str, Any] | None = None
    for line, row in source.read_jsonl():
        with source.handle_errors(line):
            row = require_object(row, "a line")
            kind, payload = row.get("type"), row.get("payload")
            time = get_time(row, "timestamp")
            if _is_bare_meta(row) or kind == "session_meta":
                said = row if kind is None else require_object(payload, "payload of session_meta")
                if meta is None:
                    meta = said
                else:
                    source.skip("row of type session_meta")
            elif kind in _LINE_TYPES:
                _process_line(builder, kind, payload, time)
            elif "payload" in row or not get_text(kind):
                source.skip(f"row of type {kind or row.get('record_type')}")
            else:
                builder.add_item(row, time)
    conversation = builder.build_messages(_join_instructions(meta, builder))
    if not conversation[0]:
        return
    session = get_text(meta, "id")
    about: dict[str, Any] = {"session": session} if session else {}
    about |= {key: value for key in _META_KEYS if (value := get_text(meta, key))}
    cluster = get_text(meta, "forked_from_id") or session
    yield build_session(source.name, conversation, builder.models, cluster, about)


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
        builder.roll_back(get_count(payload, "num_turns"))
    else:
        builder.skip(f"row of type event_msg/{payload.get('type')}")


def _join_instructions(meta: dict[str, Any] | None, builder: RolloutBuilder) -> str | None:
    base = get_in(meta, "base_instructions")
    base = get_text(base) or get_text(base, "text") or builder.instructions
    own = get_text(meta, "instructions")
    if own and builder.has_user_text(own):
        own = None
    return "\n\n".join(filter(None, (base, own))) or None
