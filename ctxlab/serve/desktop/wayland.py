"""The desktop of a Wayland compositor: grim, wtype, ydotool and wl-clipboard.

Wayland gives programs no access to other programs. What is possible depends on the compositor: grim
and wtype need the protocols of wlroots, as in Sway, and ydotool needs access to ``/dev/uinput``. Only
Sway tells which window has the focus or is at a position.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from ctxlab.errors import DesktopError
from ctxlab.serve.desktop.backend import MAX_CLIPBOARD_CHARS, DesktopBackend, Job, WindowCheck

if TYPE_CHECKING:
    from PIL.Image import Image

    from ctxlab.agent.tools.processes import CommandResult, ProcessManager

_PACKAGES = {"wl-copy": "wl-clipboard", "wl-paste": "wl-clipboard"}
_SECONDS = 4.0
_PIECE_CHARS = 50
"number of characters that are typed between two checks of the focused window"
_YDOTOOL_BUTTONS = {"left": "0xC0", "right": "0xC1", "middle": "0xC2"}
_SWAY_BUTTONS = {"left": "button1", "middle": "button2", "right": "button3"}


class WaylandBackend(DesktopBackend):
    """Backend for a Wayland display.

    Parameters
    ----------
    name : str
        Name of the display, such as ``wayland-1``, or the path of its socket.
    processes : ProcessManager
        Manager that runs the programs.

    Raises
    ------
    DesktopError
        If there is no such display.
    """

    def __init__(self, name: str, processes: ProcessManager) -> None:
        self.name = name
        self._processes = processes
        socket = Path(os.environ.get("XDG_RUNTIME_DIR") or "/nonexistent", name)
        if not socket.exists():
            raise DesktopError(
                f"there is no Wayland display {name} in XDG_RUNTIME_DIR; start the compositor, or pass "
                "another --display"
            )

    @override
    def close(self) -> None:
        pass  # each action connects to the display itself

    @override
    def screenshot(self, job: Job) -> Image:
        from PIL import Image

        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "screen.ppm")
            self._run(f"grim -t ppm {shlex.quote(str(file))}", job)
            with Image.open(file) as image:
                return image.convert("RGB")

    @override
    def type_text(self, text: str, job: Job, check: WindowCheck) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "text")
            file.touch(mode=0o600)
            for start in range(0, len(text), _PIECE_CHARS):
                file.write_bytes(text[start : start + _PIECE_CHARS].encode())
                check(self._title(job))
                self._run(f"wtype - < {shlex.quote(str(file))}", job)

    @override
    def click(self, x: int, y: int, button: str, count: int, job: Job, check: WindowCheck) -> None:
        width, height = self.screenshot(job).size
        if not (0 <= x < width and 0 <= y < height):
            raise DesktopError(
                f"expected a position on the screen of {width} × {height} pixels, got {x}, {y}"
            )
        check(self._title(job, (x, y)))
        if self._has_sway_pointer(job):
            which = _SWAY_BUTTONS[button]
            steps = [f"cursor {act} {which}" for _ in range(count) for act in ("press", "release")]
            for step in (f"cursor set {x} {y}", *steps):
                self._run(f"swaymsg -q seat - {step}", job)
            return
        self._run(f"ydotool mousemove --absolute -x {x} -y {y}", job)
        self._run(f"ydotool click --repeat {count} {_YDOTOOL_BUTTONS[button]}", job)

    @override
    def get_clipboard(self, job: Job) -> str | None:
        listed = self._run("wl-paste --list-types", job, may_fail=True)
        if not any(each.startswith("text/plain") for each in listed.output.split()):
            return None
        done = self._run("wl-paste --no-newline --type text/plain", job, may_fail=True)
        return done.output if done.exit_code == 0 else None

    @override
    def set_clipboard(self, text: str, job: Job) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "text")
            file.touch(mode=0o600)
            file.write_bytes(text.encode())
            self._run(f"wl-copy --type text/plain < {shlex.quote(str(file))}", job)

    def _has_sway_pointer(self, job: Job) -> bool:
        """Return True if Sway moves the pointer; it does so only for a seat with a mouse."""
        seats = self._ask_sway("get_seats", job) or []
        return any(device.get("type") == "pointer" for seat in seats for device in seat["devices"])

    def _title(self, job: Job, position: tuple[int, int] | None = None) -> str | None:
        """Return the title of the window at a position, or of the focused one; None if it is unknown."""
        found = None
        for window in _windows(self._ask_sway("get_tree", job) or {}):
            shape = window["rect"]
            if position is None:
                inside = window["focused"]
            else:
                x, y = position[0] - shape["x"], position[1] - shape["y"]
                inside = (
                    window.get("visible") and 0 <= x < shape["width"] and 0 <= y < shape["height"]
                )
            found = window["name"] if inside else found  # floating windows come last
        return found

    def _ask_sway(self, what: str, job: Job) -> Any:
        if not os.environ.get("SWAYSOCK") or shutil.which("swaymsg") is None:
            return None
        done = self._run(f"swaymsg --raw --type {what}", job, may_fail=True)
        try:
            return json.loads(done.output)
        except ValueError:
            return None

    def _run(self, command: str, job: Job, *, may_fail: bool = False) -> CommandResult:
        """Run a program for the display."""
        job.step()
        program = command.partition(" ")[0]
        if shutil.which(program) is None:
            package = _PACKAGES.get(program, program)
            raise DesktopError(f"the program {program} is missing; install the package {package}")
        named = f"WAYLAND_DISPLAY={shlex.quote(self.name)} {command}"
        done = self._processes.run(named, timeout=_SECONDS, limit_chars=MAX_CLIPBOARD_CHARS)
        if done.timed_out:
            raise DesktopError(f"the display {self.name} does not answer; check that it is running")
        if done.exit_code != 0 and not may_fail:
            why = " ".join(done.output.split())[:200] or f"exit code {done.exit_code}"
            raise DesktopError(f"{program} failed on the display {self.name}: {why}")
        return done


def _windows(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the windows of a tree of Sway, floating ones last."""
    if node.get("pid"):
        yield node
    for child in (*node.get("nodes", ()), *node.get("floating_nodes", ())):
        yield from _windows(child)
