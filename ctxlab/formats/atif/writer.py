"""Write a recording as ATIF.

Each message is first written with ATIF's own keys and then read back. Fields that differ are stored
under ``ctxlab`` in the ``extra`` next to them, for example the name of a result, the exact text of
arguments, or an image that ATIF cannot reference. A result that does not follow the step with its
call becomes an observation of a separate system step.

Only values that JSON cannot express are lost. The complete document is read back at the end, and
each difference is reported.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

from ctxlab._utils.jsonio import dump_json, parse_json, repair_surrogates
from ctxlab.formats.atif.document import CTXLAB_FIELDS, parse_document
from ctxlab.formats.atif.steps import CTXLAB_KEY
from ctxlab.formats.atif.write_steps import build_steps, changed_fields, encode_strict_json
from ctxlab.formats.base import UnsupportedCallback, ignore_skip
from ctxlab.formats.fields import get_in, get_text
from ctxlab.messages.types import Message, Recording

_VERSION = "ATIF-v1.7"  # the oldest version with all keys that are written


def dump(recording: Recording, on_unsupported: UnsupportedCallback) -> str:
    """Return a recording as one line of JSON, valid according to the package ``atif``.

    Values that JSON cannot express, such as half a surrogate pair or a number that is not finite,
    are reported as unsupported.

    Parameters
    ----------
    recording : Recording
        The recording to write.
    on_unsupported : callable
        Called with a description of each part that the format cannot express.

    Returns
    -------
    str
        One line of JSON.

    Raises
    ------
    pydantic.ValidationError
        If the document is not valid ATIF.
    """
    from atif import Trajectory  # slow to import

    document = _build_document(recording)
    native = _read_back(document, recording.id)
    # The reader would take the session id as the cluster, so always store the cluster.
    ours = {"cluster": recording.cluster} | changed_fields(
        native or Recording("", ()), recording, CTXLAB_FIELDS
    )
    document["extra"] = {CTXLAB_KEY: ours}
    written = _encode(document)
    value = parse_json(written)
    Trajectory.model_validate(value)
    _report_changes(recording, _read_back(value, recording.id), on_unsupported)
    return written + "\n"


def _build_document(recording: Recording) -> dict[str, Any]:
    """Return the recording in ATIF's own keys, without the values under ``ctxlab`` at its root."""
    meta = recording.meta
    said = meta.get("agent")
    agent: dict[str, Any] = {
        "name": get_text(said, "name") or recording.format or "unknown",
        "version": get_text(said, "version") or "unknown",
    }
    if isinstance(get_in(said, "extra"), dict):
        agent["extra"] = get_in(said, "extra")
    if recording.model is not None:
        agent["model_name"] = recording.model
    if recording.tools:
        agent["tool_definitions"] = list(recording.tools)
    root: dict[str, Any] = {"schema_version": _VERSION, "trajectory_id": recording.id}
    root |= {key: meta[key] for key in ("session_id", "notes") if get_text(meta, key)}
    steps = list(build_steps(recording.messages))
    root |= {"agent": agent, "steps": steps}
    used = [message.usage for message in recording.messages if message.usage is not None]
    if used:
        root["final_metrics"] = {
            "total_prompt_tokens": sum(usage.total_input for usage in used),
            "total_completion_tokens": sum(usage.output for usage in used),
            "total_cached_tokens": sum(usage.cache_read for usage in used),
            "total_steps": len(steps),
        }
    return root


def _encode(document: dict[str, Any]) -> str:
    if (written := encode_strict_json(document)) is not None:
        return written
    # Join halves of surrogate pairs, or replace them as a tokenizer would.
    return dump_json(parse_json(repair_surrogates(json.dumps(document, ensure_ascii=False))))


def _read_back(document: Any, name: str) -> Recording | None:
    return parse_document(document, name, None, ignore_skip, lambda number: nullcontext())


def _report_changes(
    recording: Recording, back: Recording | None, on_unsupported: UnsupportedCallback
) -> None:
    """Report values that were not read back as they were."""
    if back is None:
        return on_unsupported("recording without messages")
    for message, again in zip(recording.messages, back.messages, strict=True):
        for name in changed_fields(again, message, Message.__struct_fields__):
            on_unsupported(f"odd value in the {name} of a message")
    for name in changed_fields(back, recording, CTXLAB_FIELDS):
        on_unsupported(f"odd value in the {name} of a recording")
    return None
