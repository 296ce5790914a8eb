"""Writer for the Agent Trajectory Interchange Format (ATIF).

Each message is first converted to a step with the keys of ATIF, and the step is read back. The
fields of the message that are not restored in this way are stored under ``ctxlab`` in the object
``extra`` of the step. Examples are the name of a tool result, the exact JSON string of arguments,
and an image that ATIF cannot reference. A tool result that does not follow the step with its call
becomes an observation of a separate system step.

Only values that JSON cannot express are lost. To detect them, the complete document is read back at
the end, and each difference is reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from ctxlab._utils.jsonio import dump_json, parse_json, repair_surrogates
from ctxlab.formats.atif.steps import (
    CTXLAB_FIELDS,
    CTXLAB_KEY,
    parse_compaction,
    parse_document,
    result_message,
    step_message,
)
from ctxlab.formats.base import UnsupportedCallback, ignore_skip
from ctxlab.formats.common.chat_format import Content
from ctxlab.formats.fields import get_in, get_text
from ctxlab.messages.types import ContentPart, Message, Recording, ToolCall, Usage

_T = TypeVar("_T", Message, Recording)

_VERSION = "ATIF-v1.7"  # the oldest version that has all keys used below
_SOURCES = {"system": "system", "user": "user", "assistant": "agent"}
_DATA_URL = re.compile(r"data:(image/(?:jpeg|png|gif|webp))[;,]")
_IMAGE_SUFFIX = re.compile(r"\.(jpe?g|png|gif|webp)(?:[?#]|$)", re.IGNORECASE)


def dump(recording: Recording, report: UnsupportedCallback) -> str:
    """Convert a recording to an ATIF document, as one line of JSON.

    The document is validated with the package ``atif``. Values that JSON cannot express, such as a
    lone surrogate or an infinite number, are reported as unsupported.

    Parameters
    ----------
    recording : Recording
        The recording to write.
    report : callable
        Called with a description of each value of the recording that the format cannot store.

    Returns
    -------
    str
        The document as JSON, followed by a newline.

    Raises
    ------
    pydantic.ValidationError
        If the document is not valid ATIF.
    """
    from atif import Trajectory  # slow to import

    document = _build_document(recording)
    native = _read_back(document, recording.id)
    # The reader would use the session id as the cluster, so the cluster is always stored.
    ours = _changed_fields(native or Recording("", ()), recording, CTXLAB_FIELDS)
    document["extra"] = {CTXLAB_KEY: {"cluster": recording.cluster} | ours}
    written = _encode(document)
    value = parse_json(written)
    Trajectory.model_validate(value)
    _report_changes(recording, _read_back(value, recording.id), report)
    return written + "\n"


def _build_document(recording: Recording) -> dict[str, Any]:
    """Convert a recording to an ATIF document, without the values under ``ctxlab`` at its root."""
    meta = recording.meta
    said = meta.get("agent")
    agent: dict[str, Any] = {"name": get_text(said, "name") or recording.format or "unknown"}
    agent["version"] = get_text(said, "version") or "unknown"
    if isinstance(get_in(said, "extra"), dict):
        agent["extra"] = get_in(said, "extra")
    if recording.model is not None:
        agent["model_name"] = recording.model
    if recording.tools:
        agent["tool_definitions"] = list(recording.tools)
    root: dict[str, Any] = {"schema_version": _VERSION, "trajectory_id": recording.id}
    root |= {key: meta[key] for key in ("session_id", "notes") if get_text(meta, key)}
    steps = list(_build_steps(recording.messages))
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
    if (written := _encode_strict_json(document)) is not None:
        return written
    # Join halves of surrogate pairs, or replace them as a tokenizer would.
    return dump_json(parse_json(repair_surrogates(json.dumps(document, ensure_ascii=False))))


def _read_back(document: Any, name: str) -> Recording | None:
    return parse_document(document, name, None, ignore_skip, lambda number: nullcontext())


def _report_changes(told: Recording, back: Recording | None, report: UnsupportedCallback) -> None:
    """Report each field whose value is lost when the recording ``told`` is written.

    ``back`` is the recording that was read from the written document.
    """
    if back is None:
        return report("recording without messages")
    for message, again in zip(told.messages, back.messages, strict=True):
        for name in _changed_fields(again, message, Message.__struct_fields__):
            report(f"odd value in the {name} of a message")
    for name in _changed_fields(back, told, CTXLAB_FIELDS):
        report(f"odd value in the {name} of a recording")
    return None


def _build_steps(messages: Sequence[Message]) -> Iterator[dict[str, Any]]:
    """Convert messages to steps.

    Each message becomes one step, except tool results that directly follow the message with their
    calls. Such results become observations of the step of this message.
    """
    number = index = 0
    while index < len(messages):
        message = messages[index]
        number, index = number + 1, index + 1
        if message.role == "tool":
            observed = [_build_result(message)]
            step: dict[str, Any] = {"step_id": number, "source": "system", "message": ""}
        else:
            step, observed = _build_step(number, message), []
            asked = {call.id for call in message.tool_calls}
            while index < len(messages) and _is_result_of(messages[index], step, asked):
                observed.append(_build_result(messages[index]))
                index += 1
        yield step | ({"observation": {"results": observed}} if observed else {})


def _is_result_of(message: Message, step: dict[str, Any], asked: set[str]) -> bool:
    return message.role == "tool" and step["source"] == "agent" and message.tool_call_id in asked


def _build_step(number: int, message: Message) -> dict[str, Any]:
    step: dict[str, Any] = {"step_id": number, "source": _SOURCES[message.role]}
    if (stamp := _iso_timestamp(message.time)) is not None:
        step["timestamp"] = stamp
    step["message"] = _build_content(message.content) or ""
    if message.role == "assistant":
        if message.reasoning:
            step["reasoning_content"] = message.reasoning
        if message.tool_calls:
            step["tool_calls"] = [_build_call(call) for call in message.tool_calls]
        if message.usage is not None:
            step["metrics"] = _build_metrics(message.usage)
    _add_extra(step, message, lambda: step_message(step, None, ignore_skip))
    if parse_compaction(step) is not None:
        step["extra"][CTXLAB_KEY] = {}
    return step


def _build_result(message: Message) -> dict[str, Any]:
    said = {"source_call_id": message.tool_call_id, "content": _build_content(message.content)}
    result = {key: value for key, value in said.items() if value is not None}
    _add_extra(result, message, lambda: result_message(result, "system", ignore_skip))
    return result


def _add_extra(holder: dict[str, Any], message: Message, read_back: Callable[[], Message]) -> None:
    """Add an ``extra`` object to the step or result that was built from a message.

    It contains the message's own ``extra`` and, under ``ctxlab``, each field of the message that has
    another value when the step or result is read back.
    """
    extra = {key: value for key, value in message.extra.items() if key != CTXLAB_KEY}
    if extra:
        holder["extra"] = extra
    if beyond := _changed_fields(read_back(), message, Message.__struct_fields__):
        holder["extra"] = extra | {CTXLAB_KEY: beyond}


def _build_call(call: ToolCall) -> dict[str, Any]:
    try:
        arguments = parse_json(call.arguments)
        told = isinstance(arguments, dict) and _encode_strict_json(arguments) == call.arguments
    except ValueError:
        arguments, told = {}, False
    arguments = arguments if isinstance(arguments, dict) else {}
    made = {"tool_call_id": call.id, "function_name": call.name, "arguments": arguments}
    return made if told else made | {"extra": {CTXLAB_KEY: {"arguments": call.arguments}}}


def _build_content(content: Content | None) -> str | list[dict[str, Any]] | None:
    """Convert content to a string or to ATIF parts.

    If ATIF does not support one of the parts, the result is one string with the texts of all parts.
    """
    if content is None or isinstance(content, str):
        return content
    parts = [part for each in content if (part := _build_part(each))]
    return parts if len(parts) == len(content) else Message("user", content).text


def _build_part(part: ContentPart) -> dict[str, Any] | None:
    if part.keys() == {"type", "text"} and part["type"] == "text" and isinstance(part["text"], str):
        return part
    url = get_in(part, "image_url", "url") if part.get("type") == "image_url" else None
    media = _media_type(url) if isinstance(url, str) else None
    return {"type": "image", "source": {"media_type": media, "path": url}} if media else None


def _media_type(url: str) -> str | None:
    if data := _DATA_URL.match(url):
        return data[1]
    suffix = None if url.startswith("data:") else _IMAGE_SUFFIX.search(url)
    return f"image/{suffix[1].lower().replace('jpg', 'jpeg')}" if suffix else None


def _build_metrics(usage: Usage) -> dict[str, Any]:
    """Convert token usage to the ``metrics`` of a step.

    ATIF has no keys for cache writes and reasoning tokens. They are stored under ``extra``, with the
    names that the RFC proposes, and cache writes for an hour with the name in Anthropic's API.
    """
    beyond: dict[str, Any] = {
        "cache_creation_input_tokens": usage.cache_write,
        "cache_creation": {"ephemeral_1h_input_tokens": hour}
        if (hour := usage.cache_write_1h)
        else 0,
        "reasoning_tokens": usage.reasoning,
    }
    extra = {key: count for key, count in beyond.items() if count}
    return {
        "prompt_tokens": usage.total_input,
        "completion_tokens": usage.output,
        "cached_tokens": usage.cache_read,
    } | ({"extra": extra} if extra else {})


def _iso_timestamp(time: float | None) -> str | None:
    try:
        return None if time is None else datetime.fromtimestamp(time, UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        return None


def _changed_fields(actual: _T, expected: _T, names: Sequence[str]) -> dict[str, Any]:
    """Compare two objects, and return the values in ``expected`` of the fields that differ.

    Only the fields in ``names`` are compared. The values are converted to JSON types.
    """
    changed = (name for name in names if getattr(actual, name) != getattr(expected, name))
    return {name: msgspec.to_builtins(getattr(expected, name)) for name in changed}


def _encode_strict_json(value: Any) -> str | None:
    """Encode a value as JSON, or return None if it cannot be encoded as UTF-8."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return None
