"""The parts of Gemini's contents become the texts, images, calls and results of the chat shape.

``messages`` makes messages of them; ``log`` recognises what is said again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ctxlab._utils.jsonio import dump_json
from ctxlab.formats.base import SkipCallback, ignore_skip
from ctxlab.formats.common.chat_format import Content, image_part, join_parts, text_part
from ctxlab.formats.fields import get_nested, text_or_none
from ctxlab.messages.types import ContentPart

__all__ = ["parse_content", "parse_result", "part_texts", "result_text", "to_parts"]


def to_parts(value: Any) -> list[dict[str, Any]]:
    """The parts of a content: a text, a part, or a list of both; ``ValueError`` where it is neither."""
    if value is None:
        return []
    listed = value if isinstance(value, list) else [value]
    parts = [{"text": each} if isinstance(each, str) else each for each in listed]
    if all(isinstance(part, dict) for part in parts):
        return parts
    raise ValueError("content is text, a part, or a list of them")


def part_texts(parts: Iterable[dict[str, Any]], *, thought: bool = False) -> list[str]:
    """The texts that are not empty: what was said, or what was thought."""
    said = (part for part in parts if bool(part.get("thought")) is thought)
    return [value for part in said if (value := text_or_none(part.get("text")))]


def parse_content(parts: Iterable[dict[str, Any]], skip: SkipCallback) -> Content | None:
    """Texts and images, as ``join_parts`` puts them together.

    Thoughts, calls and results are not content; other kinds are told to ``skip``.
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
    """What a model was given of a tool's result.

    A ``functionResponse`` says it in ``response.output``, or ``error``; pictures stand in its
    ``parts`` or beside it.
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
    """The same, as one text to compare it by."""
    said = parse_result(value, ignore_skip)
    return said if isinstance(said, str) else dump_json(said)


def _response_text(value: Any) -> str:
    for key in ("output", "error"):
        said = get_nested(value, key)
        if isinstance(said, str):
            return said
    return "" if value is None else dump_json(value)


def _image_url(data: Any) -> str | None:
    media, encoded = (
        text_or_none(get_nested(data, "mimeType")),
        text_or_none(get_nested(data, "data")),
    )
    if media and encoded and media.startswith("image/"):
        return f"data:{media};base64,{encoded}"
    return None
