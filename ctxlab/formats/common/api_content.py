"""The blocks of a message's content are read alike, whichever API or convention they were written for.

Tracers log what an application sent, in the shape of its API, or translate it into a convention of
their own: OpenAI's parts and items, Anthropic's and Bedrock's blocks, LangChain's, the parts of
OpenTelemetry's GenAI conventions. Agents keep their own: Goose, Kimi, the Vercel AI SDK. A block tells
what it is by its ``type``; Bedrock's by its only key (``content_parts``, which names the sources).

- OpenAI's parts that are neither text nor image (audio, files) stay as they are.
- A call that Goose could not parse has no name: it is called ``unknown``, so that its result keeps
  its pair.
- What is none of the known kinds is told to ``leave_out`` by its type.

The readers of traces, of LangChain's messages and of bare message logs use it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ctxlab._utils.jsonio import dump_json
from ctxlab.formats.base import LeaveOut
from ctxlab.formats.common import chat_format as chat_shape
from ctxlab.formats.common.chat_format import (
    content_of,
    image_part,
    text_part,
)
from ctxlab.formats.optional_fields import (
    first_text,
    listed,
    text,
    within,
)
from ctxlab.formats.required_fields import an_object
from ctxlab.messages.content_parts import (
    CALLS,
    IMAGES,
    MARKS,
    RESULTS,
    TEXTS,
    THOUGHTS,
    is_chat_part,
    part_type,
    short_type,
)
from ctxlab.messages.openai_format import tool_call_from_dict
from ctxlab.messages.types import (
    Message,
    Part,
    ToolCall,
)

__all__ = ["Content", "are_blocks", "call", "is_result", "read_blocks", "result"]

# What tells a list of blocks from other JSON: no word that data of any kind may hold.
_SURE = (*TEXTS, *THOUGHTS, *CALLS, *RESULTS, *IMAGES[:5])
_SURE_KEYS = ("type", "text", "toolUse", "toolResult", "reasoningContent")
_GOOSE_CALLS = ("toolRequest", "frontendToolRequest")
# How the Vercel AI SDK wraps the output of a tool.
_OUTPUTS = ("text", "json", "error-text", "error-json", "content", "execution-denied")


class Content(NamedTuple):
    """What the blocks of one message hold, kind by kind and each in order."""

    parts: tuple[Part, ...] = ()
    "texts and images"
    thoughts: tuple[str, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    results: tuple[Message, ...] = ()
    "of tools, which Anthropic and Bedrock put into the user's message"

    @property
    def said(self) -> chat_shape.Content | None:
        """The texts and images, as ``content_of`` puts them together."""
        return content_of(self.parts)


def read_blocks(blocks: Iterable[Any], leave_out: LeaveOut) -> Content:
    """What a list of blocks holds; a text among them is one.

    >>> read_blocks(["hi", {"toolUse": {"toolUseId": "1", "name": "ls", "input": {}}}], print).calls
    (ToolCall(id='1', name='ls', arguments='{}'),)
    """
    parts: list[Part] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []
    results: list[Message] = []
    for each in blocks:
        block = text_part(each) if isinstance(each, str) else an_object(each, "a block of content")
        kind = part_type(block)
        if kind in TEXTS and (said := _text(block)) is not None:
            parts.append(text_part(said))
        elif kind in IMAGES and (url := _image(block)):
            parts.append(image_part(url))
        elif kind not in TEXTS and kind not in IMAGES[:5] and is_chat_part(block):
            parts.append(block)
        elif kind in THOUGHTS:
            thoughts += _thoughts(block)
            if within(block, "reasoningContent", "redactedContent"):
                leave_out("block of type redacted reasoningContent")
        elif kind in CALLS:
            calls.append(call(block))
        elif is_result(block):
            results.append(result(block, leave_out))
        elif kind not in MARKS:
            leave_out(f"block of type {short_type(block)}")
    return Content(tuple(parts), tuple(thoughts), tuple(calls), tuple(results))


def are_blocks(value: Any) -> bool:
    """Whether a value is a list of blocks of known kinds, and not some other JSON.

    >>> are_blocks([{"type": "text", "text": "hi"}]), are_blocks([{"name": "hi"}]), are_blocks([])
    (True, False, False)
    """
    return (
        isinstance(value, list)
        and bool(value)
        and all(_is_block(block) and part_type(block) in _SURE for block in value)
    )


def is_result(block: Any) -> bool:
    """Whether a block holds the result of a tool."""
    return isinstance(block, dict) and part_type(block) in RESULTS


def call(block: Any) -> ToolCall:
    """One call of a tool, as a block or as an entry of ``tool_calls``, in the words of any API."""
    if isinstance(block, dict) and part_type(block) in _GOOSE_CALLS:
        return _goose_call(block)
    body = block
    for key in ("toolUse", "function_call", "tool_call"):
        if isinstance(within(body, key), dict):
            body = body[key]
    if not isinstance(body, dict) or isinstance(body.get("function"), dict):
        return tool_call_from_dict(body)
    given = (body.get(key) for key in ("args", "arguments", "input"))
    return tool_call_from_dict(
        {
            "id": _first(body, "call_id", "toolUseId", "toolCallId", "id"),
            "name": _first(body, "name", "toolName"),
            "arguments": next((each for each in given if each is not None), None),
        }
    )


def result(block: dict[str, Any], leave_out: LeaveOut) -> Message:
    """The tool message of a block that holds a result; an error is ``extra["is_error"]``."""
    body = next((block[k] for k in RESULTS if isinstance(block.get(k), dict)), block)
    keys = ("content", "response", "result", "output")
    value: Any = next((body[k] for k in keys if body.get(k) is not None), "")
    failed = body.get("is_error") is True or body.get("status") == "error"
    failed = failed or body.get("isError") is True
    kind = part_type(block)
    if kind == "toolResponse":
        value, failed = _goose_output(block.get("toolResult"))
    elif kind == "tool-result" and within(value, "type") in _OUTPUTS:
        failed = failed or value["type"] in ("error-text", "error-json", "execution-denied")
        value = _vercel_output(value)
    ids = ("tool_use_id", "toolUseId", "call_id", "tool_call_id", "toolCallId", "id")
    return Message(
        "tool",
        _shown(value, leave_out),
        tool_call_id=_first(body, *ids) or _first(block, *ids),
        name=_first(body, "name", "toolName"),
        extra={"is_error": True} if failed else {},
    )


def _goose_call(block: dict[str, Any]) -> ToolCall:
    asked = within(block, "toolCall", "value")
    if not isinstance(asked, dict):
        said = {"error": within(block, "toolCall", "error")}
        asked = {"name": "unknown", "arguments": said}
    return tool_call_from_dict(
        {"id": block.get("id"), "name": asked.get("name"), "arguments": asked.get("arguments")}
    )


def _goose_output(outcome: Any) -> tuple[Any, bool]:
    """What a tool of Goose gave, and whether it failed: a list, or in newer logs MCP's object."""
    value = within(outcome, "value")
    if value is None:
        return text(within(outcome, "error")) or "", within(outcome, "status") == "error"
    if isinstance(within(value, "content"), list):
        return value["content"], value.get("isError") is True
    return value, False


