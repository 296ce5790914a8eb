"""The parts of Gemini's contents become the texts, images, calls and results of the chat shape.

``gemini_cli_chat`` makes messages of them; ``gemini_cli_log`` recognises what is said again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ctxlab._utils.jsonio import dump_json
from ctxlab.formats.base import (
    LeaveOut,
    silent,
)
from ctxlab.formats.common.chat_format import (
    Content,
    content_of,
    image_part,
    text_part,
)
from ctxlab.formats.optional_fields import (
    text,
    within,
)
from ctxlab.messages.types import Part

__all__ = ["content", "parts_of", "result", "result_text", "texts"]


def parts_of(value: Any) -> list[dict[str, Any]]:
    """The parts of a content: a text, a part, or a list of both; ``ValueError`` where it is neither."""
    if value is None:
        return []
    listed = value if isinstance(value, list) else [value]
    parts = [{"text": each} if isinstance(each, str) else each for each in listed]
    if all(isinstance(part, dict) for part in parts):
        return parts
    raise ValueError("content is text, a part, or a list of them")


def texts(parts: Iterable[dict[str, Any]], *, thought: bool = False) -> list[str]:
    """The texts that are not empty: what was said, or what was thought."""
    said = (part for part in parts if bool(part.get("thought")) is thought)
    return [value for part in said if (value := text(part.get("text")))]


def content(parts: Iterable[dict[str, Any]], leave_out: LeaveOut) -> Content | None:
    """Texts and images, as ``content_of`` puts them together.

    Thoughts, calls and results are not content; other kinds are told to ``leave_out``.
    """
    said: list[Part] = []
    for part in parts:
        if part.get("thought") or "functionCall" in part or "functionResponse" in part:
            continue
        if isinstance(part.get("text"), str):
            said.append(text_part(part["text"]))
        elif url := _image_url(part.get("inlineData")):
            said.append(image_part(url))
        else:
            leave_out(f"part of type {', '.join(part)}")
    return content_of(said)


def result(value: Any, leave_out: LeaveOut) -> Content:
    """What a model was given of a tool's result.

    A ``functionResponse`` says it in ``response.output``, or ``error``; pictures stand in its
    ``parts`` or beside it.
    """
    said: list[dict[str, Any]] = []
    for part in parts_of(value):
        response = part.get("functionResponse")
        if isinstance(response, dict):
            said += {"text": _response(response.get("response"))}, *parts_of(response.get("parts"))
        else:
            said.append(part)
    return content(said, leave_out) or ""


def result_text(value: Any) -> str:
    """The same, as one text to compare it by."""
    said = result(value, silent)
    return said if isinstance(said, str) else dump_json(said)


def _response(value: Any) -> str:
    for key in ("output", "error"):
        said = within(value, key)
        if isinstance(said, str):
            return said
    return "" if value is None else dump_json(value)


def _image_url(data: Any) -> str | None:
    media, encoded = text(within(data, "mimeType")), text(within(data, "data"))
    if media and encoded and media.startswith("image/"):
        return f"data:{media};base64,{encoded}"
    return None
