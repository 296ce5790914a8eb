"""The file that a user has open decides which session a message belongs to.

Source: seed design "Hybrid Session Management": sessions are keyed by file, and by None where no file
is open; going back to a file goes on with its session.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from ctxlab.errors import UnknownSession
from ctxlab.sessions.base import Session, SessionStore

__all__ = ["FileRouter"]

_ROUTED_KEY = "routed"
"what stands in the meta of a session that was made here"
_MAX_CACHED_FILES = 256
"files whose session is known without a look through the store"


class FileRouter:
    """Finds the session of a file in a store, or makes one; safe to be used by several threads.

    Nothing is kept here that the store does not have, so another process, or the same one after a
    restart, finds the same sessions. Of several sessions of a file the one that was updated last is
    taken. Closed ones are resumed; archived ones are left alone, and so are those of a system. Where
    no file is open only sessions that a router made are taken: any other has no file either.

    In a store with one active session a workspace, going to another file closes the session before.
    """

    def __init__(self, store: SessionStore) -> None:
        self.store = store
        self._lock = threading.Lock()
        self._session_ids: dict[str | None, str] = {}

    def route(self, file: str | None, create: Callable[..., Session] | None = None) -> Session:
        """The session of a file, active.

        ``create`` makes a new one, as ``SessionStore.create`` does where it is None; it is told ``file``
        and ``meta``, and not called where there is one.
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
        """The session of a file as it is; None where there is none yet."""
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
