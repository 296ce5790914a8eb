"""The desktop of an X server: python-xlib for the screen and the input, xclip for the clipboard.

Characters without a key get one for the time of typing: a key without a meaning is mapped to the
character. Programs read the map of keys when they handle an event, not when it was sent. Therefore the
map is changed as rarely as possible, and programs get time to handle events before it changes again.
"""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from typing_extensions import override

from ctxlab.errors import DataMissing, DesktopError
from ctxlab.serve.desktop.backend import MAX_CLIPBOARD_CHARS, DesktopBackend, Job, WindowCheck

if TYPE_CHECKING:
    from PIL.Image import Image

    from ctxlab.agent.tools.processes import ProcessManager

BUTTONS = {"left": 1, "middle": 2, "right": 3}
"""Numbers of the buttons of the mouse, by name."""

_KEYSYMS = {"\n": 0xFF0D, "\t": 0xFF09}  # Return and Tab
_UNICODE_KEYSYM = 0x01000000
_SHIFT, _CAPS_LOCK = 0xFFE1, 0xFFE5
_LOCK_MASK, _HELD_MASKS = 2, {1: "Shift", 4: "Control", 8: "Alt", 64: "Super", 128: "AltGr"}
_SETTLE_SECONDS = 0.25
"time that programs get to handle typed characters before the map of keys changes"
_KEY_SECONDS = 0.002
_XCLIP_SECONDS = 4.0
_T = TypeVar("_T", bound=Callable[..., Any])


def _connected(method: _T) -> _T:
    """Wrap a method so that errors of the connection become sentences."""

    @wraps(method)
    def wrapper(self: X11Backend, *arguments: Any) -> Any:
        from Xlib import error

        try:
            return method(self, *arguments)
        except (error.ConnectionClosedError, OSError) as reason:
            if isinstance(reason, OSError) and reason.filename is not None:
                raise
            raise DesktopError(f"the display {self.name} has gone; restart the desktop") from None
        except error.XError as reason:
            raise DesktopError(f"the display {self.name} refused: {reason}") from None

    return wrapper  # type: ignore[return-value]


