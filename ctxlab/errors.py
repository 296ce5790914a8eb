"""Every failure that ctxlab raises on purpose is a ``CtxlabError``, so callers catch one type.

::

    CtxlabError
    ├── ReadError                   a recording cannot be read: file, line and reason
    │   └── UnknownFormat           no reader recognises the file
    ├── SpecError                   a strategy, limit or experiment is written wrongly
    │   └── UnknownName             a name that is in no table; similar names are offered
    ├── EditError                   an edit of a context that makes no sense
    ├── StrategyError               a strategy failed while it was replayed
    ├── ModelError                  a model could not be asked
    │   ├── ModelRequestRejected    the request or the key is not accepted; asking again is no use
    │   └── ModelUnavailable        no answer in spite of retries
    ├── SessionError                a session cannot be opened or written
    │   ├── UnknownSession          no session of that id is stored
    │   ├── UnknownTurn             the session has no turn of that number
    │   ├── SessionActive           another session of the workspace is active
    │   └── SessionConflict         the session has gone on elsewhere
    ├── SaveError                   results cannot be written
    └── DataMissing                 something that ctxlab needs is not on this machine

Each message says what failed, where, and what to do about it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

__all__ = [
    "CtxlabError",
    "DataMissing",
    "EditError",
    "ModelError",
    "ModelRequestRejected",
    "ModelUnavailable",
    "ReadError",
    "SaveError",
    "SessionActive",
    "SessionConflict",
    "SessionError",
    "SpecError",
    "StrategyError",
    "UnknownFormat",
    "UnknownName",
    "UnknownSession",
    "UnknownTurn",
]


class CtxlabError(Exception):
    """Root of the tree: what the command line prints as one sentence."""


class ReadError(CtxlabError):
    """A recording cannot be read.

    ``path`` (a text where it is an address) and ``line`` (1-based; None where the file is one JSON
    value) say where.
    """

    def __init__(self, path: str | Path, line: int | None, reason: str) -> None:
        self.path, self.line, self.reason = path, line, reason
        where = f"{path}:{line}" if line else str(path)
        super().__init__(f"{where}: {reason}")

    def __reduce__(self) -> tuple[type, tuple[str | Path, int | None, str]]:
        return type(self), (self.path, self.line, self.reason)


class UnknownFormat(ReadError):
    """No reader recognises the file by its content."""


class SpecError(CtxlabError):
    """A strategy, limit or experiment is written wrongly."""


class UnknownName(SpecError):
    """A name that is in no table; the closest known names are offered."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name, self.known = kind, name, sorted(known)
        close = difflib.get_close_matches(name, self.known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(self.known)}"
        super().__init__(f"no {kind} is called {name!r}; {hint}")

    def __reduce__(self) -> tuple[type, tuple[str, str, list[str]]]:
        return type(self), (self.kind, self.name, self.known)


class EditError(CtxlabError):
    """An edit of a context that makes no sense, such as a range that is empty or out of reach."""


class StrategyError(CtxlabError):
    """A strategy failed while it was replayed; the message says in which recording and where."""


class ModelError(CtxlabError):
    """A model could not be asked; the message names the model and what to do."""


class ModelRequestRejected(ModelError):
    """The request or the key is not accepted, and would not be if it were sent again."""


class ModelUnavailable(ModelError):
    """A model gave no answer to this request in spite of retries: busy, out of reach, or declining.

    ``attempts``: HTTP requests that were made for it.
    """

    def __init__(self, reason: str, attempts: int = 1) -> None:
        self.attempts = attempts
        super().__init__(reason)

    def __reduce__(self) -> tuple[type, tuple[str, int]]:
        return type(self), (str(self), self.attempts)


class SessionError(CtxlabError):
    """A session cannot be opened or written; the message says why and what to do."""


class UnknownSession(SessionError):
    """No session of that id is stored.

    ``id``: what was asked for.
    """

    def __init__(self, id: str, where: object = "here") -> None:
        self.id, self.where = id, where
        super().__init__(f"no session {id!r} in {where}; ctxlab sessions list shows them")

    def __reduce__(self) -> tuple[type, tuple[str, object]]:
        return type(self), (self.id, self.where)


class UnknownTurn(SessionError):
    """A session has no turn of that number.

    ``id``, ``turn`` and ``turns``: the session, what was asked for, and how many there are.
    """

    def __init__(self, id: str, turn: int, turns: int) -> None:
        self.id, self.turn, self.turns = id, turn, turns
        there = f"they count from 1 to {turns}" if turns else "there are none yet"
        super().__init__(f"session {id!r} has no turn {turn}: {there}")

    def __reduce__(self) -> tuple[type, tuple[str, int, int]]:
        return type(self), (self.id, self.turn, self.turns)


class SessionConflict(SessionError):
    """The stored session has gone on elsewhere, so that what was to follow no longer does.

    ``id``: of the session.
    """

    def __init__(self, id: str) -> None:
        self.id = id
        super().__init__(f"session {id!r} has gone on elsewhere: resume it to go on with it here")

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return type(self), (self.id,)


class SessionActive(SessionError):
    """Another session of the workspace is active, and it was asked not to close it.

    ``id``: the active one.
    """

    def __init__(self, id: str) -> None:
        self.id = id
        super().__init__(f"session {id!r} is active in this workspace: close it first")

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return type(self), (self.id,)


class SaveError(CtxlabError):
    """Results cannot be written; the message names the folder and the reason."""


class DataMissing(CtxlabError):
    """Something that ctxlab needs is not on this machine; the message says how to get it."""
