"""Functions that read optional and required fields of parsed JSON.

The ``get_*`` functions follow a path of keys in nested objects: ``get_text(row, "message", "id")``
returns ``row["message"]["id"]``. They return None or an empty value if a key is missing or if a
value has the wrong type. The ``require_*`` functions raise ``ValueError`` if a value has the wrong
type.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, TypeVar

from ctxlab._utils.jsonio import parse_json

_T = TypeVar("_T")

_MAX_SHORT_TEXT = 200
_MAX_COUNT = 1 << 60


def get_in(value: Any, *keys: str) -> Any:
    """Return the value at a path of keys in nested objects.

    Parameters
    ----------
    value : Any
        A JSON value.
    *keys : str
        The keys to follow, outermost first.

    Returns
    -------
    Any
        The value, or None if a key is missing or the value that contains it is not an object.

    Examples
    --------
    >>> get_in({"a": {"b": 1}}, "a", "b"), get_in([], "a")
    (1, None)
    """
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def get_text(value: Any, *keys: str) -> str | None:
    """Return the string at a path of keys, or None if it is empty or not a string.

    Parameters
    ----------
    value : Any
        A JSON value.
    *keys : str
        The keys to follow, outermost first.

    Returns
    -------
    str or None
        The string, or None if the value is missing, empty or not a string.

    Examples
    --------
    >>> get_text("a"), get_text({"id": "b"}, "id"), get_text({"id": 1}, "id")
    ('a', 'b', None)
    """
    for key in keys:  # same loop as in get_in, repeated because this function is called very often
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) and value else None


def first_text(values: Iterable[Any]) -> str | None:
    """Return the first value that is a non-empty string.

    Parameters
    ----------
    values : iterable of Any
        JSON values.

    Returns
    -------
    str or None
        The first non-empty string, or None if there is none.

    Examples
    --------
    >>> first_text([None, "", "a", "b"])
    'a'
    """
    return next(filter(get_text, values), None)


def get_list(value: Any, *keys: str) -> list[Any]:
    """Return the list at a path of keys, or an empty list.

    Parameters
    ----------
    value : Any
        A JSON value.
    *keys : str
        The keys to follow, outermost first.

    Returns
    -------
    list
        The list. Empty if the value is missing or not a list.
    """
    value = get_in(value, *keys)
    return value if isinstance(value, list) else []


def get_object(value: Any, *keys: str) -> dict[str, Any]:
    """Return the JSON object at a path of keys, or an empty dict.

    Parameters
    ----------
    value : Any
        A JSON value.
    *keys : str
        The keys to follow, outermost first.

    Returns
    -------
    dict
        The object. Empty if the value is missing or not an object.
    """
    value = get_in(value, *keys)
    return value if isinstance(value, dict) else {}


def first_or_none(value: Any) -> Any:
    """Return the first element of a list, or None if there is none.

    Parameters
    ----------
    value : Any
        A JSON value.

    Returns
    -------
    Any
        The first element. None if the value is not a list or if the list is empty.
    """
    return value[0] if isinstance(value, list) and value else None


def is_short_value(value: Any) -> bool:
    """Check whether a value is short enough to be copied to ``Recording.meta``.

    Parameters
    ----------
    value : Any
        A JSON value.

    Returns
    -------
    bool
        True if the value is a bool, a finite number, or a string of at most 200 characters.

    Examples
    --------
    >>> is_short_value("solved"), is_short_value(float("inf")), is_short_value({"a": 1})
    (True, False, False)
    """
    if isinstance(value, str):
        return len(value) <= _MAX_SHORT_TEXT
    return isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value))


def get_objects(value: Any, *keys: str) -> tuple[dict[str, Any], ...]:
    """Return the JSON objects in the list at a path of keys.

    Parameters
    ----------
    value : Any
        A JSON value.
    *keys : str
        The keys to follow, outermost first.

    Returns
    -------
    tuple of dict
        The objects, in the order of the list. Empty if the value is missing or not a list.

    Examples
    --------
    >>> get_objects([{"a": 1}, None]), get_objects({"a": 1})
    (({'a': 1},), ())
    """
    return tuple(each for each in get_list(value, *keys) if isinstance(each, dict))


def parse_json_or_none(content: str | bytes) -> Any:
    """Parse JSON, and return None if it is invalid.

    Parameters
    ----------
    content : str or bytes
        The JSON to parse.

    Returns
    -------
    Any
        The parsed value, or None if ``content`` is not valid JSON.
    """
    try:
        return parse_json(content)
    except ValueError:
        return None


def parse_if_json(value: Any) -> Any:
    """Parse a string that contains a JSON object or list, and return any other value unchanged.

    Parameters
    ----------
    value : Any
        A JSON value, possibly a string with JSON inside.

    Returns
    -------
    Any
        The parsed object or list. ``value`` itself if it is not such a string.

    Examples
    --------
    >>> parse_if_json('{"a": 1}'), parse_if_json("[sic]"), parse_if_json(None)
    ({'a': 1}, '[sic]', None)
    """
    if not isinstance(value, str) or value[:1] not in ("{", "["):
        return value
    try:
        return parse_json(value)
    except ValueError:
        return value


def get_count(value: Any, *keys: str) -> int:
    """Return the positive integer at a path of keys, or 0.

    Parameters
    ----------
    value : Any
        A JSON value.
    *keys : str
        The keys to follow, outermost first.

    Returns
    -------
    int
        The integer. 0 if the value is missing, not a positive integer, or 2**60 or more.

    Examples
    --------
    >>> get_count(3), get_count({"n": 3}, "n"), get_count(None), get_count(True), get_count(-1)
    (3, 3, 0, 0, 0)
    """
    value = get_in(value, *keys)
    counts = isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MAX_COUNT
    return value if counts else 0


def get_number(value: Any, *keys: str) -> float | None:
    """Return the number at a path of keys, or None if it is not a finite number.

    Parameters
    ----------
    value : Any
        A JSON value.
    *keys : str
        The keys to follow, outermost first.

    Returns
    -------
    float or None
        The number. None if the value is missing, not a number, infinite or NaN.

    Examples
    --------
    >>> get_number(1), get_number(float("nan")), get_number("1")
    (1.0, None, None)
    """
    value = get_in(value, *keys)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def get_time(value: Any, *keys: str) -> float | None:
    """Parse the ISO 8601 time at a path of keys. A time without time zone is read as UTC.

    Parameters
    ----------
    value : Any
        A JSON value.
    *keys : str
        The keys to follow, outermost first.

    Returns
    -------
    float or None
        Seconds since 1970, or None if the value is not an ISO 8601 time.

    Examples
    --------
    >>> get_time("1970-01-01T00:01:00.500Z"), get_time("yesterday")
    (60.5, None)
    """
    try:
        moment = datetime.fromisoformat(get_in(value, *keys))
    except (TypeError, ValueError):
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def parse_clock_time(value: Any, pattern: str) -> float | None:
    """Parse a time in a given format, and interpret it as UTC.

    Parameters
    ----------
    value : Any
        A JSON value.
    pattern : str
        The format string for ``datetime.strptime``.

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
    """Return the strings and numbers in a value as a tuple of strings.

    Parameters
    ----------
    value : Any
        A string, a number, or a list of strings and numbers.

    Returns
    -------
    tuple of str
        The strings, and the numbers converted to strings. Values of other types are skipped.

    Examples
    --------
    >>> texts_in(2022), texts_in(["a", 1.5, None]), texts_in(None)
    (('2022',), ('a', '1.5'), ())
    """
    items = value if isinstance(value, list) else [value]
    return tuple(str(each) for each in items if type(each) in (str, int, float))


