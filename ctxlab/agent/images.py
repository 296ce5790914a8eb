"""Read images, so that messages can contain them."""

from __future__ import annotations

import base64
import io
import warnings
from pathlib import Path
from typing import NamedTuple

from ctxlab._utils.numbers import format_bytes
from ctxlab.errors import SpecError

MAX_IMAGE_BYTES, MAX_IMAGE_PIXELS = 3_750_000, 8_000
"""Maximum size of an image and maximum length of its sides, which all providers accept."""

_IMAGE_FORMATS = ("PNG", "JPEG", "WEBP", "GIF")


class EncodedImage(NamedTuple):
    """Image that a message can contain."""

    url: str
    "the image as a data URL"
    width: int
    "width in pixels"
    height: int
    "height in pixels"


def encode_image(blob: bytes) -> EncodedImage:
    """Check an image, and return it as a data URL.

    Parameters
    ----------
    blob : bytes
        Content of a file.

    Returns
    -------
    EncodedImage
        Data URL of the image, and its size.

    Raises
    ------
    SpecError
        If providers would reject the image, and with it each request that contains it.
    """
    from PIL import Image

    if len(blob) > MAX_IMAGE_BYTES:
        most = format_bytes(MAX_IMAGE_BYTES)
        raise SpecError(f"expected an image of at most {most}, got a larger one; shrink it")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about very large images, which are not decoded
            with Image.open(io.BytesIO(blob), formats=_IMAGE_FORMATS) as image:
                kind, (width, height) = Image.MIME[str(image.format)], image.size
    except Exception:  # Pillow's parsers raise many types for invalid images
        raise SpecError("expected an image in the format PNG, JPEG, WebP or GIF") from None
    if max(width, height) > MAX_IMAGE_PIXELS:
        most = f"{MAX_IMAGE_PIXELS:,} pixels a side"
        raise SpecError(f"expected at most {most}, got {width:,} × {height:,}; shrink the image")
    return EncodedImage(f"data:{kind};base64,{base64.b64encode(blob).decode()}", width, height)


def read_image(path: Path) -> EncodedImage:
    """Read an image file; see ``encode_image``.

    Parameters
    ----------
    path : Path
        Path of the file. Of a file that is too large, no more than the limit is read.

    Returns
    -------
    EncodedImage
        Data URL of the image, and its size.

    Raises
    ------
    SpecError
        If the file cannot be read, or if providers would reject the image.
    """
    try:
        with path.open("rb") as file:
            blob = file.read(MAX_IMAGE_BYTES + 1)
    except OSError as error:
        raise SpecError(f"expected a readable file, got: {error.strerror}") from None
    return encode_image(blob)
