"""Readers of optional and required JSON fields.

``get_*`` follow a path of keys in nested objects: ``get_text(row, "message", "id")``. They return
None or an empty value if a key is missing, if a value on the way is not an object, or if the value
has the wrong type. ``require_*`` raise ``ValueError`` if the value has the wrong type.
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
    """Return the value under a path of keys.

    Parameters
    ----------
    value : Any
        A JSON value.
    *keys : str
        The keys to follow, outermost first.

    Returns
    -------
    Any
        The value, or None.

    Examples
    --------
    >>> get_in({"a": {"b": 1}}, "a", "b"), get_in([], "a")
    (1, None)
    """
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def get_text(value: Any, *keys: str) -> str | None:
    """Return a text that is not empty.

    Parameters
    ----------
    value : Any
        A JSON value.
    *keys : str
        The keys to follow, outermost first.

    Returns
    -------
    str or None
        The text, or None.

    Examples
    --------
    >>> get_text("a"), get_text({"id": "b"}, "id"), get_text({"id": 1}, "id")
    ('a', 'b', None)
    """
    for key in keys:  # as get_in, which a function called so often does not call
        value = value.get(key) if isinstance(value, dict) else None
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
    return next(filter(get_text, values), None)


def get_list(value: Any, *keys: str) -> list[Any]:
    """Return a list.

    Parameters
    ----------
    value : Any
        A JSON value.
    *keys : str
        The keys to follow, outermost first.

    Returns
    -------
    list
        The list, or an empty one.
    """
    value = get_in(value, *keys)
    return value if isinstance(value, list) else []


def get_object(value: Any, *keys: str) -> dict[str, Any]:
    """Return an object.

    Parameters
    ----------
    value : Any
        A JSON value.
    *keys : str
        The keys to follow, outermost first.

    Returns
    -------
    dict
        The object, or an empty one.
    """
    value = get_in(value, *keys)
    return value if isinstance(value, dict) else {}


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


def get_objects(value: Any, *keys: str) -> tuple[dict[str, Any], ...]:
    """Return the objects of a list.

    Parameters
    ----------
    value : Any
        A JSON value.
    *keys : str
        The keys to follow, outermost first.

    Returns
    -------
    tuple of dict
        The elements that are objects. Empty if the value is not a list.

    Examples
    --------
    >>> get_objects([{"a": 1}, None]), get_objects({"a": 1})
    (({'a': 1},), ())
    """
    return tuple(each for each in get_list(value, *keys) if isinstance(each, dict))


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


def parse_if_json(value: Any) -> Any:
    """Parse a text that is a JSON object or list, and return any other value unchanged.

    Parameters
    ----------
    value : Any
        A value.

    Returns
    -------
    Any
        The parsed value, or the value itself.

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
    """Return a count.

    Parameters
    ----------
    value : Any
        A JSON value.
    *keys : str
        The keys to follow, outermost first.

    Returns
    -------
    int
        The count, or 0 if the value is not a positive integer.

    Examples
    --------
    >>> get_count(3), get_count({"n": 3}, "n"), get_count(None), get_count(True), get_count(-1)
    (3, 3, 0, 0, 0)
    """
    value = get_in(value, *keys)
    counts = isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MAX_COUNT
    return value if counts else 0


def get_number(value: Any, *keys: str) -> float | None:
    """Return a finite number.

    Parameters
    ----------
    value : Any
        A JSON value.
    *keys : str
        The keys to follow, outermost first.

    Returns
    -------
    float or None
        The number, or None.

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
    """Return an ISO 8601 time; a time without a zone is taken as UTC.

    Parameters
    ----------
    value : Any
        A JSON value.
    *keys : str
        The keys to follow, outermost first.

    Returns
    -------
    float or None
        Seconds since 1970, or None.

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
    return tuple(str(each) for each in items if type(each) in (str, int, float))


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
    return _require(value, dict, "an object", name)


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
    return _require(value, str, "text", name)


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
    return _require(value, list, "a list", name)


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


def _require(value: Any, kind: type[_T], described: str, name: str) -> _T:
    if isinstance(value, kind):
        return value
    raise ValueError(f"{name} must be {described}, got {type(value).__name__}")
