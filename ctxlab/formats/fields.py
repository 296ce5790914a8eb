"""Read fields of JSON: optional ones, where a wrong type gives None, and required ones, which raise."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from ctxlab._utils.jsonio import parse_json

__all__ = [
    "count_or_zero",
    "first_or_none",
    "first_text",
    "get_nested",
    "is_short_value",
    "list_or_empty",
    "number_or_none",
    "objects_in",
    "parse_clock_time",
    "parse_iso_time",
    "parse_json_or_none",
    "prepend_date",
    "require_list",
    "require_object",
    "require_objects",
    "require_text",
    "text_or_none",
    "texts_in",
]

_MAX_SHORT_TEXT = 200


def get_nested(value: Any, *keys: str) -> Any:
    """What stands under keys of nested objects; None where one of them is missing.

    >>> get_nested({"a": {"b": 1}}, "a", "b"), get_nested([], "a")
    (1, None)
    """
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def text_or_none(value: Any) -> str | None:
    """A text that is not empty, else None."""
    return value if isinstance(value, str) and value else None


def first_text(values: Iterable[Any]) -> str | None:
    """The first text that is not empty; None where there is none.

    >>> first_text([None, "", "a", "b"])
    'a'
    """
    return next(filter(text_or_none, values), None)


def list_or_empty(value: Any) -> list[Any]:
    """A list; an empty one where it is none."""
    return value if isinstance(value, list) else []


def first_or_none(value: Any) -> Any:
    """The first element of a list; None where there is none."""
    return value[0] if isinstance(value, list) and value else None


def is_short_value(value: Any) -> bool:
    """Whether a value is a word, a number or a yes or no, as ``Recording.meta`` may hold it.

    >>> is_short_value("solved"), is_short_value(float("inf")), is_short_value({"a": 1})
    (True, False, False)
    """
    if isinstance(value, str):
        return len(value) <= _MAX_SHORT_TEXT
    return isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value))


def objects_in(value: Any) -> tuple[dict[str, Any], ...]:
    """The JSON objects of a list; none where it is no list.

    >>> objects_in([{"a": 1}, None]), objects_in({"a": 1})
    (({'a': 1},), ())
    """
    return tuple(each for each in list_or_empty(value) if isinstance(each, dict))


def parse_json_or_none(content: str | bytes) -> Any:
    """What a JSON text holds; None where it is none."""
    try:
        return parse_json(content)
    except ValueError:
        return None


_MAX_COUNT = 1 << 60


def count_or_zero(value: Any) -> int:
    """A count, 0 where it is none.

    >>> count_or_zero(3), count_or_zero(None), count_or_zero(True), count_or_zero(-1)
    (3, 0, 0, 0)
    """
    counts = isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MAX_COUNT
    return value if counts else 0


def number_or_none(value: Any) -> float | None:
    """A finite number, None where it is none.

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
    """Seconds since 1970 of an ISO 8601 text, UTC where it names no zone; None where it is none.

    >>> parse_iso_time("1970-01-01T00:01:00.500Z"), parse_iso_time("yesterday")
    (60.5, None)
    """
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def parse_clock_time(value: Any, pattern: str) -> float | None:
    """Seconds since 1970 of a text in a pattern of ``strptime``, taken as UTC; None where it is none.

    >>> parse_clock_time("1970/01/01 00:01", "%Y/%m/%d %H:%M"), parse_clock_time(None, "%Y")
    (60.0, None)
    """
    try:
        return datetime.strptime(value, pattern).replace(tzinfo=UTC).timestamp()
    except (TypeError, ValueError):
        return None


def texts_in(value: Any) -> tuple[str, ...]:
    """A text or a number, or a list of them, as texts; what else stands there is left out.

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
    """A text below the date on which a session began, so that a model can read it.

    >>> prepend_date("Hi!", "8 May, 2023")
    '[8 May, 2023]\\nHi!'
    """
    return f"[{date}]\n{content}" if date else content


def require_object(value: Any, name: str) -> dict[str, Any]:
    """The value, which is a JSON object.

    >>> require_object(["hi"], "a message")
    Traceback (most recent call last):
    ValueError: a message is an object, not list
    """
    if not isinstance(value, dict):
        raise ValueError(f"{name} is an object, not {type(value).__name__}")
    return value


def require_text(value: Any, name: str) -> str:
    """The value, which is a text, be it empty."""
    if not isinstance(value, str):
        raise ValueError(f"{name} is text, not {type(value).__name__}")
    return value


def require_list(value: Any, name: str) -> list[Any]:
    """The value, which is a list."""
    if not isinstance(value, list):
        raise ValueError(f"{name} is a list, not {type(value).__name__}")
    return value


def require_objects(value: Any, name: str) -> list[dict[str, Any]]:
    """The value, which is a list of JSON objects."""
    if isinstance(value, list) and all(isinstance(each, dict) for each in value):
        return value
    raise ValueError(f"{name} is a list of objects")
