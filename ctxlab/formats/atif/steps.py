"""Convert an ATIF document and its steps to a recording and its messages.

The reader uses this module for a run and its subagents. The writer uses it to read its output
back and compare it with the recording. A step becomes a message, followed by one message per
observation. Values that ATIF cannot express are stored under ``ctxlab`` in the object ``extra`` of a
step, a result or a call. These values take precedence over the values of the other keys.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from ctxlab._utils.jsonio import dump_json
from ctxlab.formats import fields
from ctxlab.formats.base import SkipCallback, ignore_skip
from ctxlab.formats.common.chat_format import Content, image_part, text_part
from ctxlab.formats.common.compactions import CompactionBuilder
from ctxlab.formats.common.usage import UsageShape
from ctxlab.messages.types import ContentPart, Message, Recording, ToolCall, Usage

CTXLAB_KEY = "ctxlab"
"""Key in ``extra`` under which ctxlab stores values that ATIF cannot express."""

_ROLES = {"system": "system", "user": "user", "agent": "assistant"}
_CALL_KEYS = ("tool_calls", "observation", "metrics")
_TEXT_KEYS = ("step_id", "timestamp", "source", "message", "reasoning_content", "extra")
_STEP_KEYS = frozenset(_TEXT_KEYS + _CALL_KEYS)
_RESULT_KEYS = frozenset(["source_call_id", "content", "extra"])
_USAGE = UsageShape(
    input="prompt_tokens",
    output="completion_tokens",
    cache_read="cached_tokens",
    cache_write="extra.cache_creation_input_tokens",
    reasoning="extra.reasoning_tokens",
    cache_write_1h="extra.cache_creation.ephemeral_1h_input_tokens",
)
_COMPACTION_MARKS = {"type": ("compaction", "pruning"), "boundary": ("replace", "truncate")}

CTXLAB_FIELDS = ("tools", "model", "probes", "compactions", "cluster", "meta", "skipped")
"""Fields of a recording that are stored under ``ctxlab`` if ATIF cannot express their value."""

_NON_META_KEYS = frozenset(["schema_version", "agent", "steps", "extra", "subagent_trajectories"])
_NON_META_AGENT_KEYS = frozenset(["model_name", "tool_definitions"])


def _parse_step(step: dict[str, Any], model: str | None, skip: SkipCallback) -> list[Message]:
    """Convert a step and its results to messages.

    A result without ``source_call_id`` is assigned to the first call of the step that has no result.
    If no such call is left, the result becomes a separate message with the role of the step, or a
    user message if the step is the agent's.
    """
    results = _results(step)
    own = _restore_fields(step_message(step, model, skip), step)
    is_empty = not own.text and own.role != "assistant" and CTXLAB_KEY not in _extra(step)
    messages = [] if results and is_empty else [own]
    named = [result.get("source_call_id") for result in results]
    open_calls = [call.id for call in own.tool_calls if call.id not in named]
    role = "user" if own.role == "assistant" else own.role
    for result in results:
        if result.get("source_call_id") is None and open_calls and CTXLAB_KEY not in _extra(result):
            result = result | {"source_call_id": open_calls.pop(0)}
        message = result_message(result, role, skip)
        if message.content is None and message.role != "tool" and CTXLAB_KEY not in _extra(result):
            skip("observation without content")
        else:
            messages.append(_restore_fields(message, result))
    return messages


def step_message(step: dict[str, Any], model: str | None, skip: SkipCallback) -> Message:
    """Convert a step to a message, without its observations and the values under ``ctxlab``.

    Parameters
    ----------
    step : dict
        The step.
    model : str or None
        Model of the agent. The ``model_name`` of the step is stored in ``extra`` only if it differs.
    skip : callable
        Called with a description of each content part that is skipped.

    Returns
    -------
    Message
        The message of the step.

    Raises
    ------
    ValueError
        If the source, content or a call of the step is malformed.
    """
    role = _ROLES.get(step.get("source") or "")
    if role is None:
        raise ValueError(f"source must be system, user or agent, got {step.get('source')!r}")
    calls = tuple(map(_parse_tool_call, _object_list(step, "tool_calls")))
    content = _parse_content(step.get("message"), skip)
    ordinary = {"model_name": model, "llm_call_count": 1, "is_copied_context": False}
    beside = _other_fields(step, _STEP_KEYS)
    beside = {k: value for k, value in beside.items() if k not in ordinary or value != ordinary[k]}
    extra = beside | _foreign_extra(step)
    metrics = step.get("metrics")
    usage = _parse_usage(metrics)
    if fields.get_count(step, "llm_call_count") > 1 and usage is not None:
        extra["metrics"], usage = msgspec.to_builtins(usage), None  # sum of several calls
    elif (cost := fields.get_number(metrics, "cost_usd")) is not None:
        extra["cost_usd"] = cost
    return Message(
        role=role,  # type: ignore[arg-type]
        content=None if calls and not content else content or "",
        tool_calls=calls,
        reasoning=fields.get_text(step, "reasoning_content"),
        usage=usage,
        time=fields.get_time(step, "timestamp"),
        extra=extra,
    )


def result_message(result: dict[str, Any], role: str, skip: SkipCallback) -> Message:
    """Convert one result in the ``observation`` of a step to a message.

    Parameters
    ----------
    result : dict
        An element of ``observation.results``.
    role : str
        Role of the message if the result has no ``source_call_id``.
    skip : callable
        Called with a description of each content part that is skipped.

    Returns
    -------
    Message
        A tool message if the result has a ``source_call_id``, otherwise a message of ``role``.

    Raises
    ------
    ValueError
        If the id or the content of the result is malformed.
    """
    call = result.get("source_call_id")
    if call is not None:
        call = fields.require_text(call, "source_call_id")
    content = _parse_content(result.get("content"), skip)
    extra = _other_fields(result, _RESULT_KEYS) | _foreign_extra(result)
    if call is not None:
        return Message("tool", content, tool_call_id=call, extra=extra)
    return Message(role, content, extra=extra)  # type: ignore[arg-type]


def _restore_fields(message: Message, holder: dict[str, Any]) -> Message:
    """Overwrite fields of a message with values that ctxlab's writer stored in the ATIF file.

    The values are under ``ctxlab`` in the object ``extra`` of ``holder``, a step or a result.
    """
    ours = _extra(holder).get(CTXLAB_KEY)
    if not ours:
        return message
    ours = fields.require_object(ours, f"{CTXLAB_KEY} in extra")
    return msgspec.convert(msgspec.to_builtins(message) | ours, Message)


def parse_compaction(step: dict[str, Any]) -> str | None:
    """Return the summary of a step that reports a compaction, or None for any other step.

    A step reports a compaction if its ``extra`` contains ``context_management`` (ATIF 1.7), or if it
    references subagents that wrote a summary, as steps of the agent Terminus 2 do.

    Parameters
    ----------
    step : dict
        The step.

    Returns
    -------
    str or None
        The text of the summary. An empty string if the context was truncated without a summary.
        None if the step does not report a compaction.
    """
    extra = _extra(step)
    if step.get("source") != "system" or CTXLAB_KEY in extra:
        return None
    contents, summaries = [], []
    for result in _results(step):
        content = _parse_content(result.get("content"), ignore_skip)
        contents.append(Message("user", content).text)
        references = _object_list(result, "subagent_trajectory_ref")
        summaries += [fields.get_text(each, "extra", "summary") or "" for each in references]
    said = "\n\n".join(filter(None, contents)) or "\n\n".join(filter(None, summaries))
    declared = fields.get_object(extra, "context_management").items()
    if any(value in _COMPACTION_MARKS.get(key, ()) for key, value in declared):
        return said
    return said if any(summaries) and not any(contents) else None


def _parse_tool_call(call: Any) -> ToolCall:
    call = fields.require_object(call, "a tool call")
    name, arguments = call.get("function_name"), call.get("arguments")
    if not isinstance(name, str):
        raise ValueError(f"function_name of a tool call must be a string, got {name!r}")
    written = fields.get_in(call, "extra", CTXLAB_KEY, "arguments")
    if not isinstance(written, str):
        written = arguments if isinstance(arguments, str) else dump_json(arguments or {})
    return ToolCall(str(call.get("tool_call_id") or ""), name, written)


def _parse_content(value: Any, skip: SkipCallback) -> Content | None:
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise ValueError(f"content must be a string or a list of parts, got {type(value).__name__}")
    parts: list[ContentPart] = []
    for part in value:
        kind, path = fields.get_in(part, "type"), fields.get_in(part, "source", "path")
        if kind == "text" and isinstance(part.get("text"), str):
            parts.append(text_part(part["text"]))
        elif kind == "image" and isinstance(path, str):
            parts.append(image_part(path))
        else:
            skip(f"part of type {kind}")
    return tuple(parts)


def _parse_usage(metrics: Any) -> Usage | None:
    if (
        fields.get_in(metrics, "prompt_tokens") is None
        and fields.get_in(metrics, "completion_tokens") is None
    ):
        return None
    return _USAGE.parse(metrics)


def _results(step: dict[str, Any]) -> list[dict[str, Any]]:
    return _object_list(fields.get_object(step, "observation"), "results")


def _object_list(value: dict[str, Any], key: str) -> list[Any]:
    found = value.get(key)
    return [] if found is None else fields.require_objects(found, key)


def _extra(holder: dict[str, Any]) -> dict[str, Any]:
    return fields.get_object(holder, "extra")


def _other_fields(holder: dict[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Return the fields of an object that are not in ``known`` and not null."""
    return {key: holder[key] for key in holder if key not in known and holder[key] is not None}


