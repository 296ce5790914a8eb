"""What a desktop can do for the tools, and the choice of the program or library that does it."""

from __future__ import annotations

import os
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from ctxlab.errors import DesktopError

if TYPE_CHECKING:
    from PIL.Image import Image

    from ctxlab.agent.tools.processes import ProcessManager

WindowCheck = Callable[[str | None], None]
"""Function that gets the title of the window that an action would reach; None if there is none.

It raises ``DesktopError`` if actions on the window are not allowed. It is called at the moment of
acting. Where the system allows it, no other window can take the place of the checked one meanwhile."""

MAX_CLIPBOARD_CHARS = 4_000_000
"""Maximum number of characters that are read from the clipboard."""


class Job:
    """An action that is being carried out: it can be stopped, and it shows that it makes progress."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self.last_progress = time.monotonic()
        "time of the last sign of progress, as a value of ``time.monotonic``"

    def stop(self) -> None:
        """Ask the action to stop."""
        self._stopped.set()

    def step(self, seconds: float = 0.0) -> None:
        """Report progress, and wait.

        Parameters
        ----------
        seconds : float, default 0.0
            Seconds to wait. The wait ends early if the action is stopped.

        Raises
        ------
        DesktopError
            If the action was stopped.
        """
        self.last_progress = time.monotonic()
        if self._stopped.wait(seconds):
            raise DesktopError("the action was cancelled")


class DesktopBackend(ABC):
    """Access to a desktop. All methods are called from one thread, one after the other.

    Methods raise ``DesktopError`` if the desktop cannot do something, and if it has gone.
    """

    @abstractmethod
    def screenshot(self, job: Job) -> Image:
        """Take a screenshot.

        Parameters
        ----------
        job : Job
            The action.

        Returns
        -------
        Image
            Image of the whole screen in RGB.
        """

    @abstractmethod
    def type_text(self, text: str, job: Job, check: WindowCheck) -> None:
        """Type a text into the focused window, and leave the keyboard as it was.

        Parameters
        ----------
        text : str
            Text to type, with line breaks and tabs.
        job : Job
            The action; it can be stopped in the middle of the text.
        check : callable
            Function that gets the title of the focused window.
        """

    @abstractmethod
    def click(self, x: int, y: int, button: str, count: int, job: Job, check: WindowCheck) -> None:
        """Press and release a button of the mouse.

        Parameters
        ----------
        x, y : int
            Position in pixels of the screen.
        button : {"left", "middle", "right"}
            Button of the mouse.
        count : int
            Number of clicks.
        job : Job
            The action.
        check : callable
            Function that gets the title of the window at the position.
        """

    @abstractmethod
    def get_clipboard(self, job: Job) -> str | None:
        """Return the text of the clipboard.

        Parameters
        ----------
        job : Job
            The action.

        Returns
        -------
        str or None
            The text; None if the clipboard is empty or has no text.
        """

    @abstractmethod
    def set_clipboard(self, text: str, job: Job) -> None:
        """Replace the contents of the clipboard.

        Parameters
        ----------
        text : str
            Text; it stays until the server ends or another program replaces it.
        job : Job
            The action.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the connection to the desktop."""


def open_backend(display: str | None, processes: ProcessManager) -> DesktopBackend:
    """Connect to the desktop of this computer.

    Parameters
    ----------
    display : str, optional
        Name of an X display such as ``:0``, or of a Wayland display such as ``wayland-1``. By default,
        ``$WAYLAND_DISPLAY``, then ``$DISPLAY``. Other systems than Linux have only one desktop.
    processes : ProcessManager
        Manager that runs helper programs and ends them.

    Returns
    -------
    DesktopBackend
        Backend of the desktop.

    Raises
    ------
    DesktopError
        If there is no display, or if a program or package is missing.
    """
    if sys.platform in ("darwin", "win32"):
        from ctxlab.serve.desktop.native import NativeBackend

        return NativeBackend()
    named = display or os.environ.get("WAYLAND_DISPLAY") or os.environ.get("DISPLAY")
    if not named:
        raise DesktopError(
            "expected a display, but neither WAYLAND_DISPLAY nor DISPLAY is set; "
            "start the server in a desktop session, or pass --display"
        )
    if named.startswith("wayland-") or "/" in named:
        from ctxlab.serve.desktop.wayland import WaylandBackend

        return WaylandBackend(named, processes)
    from ctxlab.serve.desktop.x11 import X11Backend

    return X11Backend(named, processes)
