"""Parse the content blocks of many APIs, agents and tracing conventions.

The module supports the parts and items of OpenAI, the blocks of Anthropic, Bedrock and LangChain,
the parts of OpenTelemetry's GenAI conventions, and the blocks of Goose, Kimi and the Vercel AI SDK.
The type of a block is its ``type`` or, for a Bedrock block, its only key. The module
``ctxlab.messages.content_parts`` lists the types.

- OpenAI's parts that are neither text nor image (audio, files) are kept unchanged.
- A call that Goose could not parse has no name. It gets the name ``unknown``, so that its result
  still has a call.
- Blocks of unknown types are reported to the callback ``skip``.

Tool definitions may be in the format of OpenAI (with ``function``, or flat as in the Responses
API), Anthropic, Bedrock (``toolSpec``), Strands or MCP (``inputSchema``). The definition of a tool
that runs on the provider's servers has a type and no schema. It is kept unchanged.

The readers for traces, LangChain messages and message lists use this module.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ctxlab._utils.jsonio import dump_json
from ctxlab.formats.base import SkipCallback
from ctxlab.formats.common import chat_format
from ctxlab.formats.common.chat_format import image_part, join_parts, make_call, text_part
from ctxlab.formats.fields import (
    first_text,
    get_in,
    get_list,
    get_text,
    parse_if_json,
    require_object,
)
from ctxlab.messages import content_parts as kinds
from ctxlab.messages.openai_format import tool_call_from_dict
from ctxlab.messages.types import ContentPart, Message, ToolCall

# Used to tell blocks from other JSON, so types that are common words are not included.
_SHOWN_TYPES = kinds.TEXT_TYPES + kinds.IMAGE_TYPES[:5]
_BLOCK_TYPES = _SHOWN_TYPES + kinds.REASONING_TYPES + kinds.CALL_TYPES + kinds.RESULT_TYPES
_BLOCK_KEYS = ("type", "text", "toolUse", "toolResult", "reasoningContent")
_GOOSE_CALL_TYPES = ("toolRequest", "frontendToolRequest")
# Types of tool output in the Vercel AI SDK.
_VERCEL_OUTPUT_TYPES = ("text", "json", "error-text", "error-json", "content", "execution-denied")
_SCHEMA_KEYS = ("parameters", "input_schema", "inputSchema")


class ParsedContent(NamedTuple):
    """The content of one message, split by kind. Blocks of the same kind keep their order."""

    parts: tuple[ContentPart, ...] = ()
    "texts, images and other content parts"
    reasoning: tuple[str, ...] = ()
    "hidden reasoning, one string per block"
    calls: tuple[ToolCall, ...] = ()
    "tool calls"
    results: tuple[Message, ...] = ()
    "tool results, which are part of a user message in the APIs of Anthropic and Bedrock"

    @property
    def content(self) -> chat_format.Content | None:
        """Content of the message: a string if all parts are text parts, None if there are no parts."""
        return join_parts(self.parts)


def read_blocks(blocks: Iterable[Any], skip: SkipCallback) -> ParsedContent:
    """Parse the content blocks of a message.

    Parameters
    ----------
    blocks : iterable of Any
        The blocks of any supported API. A string is accepted as a text block.
    skip : Callable
        Called with a description of each skipped block.

    Returns
    -------
    ParsedContent
        The texts, reasoning, tool calls and tool results.

    Raises
    ------
    ValueError
        If a block is neither a string nor an object, or if it is malformed.

    Examples
    --------
    >>> read_blocks(["hi", {"toolUse": {"toolUseId": "1", "name": "ls", "input": {}}}], print).calls
    (ToolCall(id='1', name='ls', arguments='{}'),)
    """
    parts: list[ContentPart] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []
    results: list[Message] = []
    for each in blocks:
        whole = text_part(each) if isinstance(each, str) else each
        block = require_object(whole, "a block of content")
        kind = kinds.part_type(block)
        if kind in kinds.TEXT_TYPES and (said := _block_text(block)) is not None:
            parts.append(text_part(said))
        elif kind in kinds.IMAGE_TYPES and (url := _block_image_url(block)):
            parts.append(image_part(url))
        elif kind not in _SHOWN_TYPES and kinds.is_chat_part(block):
            parts.append(block)
        elif kind in kinds.REASONING_TYPES:
            thoughts += _block_reasoning(block)
            if get_in(block, "reasoningContent", "redactedContent"):
                skip("block of type redacted reasoningContent")
        elif kind in kinds.CALL_TYPES:
            calls.append(parse_tool_call(block))
        elif is_tool_result(block):
            results.append(parse_tool_result(block, skip))
        elif kind not in kinds.MARKER_TYPES:
            skip(f"block of type {kinds.describe_type(block)}")
    return ParsedContent(tuple(parts), tuple(thoughts), tuple(calls), tuple(results))


def is_block_list(value: Any) -> bool:
    """Check whether a value is a list of content blocks rather than other JSON.

    Parameters
    ----------
    value : Any
        A JSON value.

    Returns
    -------
    bool
        True if the value is a non-empty list and all its elements are blocks of known types.

    Examples
    --------
    >>> is_block_list([{"type": "text", "text": "hi"}])
    True
    >>> is_block_list([{"name": "hi"}]), is_block_list([])
    (False, False)
    """
    blocks = get_list(value)
    known = (_is_block(each) and kinds.part_type(each) in _BLOCK_TYPES for each in blocks)
    return bool(blocks) and all(known)


def is_tool_result(block: Any) -> bool:
    """Check whether a value is a content block with a tool result.

    Parameters
    ----------
    block : Any
        A JSON value.

    Returns
    -------
    bool
        True if the value is an object with a type that an API uses for tool results.
    """
    return isinstance(block, dict) and kinds.part_type(block) in kinds.RESULT_TYPES


def parse_tool_call(block: Any) -> ToolCall:
    """Parse a tool call in the format of any supported API.

    Parameters
    ----------
    block : Any
        The logged call: a content block or an element of ``tool_calls``.

    Returns
    -------
    ToolCall
        The call, with arguments as JSON.

    Raises
    ------
    ValueError
        If the call has no name or has values of wrong types.
    """
    if isinstance(block, dict) and kinds.part_type(block) in _GOOSE_CALL_TYPES:
        return _parse_goose_call(block)
    body = block
    for key in ("toolUse", "function_call", "tool_call"):
        if isinstance(get_in(body, key), dict):
            body = body[key]
    if not isinstance(body, dict) or isinstance(body.get("function"), dict):
        return tool_call_from_dict(body)
    id = _first_key_text(body, "call_id", "toolUseId", "toolCallId", "id")
    given = (body[key] for key in ("args", "arguments", "input") if body.get(key) is not None)
    return make_call(id, _first_key_text(body, "name", "toolName"), next(given, None))


def parse_tool_result(block: dict[str, Any], skip: SkipCallback) -> Message:
    """Parse a content block with a tool result.

    Parameters
    ----------
    block : dict
        The logged result, in the format of any supported API.
    skip : Callable
        Called with a description of each skipped block of the result.

    Returns
    -------
    Message
        The result as a tool message. If the tool failed, ``extra["is_error"]`` is True.
    """
    body = next((block[k] for k in kinds.RESULT_TYPES if isinstance(block.get(k), dict)), block)
    keys = ("content", "response", "result", "output")
    value: Any = next((body[k] for k in keys if body.get(k) is not None), "")
    failed = body.get("is_error") is True or body.get("status") == "error"
    failed = failed or body.get("isError") is True
    kind = kinds.part_type(block)
    if kind == "toolResponse":
        value, failed = _unwrap_goose_output(block.get("toolResult"))
    elif kind == "tool-result" and get_in(value, "type") in _VERCEL_OUTPUT_TYPES:
        failed = failed or value["type"] in ("error-text", "error-json", "execution-denied")
        value = _unwrap_vercel_output(value)
    ids = ("tool_use_id", "toolUseId", "call_id", "tool_call_id", "toolCallId", "id")
    id = _first_key_text(body, *ids) or _first_key_text(block, *ids)
    name, extra = _first_key_text(body, "name", "toolName"), {"is_error": True} if failed else {}
    return Message("tool", _result_content(value, skip), tool_call_id=id, name=name, extra=extra)


def _parse_goose_call(block: dict[str, Any]) -> ToolCall:
    call = get_in(block, "toolCall", "value")
    if not isinstance(call, dict):
        return make_call(block.get("id"), "unknown", {"error": get_in(block, "toolCall", "error")})
    return make_call(block.get("id"), call.get("name"), call.get("arguments"))


def _unwrap_goose_output(outcome: Any) -> tuple[Any, bool]:
    """Return the output of a Goose tool, and True if the tool failed."""
    value = get_in(outcome, "value")
    if value is None:
        return get_text(outcome, "error") or "", get_in(outcome, "status") == "error"
    if isinstance(get_in(value, "content"), list):
        return value["content"], value.get("isError") is True
    return value, False


def _unwrap_vercel_output(output: dict[str, Any]) -> Any:
    value = output.get("value")
    if output["type"] == "execution-denied":
        return get_text(output, "reason") or "Tool execution denied."
    if output["type"] in ("json", "error-json"):
        return value if isinstance(value, str) else dump_json(value)
    return value if value is not None else ""


def _result_content(value: Any, skip: SkipCallback) -> chat_format.Content:
    """Convert the value of a tool result to the content of a message.

    Strings, text blocks and image blocks are converted to content. Any other value becomes a JSON
    string.
    """
    if isinstance(value, str):
        return value
    blocks = [_to_text_block(each) for each in (value if isinstance(value, list) else [value])]
    objects = [each for each in blocks if not isinstance(each, str)]
    seen = (*kinds.TEXT_TYPES, *kinds.IMAGE_TYPES)
    if blocks and all(_is_block(each) and kinds.part_type(each) in seen for each in objects):
        return read_blocks(blocks, skip).content or ""
    return dump_json(value)


def _is_block(value: Any) -> bool:
    """Check whether a value is an object with at least one key that content blocks have."""
    if not isinstance(value, dict):
        return False
    return any(key in value for key in _BLOCK_KEYS) or get_in(value, "image", "source") is not None


def _to_text_block(value: Any) -> Any:
    """Convert a JSON block of Bedrock or a text resource of MCP to a text block.

    Any other value is returned unchanged.
    """
    if not isinstance(value, dict):
        return value
    if value.keys() == {"json"}:
        return text_part(dump_json(value["json"]))
    if value.get("type") == "resource" and get_text(value, "resource", "text"):
        return text_part(value["resource"]["text"])
    return value


def _first_key_text(value: dict[str, Any], *keys: str) -> str | None:
    return first_text(map(value.get, keys))


def _block_text(block: dict[str, Any]) -> str | None:
    candidates = (block.get(key) for key in ("text", "content", "refusal", "value"))
    if (said := next((each for each in candidates if isinstance(each, str)), None)) is not None:
        return said
    cited = _item_texts(get_in(block, "citationsContent", "content"))
    return "\n".join(cited) or get_text(block, "guardContent", "text", "text")


def _block_reasoning(block: dict[str, Any]) -> list[str]:
    """Return the texts of a reasoning block, or the texts of its summary if it has no other text."""
    candidates = [
        *map(block.get, ("thinking", "think", "reasoning", "text", "content")),
        get_in(block, "reasoning_content", "text"),
        get_in(block, "reasoningContent", "reasoningText", "text"),
        *_item_texts(block.get("content")),
    ]
    return list(filter(get_text, candidates)) or _item_texts(block.get("summary"))


def _item_texts(value: Any) -> list[str]:
    return [text for each in get_list(value) if (text := get_text(each, "text"))]


def _block_image_url(block: dict[str, Any]) -> str | None:
    """Return the URL of an image block, or a data URL with its bytes. None for any other block."""
    if block.get("modality") not in (None, "image"):
        return None  # OpenTelemetry also uses these types for audio and video
    media = _first_key_text(block, "mime_type", "mimeType", "mediaType")
    if block.get("type") in ("file", "media") and not (media or "").startswith("image/"):
        return None
    link, source = block.get("image_url") or block.get("image"), block.get("source")
    if isinstance(link, dict) and isinstance(link.get("source"), dict):  # Bedrock
        source, media = link["source"], media or f"image/{get_text(link, 'format') or 'png'}"
    if (inline := get_text(block, "image")) and not _is_url(inline):
        return _data_url(media, inline)  # Vercel AI SDK
    if url := get_text(link, "url") or get_text(link) or _first_key_text(block, "url", "uri"):
        return url
    of_blob = "content" if block.get("type") == "blob" else "data"
    # Bedrock's bytes are a base64 string, which Strands wraps in an object.
    inlined = _first_key_text(source, "data", "bytes") if isinstance(source, dict) else None
    data = _first_key_text(block, "base64", of_blob) or inlined or get_text(source, "bytes", "data")
    media = media or get_text(source, "media_type")
    if data and _is_url(data):
        return data  # in files of the Vercel AI SDK, data may be a URL
    return _data_url(media, data) if data else get_text(source, "url")


def _is_url(value: str) -> bool:
    return value.startswith(("data:", "http://", "https://", "file://", "gs://", "s3://"))


def _data_url(media: str | None, data: str) -> str:
    return f"data:{media or 'image/png'};base64,{data}"


def parse_tools(value: Any, skip: SkipCallback) -> tuple[dict[str, Any], ...]:
    """Parse a list of tool definitions.

    Parameters
    ----------
    value : Any
        A list of tool definitions in the format of any supported API, or a string with JSON.
    skip : Callable
        Called with a description of each skipped element.

    Returns
    -------
    tuple of dict
        The definitions in OpenAI's format. Empty if the value is not a list.

    Examples
    --------
    >>> parse_tools('[{"name": "ls", "input_schema": {"type": "object"}}]', print)
    ({'type': 'function', 'function': {'name': 'ls', 'parameters': {'type': 'object'}}},)
    """
    listed = parse_if_json(value)
    if not isinstance(listed, list):
        return ()
    tools = []
    for each in map(parse_if_json, listed):
        if isinstance(each, dict):
            tools.append(_to_openai_tool(each))
        else:
            skip("tool definition that is not an object")
    return tuple(tools)


def _to_openai_tool(definition: dict[str, Any]) -> dict[str, Any]:
    if isinstance(definition.get("function"), dict):
        return {"type": "function", "function": definition["function"]}
    body = definition.get("toolSpec", definition)
    if not get_text(body, "name"):
        return definition
    key = next((key for key in _SCHEMA_KEYS if body.get(key) is not None), None)
    if key is None and get_text(definition, "type") not in (None, "function"):
        return definition
    function = {key: body[key] for key in ("name", "description", "strict") if body.get(key)}
    if key is not None:
        schema = parse_if_json(body[key])
        # Bedrock wraps the schema in an object with the key json.
        inner = get_in(schema, "json") if key == "inputSchema" else None
        function["parameters"] = inner if isinstance(inner, dict) else schema
    return {"type": "function", "function": function}
