"""Count the tokens of images from their size, by the rules of each provider.

The size is read from the header of the image. The rules follow the providers' guides. The rules in
parentheses are not implemented, so counts for the models in parentheses are rough estimates:

- OpenAI, "Images and vision": GPT-4o, GPT-4.1 and GPT-4.5 bill 85 tokens per image and 170 tokens
  per tile of 512 px. (o1 and o3 bill 75 and 150 tokens. GPT-5 bills 70 and 140 tokens. GPT-4o-mini
  bills 33 times as many tokens at a 17 times lower price. The other small models, and all models
  since GPT-5.4, bill patches of 32 px. For 1024 by 1024 px, they bill 1,229 tokens instead of 765.)
- Anthropic, "Vision": Claude 3 to 4.6 shrink the image to 1,568 px per side and bill width times
  height / 750 tokens, about 1,600 at most. (Claude Opus 4.7 and later models allow 2,576 px and
  bill up to 4,784 tokens.)
- Google, "Understand and count tokens": Gemini 2 bills 258 tokens per tile of 768 px. (Gemini 3
  bills up to 1,120 tokens for any size. For 1024 by 1024 px, the rule of Gemini 2 gives 1,032.)
"""

from __future__ import annotations

import base64
import io
import math
import re
import warnings
from collections.abc import Mapping
from typing import Any

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


def count_image_tokens(part: Mapping[str, Any], family: str) -> int:
    """Return the number of tokens of an image in a message.

    The size is read from the header of the image data. An image without readable data (a web
    address, a file id, invalid data) counts as 1024 by 1024 pixels.

    Parameters
    ----------
    part : mapping
        Content part with the type ``image_url``, ``input_image`` or ``image``.
    family : str
        Family of the model, as returned by ``model_family``. Images for ``"other"`` are counted by
        OpenAI's rule.

    Returns
    -------
    int
        Number of tokens.

    Examples
    --------
    >>> count_image_tokens({"type": "image_url", "image_url": {"url": "https://x.org/a.png"}}, "openai")
    765
    """
    image = part.get("image_url")
    where = image if isinstance(image, Mapping) else {"url": image, "detail": part.get("detail")}
    if isinstance(source := part.get("source"), Mapping):
        where = {"url": f"data:;base64,{source.get('data')}"}
    width, height = _read_size(where.get("url"))
    return _COUNT_BY_FAMILY.get(family, _count_openai)(width, height, where.get("detail") == "low")


def _count_openai(width: int, height: int, low: bool) -> int:
    if low:
        return 85
    width, height = _shrink_to(width, height, 2048)
    shrink = min(1.0, 768 / min(width, height))
    return 85 + 170 * _count_tiles(round(width * shrink), round(height * shrink), 512)


def _count_anthropic(width: int, height: int, low: bool) -> int:
    width, height = _shrink_to(width, height, 1568)
    return max(1, min(1600, round(width * height / 750)))


def _count_gemini(width: int, height: int, low: bool) -> int:
    return 258 if max(width, height) <= 384 else 258 * _count_tiles(width, height, 768)


_COUNT_BY_FAMILY = {"anthropic": _count_anthropic, "gemini": _count_gemini}


def _shrink_to(width: int, height: int, longest: int) -> tuple[int, int]:
    """Return the size of an image after shrinking it so that no side exceeds ``longest``."""
    shrink = min(1.0, longest / max(width, height))
    return max(1, round(width * shrink)), max(1, round(height * shrink))


def _count_tiles(width: int, height: int, side: int) -> int:
    return math.ceil(width / side) * math.ceil(height / side)


def _read_size(url: Any) -> tuple[int, int]:
    """Return the width and height in pixels of the image in a data URL; 1024 by 1024 if unknown."""
    if not isinstance(url, str) or not url.startswith("data:"):
        return _UNKNOWN_SIZE
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
        return _UNKNOWN_SIZE
    return (width, height) if width > 0 and height > 0 else _UNKNOWN_SIZE
