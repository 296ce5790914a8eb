"""A recording is written as ATIF so that its tools read what they can, and ctxlab reads all of it.

Each message is written in ATIF's own terms first and read back. Where the two differ, the fields that
do go under ``ctxlab`` in the ``extra`` beside them: a result's name, arguments as they were written,
a picture that ATIF cannot refer to. A result that does not follow the step with its call is observed
by a system step of its own.

So nothing is lost but what JSON cannot say. The whole is read again at the end, and what came back
otherwise is told.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

from ctxlab._utils.jsonio import (
    dump_json,
    parse_json,
    well_formed,
)
from ctxlab.formats.atif.document import (
    CARRIED,
    recording_of,
)
from ctxlab.formats.atif.steps import OURS
from ctxlab.formats.atif.write_steps import (
    differing,
    steps_of,
    strict_json,
)
from ctxlab.formats.base import (
    Lost,
    silent,
)
from ctxlab.formats.optional_fields import (
    text,
    within,
)
from ctxlab.messages.types import (
    Message,
    Recording,
)

__all__ = ["dump"]

_VERSION = "ATIF-v1.7"  # the oldest that has a place for all that is written


def dump(recording: Recording, lost: Lost) -> str:
    """One JSON object on one line, valid by the models of the package ``atif``.

    ``lost`` is told of what no JSON text holds: half a surrogate pair, a number that is not finite.
    """
    from atif import Trajectory  # pydantic takes its time

    document = _document(recording)
    native = _read(document, recording.id)
    # A session may stand for a cluster; this says which it is, also where it is none.
    ours = {"cluster": recording.cluster} | differing(
        native or Recording("", ()), recording, CARRIED
    )
    document["extra"] = {OURS: ours}
    written = _encoded(document)
    value = parse_json(written)
    Trajectory.model_validate(value)
    _compare(recording, _read(value, recording.id), lost)
    return written + "\n"


def _document(recording: Recording) -> dict[str, Any]:
    """The recording in ATIF's own terms, but for what goes under ``ctxlab`` at its root."""
    meta = recording.meta
    said = meta.get("agent")
    agent: dict[str, Any] = {
        "name": text(within(said, "name")) or recording.format or "unknown",
        "version": text(within(said, "version")) or "unknown",
    }
    if isinstance(within(said, "extra"), dict):
        agent["extra"] = within(said, "extra")
    if recording.model is not None:
        agent["model_name"] = recording.model
    if recording.tools:
        agent["tool_definitions"] = list(recording.tools)
    root: dict[str, Any] = {"schema_version": _VERSION, "trajectory_id": recording.id}
    root |= {key: meta[key] for key in ("session_id", "notes") if text(meta.get(key))}
    steps = list(steps_of(recording.messages))
    root |= {"agent": agent, "steps": steps}
    used = [message.usage for message in recording.messages if message.usage is not None]
    if used:
        root["final_metrics"] = {
            "total_prompt_tokens": sum(usage.prompt for usage in used),
            "total_completion_tokens": sum(usage.output for usage in used),
            "total_cached_tokens": sum(usage.cache_read for usage in used),
            "total_steps": len(steps),
        }
    return root


def _encoded(document: dict[str, Any]) -> str:
    if (written := strict_json(document)) is not None:
        return written
    # Halves of surrogate pairs are joined, or replaced as a tokenizer would.
    return dump_json(parse_json(well_formed(json.dumps(document, ensure_ascii=False))))


def _read(document: Any, name: str) -> Recording | None:
    return recording_of(document, name, None, silent, lambda number: nullcontext())


def _compare(recording: Recording, back: Recording | None, lost: Lost) -> None:
    """Tells what did not come back as it was."""
    if back is None:
        return lost("recording without messages")
    for message, again in zip(recording.messages, back.messages, strict=True):
        for name in differing(again, message, Message.__struct_fields__):
            lost(f"odd value in the {name} of a message")
    for name in differing(back, recording, CARRIED):
        lost(f"odd value in the {name} of a recording")
    return None
