"""The desktop of macOS or Windows, by mss (screen), pynput (input) and pyperclip (clipboard).

This backend is not tested on these systems. It cannot tell which window an action would reach, so it
refuses actions where windows are restricted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from ctxlab.errors import DataMissing, DesktopError
from ctxlab.serve.desktop.backend import DesktopBackend, Job, WindowCheck

if TYPE_CHECKING:
    from PIL.Image import Image

_KEY_SECONDS = 0.002


class NativeBackend(DesktopBackend):
    """Backend for the only desktop of a computer with macOS or Windows.

    Raises
    ------
    DataMissing
        If mss, pynput or pyperclip is not installed.
    """

    def __init__(self) -> None:
        try:
            import mss
            import pynput
            import pyperclip
        except ImportError as missing:
            why = f"{missing}: run pip install '.[desktop]' in a clone of ctxlab"
            raise DataMissing(why) from None
        self._mss: Any = mss.mss()
        self._pyperclip: Any = pyperclip
        self._mouse_buttons: Any = pynput.mouse.Button
        self._mouse: Any = pynput.mouse.Controller()
        self._keyboard: Any = pynput.keyboard.Controller()

    @override
    def close(self) -> None:
        self._mss.close()

    @override
    def screenshot(self, job: Job) -> Image:
        from PIL import Image

        shot = self._mss.grab(self._mss.monitors[1])
        return Image.frombytes("RGB", shot.size, shot.bgra, "raw", "BGRX")

    @override
    def click(self, x: int, y: int, button: str, count: int, job: Job, check: WindowCheck) -> None:
        screen = self._mss.monitors[1]
        if not (0 <= x < screen["width"] and 0 <= y < screen["height"]):
            size = f"{screen['width']} × {screen['height']}"
            raise DesktopError(f"expected a position on the screen of {size} pixels, got {x}, {y}")
        job.step()
        check(None)
        self._mouse.position = (x, y)
        self._mouse.click(getattr(self._mouse_buttons, button), count)

    @override
    def type_text(self, text: str, job: Job, check: WindowCheck) -> None:
        for character in text:
            job.step(_KEY_SECONDS)
            check(None)
            self._keyboard.type(character)

    @override
    def get_clipboard(self, job: Job) -> str | None:
        text: str | None = self._pyperclip.paste()
        return text or None

    @override
    def set_clipboard(self, text: str, job: Job) -> None:
        self._pyperclip.copy(text)