def _vercel_output(output: dict[str, Any]) -> Any:
    value = output.get("value")
    if output["type"] == "execution-denied":
        return text(output.get("reason")) or "Tool execution denied."
    if output["type"] in ("json", "error-json"):
        return value if isinstance(value, str) else dump_json(value)
    return value if value is not None else ""


def _shown(value: Any, leave_out: LeaveOut) -> chat_shape.Content:
    """A result as the model read it: text and images, or else the JSON of it."""
    if isinstance(value, str):
        return value
    blocks = [_as_block(each) for each in (value if isinstance(value, list) else [value])]
    seen = (*TEXTS, *IMAGES)
    if blocks and all(
        isinstance(b, str) or (_is_block(b) and part_type(b) in seen) for b in blocks
    ):
        return read_blocks(blocks, leave_out).said or ""
    return dump_json(value)


def _is_block(value: Any) -> bool:
    """Whether a value says that it is a block, so that it is no other JSON."""
    if not isinstance(value, dict):
        return False
    return any(key in value for key in _SURE_KEYS) or within(value, "image", "source") is not None


def _as_block(value: Any) -> Any:
    """Bedrock's JSON and MCP's resource as the text that they are."""
    if not isinstance(value, dict):
        return value
    if value.keys() == {"json"}:
        return text_part(dump_json(value["json"]))
    if value.get("type") == "resource" and text(within(value, "resource", "text")):
        return text_part(value["resource"]["text"])
    return value


def _first(value: dict[str, Any], *keys: str) -> str | None:
    return first_text(map(value.get, keys))


def _text(block: dict[str, Any]) -> str | None:
    given = (block.get(key) for key in ("text", "content", "refusal", "value"))
    if (said := next((each for each in given if isinstance(each, str)), None)) is not None:
        return said
    cited = [each for each in _texts(within(block, "citationsContent", "content")) if text(each)]
    return "\n".join(cited) or text(within(block, "guardContent", "text", "text"))


def _thoughts(block: dict[str, Any]) -> list[str]:
    """Told in one text, in a list of them (OpenAI's content), or as summaries of it."""
    told = [
        block.get("thinking"),
        block.get("think"),
        block.get("reasoning"),
        block.get("text"),
        block.get("content"),
        within(block, "reasoning_content", "text"),
        within(block, "reasoningContent", "reasoningText", "text"),
        *_texts(block.get("content")),
    ]
    found = [thought for thought in told if text(thought)]
    return found or [thought for thought in _texts(block.get("summary")) if text(thought)]


def _texts(value: Any) -> list[Any]:
    return [within(each, "text") for each in listed(value)]


def _image(block: dict[str, Any]) -> str | None:
    """The address of an image, or its data as one."""
    if block.get("modality") not in (None, "image"):
        return None  # OpenTelemetry's parts are of any medium
    media = _first(block, "mime_type", "mimeType", "mediaType")
    if block.get("type") in ("file", "media") and not (media or "").startswith("image/"):
        return None
    link, source = block.get("image_url") or block.get("image"), block.get("source")
    if isinstance(link, dict) and isinstance(link.get("source"), dict):  # Bedrock's
        source, media = link["source"], media or f"image/{text(link.get('format')) or 'png'}"
    if (inline := text(block.get("image"))) and not _is_address(inline):
        return _data(media, inline)  # Vercel's
    if url := text(within(link, "url")) or text(link) or _first(block, "url", "uri"):
        return url
    of_blob = "content" if block.get("type") == "blob" else "data"
    data = _first(block, "base64", of_blob) or text(within(source, "data")) or _bytes(source)
    media = media or text(within(source, "media_type"))
    if data and _is_address(data):
        return data  # Vercel's files hold either
    return _data(media, data) if data else text(within(source, "url"))


def _bytes(source: Any) -> str | None:
    """Base64 of Bedrock's bytes, bare or as Strands writes them."""
    value = within(source, "bytes")
    return text(value) or text(within(value, "data"))


def _is_address(value: str) -> bool:
    return value.startswith(("data:", "http://", "https://", "file://", "gs://", "s3://"))


def _data(media: str | None, data: str) -> str:
    return f"data:{media or 'image/png'};base64,{data}"
