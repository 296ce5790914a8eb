"""Choose the session for a message by the file that the user has open.

Each file has its own session. There is one more session for messages that the user sends while no
file is open. When the user opens a file again, its session is continued.

References
----------
Design document "Hybrid Session Management" (see ``tests/SEEDS.md``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from ctxlab.messages.file_access import normalize_path
from ctxlab.sessions.base import Session, SessionStore

_ROUTED_KEY = "routed"
"key in the ``meta`` of sessions that were created by a router"


class FileRouter:
    """Router that finds the session of an open file, or creates a session for it.

    Several threads may use a router at once. The router searches the store for sessions, so routers
    in other processes and after a restart find the same sessions. If a file has several sessions,
    the router chooses the most recently updated one. Closed sessions are resumed. Archived sessions
    and sessions that programs use internally (``Session.system``) are ignored. If no file is open,
    the router chooses only among sessions that a router created, because sessions created in other
    ways may have no file either.

    If the store allows only one active session, switching to another file closes the previous
    session.

    Parameters
    ----------
    store : SessionStore
        Store in which sessions are found and created.
    folder : str or Path, optional
        Folder of the workspace. Absolute and relative paths of the same file in it have one session.
    """

    def __init__(self, store: SessionStore, folder: str | Path | None = None) -> None:
        self.store = store
        self._folder = None if folder is None else str(folder)
        self._lock = threading.Lock()

    def route(self, file: str | None, create: Callable[..., Session] | None = None) -> Session:
        """Return the session of a file and make it active. If there is none, create a session.

        Parameters
        ----------
        file : str or None
            Name of the open file; None or an empty string if no file is open.
        create : callable, optional
            Function that creates a session and is called with the keyword arguments ``file`` and
            ``meta``. It is called only if the file has no session yet. By default, the store's
            method ``create``.

        Returns
        -------
        Session
            Session of the file, with status ``active``.
        """
        file = self.normalize(file)
        with self._lock:
            session = self.find(file)
            if session is None:
                session = (create or self.store.create)(file=file, meta={_ROUTED_KEY: True})
            elif session.status != "active":
                self.store.open(session.id)
                session = self.store.get(session.id)
        return session

    def find(self, file: str | None) -> Session | None:
        """Find the session of a file. Its status is not changed, and no session is created.

        Parameters
        ----------
        file : str or None
            Name of the open file; None or an empty string if no file is open.

        Returns
        -------
        Session or None
            Session of the file; None if the file has no session yet.
        """
        file = self.normalize(file)
        known = (
            self.store.sessions()
        )  # another process may have continued another session of the file
        return next((each for each in known if self._is_session_of(each, file)), None)

    def normalize(self, file: str | None) -> str | None:
        """Return the form of a file's name in which its session is stored.

        Parameters
        ----------
        file : str or None
            Name of the open file; None or an empty string if no file is open.

        Returns
        -------
        str or None
            Path relative to the workspace if the file is in it; None if no file is open.
        """
        return normalize_path(file, self._folder) if file else None

    def _is_session_of(self, session: Session, file: str | None) -> bool:
        if session.system or session.status == "archived" or self.normalize(session.file) != file:
            return False
        return file is not None or bool(session.meta.get(_ROUTED_KEY))