def _foreign_extra(holder: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in _extra(holder).items() if key != CTXLAB_KEY}


def parse_document(
    root: Any,
    name: str,
    cluster: str | None,
    skip: SkipCallback,
    handle_errors: Callable[[int], AbstractContextManager[None]],
) -> Recording | None:
    """Convert one ATIF document to a recording, without its subagents.

    Parameters
    ----------
    root : Any
        The JSON value of the document.
    name : str
        Id of the recording.
    cluster : str or None
        Cluster of the recording.
    skip : callable
        Called with a description of each step or content part that is skipped.
    handle_errors : callable
        Called with the number of each step, counted from 1. Returns a context manager that handles
        the errors of converting this step.

    Returns
    -------
    Recording or None
        The recording, or None if no step became a message.

    Raises
    ------
    ValueError, msgspec.ValidationError
        If the document has no list of steps, or if the values under ``ctxlab`` are malformed.
    """
    steps = fields.get_in(root, "steps")
    if not isinstance(steps, list):
        raise ValueError(f"steps must be a list, got {type(steps).__name__}")
    named = fields.first_text(fields.get_in(step, "model_name") for step in steps)
    model = fields.get_text(root, "agent", "model_name") or named
    messages: list[Message] = []
    built = CompactionBuilder(messages)
    for number, step in enumerate(steps, start=1):
        with handle_errors(number):
            step = fields.require_object(step, "a step")
            if step.get("is_copied_context") is True:
                skip("step copied from another trajectory")
            elif (summary := parse_compaction(step)) is not None:
                built.add_summary(len(messages), summary)
            else:
                messages += _parse_step(step, model, skip)
    if not messages:
        return None
    recording = Recording(
        name,
        tuple(messages),
        tools=fields.get_objects(root, "agent", "tool_definitions"),
        model=model,
        compactions=tuple(built.compactions),
        cluster=cluster,
        meta=_build_meta(root),
    )
    ours = fields.get_in(root, "extra", CTXLAB_KEY)
    return recording if ours is None else _restore_recording(recording, ours)


def _restore_recording(recording: Recording, ours: Any) -> Recording:
    ours = fields.require_object(ours, f"{CTXLAB_KEY} in extra")
    stored = {key: msgspec.to_builtins(getattr(recording, key)) for key in CTXLAB_FIELDS}
    stored |= {key: ours[key] for key in CTXLAB_FIELDS if key in ours}
    told = msgspec.convert({"id": recording.id, "messages": (), **stored}, Recording)
    return msgspec.structs.replace(told, messages=recording.messages)


def _build_meta(root: dict[str, Any]) -> dict[str, Any]:
    """Return ``Recording.meta``: fields of the document and its agent that are stored nowhere else."""
    meta = _other_fields(root, _NON_META_KEYS)
    if isinstance(root.get("agent"), dict):
        meta["agent"] = _other_fields(root["agent"], _NON_META_AGENT_KEYS)
    return meta | _foreign_extra(root)
