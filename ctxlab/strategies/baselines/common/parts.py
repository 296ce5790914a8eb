"""Split messages into text and image parts, and parse the arguments of tool calls."""

from __future__ import annotations

import base64
import json
from typing import Any, NamedTuple

from ctxlab._utils.jsonio import parse_json
from ctxlab.messages.types import Message, ToolCall


class Part(NamedTuple):
    """One part of the content of a message: text, or an image by its URL."""

    is_image: bool
    "True for an image, False for text"
    value: str
    "text of the part, or URL of the image"


def split_parts(message: Message) -> list[Part]:
    """Split the content of a message into text and image parts.

    Parameters
    ----------
    message : Message
        Message to split.

    Returns
    -------
    list of Part
        Parts in order. A part of unknown type becomes a text part. The list is empty if the message
        has no content.

    Examples
    --------
    >>> split_parts(Message("user", "hi"))
    [Part(is_image=False, value='hi')]
    """
    content = message.content
    if not isinstance(content, tuple):
        return [] if content is None else [Part(False, content)]
    return [
        Part(True, str(part.get("image_url", {}).get("url", "")))
        if part.get("type") == "image_url"
        else Part(False, str(part.get("text") or ""))
        for part in content
    ]


def decode_image(url: str) -> tuple[str, bytes] | None:
    r"""Decode an image from a data URL.

    Parameters
    ----------
    url : str
        Data URL such as ``data:image/png;base64,AAAA``, or a link.

    Returns
    -------
    tuple of str and bytes, or None
        Format and data of the image; None if the URL is a link or is not valid base64.

    Examples
    --------
    >>> decode_image("data:image/png;base64,AAAA")
    ('png', b'\x00\x00\x00')
    """
    kind, comma, data = url.partition(";base64,")
    if not comma or not kind.startswith("data:image/"):
        return None
    try:
        return kind.removeprefix("data:image/"), base64.b64decode(data)
    except ValueError:
        return None


def parse_arguments(call: ToolCall) -> Any:
    """Parse the arguments of a tool call as JSON.

    Parameters
    ----------
    call : ToolCall
        Tool call with the arguments.

    Returns
    -------
    object
        Parsed value. It is an empty dictionary if there are no arguments, and the unparsed string if
        they are not valid JSON.
    """
    try:
        return parse_json(call.arguments) if call.arguments else {}
    except ValueError:
        return call.arguments


def object_arguments(call: ToolCall) -> dict[str, Any] | None:
    """Return the arguments of a tool call as a dictionary.

    Parameters
    ----------
    call : ToolCall
        Tool call with the arguments.

    Returns
    -------
    dict or None
        Arguments by name; empty if the arguments are an empty string. None if they are anything else
        than a JSON object.

    Examples
    --------
    >>> object_arguments(ToolCall("c", "ls", "")), object_arguments(ToolCall("c", "ls", "[1]"))
    ({}, None)
    """
    try:
        value = json.loads(call.arguments or "{}")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
