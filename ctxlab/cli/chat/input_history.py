"""File with the messages that a user has entered, so that they can be recalled in a later chat."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path

from prompt_toolkit.history import FileHistory, History

from ctxlab._utils.jsonio import repair_surrogates
from ctxlab._utils.private_files import create_file

_MAX_RECALLED = 1_000


class InputHistory(History):
    """Messages that the user has entered. Errors of the file are ignored.

    The file is created with the first message, if its folder exists. Until then, messages are kept in
    memory, because the folder is created when the first session is stored.

    Parameters
    ----------
    path : Path, optional
        File with one entry per message. None stores nothing.
    """

    def __init__(self, path: Path | None) -> None:
        super().__init__()
        self._path = path
        self._file = None if path is None else FileHistory(str(path))
        self._unsaved: deque[str] = deque(maxlen=_MAX_RECALLED)

    def load_history_strings(self) -> Iterable[str]:
        """Yield the newest messages of the file, newest first.

        Returns
        -------
        iterable of str
            Messages.
        """
        if self._file is None:
            return []
        with suppress(OSError):
            return list(islice(self._file.load_history_strings(), _MAX_RECALLED))
        return []

    def store_string(self, string: str) -> None:
        """Append a message to the file, or keep it until ``save`` is called.

        Parameters
        ----------
        string : str
            The message.
        """
        if string.strip():
            self._unsaved.append(repair_surrogates(string))
            self.save()

    def save(self) -> None:
        """Append the messages that are not in the file yet, if its folder exists."""
        if self._path is None or self._file is None or not self._path.parent.is_dir():
            return
        with suppress(OSError):
            create_file(self._path)
            while self._unsaved:
                self._file.store_string(self._unsaved[0])
                self._unsaved.popleft()
