"""Readers of optional and required JSON fields.

Functions for optional fields return None or an empty value if the type is wrong. The ``require_*``
functions raise ``ValueError``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from ctxlab._utils.jsonio import parse_json

_MAX_SHORT_TEXT = 200


def get_nested(value: Any, *keys: str) -> Any:
    """Return the value under a path of keys in nested objects.

    Parameters
    ----------
    value : Any
        A JSON value.
    *keys : str
        The keys to follow, outermost first.

    Returns
    -------
    Any
        The value, or None if a key is missing or a value on the way is not an object.

    Examples
    --------
    >>> get_nested({"a": {"b": 1}}, "a", "b"), get_nested([], "a")
    (1, None)
    """
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def text_or_none(value: Any) -> str | None:
    """Return a text if it is not empty.

    Parameters
    ----------
    value : Any
        A JSON value.

    Returns
    -------
    str or None
        The text, or None if the value is empty or not a text.
    """
    return value if isinstance(value, str) and value else None


def first_text(values: Iterable[Any]) -> str | None:
    """Return the first text that is not empty.

    Parameters
    ----------
    values : iterable of Any
        JSON values.

    Returns
    -------
    str or None
        The first text, or None if there is none.

    Examples
    --------
    >>> first_text([None, "", "a", "b"])
    'a'
    """
    return next(filter(text_or_none, values), None)


def list_or_empty(value: Any) -> list[Any]:
    """Return a list unchanged, and an empty list for any other value.

    Parameters
    ----------
    value : Any
        A JSON value.

    Returns
    -------
    list
        The list, or an empty one.
    """
    return value if isinstance(value, list) else []


def first_or_none(value: Any) -> Any:
    """Return the first element of a list.

    Parameters
    ----------
    value : Any
        A JSON value.

    Returns
    -------
    Any
        The first element, or None if the value is not a list or is empty.
    """
    return value[0] if isinstance(value, list) and value else None


def is_short_value(value: Any) -> bool:
    """Check whether a value may be stored in ``Recording.meta``.

    Parameters
    ----------
    value : Any
        A JSON value.

    Returns
    -------
    bool
        True for a bool, a finite number, and a text of at most 200 characters.

    Examples
    --------
    >>> is_short_value("solved"), is_short_value(float("inf")), is_short_value({"a": 1})
    (True, False, False)
    """
    if isinstance(value, str):
        return len(value) <= _MAX_SHORT_TEXT
    return isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value))


def objects_in(value: Any) -> tuple[dict[str, Any], ...]:
    """Return the JSON objects of a list.

    Parameters
    ----------
    value : Any
        A JSON value.

    Returns
    -------
    tuple of dict
        The elements that are objects. Empty if the value is not a list.

    Examples
    --------
    >>> objects_in([{"a": 1}, None]), objects_in({"a": 1})
    (({'a': 1},), ())
    """
    return tuple(each for each in list_or_empty(value) if isinstance(each, dict))


def parse_json_or_none(content: str | bytes) -> Any:
    """Parse a JSON text.

    Parameters
    ----------
    content : str or bytes
        The text.

    Returns
    -------
    Any
        The parsed value, or None if the text is not JSON.
    """
    try:
        return parse_json(content)
    except ValueError:
        return None


_MAX_COUNT = 1 << 60


def count_or_zero(value: Any) -> int:
    """Return a count, or 0 if the value is not a positive integer.

    Parameters
    ----------
    value : Any
        A JSON value.

    Returns
    -------
    int
        The count.

    Examples
    --------
    >>> count_or_zero(3), count_or_zero(None), count_or_zero(True), count_or_zero(-1)
    (3, 0, 0, 0)
    """
    counts = isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MAX_COUNT
    return value if counts else 0


def number_or_none(value: Any) -> float | None:
    """Return a finite number.

    Parameters
    ----------
    value : Any
        A JSON value.

    Returns
    -------
    float or None
        The number, or None if the value is not a finite number.

    Examples
    --------
    >>> number_or_none(1), number_or_none(float("nan")), number_or_none("1")
    (1.0, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def parse_iso_time(value: Any) -> float | None:
    """Parse an ISO 8601 time; a time without a zone is taken as UTC.

    Parameters
    ----------
    value : Any
        A JSON value.

    Returns
    -------
    float or None
        Seconds since 1970, or None if the value is not such a text.

    Examples
    --------
    >>> parse_iso_time("1970-01-01T00:01:00.500Z"), parse_iso_time("yesterday")
    (60.5, None)
    """
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def parse_clock_time(value: Any, pattern: str) -> float | None:
    """Parse a time in a ``strptime`` pattern, taken as UTC.

    Parameters
    ----------
    value : Any
        A JSON value.
    pattern : str
        The pattern, as ``datetime.strptime`` takes it.

    Returns
    -------
    float or None
        Seconds since 1970, or None if the value does not match the pattern.

    Examples
    --------
    >>> parse_clock_time("1970/01/01 00:01", "%Y/%m/%d %H:%M"), parse_clock_time(None, "%Y")
    (60.0, None)
    """
    try:
        return datetime.strptime(value, pattern).replace(tzinfo=UTC).timestamp()
    except (TypeError, ValueError):
        return None


def texts_in(value: Any) -> tuple[str, ...]:
    """Return a text or number, or each one in a list, as texts.

    Parameters
    ----------
    value : Any
        A JSON value.

    Returns
    -------
    tuple of str
        The texts. Values of other types are left out.

    Examples
    --------
    >>> texts_in(2022), texts_in(["a", 1.5, None]), texts_in(None)
    (('2022',), ('a', '1.5'), ())
    """
    items = value if isinstance(value, list) else [value]
    return tuple(
        str(each)
        for each in items
        if isinstance(each, (str, int, float)) and not isinstance(each, bool)
    )


def prepend_date(content: str, date: str | None) -> str:
    r"""Put the date of a session above a text, so that a model can read it.

    Parameters
    ----------
    content : str
        The text.
    date : str or None
        The date as the file writes it.

    Returns
    -------
    str
        The text below the date in brackets, or the text alone without a date.

    Examples
    --------
    >>> prepend_date("Hi!", "8 May, 2023")
    '[8 May, 2023]\nHi!'
    """
    return f"[{date}]\n{content}" if date else content


def require_object(value: Any, name: str) -> dict[str, Any]:
    """Return a value that must be a JSON object.

    Parameters
    ----------
    value : Any
        A JSON value.
    name : str
        What the value is, for the error message.

    Returns
    -------
    dict
        The value.

    Raises
    ------
    ValueError
        If the value is not an object.

    Examples
    --------
    >>> require_object(["hi"], "a message")
    Traceback (most recent call last):
    ValueError: a message must be an object, got list
    """
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be an object, got {type(value).__name__}")
    return value


def require_text(value: Any, name: str) -> str:
    """Return a value that must be a text; an empty text is allowed.

    Parameters
    ----------
    value : Any
        A JSON value.
    name : str
        What the value is, for the error message.

    Returns
    -------
    str
        The value.

    Raises
    ------
    ValueError
        If the value is not a text.
    """
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text, got {type(value).__name__}")
    return value


def require_list(value: Any, name: str) -> list[Any]:
    """Return a value that must be a list.

    Parameters
    ----------
    value : Any
        A JSON value.
    name : str
        What the value is, for the error message.

    Returns
    -------
    list
        The value.

    Raises
    ------
    ValueError
        If the value is not a list.
    """
    if not isinstance(value, list):
        raise ValueError(f"{name} must be a list, got {type(value).__name__}")
    return value


def require_objects(value: Any, name: str) -> list[dict[str, Any]]:
    """Return a value that must be a list of JSON objects.

    Parameters
    ----------
    value : Any
        A JSON value.
    name : str
        What the value is, for the error message.

    Returns
    -------
    list of dict
        The value.

    Raises
    ------
    ValueError
        If the value is not a list, or an element is not an object.
    """
    if isinstance(value, list) and all(isinstance(each, dict) for each in value):
        return value
    raise ValueError(f"{name} must be a list of objects")
