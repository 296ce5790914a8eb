"""Read requests and request logs of Anthropic's Messages API.

A file holds request bodies ``{model, system?, messages, tools?, max_tokens, …}`` as JSONL, as a
JSON list or as one JSON object. It may also hold messages as a JSON list or as JSONL. If a row
holds the response next to the request (``{"request": …, "response": {"type": "message", …}}``), the
file is a request log and its requests are joined into conversations (``request_log``).

- ``system`` becomes the first message. Several system blocks become one message.
- Tool results in a ``user`` message become tool messages. The remaining content of that message
  becomes a user message after them. The texts, calls and thinking blocks of an assistant message
  are each joined.
- Tools (``input_schema``) are converted to OpenAI's format. Tools that Anthropic runs are kept as
  they are.
- Blocks of other types are counted as skipped, by type.

A body without any Anthropic-specific part is read as OpenAI's, with the same result.

References
----------
docs.claude.com, "Messages API" and "Tool use", ``anthropic-version: 2023-06-01``.
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
from ctxlab.formats.fields import get_in, get_list, require_object, require_objects
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.content_parts import is_known_type, part_type
from ctxlab.messages.types import Message, Recording, Role

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
    """Return whether a file begins with requests or messages in Anthropic's format.

    Parameters
    ----------
    head : FileHead
        The beginning of the file.

    Returns
    -------
    bool
        True if at least one part is specific to Anthropic.
    """
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
    """Return whether a body has a part specific to Anthropic and none of another API.

    Parameters
    ----------
    body : RequestBody
        A request body, with its response if there is one.

    Returns
    -------
    bool
        True if the body is Anthropic's.
    """
    messages, tools = body.fields["messages"], body.fields.get("tools")
    if not all(map(_may_be_anthropic, messages)):
        return False
    own_tools = isinstance(tools, list) and any(get_in(t, "input_schema") for t in tools)
    answered = get_in(body.response, "type") == "message"
    marked = any(body.fields.get(key) is not None for key in _ANTHROPIC_KEYS)
    return own_tools or answered or marked or any(map(_has_anthropic_block, messages))


def read(source: Source) -> Iterator[Recording]:
    """Read the conversations of a file.

    Parameters
    ----------
    source : Source
        The file to read.

    Returns
    -------
    iterator of Recording
        One recording per conversation, in the order of the file.
    """
    return read_request_log(source, _DIALECT)


FORMAT = Format(
    "anthropic", "Anthropic Messages API: bodies, tools; request logs", sniff, read, dump
)


def _may_be_anthropic(message: Any) -> bool:
    """Return whether a message has no part that only another API accepts."""
    return (
        isinstance(message, dict)
        and message.get("role", "user") in ("user", "assistant", "system")
        and not message.keys() & {"type", "tool_calls", "tool_call_id", "function_call", "parts"}
        and not any(map(_is_foreign_block, get_list(message, "content")))
    )


def _is_foreign_block(block: Any) -> bool:
    """Return whether a block is of another API; unknown types may be new ones of Anthropic."""
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
    content = get_in(message, "content")
    return isinstance(content, list) and any(
        get_in(block, "type") in _ANTHROPIC_BLOCK_TYPES or isinstance(get_in(block, "source"), dict)
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
        raise ValueError(f"role must be user, assistant or system, got {role!r}")
    results, rest = blocks.split_tool_results(parts, skip)
    return results if rest is None and results else [*results, Message(_ROLES[role], rest)]


def _parse_response(response: Any, skip: SkipCallback) -> Message | None:
    if get_in(response, "role") != "assistant":
        skip("response without a message")
        return None
    (message,) = _parse_message(response, skip)
    return message.replace(
        usage=anthropic_usage(response.get("usage")), time=find_timestamp(response)
    )


def _parse_tools(fields: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    return tuple(map(blocks.to_openai_tool, require_objects(fields.get("tools") or [], "tools")))


_DIALECT = ApiDialect(_parse_system, _parse_message, _parse_response, anthropic_usage, _parse_tools)
