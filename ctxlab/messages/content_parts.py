"""Types of content parts, in OpenAI's chat format and in the other APIs that ctxlab reads.

A part in OpenAI's chat format has a ``type`` and a payload under the key of the same name, for example
``{"type": "text", "text": "hi"}``. Other APIs also store tool calls, tool results and reasoning as
content parts. A message with such a part is not in the chat format: reading it as a chat message would
silently lose the tool calls. Only this module lists the part types. Its lists are used by
``openai_format``, by the readers of formats, and by the warnings about messages that are not in the chat
format.

References
----------
- platform.openai.com, "Chat Completions" and "Responses" (2025)
- docs.claude.com, "Messages API" (2026)
- docs.aws.amazon.com, Bedrock Runtime, ``ContentBlock`` (2026)
- github.com/vercel/ai, ``packages/ai`` ``ui-messages.ts`` at 0103ba5 and ``provider-utils``
  ``content-part.ts`` at 06d915d
- github.com/block/goose, ``conversation/message.rs`` at 0513296
- github.com/MoonshotAI/kosong, ``message.py`` at 0c57e5f
- OpenTelemetry GenAI conventions (2026)
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ctxlab.messages.types import Recording

CHAT_PART_TYPES = frozenset(
    {"text", "image_url", "input_audio", "file", "refusal", "audio_url", "video_url"}
)
"""Types in OpenAI's chat format, with two types that only compatible servers accept: ``audio_url`` and
``video_url``."""

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
    *("image", "image_url", "input_image", "blob", "uri", "media", "image-data", "image-url"),
    "file",
)
MARKER_TYPES = ("input_json_delta", "tool_call_chunk", "cachePoint", "step-start")
"""Types without content: markers, and streamed fragments of a tool call.

The complete tool call is stored in another part or field of the message.
"""

UNSUPPORTED_TYPES = (
    *("redacted_thinking", "redactedThinking", "document", "video", "audio", "input_file"),
    *("search_result", "searchResult", "server_tool_use", "mcp_tool_use", "mcp_tool_result"),
    *("web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result"),
    *("container_upload", "source", "source-url", "source-document", "reasoning-file", "custom"),
    *("tool-approval-request", "tool-approval-response", "toolConfirmationRequest"),
    *("actionRequired", "systemNotification", "conversationCompacted", "contextLengthExceeded"),
    *("summarizationRequested", "resource", "resource_link"),
)
"""Known types that a recording cannot represent. Readers skip and count such parts."""

UNREAD_CALL_TYPES = frozenset({"functionCall", "functionResponse"})
"""Types of tool calls and tool results that no reader supports."""

_VERCEL_TOOL_TYPES = ("dynamic-tool", "tool-invocation")
_KNOWN_TYPES = CHAT_PART_TYPES.union(
    *(TEXT_TYPES, REASONING_TYPES, CALL_TYPES, RESULT_TYPES, IMAGE_TYPES),
    *(MARKER_TYPES, UNSUPPORTED_TYPES, _VERCEL_TOOL_TYPES),
)
# In Bedrock and Gemini, a content block has a single key, which is its type.
_BEDROCK_KEYS = (
    *("text", "toolUse", "toolResult", "reasoningContent", "image", "document", "video", "audio"),
    *("cachePoint", "guardContent", "citationsContent", "searchResult"),
)
_GEMINI_KEYS = ("functionCall", "functionResponse", "inlineData", "fileData", "executableCode")

# API -> types that only this API uses. APIs without a reader are listed for error messages.
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
_MIN_ANSWERS = 10
_SKIPPED_PREFIX = "block of type "


def part_type(part: Mapping[str, Any]) -> str | None:
    """Return the type of a content part.

    The type is the value of the key ``type``. In Bedrock's and Gemini's formats, which have no such
    key, the type is itself a key, as in ``{"toolUse": {…}}``.

    Parameters
    ----------
    part : mapping
        Content part in the format of any API.

    Returns
    -------
    str or None
        The type. None if the part has no ``type`` and none of the keys of Bedrock and Gemini.

    Examples
    --------
    >>> part_type({"type": "text", "text": "hi"}), part_type({"toolUse": {}}), part_type({"a": 1})
    ('text', 'toolUse', None)
    """
    kind = part.get("type")
    if isinstance(kind, str) and kind:
        return kind
    return next((key for key in (*_BEDROCK_KEYS, *_GEMINI_KEYS) if key in part), None)


def is_chat_part(part: Any) -> bool:
    """Return whether a content part follows OpenAI's chat format.

    Parameters
    ----------
    part : Any
        Content part in the format of any API.

    Returns
    -------
    bool
        True if the part is a string, or a mapping with a type of ``CHAT_PART_TYPES`` and a payload
        under the key of the same name.

    Examples
    --------
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
    """Return whether this module lists a type of content part, as supported or as unsupported.

    Parameters
    ----------
    kind : str or None
        The type, as returned by ``part_type``.

    Returns
    -------
    bool
        True if the type is listed, or is a custom data type of the Vercel AI SDK (``data-…``).

    Examples
    --------
    >>> is_known_type("toolUse"), is_known_type("data-weather"), is_known_type("hologram")
    (True, True, False)
    """
    return kind is not None and (kind in _KNOWN_TYPES or kind.startswith("data-"))


