"""Exceptions of ctxlab. Each derives from ``CtxlabError``, so callers can catch one type.

::

    CtxlabError
    ├── ReadError                   a recording cannot be read: file, line and reason
    │   └── UnknownFormat           no reader recognises the file
    ├── SpecError                   an invalid strategy, limit, option or experiment
    │   └── UnknownName             an unknown name; the message suggests valid names
    ├── EditError                   an invalid edit of a context
    ├── StrategyError               a strategy failed during a replay
    ├── ModelError                  a request to a model failed
    │   ├── ModelRequestRejected    the provider rejected the request or the API key
    │   └── ModelUnavailable        the model did not answer after all retries
    ├── SessionError                a session cannot be opened or written
    │   ├── UnknownSession          no session with the requested id is stored
    │   ├── UnknownTurn             the session has no turn or step with the requested label
    │   ├── SessionActive           another session of the workspace is active
    │   ├── SessionConflict         another process added messages to the session
    │   └── StoreNotWritable        the disk is full or the folder cannot be written
    ├── DesktopError                a desktop did not carry out an action
    ├── SaveError                   results cannot be written
    └── DataMissing                 required data is not downloaded or not installed

Each message says what failed, where, and what to do about it. Credentials in URLs are hidden.
"""

from __future__ import annotations

import copyreg
import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_URL = re.compile(r"""([A-Za-z][A-Za-z0-9+.-]*)://((?:\[[0-9A-Fa-f:.]+\]|(?!::)[^\s'"<>`])*)""")
_HIDDEN = "***"


def redact_urls(text: str) -> str:
    """Hide the credentials of URLs in a text: user names, passwords, queries and fragments.

    A query can contain a token or a signature under any name, so the whole query is hidden. The ``?``
    of a glob pattern is kept.

    Parameters
    ----------
    text : str
        A URL, or any text with URLs.

    Returns
    -------
    str
        The text without the credentials.

    Examples
    --------
    >>> redact_urls("cannot open https://me:secret@host/a.jsonl?token=secret, retry")
    'cannot open https://***@host/a.jsonl?***, retry'
    >>> redact_urls("zip://run-?.json::https://host/a.zip?sig=secret")
    'zip://run-?.json::https://host/a.zip?***'
    """
    return _URL.sub(_redact_url, text) if "://" in text else text


def _redact_url(match: re.Match[str]) -> str:
    scheme, rest = match[1], match[2]
    path = re.split("[?#]", rest, maxsplit=1)[0]
    query = rest[len(path) :]
    # A password may contain a slash that is not escaped. Then no port follows the first colon.
    _, colon, port = path.partition("/")[0].rpartition(":")
    odd = bool(colon) and not port.isdigit() and "@" in path
    authority = path if odd else path.partition("/")[0]
    if "@" in authority:
        path = f"{_HIDDEN}@{path[authority.rindex('@') + 1 :]}"
    if query and (scheme.lower() in ("http", "https") or "=" in query):
        end = len(query.rstrip(".,;:!)]}"))
        query = query[0] + _HIDDEN + query[end:] if end > 1 else query
    return f"{scheme}://{path}{query}"


class CtxlabError(Exception):
    """Base class of all errors of ctxlab; the command line prints them without a traceback.

    Examples
    --------
    >>> import ctxlab
    >>> try:
    ...     ctxlab.parse_strategy("no_such_strategy")
    ... except ctxlab.CtxlabError as error:
    ...     print(type(error).__name__)
    UnknownName
    """

    def __str__(self) -> str:
        """Return the message, with the credentials in its URLs hidden."""
        return redact_urls(super().__str__())

    def __repr__(self) -> str:
        """Return the class and the message, with the credentials in its URLs hidden."""
        return redact_urls(super().__repr__())

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the data for pickling: the class, the message and the attributes.

        When the error is unpickled, ``__init__`` is not called, because the constructors of some
        subclasses do not take the message as their argument.
        """
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]


class ReadError(CtxlabError):
    """A recording cannot be read; the message names the file, the line and the reason.

    Parameters
    ----------
    path : str or Path
        Path or URL of the file. Credentials in a URL are hidden, also in the attribute ``path``.
    line : int or None
        Number of the line, counted from 1. None if the error does not belong to one line, for
        example in a file that is one JSON value.
    reason : str
        Description of the error.
    """

    def __init__(self, path: str | Path, line: int | None, reason: str) -> None:
        self.path = redact_urls(path) if isinstance(path, str) else path
        self.line, self.reason = line, redact_urls(reason)
        where = f"{self.path}:{line}" if line else str(self.path)
        super().__init__(f"{where}: {self.reason}")


class UnknownFormat(ReadError):
    """No reader recognises the content of the file.

    Parameters
    ----------
    path : str or Path
        Path or URL of the file.
    line : int or None
        Number of the line, counted from 1. None if the error does not belong to one line.
    reason : str
        Description of the error.
    """


class SpecError(CtxlabError):
    """A strategy, limit, option or experiment is invalid."""


class UnknownName(SpecError):
    """A name is unknown. The message suggests similar names, or lists all names if none is similar.

    Parameters
    ----------
    kind : str
        Kind of object that the name should refer to, such as ``"strategy"``. Shown in the message.
    name : str
        The unknown name.
    known : iterable of str
        The valid names.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name, self.known = kind, name, sorted(known)
        close = difflib.get_close_matches(name, self.known, n=3, cutoff=0.5)
        hint = (
            f"did you mean {' or '.join(close)}?"
            if close
            else f"choose from {', '.join(self.known)}"
        )
        super().__init__(f"unknown {kind} {name!r}; {hint}")


