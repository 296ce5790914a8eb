"""Convert the parts of Gemini contents to texts, images and results.

``messages`` builds messages from them; ``log`` uses them to match repeated messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ctxlab._utils.jsonio import dump_json
from ctxlab.formats.base import SkipCallback, ignore_skip
from ctxlab.formats.common.chat_format import Content, image_part, join_parts, text_part
from ctxlab.formats.fields import get_in, get_text
from ctxlab.messages.types import ContentPart


def to_parts(value: Any) -> list[dict[str, Any]]:
    """Return the parts of a content.

    Parameters
    ----------
    value : Any
        A text, a part, a list of both, or None.

    Returns
    -------
    list of dict
        The parts; a text becomes a part with ``text``.

    Raises
    ------
    ValueError
        If ``value`` has another type.
    """
    if value is None:
        return []
    listed = value if isinstance(value, list) else [value]
    parts = [{"text": each} if isinstance(each, str) else each for each in listed]
    if all(isinstance(part, dict) for part in parts):
        return parts
    raise ValueError("content must be text, a part, or a list of them")


def part_texts(parts: Iterable[dict[str, Any]], *, thought: bool = False) -> list[str]:
    """Return the non-empty texts of the parts.

    Parameters
    ----------
    parts : iterable of dict
        The parts of a content.
    thought : bool, default False
        Return thoughts instead of text.

    Returns
    -------
    list of str
        The texts, in order.
    """
    said = (part for part in parts if bool(part.get("thought")) is thought)
    return [value for part in said if (value := get_text(part, "text"))]


def parse_content(parts: Iterable[dict[str, Any]], skip: SkipCallback) -> Content | None:
    """Convert the texts and images of the parts.

    Thoughts, calls and results are not content. Other types are skipped.

    Parameters
    ----------
    parts : iterable of dict
        The parts of a content.
    skip : callable
        Called with a reason for each part that is left out.

    Returns
    -------
    str, tuple of dict or None
        The content, joined by ``join_parts``.
    """
    said: list[ContentPart] = []
    for part in parts:
        if part.get("thought") or "functionCall" in part or "functionResponse" in part:
            continue
        if isinstance(part.get("text"), str):
            said.append(text_part(part["text"]))
        elif url := _image_url(part.get("inlineData")):
            said.append(image_part(url))
        else:
            skip(f"part of type {', '.join(part)}")
    return join_parts(said)


def parse_result(value: Any, skip: SkipCallback) -> Content:
    """Return the content of a tool result as the model received it.

    A ``functionResponse`` holds it in ``response.output`` or ``response.error``. Images are in its
    ``parts`` or in parts next to it.

    Parameters
    ----------
    value : Any
        The recorded result.
    skip : callable
        Called with a reason for each part that is left out.

    Returns
    -------
    str or tuple of dict
        The content.

    Raises
    ------
    ValueError
        If ``value`` is invalid.
    """
    said: list[dict[str, Any]] = []
    for part in to_parts(value):
        response = part.get("functionResponse")
        if isinstance(response, dict):
            said += (
                {"text": _response_text(response.get("response"))},
                *to_parts(response.get("parts")),
            )
        else:
            said.append(part)
    return parse_content(said, skip) or ""


def result_text(value: Any) -> str:
    """Return a tool result as one text, to compare results.

    Parameters
    ----------
    value : Any
        The recorded result.

    Returns
    -------
    str
        The text, or JSON if there are images.

    Raises
    ------
    ValueError
        If ``value`` is invalid.
    """
    said = parse_result(value, ignore_skip)
    return said if isinstance(said, str) else dump_json(said)


def _response_text(value: Any) -> str:
    for key in ("output", "error"):
        said = get_in(value, key)
        if isinstance(said, str):
            return said
    return "" if value is None else dump_json(value)


def _image_url(data: Any) -> str | None:
    media, encoded = (get_text(data, "mimeType"), get_text(data, "data"))
    if media and encoded and media.startswith("image/"):
        return f"data:{media};base64,{encoded}"
    return None