def prepend_date(content: str, date: str | None) -> str:
    r"""Add the date of a session as the first line of a message, so that a model can read it.

    Parameters
    ----------
    content : str
        The content of the message.
    date : str or None
        The date as written in the file.

    Returns
    -------
    str
        The date in brackets, a newline and the content. Only the content if ``date`` is None.

    Examples
    --------
    >>> prepend_date("Hi!", "8 May, 2023")
    '[8 May, 2023]\nHi!'
    """
    return f"[{date}]\n{content}" if date else content


def require_object(value: Any, name: str) -> dict[str, Any]:
    """Return a value if it is a JSON object, and raise an error otherwise.

    Parameters
    ----------
    value : Any
        A JSON value.
    name : str
        Name of the value in the error message, such as ``"a message"``.

    Returns
    -------
    dict
        The value, unchanged.

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
    return _require(value, dict, "an object", name)


def require_text(value: Any, name: str) -> str:
    """Return a value if it is a string, and raise an error otherwise.

    Parameters
    ----------
    value : Any
        A JSON value.
    name : str
        Name of the value in the error message, such as ``"a message"``.

    Returns
    -------
    str
        The value, unchanged. It may be an empty string.

    Raises
    ------
    ValueError
        If the value is not a string.
    """
    return _require(value, str, "a string", name)


def require_list(value: Any, name: str) -> list[Any]:
    """Return a value if it is a list, and raise an error otherwise.

    Parameters
    ----------
    value : Any
        A JSON value.
    name : str
        Name of the value in the error message, such as ``"a message"``.

    Returns
    -------
    list
        The value, unchanged.

    Raises
    ------
    ValueError
        If the value is not a list.
    """
    return _require(value, list, "a list", name)


def require_objects(value: Any, name: str) -> list[dict[str, Any]]:
    """Return a value if it is a list of JSON objects, and raise an error otherwise.

    Parameters
    ----------
    value : Any
        A JSON value.
    name : str
        Name of the value in the error message, such as ``"a message"``.

    Returns
    -------
    list of dict
        The value, unchanged.

    Raises
    ------
    ValueError
        If the value is not a list, or an element is not an object.
    """
    if isinstance(value, list) and all(isinstance(each, dict) for each in value):
        return value
    raise ValueError(f"{name} must be a list of objects, got {value!r:.80}")


def _require(value: Any, kind: type[_T], described: str, name: str) -> _T:
    if isinstance(value, kind):
        return value
    raise ValueError(f"{name} must be {described}, got {type(value).__name__}")
