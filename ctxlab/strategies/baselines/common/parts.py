"""Parts of messages as packages see them: texts, and images by their URL."""

from __future__ import annotations

import base64
import json
from typing import Any, NamedTuple

from ctxlab._utils.jsonio import parse_json
from ctxlab.messages.types import Message, ToolCall


class Part(NamedTuple):
    """A text, or the URL of an image."""

    is_image: bool
    "True for an image"
    value: str
    "the text or the URL"


def split_parts(message: Message) -> list[Part]:
    """Return the content of a message as parts; a part that is no image counts as text.

    Parameters
    ----------
    message : Message
        The message.

    Returns
    -------
    list of Part
        The parts; none if there is no content.

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
    r"""Return the format and the data of an image that a URL contains.

    Parameters
    ----------
    url : str
        The URL.

    Returns
    -------
    tuple of str and bytes, or None
        Format and data; None if the URL is a link or broken.

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
    """Return the value of the arguments of a call; the text itself if it is not JSON.

    Parameters
    ----------
    call : ToolCall
        The call.

    Returns
    -------
    object
        The value.
    """
    try:
        return parse_json(call.arguments) if call.arguments else {}
    except ValueError:
        return call.arguments


def object_arguments(call: ToolCall) -> dict[str, Any] | None:
    """Return the arguments of a call as an object.

    Parameters
    ----------
    call : ToolCall
        The call.

    Returns
    -------
    dict or None
        The arguments; None if they are not a JSON object.

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
