"""A step of an ATIF trajectory is a message and, behind it, what was observed.

What ctxlab wrote and ATIF has no place for stands under ``ctxlab`` in the ``extra`` of the step, the
result or the call: fields of the message that replace what is read from the rest.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ctxlab._utils.jsonio import dump_json
from ctxlab.formats.base import (
    LeaveOut,
    silent,
)
from ctxlab.formats.common.chat_format import (
    Content,
    image_part,
    text_part,
)
from ctxlab.formats.optional_fields import (
    iso_time,
    number,
    text,
    whole_number,
    within,
)
from ctxlab.formats.required_fields import (
    a_text,
    an_object,
    objects,
)
from ctxlab.messages.types import (
    Message,
    Part,
    ToolCall,
    Usage,
)

__all__ = ["OURS", "compaction", "messages_of", "own_message", "result_message"]

OURS = "ctxlab"
"""The key in ``extra`` for what ATIF has no place for."""

_ROLES = {"system": "system", "user": "user", "agent": "assistant"}
_SAID = frozenset(["step_id", "timestamp", "source", "message", "reasoning_content", "extra"])
_DONE = frozenset(["tool_calls", "observation", "metrics"])
_RESULT = frozenset(["source_call_id", "content", "extra"])
_COMPACTING = ("compaction", "pruning")
_REPLACING = ("replace", "truncate")


def messages_of(step: dict[str, Any], model: str | None, leave_out: LeaveOut) -> list[Message]:
    """The messages of a step, in order; ``ValueError`` says what is wrong with it.

    ``model`` is the agent's, which a step need not repeat. A result that names no call answers the
    step's first call without one; where there is none, it is a message as of a user.
    """
    results = _results(step)
    own = _restored(own_message(step, model, leave_out), step)
    silent = not own.text and own.role != "assistant" and OURS not in _extra(step)
    messages = [] if results and silent else [own]
    named = [result.get("source_call_id") for result in results]
    open_calls = [call.id for call in own.tool_calls if call.id not in named]
    role = "user" if own.role == "assistant" else own.role
    for result in results:
        if result.get("source_call_id") is None and open_calls and OURS not in _extra(result):
            result = result | {"source_call_id": open_calls.pop(0)}
        message = result_message(result, role, leave_out)
        if message.content is None and message.role != "tool" and OURS not in _extra(result):
            leave_out("observation without content")
        else:
            messages.append(_restored(message, result))
    return messages


def own_message(step: dict[str, Any], model: str | None, leave_out: LeaveOut) -> Message:
    """What the step itself says, without what stands under ``ctxlab``."""
    role = _ROLES.get(step.get("source") or "")
    if role is None:
        raise ValueError(f"source is {step.get('source')!r}; expected system, user or agent")
    calls = tuple(map(_call, _list(step, "tool_calls")))
    content = _content(step.get("message"), leave_out)
    beside = {key: step[key] for key in step.keys() - _SAID - _DONE if step[key] is not None}
    for key, ordinary in (
        ("model_name", model),
        ("llm_call_count", 1),
        ("is_copied_context", False),
    ):
        if beside.get(key) == ordinary:
            beside.pop(key, None)
    extra = beside | _told(step)
    metrics = step.get("metrics")
    usage = _usage(metrics)
    if whole_number(step.get("llm_call_count")) > 1 and usage is not None:
        extra["metrics"], usage = msgspec.to_builtins(usage), None  # of several calls, not of one
    elif (cost := number(within(metrics, "cost_usd"))) is not None:
        extra["cost_usd"] = cost
    return Message(
        role=role,  # type: ignore[arg-type]
        content=None if calls and not content else content or "",
        tool_calls=calls,
        reasoning=text(step.get("reasoning_content")),
        usage=usage,
        time=iso_time(step.get("timestamp")),
        extra=extra,
    )


def result_message(result: dict[str, Any], role: str, leave_out: LeaveOut) -> Message:
    """An observed result: of the call that it names, else a message of ``role``."""
    call = result.get("source_call_id")
    if call is not None:
        call = a_text(call, "source_call_id")
    beside = {key: result[key] for key in result.keys() - _RESULT if result[key] is not None}
    content = _content(result.get("content"), leave_out)
    extra = beside | _told(result)
    if call is not None:
        return Message("tool", content, tool_call_id=call, extra=extra)
    return Message(role, content, extra=extra)  # type: ignore[arg-type]


def _restored(message: Message, holder: dict[str, Any]) -> Message:
    """The message with what stands under ``ctxlab`` in the ``extra`` of a step or a result."""
    ours = _extra(holder).get(OURS)
    if not ours:
        return message
    ours = an_object(ours, f"{OURS} in extra")
    return msgspec.convert(msgspec.to_builtins(message) | ours, Message)


def compaction(step: dict[str, Any]) -> str | None:
    """The summary that a step says was put in place of the context; ``""`` for a cut, else None.

    Such a step is no message: it declares ``context_management`` (ATIF 1.7), or refers to subagents
    that wrote a summary (Terminus 2).
    """
    extra = _extra(step)
    if step.get("source") != "system" or OURS in extra:
        return None
    contents, summaries = [], []
    for result in _results(step):
        content = _content(result.get("content"), silent)
        contents.append(Message("user", content).text)
        references = _list(result, "subagent_trajectory_ref")
        summaries += [text(within(each, "extra", "summary")) or "" for each in references]
    said = "\n\n".join(filter(None, contents)) or "\n\n".join(filter(None, summaries))
    declared = extra.get("context_management")
    if within(declared, "type") in _COMPACTING or within(declared, "boundary") in _REPLACING:
        return said
    return said if any(summaries) and not any(contents) else None


def _call(call: Any) -> ToolCall:
    call = an_object(call, "a tool call")
    name, arguments = call.get("function_name"), call.get("arguments")
    if not isinstance(name, str):
        raise ValueError(f"a tool call has a function_name, not {name!r}")
    written = within(call, "extra", OURS, "arguments")
    if not isinstance(written, str):
        written = arguments if isinstance(arguments, str) else dump_json(arguments or {})
    return ToolCall(str(call.get("tool_call_id") or ""), name, written)


def _content(value: Any, leave_out: LeaveOut) -> Content | None:
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise ValueError(f"content is text or a list of parts, not {type(value).__name__}")
    parts: list[Part] = []
    for part in value:
        kind, path = within(part, "type"), within(part, "source", "path")
        if kind == "text" and isinstance(part.get("text"), str):
            parts.append(text_part(part["text"]))
        elif kind == "image" and isinstance(path, str):
            parts.append(image_part(path))
        else:
            leave_out(f"part of type {kind}")
    return tuple(parts)


def _usage(metrics: Any) -> Usage | None:
    """``prompt_tokens`` hold what was read from the cache and what was written to it."""
    if within(metrics, "prompt_tokens") is None and within(metrics, "completion_tokens") is None:
        return None
    read = whole_number(metrics.get("cached_tokens"))
    written = whole_number(within(metrics, "extra", "cache_creation_input_tokens"))
    return Usage(
        input=max(whole_number(metrics.get("prompt_tokens")) - read - written, 0),
        cache_read=read,
        cache_write=written,
        output=whole_number(metrics.get("completion_tokens")),
        reasoning=whole_number(within(metrics, "extra", "reasoning_tokens")),
    )


def _results(step: dict[str, Any]) -> list[dict[str, Any]]:
    observation = step.get("observation")
    return _list(observation, "results") if isinstance(observation, dict) else []


def _list(value: dict[str, Any], key: str) -> list[Any]:
    found = value.get(key)
    return [] if found is None else objects(found, key)


def _extra(holder: dict[str, Any]) -> dict[str, Any]:
    extra = holder.get("extra")
    return extra if isinstance(extra, dict) else {}


def _told(holder: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in _extra(holder).items() if key != OURS}
