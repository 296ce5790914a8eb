"""Anthropic's Messages API is read as it is asked and answered, and written a request a line.

A file is JSONL, a JSON list or one object of request bodies ``{model, system?, messages, tools?,
max_tokens, …}``, a JSON list of messages, or JSONL with a message a line. Where the answer stands
beside the request (``{"request": …, "response": {"type": "message", …}}``), the file is a log, whose
requests are stitched into conversations (``request_log``).

- ``system`` becomes the first message. Of several blocks it is one message.
- A ``user`` message with tool results becomes tool messages, and what else it holds a user message
  behind them. Of an assistant's message texts, calls and thinking are each put together.
- Tools (``input_schema``) are taken in OpenAI's shape; those that run at Anthropic stay as they are.
- Blocks of other kinds are counted as skipped by their type.

A body that shows none of Anthropic's own shapes is read as OpenAI's, which comes to the same.

Source: docs.claude.com, "Messages API" and "Tool use", ``anthropic-version: 2023-06-01``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ctxlab.formats.anthropic.writer import dump
from ctxlab.formats.base import Format, SkipCallback, Source
from ctxlab.formats.common import anthropic_blocks as blocks
from ctxlab.formats.common.request_log import (
    ApiDialect,
    RequestBody,
    find_timestamp,
    read_request_log,
    request_bodies,
)
from ctxlab.formats.common.usage import anthropic_usage
from ctxlab.formats.fields import get_nested, list_or_empty, require_object, require_objects
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.content_parts import is_known_type, part_type
from ctxlab.messages.types import Message, Recording, Role

__all__ = ["FORMAT", "is_anthropic", "read", "sniff"]

_ROLES: dict[str, Role] = {"user": "user", "system": "system"}
_ANTHROPIC_KEYS = ("system", "anthropic_version", "stop_sequences", "thinking")
_CONTENT_TYPES = (
    *("text", "image", "document", "search_result", "thinking", "redacted_thinking"),
    "container_upload",
)
_ANTHROPIC_BLOCK_TYPES = (
    "tool_use",
    "tool_result",
    "thinking",
    "redacted_thinking",
    "server_tool_use",
)


def sniff(head: FileHead) -> bool:
    """Whether a file begins with a body that shows a shape of Anthropic's own."""
    if any(map(is_anthropic, request_bodies(head))):
        return True
    rows = [row for row in head.rows if "role" in row] if _are_objects(head.rows) else []
    return (
        bool(rows)
        and len(rows) == len(head.rows)
        and all(map(_may_be_anthropic, rows))
        and any(map(_has_anthropic_block, rows))
    )


def is_anthropic(body: RequestBody) -> bool:
    """Whether a body shows a shape of Anthropic's own, and none of OpenAI's."""
    messages, tools = body.fields["messages"], body.fields.get("tools")
    if not all(map(_may_be_anthropic, messages)):
        return False
    own_tools = isinstance(tools, list) and any(get_nested(t, "input_schema") for t in tools)
    answered = get_nested(body.response, "type") == "message"
    marked = any(body.fields.get(key) is not None for key in _ANTHROPIC_KEYS)
    return own_tools or answered or marked or any(map(_has_anthropic_block, messages))


def read(source: Source) -> Iterator[Recording]:
    """One recording a conversation, in the order of the file."""
    return read_request_log(source, _DIALECT)


FORMAT = Format(
    "anthropic", "Anthropic Messages API: bodies, tools; request logs", sniff, read, dump
)


def _may_be_anthropic(message: Any) -> bool:
    """Whether a message is none that only another API takes."""
    return (
        isinstance(message, dict)
        and message.get("role", "user") in ("user", "assistant", "system")
        and not message.keys() & {"type", "tool_calls", "tool_call_id", "function_call", "parts"}
        and not any(map(_is_foreign_block, list_or_empty(message.get("content"))))
    )


def _is_foreign_block(block: Any) -> bool:
    """Whether a block is one that another API writes; new ones of Anthropic's own are not known."""
    if not isinstance(block, dict):
        return False
    kind = part_type(block)
    if "type" not in block or kind is None:
        return True
    own = kind in _CONTENT_TYPES or kind.endswith(("tool_use", "tool_result"))
    return not own and is_known_type(kind)


def _are_objects(rows: Any) -> bool:
    return all(isinstance(row, dict) for row in rows)


def _has_anthropic_block(message: Any) -> bool:
    content = get_nested(message, "content")
    return isinstance(content, list) and any(
        get_nested(block, "type") in _ANTHROPIC_BLOCK_TYPES
        or isinstance(get_nested(block, "source"), dict)
        for block in content
    )


def _parse_system(fields: dict[str, Any], skip: SkipCallback) -> list[Message]:
    system = fields.get("system")
    if system is None:
        return []
    return [Message("system", blocks.parse_content(blocks.to_blocks(system), skip))]


def _parse_message(row: Any, skip: SkipCallback) -> list[Message]:
    row = require_object(row, "a message")
    role, parts = row.get("role"), blocks.to_blocks(row.get("content"))
    if role == "assistant":
        return [blocks.parse_assistant_blocks(parts, skip).message]
    if role not in _ROLES:
        raise ValueError(f"role is {role!r}; expected user, assistant or system")
    results, rest = blocks.split_tool_results(parts, skip)
    return results if rest is None and results else [*results, Message(_ROLES[role], rest)]


def _parse_response(response: Any, skip: SkipCallback) -> Message | None:
    if get_nested(response, "role") != "assistant":
        skip("response without a message")
        return None
    (message,) = _parse_message(response, skip)
    return message.replace(
        usage=anthropic_usage(response.get("usage")), time=find_timestamp(response)
    )


def _parse_tools(fields: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    return tuple(map(blocks.to_openai_tool, require_objects(fields.get("tools") or [], "tools")))


_DIALECT = ApiDialect(_parse_system, _parse_message, _parse_response, anthropic_usage, _parse_tools)
