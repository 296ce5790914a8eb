"""Choose the session of a message by the file that the user has open.

Sessions are keyed by file, and by None if no file is open. Returning to a file continues its
session.

References
----------
Seed design "Hybrid Session Management".
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from ctxlab.errors import UnknownSession
from ctxlab.sessions.base import Session, SessionStore

_ROUTED_KEY = "routed"
"key in the ``meta`` of sessions that a router created"
_MAX_CACHED_FILES = 256
"maximum number of files whose session id is cached"


class FileRouter:
    """Find the session of a file in a store, or create one. Safe for use by several threads.

    All state is in the store, so another process, or the same one after a restart, finds the same
    sessions. If a file has several sessions, the most recently updated one is chosen. Closed
    sessions are resumed. Archived sessions and system sessions are ignored. If no file is open,
    only sessions that a router created are chosen, since other sessions have no file either.

    In a store that allows one active session, switching to another file closes the previous
    session.

    Parameters
    ----------
    store : SessionStore
        Store of the sessions.
    """

    def __init__(self, store: SessionStore) -> None:
        self.store = store
        self._lock = threading.Lock()
        self._session_ids: dict[str | None, str] = {}

    def route(self, file: str | None, create: Callable[..., Session] | None = None) -> Session:
        """Return the session of a file and make it active; create it if there is none.

        Parameters
        ----------
        file : str or None
            The open file; None or empty if no file is open.
        create : callable, optional
            Function that creates a session from the keywords ``file`` and ``meta``. It is called
            only if there is no session yet. By default, ``SessionStore.create``.

        Returns
        -------
        Session
            The active session of the file.
        """
        file = file or None
        with self._lock:
            session = self.find(file)
            if session is None:
                session = (create or self.store.create)(file=file, meta={_ROUTED_KEY: True})
            elif session.status != "active":
                self.store.open(session.id)
                session = self.store.get(session.id)
            self._session_ids.pop(file, None)
            self._session_ids[file] = session.id
            if len(self._session_ids) > _MAX_CACHED_FILES:
                del self._session_ids[next(iter(self._session_ids))]
        return session

    def find(self, file: str | None) -> Session | None:
        """Return the session of a file without changing it.

        Parameters
        ----------
        file : str or None
            The open file; None or empty if no file is open.

        Returns
        -------
        Session or None
            The session; None if there is none yet.
        """
        file = file or None
        try:
            known = self.store.get(self._session_ids[file])
        except (KeyError, UnknownSession):
            known = None
        if known is not None and _is_session_of(known, file):
            return known
        return next((each for each in self.store.sessions() if _is_session_of(each, file)), None)


def _is_session_of(session: Session, file: str | None) -> bool:
    if session.system or session.status == "archived" or session.file != file:
        return False
    return file is not None or bool(session.meta.get(_ROUTED_KEY))
