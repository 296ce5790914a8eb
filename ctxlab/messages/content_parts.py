"""The types of content parts, of OpenAI's chat shape and of the other APIs that ctxlab reads.

A part of OpenAI's chat shape has a ``type`` and a payload under a key of the same name. Other APIs
write more into a message's content: calls of tools, their results, reasoning. A message that holds
such a part is no chat message, and taking it for one would lose its calls in silence. This module
is the only place that lists the types; the readers, ``openai_format`` and the warnings ask it.

Source: platform.openai.com "Chat Completions" and "Responses" (2025); docs.claude.com "Messages API"
(2026); docs.aws.amazon.com Bedrock Runtime ``ContentBlock`` (2026); github.com/vercel/ai ``packages/ai``
``ui-messages.ts`` at 0103ba5 and ``provider-utils`` ``content-part.ts`` at 06d915d;
github.com/block/goose ``conversation/message.rs`` at 0513296; github.com/MoonshotAI/kosong
``message.py`` at 0c57e5f; OpenTelemetry GenAI conventions (2026).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = [
    "CALL_TYPES",
    "CHAT_PART_TYPES",
    "IMAGE_TYPES",
    "MARKER_TYPES",
    "REASONING_TYPES",
    "RESULT_TYPES",
    "TEXT_TYPES",
    "UNREAD_CALL_TYPES",
    "UNSUPPORTED_TYPES",
    "describe_type",
    "guess_api",
    "is_chat_part",
    "is_known_type",
    "part_type",
]

CHAT_PART_TYPES = frozenset(
    {"text", "image_url", "input_audio", "file", "refusal", "audio_url", "video_url"}
)
"""OpenAI's own types; ``audio_url`` and ``video_url`` are those of servers that speak its API."""

TEXT_TYPES = ("text", "input_text", "output_text", "refusal", "citationsContent", "guardContent")
REASONING_TYPES = ("thinking", "reasoning", "reasoning_content", "reasoningContent", "think")
CALL_TYPES = (
    *("tool_use", "tool_call", "tool-call", "function_call", "function", "toolUse"),
    *("toolCall", "toolRequest", "frontendToolRequest"),
)
RESULT_TYPES = (
    *("tool_result", "tool-result", "tool_call_response", "function_call_output"),
    *("custom_tool_call_output", "function_response", "toolResult", "toolResponse"),
)
IMAGE_TYPES = (
    *("image", "image_url", "input_image", "blob", "uri"),
    *("media", "image-data", "image-url", "file"),
)
MARKER_TYPES = ("input_json_delta", "tool_call_chunk", "cachePoint", "step-start")
"""Parts without content of their own: marks, and pieces of a call that stands whole elsewhere."""

UNSUPPORTED_TYPES = (
    *("redacted_thinking", "redactedThinking", "document", "video", "audio", "input_file"),
    *("search_result", "searchResult", "server_tool_use", "mcp_tool_use", "mcp_tool_result"),
    *("web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result"),
    *("container_upload", "source", "source-url", "source-document", "reasoning-file", "custom"),
    *("tool-approval-request", "tool-approval-response", "toolConfirmationRequest"),
    *("actionRequired", "systemNotification", "conversationCompacted", "contextLengthExceeded"),
    *("summarizationRequested", "resource", "resource_link"),
)
"""Types that are known and that a recording has no place for: readers count them."""

UNREAD_CALL_TYPES = frozenset({"functionCall", "functionResponse"})
"""Calls and results that no reader reads: a conversation that holds one would lose it."""

_VERCEL_TOOL_TYPES = ("dynamic-tool", "tool-invocation")
_KNOWN_TYPES = frozenset(
    {
        *CHAT_PART_TYPES,
        *TEXT_TYPES,
        *REASONING_TYPES,
        *CALL_TYPES,
        *RESULT_TYPES,
        *IMAGE_TYPES,
        *MARKER_TYPES,
        *UNSUPPORTED_TYPES,
        *_VERCEL_TOOL_TYPES,
    }
)
# Bedrock and Gemini name the kind of a block by its only key.
_BEDROCK_KEYS = (
    *("text", "toolUse", "toolResult", "reasoningContent", "image", "document", "video", "audio"),
    *("cachePoint", "guardContent", "citationsContent", "searchResult"),
)
_GEMINI_KEYS = ("functionCall", "functionResponse", "inlineData", "fileData", "executableCode")

# An API by types that it alone writes; those above that no reader knows help to name a file.
_TYPES_BY_API = {
    "Google Gemini contents": _GEMINI_KEYS,
    "Anthropic messages": ("tool_use", "tool_result", "redacted_thinking", "server_tool_use"),
    "Bedrock Converse messages": _BEDROCK_KEYS[1:],
    "Goose messages": ("toolRequest", "toolResponse", "frontendToolRequest"),
    "Kimi messages": ("think",),
    "Vercel AI SDK messages": ("tool-call", "tool-result", "step-start", *_VERCEL_TOOL_TYPES),
    "OpenAI Responses items": ("input_text", "output_text", "input_image", "input_file"),
    "OpenCode parts": ("step-finish", "patch", "snapshot", "compaction"),
    "LlamaIndex blocks": ("block_type",),
    "Goose messages of 2024": ("tool_name",),
}


def part_type(part: Mapping[str, Any]) -> str | None:
    """Return the type of a content part: its ``type``, else the key by which Bedrock names it.

    >>> part_type({"type": "text", "text": "hi"}), part_type({"toolUse": {}}), part_type({"a": 1})
    ('text', 'toolUse', None)
    """
    kind = part.get("type")
    if isinstance(kind, str) and kind:
        return kind
    return next((key for key in (*_BEDROCK_KEYS, *_GEMINI_KEYS) if key in part), None)


def is_chat_part(part: Any) -> bool:
    """Whether a content part is one of OpenAI's chat shape: a text, or a type with its payload.

    >>> is_chat_part({"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}})
    True
    >>> is_chat_part({"type": "file", "mediaType": "image/png", "url": "https://ex.org/a.png"})
    False
    """
    if isinstance(part, str):
        return True
    kind = part.get("type") if isinstance(part, Mapping) else None
    return isinstance(kind, str) and kind in CHAT_PART_TYPES and part.get(kind) is not None


def is_known_type(kind: str | None) -> bool:
    """Whether some reader knows what a part of this type is.

    >>> is_known_type("toolUse"), is_known_type("data-weather"), is_known_type("hologram")
    (True, True, False)
    """
    return kind is not None and (kind in _KNOWN_TYPES or kind.startswith("data-"))


def describe_type(part: Mapping[str, Any]) -> str:
    """Return the type of a part as it is told to a person: of one without a type, its keys.

    >>> describe_type({"type": "hologram"}), describe_type({"tool_name": "ls", "arguments": {}})
    ('hologram', 'none (keys arguments, tool_name)')
    """
    kind = part_type(part)
    if kind is not None:
        return kind[:60]
    return f"none (keys {', '.join(sorted(map(str, part)))[:60]})" if part else "none"


def guess_api(kinds: Iterable[str | None]) -> str | None:
    """Return the name of the API whose types these are; None where they are of none that is known.

    >>> guess_api(["text", "functionCall"]), guess_api(["text"])
    ('Google Gemini contents', None)
    """
    found = set(kinds)
    return next(
        (name for name, types in _TYPES_BY_API.items() if not found.isdisjoint(types)), None
    )
