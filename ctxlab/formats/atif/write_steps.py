"""Messages become steps of an ATIF trajectory, each with what ATIF cannot say of it beside it.

The writer of a whole recording is ``atif_dump``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from ctxlab._utils.jsonio import parse_json
from ctxlab.formats.atif.steps import (
    OURS,
    compaction,
    own_message,
    result_message,
)
from ctxlab.formats.base import silent
from ctxlab.formats.optional_fields import within
from ctxlab.messages.types import (
    Message,
    Part,
    Recording,
    ToolCall,
    Usage,
)

__all__ = ["differing", "steps_of", "strict_json"]

_SOURCES = {"system": "system", "user": "user", "assistant": "agent"}
_MEDIA = re.compile(r"data:(image/(?:jpeg|png|gif|webp))[;,]")
_SUFFIX = re.compile(r"\.(jpe?g|png|gif|webp)(?:[?#]|$)", re.IGNORECASE)


def steps_of(messages: Sequence[Message]) -> Iterator[dict[str, Any]]:
    """A step a message, but for results that follow the step with their call."""
    number = index = 0
    while index < len(messages):
        message = messages[index]
        number, index = number + 1, index + 1
        if message.role == "tool":
            observed = [_result(message)]
            step: dict[str, Any] = {"step_id": number, "source": "system", "message": ""}
        else:
            step, observed = _step(number, message), []
            asked = {call.id for call in message.tool_calls}
            while index < len(messages) and _answers(messages[index], step, asked):
                observed.append(_result(messages[index]))
                index += 1
        yield step | ({"observation": {"results": observed}} if observed else {})


def _answers(message: Message, step: dict[str, Any], asked: set[str]) -> bool:
    return message.role == "tool" and step["source"] == "agent" and message.tool_call_id in asked


def _step(number: int, message: Message) -> dict[str, Any]:
    step: dict[str, Any] = {"step_id": number, "source": _SOURCES[message.role]}
    if (stamp := _stamp(message.time)) is not None:
        step["timestamp"] = stamp
    step["message"] = _content(message.content) or ""
    if message.role == "assistant":
        if message.reasoning:
            step["reasoning_content"] = message.reasoning
        if message.tool_calls:
            step["tool_calls"] = [_call(call) for call in message.tool_calls]
        if message.usage is not None:
            step["metrics"] = _metrics(message.usage)
    _mark(step, message, lambda: own_message(step, None, silent))
    if compaction(step) is not None:
        step["extra"][OURS] = {}
    return step


def _result(message: Message) -> dict[str, Any]:
    said = {"source_call_id": message.tool_call_id, "content": _content(message.content)}
    result = {key: value for key, value in said.items() if value is not None}
    _mark(result, message, lambda: result_message(result, "system", silent))
    return result


def _mark(holder: dict[str, Any], message: Message, native: Callable[[], Message]) -> None:
    """Adds what a message says beyond its step or result, and what would be read otherwise."""
    extra = {key: value for key, value in message.extra.items() if key != OURS}
    if extra:
        holder["extra"] = extra
    if beyond := differing(native(), message, Message.__struct_fields__):
        holder["extra"] = extra | {OURS: beyond}


def _call(call: ToolCall) -> dict[str, Any]:
    try:
        arguments = parse_json(call.arguments)
        told = isinstance(arguments, dict) and strict_json(arguments) == call.arguments
    except ValueError:
        arguments, told = {}, False
    arguments = arguments if isinstance(arguments, dict) else {}
    made = {"tool_call_id": call.id, "function_name": call.name, "arguments": arguments}
    return made if told else made | {"extra": {OURS: {"arguments": call.arguments}}}


def _content(content: str | tuple[Part, ...] | None) -> str | list[dict[str, Any]] | None:
    """Text, or parts where ATIF has a place for each, or the text of the parts."""
    if content is None or isinstance(content, str):
        return content
    parts = [part for each in content if (part := _part(each))]
    return parts if len(parts) == len(content) else Message("user", content).text


def _part(part: Part) -> dict[str, Any] | None:
    if part.keys() == {"type", "text"} and part["type"] == "text" and isinstance(part["text"], str):
        return part
    url = within(part, "image_url", "url") if part.get("type") == "image_url" else None
    media = _media_type(url) if isinstance(url, str) else None
    return {"type": "image", "source": {"media_type": media, "path": url}} if media else None


def _media_type(url: str) -> str | None:
    if data := _MEDIA.match(url):
        return data[1]
    suffix = None if url.startswith("data:") else _SUFFIX.search(url)
    return f"image/{suffix[1].lower().replace('jpg', 'jpeg')}" if suffix else None


def _metrics(usage: Usage) -> dict[str, Any]:
    """Cache writes and reasoning under the names that the RFC proposes."""
    beyond = {
        "cache_creation_input_tokens": usage.cache_write,
        "reasoning_tokens": usage.reasoning,
    }
    extra = {key: count for key, count in beyond.items() if count}
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.output,
        "cached_tokens": usage.cache_read,
    } | ({"extra": extra} if extra else {})


def _stamp(time: float | None) -> str | None:
    try:
        return None if time is None else datetime.fromtimestamp(time, UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        return None


def differing(
    native: Message | Recording, wanted: Message | Recording, names: Sequence[str]
) -> dict[str, Any]:
    """The fields in which what is read differs from what is to be read."""
    return {
        name: msgspec.to_builtins(getattr(wanted, name))
        for name in names
        if getattr(native, name) != getattr(wanted, name)
    }


def strict_json(value: Any) -> str | None:
    """JSON text in UTF-8; None where there is none."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return None
