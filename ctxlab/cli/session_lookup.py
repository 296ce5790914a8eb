"""Open session stores, and find sessions by their ids or by the beginnings of their ids."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from ctxlab.errors import SessionError, SpecError, UnknownSession

if TYPE_CHECKING:
    from ctxlab.sessions.base import Session, SessionLibrary, SessionStore

_MIN_ID_CHARACTERS = 8
_MAX_TITLE_CHARS = 60  # in a list of completions
_UUID_PATTERN = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@contextmanager
def open_session_library(path: str | None) -> Iterator[SessionLibrary]:
    """Open the sessions at a path for reading, and close them after the ``with`` block.

    Parameters
    ----------
    path : str, optional
        Path of a workspace, a folder of session files, or logs of another agent. None opens the
        session store of the current folder.

    Yields
    ------
    SessionLibrary
        Library of the sessions at the path.

    Raises
    ------
    SpecError
        If ``path`` is an empty string.
    SessionError
        If ``path`` is None and the current folder has no session store.
    """
    from ctxlab.sessions.base import SessionStore
    from ctxlab.sessions.open import find_store, open_library

    if path == "":
        raise SpecError("--store: expected a path, got an empty string; use . for this folder")
    library = find_store(".") if path is None else open_library(path)
    if library is None:
        hint = "start a session with ctxlab chat, or set --store to another path"
        raise SessionError(f"no sessions in {Path().absolute()}; {hint}")
    try:
        yield library
    finally:
        if isinstance(library, SessionStore):  # a library of logs keeps no files open
            library.close()


@contextmanager
def open_writable_store(path: str | None) -> Iterator[SessionStore]:
    """Open the session store at a path for changes, and close it after the ``with`` block.

    Parameters
    ----------
    path : str, optional
        Path of a workspace or of a folder of session files. None opens the session store of the
        current folder.

    Yields
    ------
    SessionStore
        Session store at the path.

    Raises
    ------
    SessionError
        If the path contains logs of another agent, which are read-only.
    """
    from ctxlab.sessions.base import SessionStore

    with open_session_library(path) as library:
        if not isinstance(library, SessionStore):
            raise SessionError(f"{path}: expected a session store, got logs, which are read-only")
        yield library


def list_all_sessions(library: SessionLibrary, agent: str | None = None) -> list[Session]:
    """List all sessions of a library, including archived sessions.

    Parameters
    ----------
    library : SessionLibrary
        Library to list.
    agent : str, optional
        List only sessions of this agent. None lists the sessions of all agents.

    Returns
    -------
    list of Session
        Sessions, with the most recently updated one first.
    """
    both = [*library.sessions(agent=agent), *library.sessions(agent=agent, status="archived")]
    return sorted(both, key=lambda session: session.updated, reverse=True)


def find_session(library: SessionLibrary, id_prefix: str) -> Session:
    """Find a session by its id or by the beginning of its id.

    Parameters
    ----------
    library : SessionLibrary
        Library to search.
    id_prefix : str
        Id of the session, or a beginning that no other id has.

    Returns
    -------
    Session
        Session with the id.

    Raises
    ------
    SpecError
        If ``id_prefix`` is empty.
    UnknownSession
        If no session id begins with ``id_prefix``.
    SessionError
        If several session ids begin with ``id_prefix``.
    """
    if not id_prefix.strip():
        raise SpecError("expected a session id, got an empty string; see ctxlab sessions list")
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
            f"{len(ids)} session ids begin with {id_prefix!r} ({', '.join(ids[:3])}{more}); type more "
            "characters of the id"
        )
    return found[0]


def find_sessions(library: SessionLibrary, id_prefixes: Iterable[str]) -> list[Session]:
    """Find sessions by their ids or by the beginnings of their ids.

    Parameters
    ----------
    library : SessionLibrary
        Library to search.
    id_prefixes : iterable of str
        Ids of sessions, or beginnings of ids.

    Returns
    -------
    list of Session
        Sessions in the order of ``id_prefixes``, without duplicates.
    """
    return list({s.id: s for s in (find_session(library, id) for id in id_prefixes)}.values())


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Shorten session ids to their shortest unique beginnings, but not below 8 characters.

    Only ids that are UUIDs are shortened.

    Parameters
    ----------
    ids : iterable of str
        Session ids.

    Returns
    -------
    dict of str to str
        Short id of each session id.

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


def session_titles(workspace: Path) -> dict[str, str]:
    """Return the titles of the sessions of a workspace that can be resumed.

    Parameters
    ----------
    workspace : Path
        Folder of the sessions. Nothing is created if it has none.

    Returns
    -------
    dict of str to str
        Title of each session by its short id, newest first.
    """
    from ctxlab._utils.text import one_line
    from ctxlab.sessions.sqlite.store import DATABASE_FILE, SqliteStore

    if not (workspace / DATABASE_FILE).is_file():
        return {}
    with closing(SqliteStore(workspace)) as store:
        known = [session for session in store.sessions() if not session.system]
    ids = short_ids(session.id for session in known)
    return {
        one_line(ids[each.id]): one_line(each.title)[:_MAX_TITLE_CHARS] or "(untitled)"
        for each in known
    }