def describe_type(part: Mapping[str, Any]) -> str:
    """Describe the type of a content part, for warnings and error messages.

    Parameters
    ----------
    part : mapping
        Content part in the format of any API.

    Returns
    -------
    str
        The type, or ``none`` with the keys of the part if it has no type.

    Examples
    --------
    >>> describe_type({"type": "hologram"}), describe_type({"tool_name": "ls", "arguments": {}})
    ('hologram', 'none (keys arguments, tool_name)')
    """
    kind = part_type(part)
    if kind is not None:
        return kind[:60]
    return f"none (keys {', '.join(sorted(map(str, part)))[:60]})" if part else "none"


def guess_api(kinds: Iterable[str | None]) -> str | None:
    """Guess from the types of content parts which API wrote them.

    Parameters
    ----------
    kinds : iterable of str or None
        Types, as returned by ``part_type``.

    Returns
    -------
    str or None
        Name of an API, if one of the types is used only by this API. None if all types are unknown
        or used by several APIs.

    Examples
    --------
    >>> guess_api(["text", "functionCall"]), guess_api(["text"])
    ('Google Gemini contents', None)
    """
    found = set(kinds)
    return next((api for api, types in _TYPES_BY_API.items() if found & {*types}), None)


def missing_calls_warning(recording: Recording) -> str | None:
    """Return a warning if a reader probably missed the tool calls of a recording.

    A long conversation without tool calls is usual for a chat, but not for an agent. If such a
    recording also has content parts of unknown types, these parts are probably the tool calls.

    Parameters
    ----------
    recording : Recording
        The recording, as returned by a reader.

    Returns
    -------
    str or None
        The warning, without the name of the recording. None if the recording has a tool call, fewer
        than 10 assistant messages, or no content part of unknown type.

    Examples
    --------
    >>> from ctxlab.messages.types import Message
    >>> chat = (Message("user", "hi"), Message("assistant", "ho")) * 10
    >>> missing_calls_warning(Recording("a", chat, skipped={"block of type hologram": 7}))
    '10 answers, no tool call, and 7 content parts of unknown type: hologram (7)'
    >>> missing_calls_warning(Recording("a", chat)) is None
    True
    """
    answers = len(recording.request_positions)
    if answers < _MIN_ANSWERS or any(message.tool_calls for message in recording.messages):
        return None
    unknown: Counter[str] = Counter()
    for reason, count in recording.skipped.items():
        kind = reason.removeprefix(_SKIPPED_PREFIX).partition(" (")[0].partition(",")[0]
        if reason.startswith(_SKIPPED_PREFIX) and not is_known_type(kind.removeprefix("redacted ")):
            unknown[kind] += count
    if not unknown:  # some readers do not skip unknown parts, but keep them in the messages
        listed = (m.content for m in recording.messages if isinstance(m.content, tuple))
        kept = itertools.chain.from_iterable(listed)
        unknown.update(describe_type(part) for part in kept if not is_known_type(part_type(part)))
    if not unknown:
        return None
    types = ", ".join(f"{kind} ({count})" for kind, count in unknown.most_common(3))
    count = unknown.total()
    return f"{answers} answers, no tool call, and {count} content parts of unknown type: {types}"
