"""Convert Anthropic's content blocks to OpenAI's chat format.

Images become data URLs. Blocks that OpenAI's chat format cannot represent are reported to the
callback ``skip``. The readers for Anthropic's API, Claude Code and pi use this module. Readers for
logs that mix several APIs use ``api_content``, which accepts more variations.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from ctxlab.formats.base import SkipCallback
from ctxlab.formats.common.chat_format import (
    Content,
    MessageBuilder,
    image_part,
    join_parts,
    make_call,
    text_part,
)
from ctxlab.formats.fields import get_text, require_text
from ctxlab.messages.types import ContentPart, Message

_Blocks: TypeAlias = Iterable[dict[str, Any]]


def to_blocks(value: Any) -> list[dict[str, Any]]:
    """Return the content of a message as a list of blocks.

    Parameters
    ----------
    value : Any
        The content, a string or a list of blocks.

    Returns
    -------
    list of dict
        The blocks. A string is returned as one text block.

    Raises
    ------
    ValueError
        If the content is neither a string nor a list of objects.
    """
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    if isinstance(value, list) and all(isinstance(block, dict) for block in value):
        return value
    raise ValueError(f"content must be a string or a list of objects, got {type(value).__name__}")


def parse_assistant_blocks(blocks: _Blocks, skip: SkipCallback) -> MessageBuilder:
    """Parse the blocks of an assistant message.

    Parameters
    ----------
    blocks : iterable of dict
        Blocks in Anthropic's format.
    skip : Callable
        Called with a description of each skipped block.

    Returns
    -------
    MessageBuilder
        A builder with the texts, reasoning and calls of the message.

    Raises
    ------
    ValueError
        If a block lacks a required key or has a value of the wrong type.
    """
    builder = MessageBuilder()
    for block in blocks:
        kind = block.get("type")
        if kind == "text":
            builder.texts.append(_require_block_text(block, "text"))
        elif kind == "thinking":
            builder.reasoning.append(_require_block_text(block, "thinking"))
        elif kind == "tool_use":
            builder.calls.append(make_call(block.get("id"), block.get("name"), block.get("input")))
        else:
            skip(f"block of type {kind}")
    return builder


def parse_content(blocks: _Blocks, skip: SkipCallback) -> Content | None:
    """Parse text and image blocks into the content of a message.

    Parameters
    ----------
    blocks : iterable of dict
        Blocks in Anthropic's format.
    skip : Callable
        Called with a description of each skipped block.

    Returns
    -------
    str, tuple of dict, or None
        One string if all blocks are text blocks, otherwise content parts. None if all blocks were
        skipped.

    Raises
    ------
    ValueError
        If a block lacks a required key or has a value of the wrong type.
    """
    parts: list[ContentPart] = []
    for block in blocks:
        kind = block.get("type")
        if kind == "text":
            parts.append(text_part(_require_block_text(block, "text")))
        elif kind == "image" and (url := _image_url(block.get("source"))):
            parts.append(image_part(url))
        else:
            skip(f"block of type {kind}")
    return join_parts(parts)


def split_tool_results(blocks: _Blocks, skip: SkipCallback) -> tuple[list[Message], Content | None]:
    """Separate the tool results of a user message from its other blocks, and parse both.

    Parameters
    ----------
    blocks : iterable of dict
        Blocks in Anthropic's format.
    skip : Callable
        Called with a description of each skipped block.

    Returns
    -------
    list of Message
        The tool results, as tool messages. If the tool failed, ``extra["is_error"]`` is True.
    str, tuple of dict, or None
        The content of the other blocks, as returned by ``parse_content``.

    Raises
    ------
    ValueError
        If a block lacks a required key or has a value of the wrong type.
    """
    results, others = [], []
    for block in blocks:
        if block.get("type") == "tool_result":
            results.append(_parse_tool_result(block, skip))
        else:
            others.append(block)
    return results, parse_content(others, skip)


def to_openai_tool(definition: dict[str, Any]) -> dict[str, Any]:
    """Convert a tool definition from Anthropic's to OpenAI's format.

    Parameters
    ----------
    definition : dict
        The definition in Anthropic's format.

    Returns
    -------
    dict
        The definition in OpenAI's format. A tool that runs on the provider's servers is returned
        unchanged.

    Examples
    --------
    >>> to_openai_tool({"name": "ls", "input_schema": {"type": "object"}})
    {'type': 'function', 'function': {'name': 'ls', 'parameters': {'type': 'object'}}}
    """
    if "input_schema" not in definition:
        return definition
    function = {key: definition[key] for key in ("name", "description") if key in definition}
    return {"type": "function", "function": function | {"parameters": definition["input_schema"]}}


def _parse_tool_result(block: dict[str, Any], skip: SkipCallback) -> Message:
    call_id = require_text(block.get("tool_use_id"), "tool_use_id")
    value = block.get("content")
    said = parse_content(to_blocks("" if value is None else value), skip)
    extra = {"is_error": True} if block.get("is_error") is True else {}
    return Message("tool", said or "", tool_call_id=call_id, extra=extra)


def _require_block_text(block: dict[str, Any], key: str) -> str:
    return require_text(block.get(key), f"{key} of a block")


def _image_url(source: Any) -> str | None:
    if url := get_text(source, "url"):
        return url
    media, data = get_text(source, "media_type"), get_text(source, "data")
    return f"data:{media};base64,{data}" if media and data else None
