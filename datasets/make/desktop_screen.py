"""Draw the screen of the simulated desktop in black and white, and encode it as PNG.

Pillow's built-in bitmap font looks the same in all versions. The PNG files are not compressed, because
versions of zlib compress differently; so the recordings are the same bytes on every machine.
"""

from __future__ import annotations

import base64
import struct
import zlib

from PIL import Image, ImageDraw, ImageFont

WIDTH, HEIGHT = 640, 400
LINE = 14
"""Distance between two lines of text, in pixels."""

Box = tuple[int, int, int, int]
"""Left, top, right and bottom edge of a rectangle, in pixels."""


def center(box: Box) -> tuple[int, int]:
    """Return the point in the middle of a rectangle.

    >>> center((0, 0, 10, 20))
    (5, 10)
    """
    left, top, right, bottom = box
    return (left + right) // 2, (top + bottom) // 2


def contains(box: Box, x: int, y: int) -> bool:
    """Return True if a point is in a rectangle."""
    left, top, right, bottom = box
    return left <= x <= right and top <= y <= bottom


class Screen:
    """A white screen, on which windows, buttons, fields and texts are drawn."""

    def __init__(self) -> None:
        self.image = Image.new("1", (WIDTH, HEIGHT), 1)
        self._draw = ImageDraw.Draw(self.image)
        self._font = ImageFont.load_default_imagefont()

    def text(self, x: int, y: int, text: str, *, white: bool = False) -> None:
        """Draw one line of text; ``x`` and ``y`` are its top left corner."""
        self._draw.text((x, y), text, fill=int(white), font=self._font)

    def window(self, box: Box, title: str) -> None:
        """Draw the frame of a window and its title."""
        left, top, right, _ = box
        self._draw.rectangle(box, fill=1, outline=0)
        self._draw.rectangle((left, top, right, top + 16), fill=0)
        self.text(left + 6, top + 3, title, white=True)

    def button(self, box: Box, label: str) -> None:
        """Draw a button with its label in the middle."""
        self._draw.rounded_rectangle(box, radius=4, fill=1, outline=0)
        x, y = center(box)
        self.text(x - 3 * len(label), y - 5, label)

    def field(self, box: Box, value: str, *, focused: bool) -> None:
        """Draw an input field; the field that has the keyboard focus has a thick frame."""
        self._draw.rectangle(box, fill=1, outline=0, width=2 if focused else 1)
        self.text(box[0] + 5, box[1] + 4, value)


def encode_png(image: Image.Image) -> bytes:
    """Encode a black and white image as a PNG file without compression."""
    width, height = image.size
    row = (width + 7) // 8
    pixels = image.tobytes()
    raw = b"".join(b"\0" + pixels[at : at + row] for at in range(0, len(pixels), row))
    stored = b"\x01" + struct.pack("<HH", len(raw), 0xFFFF - len(raw)) + raw
    data = b"\x78\x01" + stored + struct.pack(">I", zlib.adler32(raw))
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", data), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    )


def data_url(png: bytes) -> str:
    """Return a PNG file as a data URL."""
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"
