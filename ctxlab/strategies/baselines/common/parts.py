"""Parts of messages as packages see them: texts, and images by their URL."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

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
