"""Anthropic's content blocks become the parts, calls and results of OpenAI's chat shape.

Text stays as it is. Images become data URLs. Blocks of a kind that the chat shape has no place for
are told to ``leave_out`` by their type. Readers of Anthropic's API, of Claude Code and of pi use it;
logs that mix APIs are read by ``any_content``, which is looser.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ctxlab.formats.base import LeaveOut
from ctxlab.formats.common.assistant_message import Answer
from ctxlab.formats.common.chat_format import (
    Content,
    content_of,
    image_part,
    text_part,
)
from ctxlab.formats.optional_fields import (
    text,
    within,
)
from ctxlab.formats.required_fields import a_text
from ctxlab.messages.openai_format import tool_call_from_dict
from ctxlab.messages.types import (
    Message,
    Part,
)

__all__ = ["answer", "blocks_of", "content", "results_and_content", "tool"]


def blocks_of(value: Any) -> list[dict[str, Any]]:
    """The blocks of a message's content; ``ValueError`` where it is neither text nor blocks."""
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    if isinstance(value, list) and all(isinstance(block, dict) for block in value):
        return value
    raise ValueError(f"content is text or a list of blocks, not {type(value).__name__}")


def answer(blocks: Iterable[dict[str, Any]], leave_out: LeaveOut) -> Answer:
    """What the blocks of an assistant's message hold."""
    said = Answer()
    for block in blocks:
        kind = block.get("type")
        if kind == "text":
            said.texts.append(_text(block, "text"))
        elif kind == "thinking":
            said.thoughts.append(_text(block, "thinking"))
        elif kind == "tool_use":
            call = {"id": block.get("id"), "name": block.get("name")}
            said.calls.append(tool_call_from_dict(call | {"arguments": block.get("input")}))
        else:
            leave_out(f"block of type {kind}")
    return said


def content(blocks: Iterable[dict[str, Any]], leave_out: LeaveOut) -> Content | None:
    """Texts and images, as ``content_of`` puts them together."""
    parts: list[Part] = []
    for block in blocks:
        kind = block.get("type")
        if kind == "text":
            parts.append(text_part(_text(block, "text")))
        elif kind == "image" and (url := _image_url(block.get("source"))):
            parts.append(image_part(url))
        else:
            leave_out(f"block of type {kind}")
    return content_of(parts)


def results_and_content(
    blocks: Iterable[dict[str, Any]], leave_out: LeaveOut
) -> tuple[list[Message], Content | None]:
    """What a user's message holds: the results in it as messages, and what was said beside them.

    An error is kept as ``extra["is_error"]``.
    """
    results, others = [], []
    for block in blocks:
        if block.get("type") == "tool_result":
            results.append(_result(block, leave_out))
        else:
            others.append(block)
    return results, content(others, leave_out)


def tool(definition: dict[str, Any]) -> dict[str, Any]:
    """A tool's definition in OpenAI's shape; one that the provider runs itself stays as it is.

    >>> tool({"name": "ls", "input_schema": {"type": "object"}})
    {'type': 'function', 'function': {'name': 'ls', 'parameters': {'type': 'object'}}}
    """
    if "input_schema" not in definition:
        return definition
    function = {key: definition[key] for key in ("name", "description") if key in definition}
    return {"type": "function", "function": function | {"parameters": definition["input_schema"]}}


def _result(block: dict[str, Any], leave_out: LeaveOut) -> Message:
    call_id = a_text(block.get("tool_use_id"), "tool_use_id")
    value = block.get("content")
    said = content(blocks_of("" if value is None else value), leave_out)
    extra = {"is_error": True} if block.get("is_error") is True else {}
    return Message("tool", said or "", tool_call_id=call_id, extra=extra)


def _text(block: dict[str, Any], key: str) -> str:
    return a_text(block.get(key), f"{key} of a block")


def _image_url(source: Any) -> str | None:
    if text(within(source, "url")):
        return text(source["url"])
    media, data = text(within(source, "media_type")), text(within(source, "data"))
    return f"data:{media};base64,{data}" if media and data else None
