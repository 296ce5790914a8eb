"""Open session stores, and find a session by its id or the beginning of its id."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from ctxlab.errors import SessionError, SpecError, UnknownSession

if TYPE_CHECKING:
    from ctxlab.sessions.base import Session, SessionLibrary, SessionStore

_MIN_ID_CHARACTERS = 8
_UUID_PATTERN = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@contextmanager
def open_session_library(path: str | None) -> Iterator[SessionLibrary]:
    """Open the sessions at a path and close them after the body.

    Parameters
    ----------
    path : str, optional
        A workspace, a folder of session files, or a product's logs; None opens the store of the
        current folder.

    Yields
    ------
    SessionLibrary
        The sessions.

    Raises
    ------
    SessionError
        If ``path`` is None and the current folder has no sessions.
    """
    from ctxlab.sessions.base import SessionStore
    from ctxlab.sessions.open import find_store, open_library

    if path == "":
        raise SpecError("--store: expected a path, got an empty text; write . for this folder")
    library = find_store(".") if path is None else open_library(path)
    if library is None:
        hint = "start one with ctxlab chat or name another place with --store"
        raise SessionError(f"no sessions in {Path().absolute()}; {hint}")
    try:
        yield library
    finally:
        if isinstance(library, SessionStore):  # libraries of logs keep nothing open
            library.close()


@contextmanager
def open_writable_store(path: str | None) -> Iterator[SessionStore]:
    """Open the sessions at a path for changes and close them after the body.

    Parameters
    ----------
    path : str, optional
        As for ``open_session_library``.

    Yields
    ------
    SessionStore
        The store.

    Raises
    ------
    SessionError
        If the path holds logs of a product, which are read-only.
    """
    from ctxlab.sessions.base import SessionStore

    with open_session_library(path) as library:
        if not isinstance(library, SessionStore):
            raise SessionError(f"{path}: these are logs, which ctxlab reads but never changes")
        yield library


def list_all_sessions(library: SessionLibrary, agent: str | None = None) -> list[Session]:
    """Return all sessions, archived ones included, most recently updated first.

    Parameters
    ----------
    library : SessionLibrary
        The sessions.
    agent : str, optional
        Return only sessions of this agent.

    Returns
    -------
    list of Session
        The sessions.
    """
    both = [*library.sessions(agent=agent), *library.sessions(agent=agent, status="archived")]
    return sorted(both, key=lambda session: session.updated, reverse=True)


def find_session(library: SessionLibrary, id_prefix: str) -> Session:
    """Return the session with an id, or the only one whose id begins with it.

    Parameters
    ----------
    library : SessionLibrary
        The sessions.
    id_prefix : str
        An id or its beginning.

    Returns
    -------
    Session
        The session.

    Raises
    ------
    SpecError
        If the id is empty.
    UnknownSession
        If no id begins with it.
    SessionError
        If several ids begin with it.
    """
    if not id_prefix.strip():
        raise SpecError("expected a session id, got an empty text; ctxlab sessions list shows ids")
    try:
        return library.get(id_prefix)
    except UnknownSession:
        found = [s for s in list_all_sessions(library) if s.id.startswith(id_prefix)]
        if not found:
            raise
    if len(found) > 1:
        ids = [session.id for session in found]
        more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
        raise SessionError(
            f"{len(ids)} session ids begin with {id_prefix!r} ({', '.join(ids[:3])}{more}); write more "
            "characters of it"
        )
    return found[0]


def find_sessions(library: SessionLibrary, id_prefixes: Iterable[str]) -> list[Session]:
    """Return the sessions that ids or their beginnings name, without duplicates.

    Parameters
    ----------
    library : SessionLibrary
        The sessions.
    id_prefixes : iterable of str
        Ids or their beginnings.

    Returns
    -------
    list of Session
        The sessions, in the order in which they are first named.
    """
    return list({s.id: s for s in (find_session(library, id) for id in id_prefixes)}.values())


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Map each id to its shortest unique beginning, of 8 characters or more.

    Ids that are not UUIDs are not shortened.

    Parameters
    ----------
    ids : iterable of str
        The ids.

    Returns
    -------
    dict of str to str
        The short form of each id.

    Examples
    --------
    >>> id_prefixes = ["0f8fad5b-d9cb-469f-a165-70867728950e", "chat"]
    >>> short_ids(id_prefixes)
    {'0f8fad5b-d9cb-469f-a165-70867728950e': '0f8fad5b', 'chat': 'chat'}
    """
    listed = sorted(set(ids))
    lengths = dict.fromkeys(listed, _MIN_ID_CHARACTERS)
    for one, other in pairwise(listed):
        same = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 36)
        lengths[one] = max(lengths[one], same + 1)
        lengths[other] = max(lengths[other], same + 1)
    return {id: id[: lengths[id]] if _UUID_PATTERN.fullmatch(id) else id for id in listed}
