"""Virtual desktops for tests: X servers and windows that record what arrives in them."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

needs_x = pytest.mark.skipif(
    any(shutil.which(each) is None for each in ("Xvfb", "xclip", "xmodmap", "xterm")),
    reason="needs Xvfb, xclip, xmodmap (x11-xserver-utils) and xterm",
)


@contextmanager
def x_server(size: str = "1280x800x24") -> Iterator[str]:
    """Run an X server on a free display, and yield its name."""
    read, write = os.pipe()
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(
            [
                "Xvfb",
                "-displayfd",
                str(write),
                "-screen",
                "0",
                size,
                "-nolisten",
                "tcp",
                "-noreset",
            ],
            pass_fds=(write,),
            stderr=log,
        )
    os.close(write)
    try:
        with os.fdopen(read) as said:
            yield f":{said.readline().strip()}"
    finally:
        server.kill()
        server.wait()


def until(done: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Wait until a function returns a true value, and return it."""
    end = time.monotonic() + seconds
    while not (value := done()):
        assert time.monotonic() < end, f"{done} stayed false"
        time.sleep(0.02)
    return value


class Window:
    """A window of one colour that records the events of its mouse and keyboard."""

    def __init__(
        self, display: str, title: str, place: tuple[int, int, int, int], color: int
    ) -> None:
        from Xlib import X
        from Xlib import display as xdisplay

        self._x = xdisplay.Display(display)
        screen = self._x.screen()
        self._window = screen.root.create_window(
            *place, 0, screen.root_depth, X.InputOutput, X.CopyFromParent,
            background_pixel=color, override_redirect=True,
            event_mask=X.ButtonPressMask | X.ButtonReleaseMask | X.PointerMotionMask
            | X.KeyPressMask | X.ExposureMask,
        )  # fmt: skip
        utf8 = self._x.intern_atom("UTF8_STRING")
        self._window.change_property(self._x.intern_atom("_NET_WM_NAME"), utf8, 8, title.encode())
        self._window.map()
        self._x.sync()
        self.events: list[tuple[str, int, int, int, int]] = []
        "name, button or key, position on the screen, and time of each event"
        self._going = True
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        until(lambda: any(name == "Expose" for name, *_ in self.events))

    def focus(self) -> None:
        """Give the window the keyboard."""
        from Xlib import X

        self._window.set_input_focus(X.RevertToNone, X.CurrentTime)
        self._x.sync()

    def clicks(self) -> list[tuple[str, int, int, int]]:
        """Return the presses and releases of buttons, each with its button and position."""
        return [each[:4] for each in self.events if each[0].startswith("Button")]

    def close(self) -> None:
        """Destroy the window."""
        self._going = False
        self._thread.join()
        with suppress(Exception):
            self._x.close()

    def _listen(self) -> None:
        while self._going:
            while self._x.pending_events():
                event = self._x.next_event()
                name = type(event).__name__
                detail = getattr(event, "detail", 0)
                where = getattr(event, "root_x", 0), getattr(event, "root_y", 0)
                self.events.append((name, detail, *where, getattr(event, "time", 0)))
            time.sleep(0.01)


@contextmanager
def window(
    display: str,
    title: str = "Test",
    place: tuple[int, int, int, int] = (200, 100, 300, 200),
    color: int = 0x3366CC,
) -> Iterator[Window]:
    """Show a window of one colour at a position (x, y, width, height) of the screen."""
    made = Window(display, title, place, color)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def terminal(display: str, folder: Path) -> Iterator[Callable[[], str]]:
    """Show a focused terminal; yield a function that returns the text that arrived in it."""
    from Xlib import X
    from Xlib import display as xdisplay

    file = folder / "typed"
    command = f"stty raw -echo; touch ready; cat > {file.name}"
    xterm = subprocess.Popen(
        ["xterm", "-display", display, "-T", "Notes", "-e", "sh", "-c", command],
        cwd=folder,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
        stderr=subprocess.DEVNULL,
    )
    try:
        until(file.exists)
        x = xdisplay.Display(display)
        for each in x.screen().root.query_tree().children:
            if each.get_wm_name() == "Notes":
                each.set_input_focus(X.RevertToNone, X.CurrentTime)
        x.sync()
        x.close()
        yield lambda: file.read_bytes().decode("utf-8", "replace")
    finally:
        xterm.kill()
        xterm.wait()


def key_map(display: str) -> str:
    """Return the map of keys of a display."""
    command = ["xmodmap", "-display", display, "-pke"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


needs_wayland = pytest.mark.skipif(
    any(
        shutil.which(each) is None
        for each in ("sway", "grim", "wtype", "wl-copy", "foot", "setpriv")
    ),
    reason="needs sway, grim, wtype, wl-clipboard and foot",
)


@contextmanager
def wayland() -> Iterator[dict[str, str]]:
    """Run a headless Sway with a screen of 1280 × 800 pixels in one colour; yield its environment."""
    home = Path(tempfile.mkdtemp(prefix="wl"))
    config = home / "config"
    config.write_text(
        "output HEADLESS-1 mode 1280x800\noutput * bg #204060 solid_color\n"
        "default_border none\nxwayland disable\n"
    )
    env = {key: value for key, value in os.environ.items() if key not in ("DISPLAY", "SWAYSOCK")}
    env |= {"XDG_RUNTIME_DIR": str(home), "WLR_BACKENDS": "headless", "WLR_RENDERER": "pixman"}
    env |= {"WLR_LIBINPUT_NO_DEVICES": "1", "HOME": str(home)}
    env.pop("WAYLAND_DISPLAY", None)
    command = ["sway", "-c", str(config)]
    if os.geteuid() == 0:  # Sway refuses to run as root
        shutil.chown(home, "nobody")
        user = ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]
        command = [*user, *command]
    with open(home / "log", "wb") as log:
        server = subprocess.Popen(command, env=env, cwd=home, stdout=log, stderr=log)
    try:
        (socket,) = until(lambda: list(home.glob("sway-ipc.*")))
        (display,) = until(lambda: [each for each in home.glob("wayland-?") if each.is_socket()])
        named = {"XDG_RUNTIME_DIR": str(home), "WAYLAND_DISPLAY": display.name}
        yield named | {"SWAYSOCK": str(socket)}
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def wayland_pointer() -> Iterator[None]:
    """Give the seat of a headless Sway a mouse, through the protocol wlr-virtual-pointer.

    A message of Wayland's wire protocol consists of the id of an object, the number of the request or
    event, the size of the message, and the arguments.
    """
    display, registry, manager, mouse = 1, 2, 3, 4
    interface = b"zwlr_virtual_pointer_manager_v1\0"
    socket_path = Path(os.environ["XDG_RUNTIME_DIR"], os.environ["WAYLAND_DISPLAY"])
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(socket_path))

        def request(target: int, number: int, arguments: bytes) -> None:
            connection.sendall(struct.pack("=IHH", target, number, 8 + len(arguments)) + arguments)

        with connection.makefile("rb") as events:
            request(display, 1, struct.pack("=I", registry))  # get_registry
            announced = b""
            while (
                interface not in announced
            ):  # global: number of the interface, its name, its version
                _, _, size = struct.unpack("=IHH", events.read(8))
                announced = events.read(size - 8)
        bound = announced[:4] + struct.pack("=I", len(interface)) + interface
        request(registry, 0, bound + struct.pack("=II", 1, manager))  # bind version 1
        request(manager, 0, struct.pack("=II", 0, mouse))  # create_virtual_pointer for any seat
        yield
