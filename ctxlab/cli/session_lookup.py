"""Sessions are found where they are kept, and one of them by the beginning of its id."""

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

__all__ = [
    "find_session",
    "find_sessions",
    "list_all_sessions",
    "open_session_library",
    "open_writable_store",
    "short_ids",
]

_MIN_ID_CHARACTERS = 8
_UUID_PATTERN = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@contextmanager
def open_session_library(path: str | None) -> Iterator[SessionLibrary]:
    """What is kept at a path: a workspace, a folder of chunks, or logs; None: the store of this folder.

    Raises ``SessionError`` where the current folder is meant and has no sessions.
    """
    from ctxlab.sessions.open import find_store, open_library

    if path == "":
        raise SpecError("--store is empty; the current folder is written as .")
    library = find_store(".") if path is None else open_library(path)
    if library is None:
        raise SessionError(
            f"no sessions in {Path().absolute()}; ctxlab chat begins one, --store names another place"
        )
    try:
        yield library
    finally:
        close = getattr(library, "close", None)  # logs are never held open
        if close is not None:
            close()


@contextmanager
def open_writable_store(path: str | None) -> Iterator[SessionStore]:
    """The same, where it can be written; ``SessionError`` for logs, which are read alone."""
    from ctxlab.sessions.base import SessionStore

    with open_session_library(path) as library:
        if not isinstance(library, SessionStore):
            raise SessionError(f"{path}: these are logs, which are read and never changed")
        yield library


def list_all_sessions(library: SessionLibrary, agent: str | None = None) -> list[Session]:
    """All sessions, the archived ones included, the one that was updated last first."""
    both = [*library.sessions(agent=agent), *library.sessions(agent=agent, status="archived")]
    return sorted(both, key=lambda session: session.updated, reverse=True)


def find_session(library: SessionLibrary, id_prefix: str) -> Session:
    """The session with an id, or the only one whose id begins so.

    Raises ``UnknownSession``, and ``SessionError`` that names them where there are several.
    """
    if not id_prefix.strip():
        raise SpecError("an id is empty; ctxlab sessions list shows them")
    try:
        return library.get(id_prefix)
    except UnknownSession:
        found = [
            session for session in list_all_sessions(library) if session.id.startswith(id_prefix)
        ]
        if not found:
            raise
    if len(found) > 1:
        ids = [session.id for session in found]
        more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
        raise SessionError(
            f"{id_prefix!r} begins {len(ids)} ids ({', '.join(ids[:3])}{more}); say more of it"
        )
    return found[0]


def find_sessions(library: SessionLibrary, id_prefixes: Iterable[str]) -> list[Session]:
    """The sessions that ids or their beginnings name, each once, however often it is named."""
    return list({s.id: s for s in (find_session(library, id) for id in id_prefixes)}.values())


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Each id with so much of it as tells it from the others; what is no UUID stays whole.

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
