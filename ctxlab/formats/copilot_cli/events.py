"""Parse the attachments, images, tool calls and token usage in the events of Copilot CLI.

Images are either in the event itself or in a separate event, ``session.binary_asset``, that is named
by its id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from ctxlab.formats.base import SkipCallback
from ctxlab.formats.common.chat_format import Content, image_part, join_parts, make_call, text_part
from ctxlab.formats.common.usage import UsageShape
from ctxlab.formats.fields import (
    first_text,
    get_count,
    get_in,
    get_objects,
    get_text,
    require_objects,
    require_text,
)
from ctxlab.messages.types import ContentPart, ToolCall, Usage

Assets: TypeAlias = Mapping[str, dict[str, Any]]
"""Data of the ``session.binary_asset`` events, by the id of the asset."""

_SHAPE = UsageShape(
    input="inputTokens",
    output="outputTokens",
    cache_read="cacheReadTokens",
    cache_write="cacheWriteTokens",
    reasoning="reasoningTokens",
)
_ATTACHED_TEXTS = ("taggedFilesEntry", "text", "path", "filePath")


def parse_usage(data: Any) -> Usage | None:
    """Parse billed tokens. The input tokens include those read from and written to the cache.

    ``copilotUsage.tokenDetails`` is preferred, because ``cacheWriteTokens`` may be 0 although tokens
    were written to the cache.

    Parameters
    ----------
    data : Any
        An object with token counts.

    Returns
    -------
    Usage or None
        The token counts. None if there are none.

    Examples
    --------
    >>> parse_usage({"inputTokens": 9, "outputTokens": 2, "cacheReadTokens": 4})
    Usage(input=5, cache_read=4, cache_write=0, output=2, reasoning=0, cache_write_1h=0)
    """
    items = get_objects(data, "copilotUsage", "tokenDetails")
    if not items:
        return _SHAPE.parse_billed(data)
    kinds = {get_text(item, "tokenType"): get_count(item, "tokenCount") for item in items}
    sent, read, written, got = (
        kinds.get(kind, 0) for kind in ("input", "cache_read", "cache_write", "output")
    )
    return Usage(sent, read, written, got, get_count(data, "reasoningTokens"))


def parse_calls(data: dict[str, Any]) -> list[ToolCall]:
    """Parse the tool calls of an answer.

    Parameters
    ----------
    data : dict
        The data of an ``assistant.message`` event.

    Returns
    -------
    list of ToolCall
        The tool calls. If a custom tool receives text, the text is stored under the key ``input``.

    Raises
    ------
    ValueError
        If a call is not an object, or if its id or its tool is not a string.
    """
    return list(map(_parse_call, require_objects(data.get("toolRequests") or [], "toolRequests")))


def parse_prompt(data: dict[str, Any], assets: Assets, skip: SkipCallback) -> Content | None:
    """Parse the content of a user message as the model received it.

    Parameters
    ----------
    data : dict
        The data of a ``user.message`` event.
    assets : mapping of str to dict
        The binary assets of the session.
    skip : Callable
        Called with a description of each skipped attachment.

    Returns
    -------
    str, tuple of dict, or None
        The text, followed by the lines of the attached files and by the attached images. None if
        the message is empty.

    Raises
    ------
    ValueError
        If the message has no text, or if an attachment is not an object.
    """
    typed = require_text(data.get("content"), "content")
    text = get_text(data, "transformedContent") or typed
    tagged: list[str] = []
    images: list[ContentPart] = []
    for attachment in require_objects(data.get("attachments") or [], "attachments"):
        entry = get_text(attachment, "taggedFilesEntry")
        said = first_text(attachment.get(key) for key in _ATTACHED_TEXTS)
        if url := _image_url(attachment, assets):
            images.append(image_part(url))
        elif entry and entry not in text:
            tagged.append(entry)
        elif not said or said not in text:
            skip(f"attachment of type {attachment.get('type')}")
    if tagged:
        text = "\n".join([f"{text}\n\n\n\n<tagged_files>", *tagged, "</tagged_files>"])
    return join_parts([*([text_part(text)] if text else []), *images])


def parse_result(data: dict[str, Any], assets: Assets, skip: SkipCallback) -> Content:
    """Parse the content of a tool result as the model received it.

    Parameters
    ----------
    data : dict
        The data of a ``tool.execution_complete`` event.
    assets : mapping of str to dict
        The binary assets of the session.
    skip : Callable
        Called with a description of each skipped part of the result.

    Returns
    -------
    str or tuple of dict
        The text of the result, followed by its images. If the tool failed, the error message. An
        empty string if the event has neither.

    Raises
    ------
    ValueError
        If the text of the result or of the error is not a string.
    """
    result = data.get("result")
    said, key = (data.get("error"), "message") if result is None else (result, "content")
    value = said.get(key) if isinstance(said, dict) else said
    text = "" if said is None else require_text(value, f"{key} of a result")
    images = list(_result_images(result, assets, skip))
    return join_parts([text_part(text), *images]) or ""


def _parse_call(request: dict[str, Any]) -> ToolCall:
    arguments = request.get("arguments")
    if request.get("type") == "custom" and isinstance(arguments, str):
        arguments = {"input": arguments}
    id = require_text(request.get("toolCallId"), "toolCallId")
    return make_call(id, request.get("name"), arguments)


def _result_images(result: Any, assets: Assets, skip: SkipCallback) -> Iterator[ContentPart]:
    binaries = get_in(result, "binaryResultsForLlm") or []
    for each in require_objects(binaries, "binaryResultsForLlm"):
        if url := _image_url(each, assets):
            yield image_part(url)
        else:
            skip(f"binary result of type {each.get('type')}")


def _image_url(value: dict[str, Any], assets: Assets) -> str | None:
    """Return the data URL of an image, or None if the value is not an image with known data."""
    held = value if get_text(value, "data") else assets.get(get_text(value, "assetId") or "", {})
    mime, data = get_text(held, "mimeType") or get_text(value, "mimeType"), get_text(held, "data")
    return f"data:{mime};base64,{data}" if data and mime and mime.startswith("image/") else None