def require_known(kind: str, name: str, known: Iterable[str]) -> str:
    """Return ``name`` unchanged if it is one of the known names.

    Parameters
    ----------
    kind : str
        Kind of object that the name refers to, such as ``"strategy"``. Shown in the error message.
    name : str
        The name to check.
    known : iterable of str
        The valid names.

    Returns
    -------
    str
        ``name``.

    Raises
    ------
    UnknownName
        If the name is not one of the known names.
    """
    if name not in (names := list(known)):
        raise UnknownName(kind, name, names)
    return name


class EditError(CtxlabError):
    """An edit of a context is invalid, for example because its range is empty or out of bounds."""


class StrategyError(CtxlabError):
    """A strategy failed during a replay; the message names the recording and the request."""


class CannotReplay(CtxlabError):
    """A recording or a configuration of a run cannot be replayed again; the message says why."""


class ModelError(CtxlabError):
    """A request to a model failed; the message names the model and a remedy."""


class ModelRequestRejected(ModelError):
    """The provider rejected the request or the API key; a retry would fail too."""


class ModelUnavailable(ModelError):
    """A model did not answer after all retries: it was busy, unreachable or declined to answer.

    Parameters
    ----------
    reason : str
        The error message, with its remedy.
    attempts : int, optional
        Number of HTTP requests that were sent.
    """

    def __init__(self, reason: str, attempts: int = 1) -> None:
        self.attempts = attempts
        super().__init__(reason)


class SessionError(CtxlabError):
    """A session cannot be opened or written. The message names the reason."""


class StoreNotWritable(SessionError):
    """A session cannot be stored, because the disk is full or the folder cannot be written."""


class UnknownSession(SessionError):
    """No session with the requested id is stored.

    Parameters
    ----------
    id : str
        The requested id.
    where : object, optional
        The store that was searched. Shown in the message.
    """

    def __init__(self, id: str, where: object = "this store") -> None:
        self.id, self.where = id, where
        super().__init__(f"no session {id!r} in {where}; run ctxlab sessions list to list the ids")


class UnknownTurn(SessionError):
    """A session has no turn or step with the requested label.

    Parameters
    ----------
    id : str
        Id of the session.
    turn : int
        Number of the requested turn.
    turns : int
        Number of turns that the session has.
    step : int
        Number of the requested step in the turn; 0 if the whole turn was requested.
    steps : int
        Number of steps that the turn has; 0 if the session has no such turn.
    """

    def __init__(self, id: str, turn: int, turns: int, step: int = 0, steps: int = 0) -> None:
        self.id, self.turn, self.turns, self.step, self.steps = id, turn, turns, step, steps
        super().__init__(f"session {id!r} has no {self.wanted}; {self.choices}")

    @property
    def wanted(self) -> str:
        """What was requested, such as ``turn 9`` or ``step 3.9``."""
        return f"step {self.turn}.{self.step}" if self.steps else f"turn {self.turn}"

    @property
    def choices(self) -> str:
        """The turns or steps that can be chosen instead."""
        if self.steps:
            return f"choose a step from {self.turn}.1 to {self.turn}.{self.steps}"
        known = f"choose a turn from 1 to {self.turns:,}"
        return known if self.turns else "the session has no turns yet"


class SessionConflict(SessionError):
    """Another process added messages to the session, so the new turn cannot be stored.

    The new turn would not follow the last stored turn. Resume the session to load the new messages.

    Parameters
    ----------
    id : str
        Id of the session.
    """

    def __init__(self, id: str) -> None:
        self.id = id
        super().__init__(f"session {id!r} has new messages from elsewhere; resume it to load them")


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


class DesktopError(CtxlabError):
    """A desktop did not carry out an action, or the action is not allowed."""


class SaveError(CtxlabError):
    """Results cannot be written; the message names the output folder and the reason."""


class RunIncomplete(CtxlabError):
    """A share of a run is computed, but parts of other shares are missing.

    Parameters
    ----------
    missing : int
        Number of buckets without all of their parts.
    total : int
        Number of buckets of the run.
    """

    def __init__(self, missing: int, total: int) -> None:
        self.missing, self.total = missing, total
        super().__init__(
            f"this share of the run is finished; {missing:,} of {total:,} buckets of recordings wait "
            "for other shares; the last share prints the results"
        )


class DataMissing(CtxlabError):
    """Required data is missing, such as a data set; the message names the command that gets it."""