class X11Backend(DesktopBackend):
    """Backend for an X display.

    Parameters
    ----------
    name : str
        Name of the display, such as ``:0``.
    processes : ProcessManager
        Manager that runs xclip.

    Raises
    ------
    DesktopError
        If there is no such display.
    DataMissing
        If python-xlib is not installed.
    """

    def __init__(self, name: str, processes: ProcessManager) -> None:
        try:
            from Xlib import display, error
        except ImportError as missing:
            why = f"{missing}: run pip install '.[desktop]' in a clone of ctxlab"
            raise DataMissing(why) from None
        self.name = name
        self._processes = processes
        try:
            self._display = display.Display(name)
        except (error.DisplayError, OSError, RuntimeError) as reason:
            why = " ".join(str(reason).split()).rstrip(".")
            raise DesktopError(
                f"cannot connect to the display {name} ({why}); start it, or pass another --display"
            ) from None
        self._root = self._display.screen().root
        if not self._display.has_extension("XTEST"):
            raise DesktopError(f"the display {name} has no extension XTEST; use another X server")

    @override
    def close(self) -> None:
        with suppress(Exception):
            self._display.close()

    @override
    @_connected
    def screenshot(self, job: Job) -> Image:
        from PIL import Image
        from Xlib import X

        size = self._screen_size()
        got = self._root.get_image(0, 0, *size, X.ZPixmap, 0xFFFFFFFF)
        if got.depth not in (24, 32):
            raise DesktopError(f"expected a screen of 24 bits a pixel, got {got.depth}")
        order = "BGRX" if self._display.display.info.image_byte_order == X.LSBFirst else "XRGB"
        return Image.frombytes("RGB", size, got.data, "raw", order)

    @override
    @_connected
    def click(self, x: int, y: int, button: str, count: int, job: Job, check: WindowCheck) -> None:
        from Xlib import X
        from Xlib.ext import xtest

        width, height = self._screen_size()
        if not (0 <= x < width and 0 <= y < height):
            raise DesktopError(
                f"expected a position on the screen of {width} × {height} pixels, got {x}, {y}"
            )
        number = BUTTONS[button]
        with self._server_grabbed():
            job.step()
            check(self._title_of(self._window_at(x, y)))
            xtest.fake_input(self._display, X.MotionNotify, x=x, y=y)
            for _ in range(count):
                for event in (X.ButtonPress, X.ButtonRelease):
                    xtest.fake_input(self._display, event, number)

    @override
    @_connected
    def type_text(self, text: str, job: Job, check: WindowCheck) -> None:
        state = self._root.query_pointer().mask
        if held := [name for mask, name in _HELD_MASKS.items() if state & mask]:
            raise DesktopError(f"the key {held[0]} is held down; release it before typing")
        caps = self._keycode(_CAPS_LOCK) if state & _LOCK_MASK else None
        keys, spare = self._read_keys(state >> 13 & 3)
        try:
            if caps:
                self._press(caps)
            for piece in _split_by_new_characters(text, keys, max(1, len(spare))):
                self._type_piece(piece, keys, spare, job, check)
        finally:
            if caps:
                self._press(caps)
            self._display.sync()

    @override
    @_connected
    def get_clipboard(self, job: Job) -> str | None:
        listed = self._xclip("-out -target TARGETS", job)
        targets = (listed or "").split()
        if not {"UTF8_STRING", "STRING", "TEXT", "text/plain"} & set(targets):
            return None
        target = "UTF8_STRING" if "UTF8_STRING" in targets else "STRING"
        return self._xclip(f"-out -target {target}", job)

    @override
    @_connected
    def set_clipboard(self, text: str, job: Job) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "text"
            file.touch(mode=0o600)
            file.write_bytes(text.encode())
            if self._xclip(f"-in -target UTF8_STRING {shlex.quote(str(file))}", job) is None:
                raise DesktopError("xclip could not set the clipboard; try again")

    # --- the screen and its windows ------------------------------------------------------------

    def _screen_size(self) -> tuple[int, int]:
        shape = self._root.get_geometry()
        return shape.width, shape.height

    @contextmanager
    def _server_grabbed(self) -> Iterator[None]:
        """Keep other programs from changing windows between a check and the action."""
        self._display.grab_server()
        try:
            yield
        finally:
            self._display.ungrab_server()
            self._display.sync()

    def _window_at(self, x: int, y: int) -> Any:
        window = self._root
        while child := window.translate_coords(self._root, x, y).child:
            window = child
        return window

    def _focused_window(self) -> Any:
        from Xlib import X

        focus = self._display.get_input_focus().focus
        if focus == X.PointerRoot:
            pointer = self._root.query_pointer()
            return self._window_at(pointer.root_x, pointer.root_y)
        return None if isinstance(focus, int) else focus

    def _title_of(self, window: Any) -> str | None:
        """Return the title of a window, or of the nearest window that contains it and has one."""
        atom, utf8 = (
            self._display.intern_atom("_NET_WM_NAME"),
            self._display.intern_atom("UTF8_STRING"),
        )
        while window is not None and window != 0 and window != self._root:
            title = window.get_full_property(atom, utf8)
            if title is not None and title.value:
                return bytes(title.value).decode("utf-8", "replace")
            if name := window.get_wm_name():
                return name if isinstance(name, str) else bytes(name).decode("latin-1")
            window = window.query_tree().parent
        return None

    # --- the keyboard --------------------------------------------------------------------------

    def _read_keys(self, group: int) -> tuple[dict[str, tuple[int, bool]], list[int]]:
        """Return the key of each character that the keyboard has, and the keys without a meaning.

        A key is its code and True if Shift is needed. With another group than the first, for instance
        a second layout, no key has a known meaning.
        """
        info = self._display.display.info
        first, last = info.min_keycode, info.max_keycode
        rows = list(self._display.get_keyboard_mapping(first, last - first + 1))
        spare = [first + i for i, row in enumerate(rows) if not any(row)]
        found: dict[str, tuple[int, bool]] = {}
        for code, row in enumerate(rows, first):
            for level, keysym in enumerate(list(row)[:2]):
                character = _character(keysym)
                if character and (group == 0 or character in _KEYSYMS):
                    found.setdefault(character, (code, level == 1))
        return found, spare

    def _type_piece(
        self,
        piece: str,
        keys: dict[str, tuple[int, bool]],
        spare: list[int],
        job: Job,
        check: WindowCheck,
    ) -> None:
        """Type a text that has at most as many characters without a key as there are spare keys."""
        new = [each for each in dict.fromkeys(piece) if each not in keys]
        if new and not spare:
            raise DesktopError(f"the keyboard has no free key to type {new[0]!r}; free a key")
        lent = dict(zip(new, spare, strict=False))
        shift = self._keycode(_SHIFT)
        try:
            for character, code in lent.items():
                keysym = _KEYSYMS.get(character, _keysym(character))
                self._display.change_keyboard_mapping(code, [[keysym, keysym]])
            self._display.sync()
            for character in piece:
                code, shifted = keys.get(character) or (lent[character], False)
                job.step(_KEY_SECONDS)
                with self._server_grabbed():
                    check(self._title_of(self._focused_window()))
                    self._press(code, shift if shifted else None)
        finally:
            if lent:
                self._display.sync()
                with suppress(DesktopError):
                    job.step(_SETTLE_SECONDS)
                for code in lent.values():
                    self._display.change_keyboard_mapping(code, [[0, 0]])
                self._display.sync()

    def _keycode(self, keysym: int) -> int:
        code: int = self._display.keysym_to_keycode(keysym)
        return code

    def _press(self, code: int, shift: int | None = None) -> None:
        from Xlib import X
        from Xlib.ext import xtest

        steps = [(X.KeyPress, code), (X.KeyRelease, code)]
        if shift:
            steps = [(X.KeyPress, shift), *steps, (X.KeyRelease, shift)]
        for event, which in steps:
            xtest.fake_input(self._display, event, which)

    def _xclip(self, arguments: str, job: Job) -> str | None:
        """Run xclip and return what it says; None if it fails."""
        job.step()
        if shutil.which("xclip") is None:
            raise DesktopError("the program xclip is missing; install the package xclip")
        command = f"exec xclip -display {shlex.quote(self.name)} -selection clipboard {arguments}"
        done = self._processes.run(command, timeout=_XCLIP_SECONDS, limit_chars=MAX_CLIPBOARD_CHARS)
        if done.timed_out:
            raise DesktopError("the program that owns the clipboard does not answer; try again")
        return done.output if done.exit_code == 0 else None


def _character(keysym: int) -> str | None:
    """Return the character of a keysym; None if it is not one that can be typed with it alone."""
    for character, known in _KEYSYMS.items():
        if keysym == known:
            return character
    if 0x20 <= keysym <= 0x7E or 0xA0 <= keysym <= 0xFF:
        return chr(keysym)
    if _UNICODE_KEYSYM + 0x100 <= keysym <= _UNICODE_KEYSYM + 0x10FFFF:
        return chr(keysym - _UNICODE_KEYSYM)
    return None


def _keysym(character: str) -> int:
    code = ord(character)
    return code if 0x20 <= code <= 0x7E or 0xA0 <= code <= 0xFF else _UNICODE_KEYSYM + code


def _split_by_new_characters(text: str, known: Iterable[str], room: int) -> Iterator[str]:
    """Divide a text into pieces that each have at most ``room`` different characters without a key.

    >>> list(_split_by_new_characters("aβγβa\u03b4", "a", 2))
    ['aβγβa', 'δ']
    """
    known, new, start = set(known), set[str](), 0
    for place, character in enumerate(text):
        if character in known or character in new:
            continue
        if len(new) == room:
            yield text[start:place]
            new, start = set(), place
        new.add(character)
    if start < len(text):
        yield text[start:]
