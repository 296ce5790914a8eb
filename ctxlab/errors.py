"""Exceptions of ctxlab. Each derives from ``CtxlabError``, so callers can catch one type.

::

    CtxlabError
    ├── ReadError                   a recording cannot be read: file, line and reason
    │   └── UnknownFormat           no reader recognises the file
    ├── SpecError                   an invalid strategy, limit, option or experiment
    │   └── UnknownName             an unknown name; the message suggests similar names
    ├── EditError                   an invalid edit of a context
    ├── StrategyError               a strategy failed during a replay
    ├── ModelError                  a request to a model failed
    │   ├── ModelRequestRejected    the request or the key was rejected; a retry would fail too
    │   └── ModelUnavailable        no answer after all retries
    ├── SessionError                a session cannot be opened or written
    │   ├── UnknownSession          no session with this id is stored
    │   ├── UnknownTurn             the session has no turn with this number
    │   ├── SessionActive           another session of the workspace is active
    │   └── SessionConflict         the session was continued elsewhere
    ├── SaveError                   results cannot be written
    └── DataMissing                 required data is not on this machine

Each message says what failed, where, and what to do about it.
"""

from __future__ import annotations

import copyreg
import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class CtxlabError(Exception):
    """Base class of all errors of ctxlab; the command line prints them without a traceback."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the message and the attributes, because constructors take other arguments."""
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]


class ReadError(CtxlabError):
    """A recording cannot be read.

    Parameters
    ----------
    path : str or Path
        The file, or the address of a remote file.
    line : int or None
        The line, counted from 1. None if the error has no line, as in a file that is one JSON value.
    reason : str
        What is wrong.
    """

    def __init__(self, path: str | Path, line: int | None, reason: str) -> None:
        self.path, self.line, self.reason = path, line, reason
        where = f"{path}:{line}" if line else str(path)
        super().__init__(f"{where}: {reason}")


class UnknownFormat(ReadError):
    """No reader recognises the content of the file.

    Parameters
    ----------
    path : str or Path
        The file, or the address of a remote file.
    line : int or None
        The line, counted from 1, or None.
    reason : str
        What is wrong.
    """


class SpecError(CtxlabError):
    """A strategy, limit, option or experiment is invalid."""


class UnknownName(SpecError):
    """A name is unknown; the message suggests similar names, or else lists the known ones.

    Parameters
    ----------
    kind : str
        Kind of the name, such as ``"strategy"``, for the message.
    name : str
        The unknown name.
    known : iterable of str
        The known names of this kind.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name, self.known = kind, name, sorted(known)
        close = difflib.get_close_matches(name, self.known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(self.known)}"
        super().__init__(f"no {kind} is called {name!r}; {hint}")


def require_known(kind: str, name: str, known: Iterable[str]) -> str:
    """Return a name if it is one of the known ones, else raise ``UnknownName``.

    Parameters
    ----------
    kind : str
        Kind of the name, for the message.
    name : str
        The name.
    known : iterable of str
        The known names of this kind.

    Returns
    -------
    str
        The name.
    """
    if name not in (names := list(known)):
        raise UnknownName(kind, name, names)
    return name


class EditError(CtxlabError):
    """An edit of a context is invalid, such as one of an empty range or of an index out of range."""


class StrategyError(CtxlabError):
    """A strategy failed during a replay; the message names the recording and the position."""


class ModelError(CtxlabError):
    """A request to a model failed; the message names the model and says what to do."""


class ModelRequestRejected(ModelError):
    """The provider rejected the request or the API key; sending it again would fail too."""


class ModelUnavailable(ModelError):
    """A model did not answer a request after all retries: it was busy, unreachable, or it declined.

    Parameters
    ----------
    reason : str
        What happened and what to do.
    attempts : int, optional
        HTTP requests that were made.
    """

    def __init__(self, reason: str, attempts: int = 1) -> None:
        self.attempts = attempts
        super().__init__(reason)


class SessionError(CtxlabError):
    """A session cannot be opened or written; the message says why and what to do."""


class UnknownSession(SessionError):
    """No session with this id is stored.

    Parameters
    ----------
    id : str
        The requested id.
    where : object, optional
        The store that was searched, for the message.
    """

    def __init__(self, id: str, where: object = "here") -> None:
        self.id, self.where = id, where
        super().__init__(f"no session {id!r} in {where}; ctxlab sessions list shows the sessions")


class UnknownTurn(SessionError):
    """A session has no turn with this number.

    Parameters
    ----------
    id : str
        Id of the session.
    turn : int
        The requested turn.
    turns : int
        Number of turns of the session.
    """

    def __init__(self, id: str, turn: int, turns: int) -> None:
        self.id, self.turn, self.turns = id, turn, turns
        there = f"its turns are numbered from 1 to {turns}" if turns else "it has no turns yet"
        super().__init__(f"session {id!r} has no turn {turn}: {there}")


class SessionConflict(SessionError):
    """The stored session was continued elsewhere, so the new turn does not follow the last stored one.

    Parameters
    ----------
    id : str
        Id of the session.
    """

    def __init__(self, id: str) -> None:
        self.id = id
        super().__init__(f"session {id!r} was continued elsewhere; resume it to continue it here")


class SessionActive(SessionError):
    """Another session of the workspace is active, and the caller asked not to close it.

    Parameters
    ----------
    id : str
        Id of the active session.
    """

    def __init__(self, id: str) -> None:
        self.id = id
        super().__init__(f"session {id!r} is active in this workspace; close it first")


class SaveError(CtxlabError):
    """Results cannot be written; the message names the folder and the reason."""


class DataMissing(CtxlabError):
    """Required data is not on this machine; the message says how to get it."""
