"""Count the tokens of images from their size, by the rules of each provider.

The size is read from the header of the image. The rules and their sources are in
``ctxlab.tokens.model_families.IMAGE_RULES``.
"""

from __future__ import annotations

import base64
import io
import math
import re
import warnings
from bisect import bisect_left
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from ctxlab.messages.types import ContentPart, Message, message_text
from ctxlab.tokens.model_families import IMAGE_RULES

_IMAGE_TYPES = frozenset({"image_url", "input_image", "image"})
_UNKNOWN_SIZE = (1024, 1024)
# Formats that all three providers accept; no others are opened.
_IMAGE_FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
_FAMILIES = {
    "anthropic": re.compile(r"claude|anthropic"),
    "gemini": re.compile(r"gemini"),
    "openai": re.compile(r"gpt|openai|azure|codex|davinci|(?<![a-z0-9])o\d(?![a-z0-9])"),
}


def model_family(model: str) -> str:
    """Return the family of a model, which determines the rules for counting its tokens.

    The family is the developer of the model, which is recognized by the model's name.

    Parameters
    ----------
    model : str
        Name of the model.

    Returns
    -------
    str
        ``"openai"``, ``"anthropic"``, ``"gemini"`` or ``"other"``.

    Examples
    --------
    >>> [model_family(name) for name in ("azure/gpt-4o", "bedrock/anthropic.claude-3", "qwen3")]
    ['openai', 'anthropic', 'other']
    """
    name = model.lower()
    return next((family for family, known in _FAMILIES.items() if known.search(name)), "other")


def is_image_part(part: Mapping[str, Any]) -> bool:
    """Return True if a content part of a message is an image.

    Parameters
    ----------
    part : mapping
        Content part in OpenAI's or Anthropic's format.

    Returns
    -------
    bool
        True for OpenAI's types ``image_url`` and ``input_image`` and Anthropic's type ``image``.
    """
    return part.get("type") in _IMAGE_TYPES


def image_parts(message: Message) -> list[ContentPart]:
    """Return the images of a message.

    Parameters
    ----------
    message : Message
        Message of any role.

    Returns
    -------
    list of dict
        Content parts that are images, in order.
    """
    content = message.content if isinstance(message.content, tuple) else ()
    return [part for part in content if is_image_part(part)]


def normalize_model_name(name: str) -> str:
    """Return the name of a model in lower case, with dashes instead of dots between digits.

    Parameters
    ----------
    name : str
        Name of the model.

    Returns
    -------
    str
        The spelling in which the tables of model families are searched.

    Examples
    --------
    >>> normalize_model_name("Claude-Opus-4.5")
    'claude-opus-4-5'
    """
    return re.sub(r"(?<=\d)\.(?=\d)", "-", name.strip().lower())


def count_image_tokens(part: Mapping[str, Any], model: str) -> int:
    """Return the number of tokens of an image in a message.

    The size is read from the header of the image data. An image without readable data (a web
    address, a file id, invalid data) counts as 1024 by 1024 pixels.

    Parameters
    ----------
    part : mapping
        Content part with the type ``image_url``, ``input_image`` or ``image``.
    model : str
        Name of the model, or of its family as returned by ``model_family``.

    Returns
    -------
    int
        Number of tokens.

    Examples
    --------
    >>> image = {"type": "image_url", "image_url": {"url": "https://x.org/a.png"}}
    >>> count_image_tokens(image, "gpt-4o"), count_image_tokens(image, "gpt-6-sol")
    (765, 1229)
    """
    where = _image_source(part)
    width, height = _read_size(where.get("url")) or _UNKNOWN_SIZE
    rule, parameters = _find_rule(model)
    return _RULES[rule](width, height, str(where.get("detail")), parameters)


def image_label(part: Mapping[str, Any]) -> str:
    """Return a text that stands for an image where messages are shown as text.

    Parameters
    ----------
    part : mapping
        Content part with the type ``image_url``, ``input_image`` or ``image``.

    Returns
    -------
    str
        Label with the size of the image, if it is known.

    Examples
    --------
    >>> image_label({"type": "image_url", "image_url": {"url": "https://x.org/a.png"}})
    '[image]'
    """
    size = _read_size(_image_source(part).get("url"))
    return "[image]" if size is None else f"[image, {size[0]:,} × {size[1]:,} pixels]"


def shown_text(message: Message) -> str:
    """Return the text of a message for a reader, with a label in place of each image.

    Parameters
    ----------
    message : Message
        Message of any role.

    Returns
    -------
    str
        Labels of the images, and the text that the model reads.

    Examples
    --------
    >>> image = {"type": "image_url", "image_url": {"url": "https://x.org/a.png"}}
    >>> shown_text(Message("user", (image, {"type": "text", "text": "What is it?"})))
    '[image] What is it?'
    """
    content = message.content
    if not isinstance(content, tuple):
        return message_text(message)
    labels = [image_label(part) for part in content if is_image_part(part)]
    return " ".join(filter(None, [*labels, message_text(message)]))


