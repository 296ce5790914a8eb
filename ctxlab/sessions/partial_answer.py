"""Keep the text of an answer on disk while it streams, so that it survives a kill of the process.

The text is appended to a file beside the store, piece by piece, as it arrives. The file is removed as
soon as the answer is stored. If it is found when the session is resumed, the answer was interrupted.
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from pathlib import Path

from ctxlab._utils.jsonio import dump_json, parse_json
from ctxlab._utils.private_files import make_folder, open_for_writing

if sys.platform != "win32":
    import fcntl

_LOG = logging.getLogger("ctxlab.sessions")


class PartialAnswer:
    """Text of the answer that a session is receiving.

    Writing never raises an error: without the file, only a kill of the process loses the text.

    Parameters
    ----------
    path : Path
        File of the session's unfinished answer.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None
        self._failed = False

    def add(self, text: str, position: int) -> None:
        """Append a piece of text.

        Parameters
        ----------
        text : str
            Text that has arrived.
        position : int
            Position that the answer will have in the session.
        """
        if self._failed:
            return
        try:
            if self._handle is None:
                self._handle = self._open(position)
            os.write(self._handle, f"{dump_json(text)}\n".encode())
        except OSError as error:
            self._failed = True  # until the next answer
            # The store reports a full disk itself, as soon as it stores the answer.
            _LOG.debug("%s: %s; the answer is stored when it is complete", self.path, error)

    def remove(self) -> None:
        """Remove the file, because the answer is stored or was never begun."""
        handle, self._handle, self._failed = self._handle, None, False
        if handle is not None:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)
            os.close(handle)

    def take(self, position: int) -> str:
        """Return the text that a killed process left behind, and remove the file.

        Parameters
        ----------
        position : int
            Number of messages of the session. If the session has grown since, the text is stored.

        Returns
        -------
        str
            Text of the interrupted answer; empty if there is none, or if another process receives it.
        """
        try:
            with self.path.open("rb") as file:
                if not _take_lock(file.fileno()):
                    return ""
                lines = file.read().split(b"\n")[:-1]  # the last one may be unfinished
            values = [parse_json(line) for line in lines]
            stored = values[0]["position"] if values else None
        except FileNotFoundError:
            return ""
        except (OSError, ValueError, TypeError, KeyError):
            _LOG.warning("%s: damaged; an unfinished answer is lost", self.path)
            stored, values = None, []
        with suppress(OSError):
            self.path.unlink()
        return "".join(map(str, values[1:])) if stored == position else ""

    def _open(self, position: int) -> int:
        make_folder(self.path.parent)
        head = {"type": "session-partial", "format": "ctxlab", "version": 2, "position": position}
        with open_for_writing(self.path) as file:
            _take_lock(file.fileno())
            file.write(f"{dump_json(head)}\n".encode())
            file.flush()
            return os.dup(file.fileno())  # the copy keeps the lock


def _take_lock(handle: int) -> bool:
    """Lock an open file. Return False if another process has locked it."""
    if sys.platform != "win32":
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
    return True
