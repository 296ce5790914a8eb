"""An image counts what its provider bills for its size, and no pixel is decoded to know it.

The rules, from the providers' guides, and what they leave out:

- OpenAI, "Images and vision", by tiles: GPT-4o, GPT-4.1 and GPT-4.5 at 85 tokens and 170 a tile.
  (o1 and o3 bill 75 and 150, GPT-5 bills 70 and 140; GPT-4o-mini 33 times as much at a 17 times
  lower price. The other small models and those since GPT-5.4 count patches of 32 px: 1,229 tokens
  for 1024 by 1024 in place of 765.)
- Anthropic, "Vision": Claude 3 to 4.6 at width times height / 750, after fitting 1,568 px and about
  1,600 tokens. (Since Claude Opus 4.7: up to 2,576 px and 4,784 tokens.)
- Google, "Understand and count tokens": Gemini 2 at 258 tokens a tile of 768 px. (Gemini 3 takes up
  to 1,120 tokens whatever the size; this rule gives 1,032 for 1024 by 1024.)

What stands in brackets is not modelled: for those models an image is a rough estimate.
"""

from __future__ import annotations

import base64
import io
import math
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["count_image_tokens", "model_family"]

_UNKNOWN_SIZE = (1024, 1024)
# What the three providers accept; nothing else is opened.
_IMAGE_FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
_FAMILIES = {
    "anthropic": re.compile(r"claude|anthropic"),
    "gemini": re.compile(r"gemini"),
    "openai": re.compile(r"gpt|openai|azure|codex|davinci|(?<![a-z0-9])o\d(?![a-z0-9])"),
}


def model_family(model: str) -> str:
    """The provider whose rules a model's name points to: openai, anthropic, gemini or other.

    >>> [model_family(name) for name in ("azure/gpt-4o", "bedrock/anthropic.claude-3", "qwen3")]
    ['openai', 'anthropic', 'other']
    """
    name = model.lower()
    return next((family for family, known in _FAMILIES.items() if known.search(name)), "other")


def count_image_tokens(part: Mapping[str, Any], family: str) -> int:
    """Tokens of an image part by the rule of ``family``; any other family counts as OpenAI's.

    Takes OpenAI's ``image_url`` and ``input_image`` and Anthropic's ``image``. The size is read
    from the header of the data that the part carries. Where it carries none that can be read (a web
    address, a file id, broken data), it counts as a picture of 1024 by 1024.

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


_COUNT_BY_FAMILY: dict[str, Callable[[int, int, bool], int]] = {
    "openai": _count_openai,
    "anthropic": _count_anthropic,
    "gemini": _count_gemini,
}


def _shrink_to(width: int, height: int, longest: int) -> tuple[int, int]:
    """The size after shrinking, never enlarging, until no side exceeds ``longest``."""
    shrink = min(1.0, longest / max(width, height))
    return max(1, round(width * shrink)), max(1, round(height * shrink))


def _count_tiles(width: int, height: int, side: int) -> int:
    return math.ceil(width / side) * math.ceil(height / side)


def _read_size(url: Any) -> tuple[int, int]:
    """Width and height in pixels of the picture in a data URL; 1024 by 1024 where unknown."""
    if not isinstance(url, str) or not url.startswith("data:"):
        return _UNKNOWN_SIZE
    from PIL import Image

    try:
        # A log may have cut the data short; padding lets what is left of it be decoded.
        blob = base64.b64decode(url.partition(",")[2] + "==")
        with warnings.catch_warnings():
            # Pillow warns of very large pictures, which only matters to those who decode them.
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(blob), formats=_IMAGE_FORMATS) as image:
                width, height = image.size
    except Exception:  # Pillow's parsers raise many types on data that only claims to be a picture
        return _UNKNOWN_SIZE
    return (width, height) if width > 0 and height > 0 else _UNKNOWN_SIZE