def _image_source(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the URL and the level of detail of an image, whatever the format of its part."""
    if isinstance(source := part.get("source"), Mapping):
        return {"url": f"data:;base64,{source.get('data')}"}
    image = part.get("image_url")
    return image if isinstance(image, Mapping) else {"url": image, "detail": part.get("detail")}


@cache
def _find_rule(model: str) -> tuple[str, Mapping[str, Any]]:
    name = normalize_model_name(model)
    return next(row[1:] for row in IMAGE_RULES if re.search(row[0], name))


def _count_fitted_patches(
    width: int, height: int, detail: str, parameters: Mapping[str, Any]
) -> int:
    """Count patches of 28 px of the largest image with the same shape within the two limits."""
    short, long = sorted((width, height))
    shape, most, budget = short / long, int(parameters["edge"]) // 28, int(parameters["tokens"])

    def patches(edge: int) -> tuple[int, int]:
        return math.ceil(edge / 28), math.ceil(max(round(edge * shape), 1) / 28)

    def exceeds(edge: int) -> bool:
        columns, rows = patches(edge)
        return columns > most or columns * rows > budget

    # The first edge from 2 on that exceeds a limit; the edge before it is the longest that fits.
    edge = 1 + bisect_left(range(2, long + 1), True, key=exceeds)
    columns, rows = patches(edge)
    return columns * rows


def _count_budgeted_patches(
    width: int, height: int, detail: str, parameters: Mapping[str, Any]
) -> int:
    """Count patches of 32 px, times a factor, of an image that is shrunk to a number of patches."""
    limits = {"low": (1 << 30, 512), **parameters}
    budget, edge = map(int, limits.get(detail, limits["auto"]))
    width, height = _shrink_to(width, height, edge)
    if _count_tiles(width, height, 32) > budget:
        shrink = math.sqrt(32**2 * budget / (width * height))
        columns, rows = width * shrink / 32, height * shrink / 32
        # The larger of the two losses keeps whole patches within the budget on both sides.
        shrink *= min(math.floor(columns) / columns, math.floor(rows) / rows)
        width, height = max(1, int(width * shrink)), max(1, int(height * shrink))
    patches = min(_count_tiles(width, height, 32), budget)
    return math.ceil(round(patches * float(parameters["factor"]), 6))


def _count_with_tiles(width: int, height: int, detail: str, parameters: Mapping[str, Any]) -> int:
    """Count tiles of 512 px of an image whose shorter side is shrunk to 768 px."""
    base, tile = int(parameters["base"]), int(parameters["tile"])
    if detail == "low":
        return base
    width, height = _shrink_to(width, height, 2048)
    shrink = min(1.0, 768 / min(width, height))
    return base + tile * _count_tiles(round(width * shrink), round(height * shrink), 512)


def _count_crops(width: int, height: int, detail: str, parameters: Mapping[str, Any]) -> int:
    """Count crops; a small image is one crop."""
    small = max(width, height) <= parameters["small"]
    crops = 1 if small else _count_tiles(width, height, parameters["side"])
    return int(parameters["tokens"]) * crops


def _count_by_level(width: int, height: int, detail: str, parameters: Mapping[str, Any]) -> int:
    """Return the tokens of a level of detail, which are the same for images of any size."""
    return int(parameters.get(detail, parameters["auto"]))


_RULES: dict[str, Callable[[int, int, str, Mapping[str, Any]], int]] = {
    "fitted_patches": _count_fitted_patches,
    "budgeted_patches": _count_budgeted_patches,
    "tiles": _count_with_tiles,
    "crops": _count_crops,
    "levels": _count_by_level,
}


def _shrink_to(width: int, height: int, longest: int) -> tuple[int, int]:
    """Return the size of an image after shrinking it so that no side exceeds ``longest``."""
    shrink = min(1.0, longest / max(width, height))
    return max(1, round(width * shrink)), max(1, round(height * shrink))


def _count_tiles(width: int, height: int, side: int) -> int:
    return math.ceil(width / side) * math.ceil(height / side)


def _read_size(url: Any) -> tuple[int, int] | None:
    """Return the width and height in pixels of the image in a data URL; None if they are unknown."""
    if not isinstance(url, str) or not url.startswith("data:"):
        return None
    from PIL import Image

    try:
        # The data may be truncated in the log; with padding, the remaining data can be decoded.
        blob = base64.b64decode(url.partition(",")[2] + "==")
        with warnings.catch_warnings():
            # Pillow warns about very large images, which does not matter without decoding them.
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(blob), formats=_IMAGE_FORMATS) as image:
                width, height = image.size
    except Exception:  # Pillow's parsers raise many types for invalid images
        return None
    return (width, height) if width > 0 and height > 0 else None
