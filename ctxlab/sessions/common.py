"""Helpers of all session stores: check ids and settings, encode JSON, convert file errors."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias, get_args

from ctxlab._utils.jsonio import dump_json
from ctxlab.errors import SessionError, SpecError, StoreNotWritable

Fsync: TypeAlias = Literal["always", "never"]
"""With ``always``, writes survive a power failure. With ``never``, they survive only a process kill."""

LOCKS_FOLDER = ".locks"
"""Name of the folder with the locks of a JSONL store."""

_NOT_WRITABLE = {errno.ENOSPC, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR}
_NOT_WRITABLE |= {getattr(errno, name) for name in ("EDQUOT",) if hasattr(errno, name)}
_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")


def is_session_id(id: object) -> bool:
    """Return True if ``id`` is a valid session id, which can be part of a file name.

    Parameters
    ----------
    id : object
        Value to check.

    Returns
    -------
    bool
        True if ``id`` is a string of 1 to 100 letters, digits, ``-``, ``_`` or ``.`` that does not
        begin with ``.``.
    """
    return isinstance(id, str) and _ID.fullmatch(id) is not None


def check_session_id(id: str) -> str:
    """Check a session id and return it unchanged.

    Parameters
    ----------
    id : str
        Session id to check.

    Returns
    -------
    str
        The session id, unchanged.

    Raises
    ------
    SessionError
        If the id is invalid.

    Examples
    --------
    >>> check_session_id("../etc")
    Traceback (most recent call last):
    ctxlab.errors.SessionError: invalid session id '../etc'; use 1 to 100 letters, digits, \
hyphens, underscores or dots, with no dot at the beginning
    """
    if not is_session_id(id):
        raise SessionError(
            f"invalid session id {id!r:.120}; use 1 to 100 letters, digits, hyphens, underscores or "
            "dots, with no dot at the beginning"
        )
    return id


def check_choice(name: str, value: object, choices: object) -> None:
    """Raise ``SpecError`` if the value of a setting is not allowed.

    Parameters
    ----------
    name : str
        Name of the setting, for the error message.
    value : object
        Value to check.
    choices : Literal type
        Type that lists the allowed values.

    Raises
    ------
    SpecError
        If ``value`` is not one of ``choices``.
    """
    if value not in get_args(choices):
        raise SpecError(f"{name} must be one of {', '.join(get_args(choices))}; got {value!r}")


def check_not_negative(name: str, number: int) -> int:
    """Check that a number is not negative and return it unchanged.

    Parameters
    ----------
    name : str
        Name of the argument, for the error message.
    number : int
        Number to check.

    Returns
    -------
    int
        The number, unchanged.

    Raises
    ------
    SpecError
        If the number is negative.
    """
    if number < 0:
        raise SpecError(f"{name} must be at least 0, got {number}")
    return number


def interaction_id(id: str, turn: int) -> str:
    """Return the id of an interaction, ``SESSION:TURN``.

    An interaction is a user message with everything that answers it.

    Parameters
    ----------
    id : str
        Session id.
    turn : int
        Number of the interaction in the session, from 1.

    Returns
    -------
    str
        Session id and turn number, joined by a colon.

    Examples
    --------
    >>> interaction_id("a", 3)
    'a:3'
    """
    return f"{id}:{turn}"


def encode_json(value: Any, what: str) -> str:
    """Encode a value as JSON on one line.

    Parameters
    ----------
    value : object
        Value to encode.
    what : str
        Description of the value, for the error message.

    Returns
    -------
    str
        JSON text without line breaks.

    Raises
    ------
    SessionError
        If the value contains an object that JSON cannot represent.
    """
    try:
        return dump_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise SessionError(f"{what} cannot be stored as JSON: {error}") from None


@contextmanager
def file_errors(place: object) -> Iterator[None]:
    """Convert every ``OSError`` of a ``with`` block to a ``SessionError`` that names the file.

    Parameters
    ----------
    place : object
        File or folder to name in the message if the ``OSError`` has no file name.

    Yields
    ------
    None
        No value; errors are converted inside the ``with`` block.

    Raises
    ------
    SessionError
        If a file operation in the block fails.
    """
    try:
        yield
    except OSError as error:
        kind = StoreNotWritable if error.errno in _NOT_WRITABLE else SessionError
        raise kind(f"{error.filename or place}: {error.strerror or error}") from None
