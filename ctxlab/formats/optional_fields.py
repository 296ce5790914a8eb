"""Loose JSON is taken where it fits, and nothing is where it does not.

Every reader asks so for what a log may hold. What it must hold is asked of ``required``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from ctxlab._utils.jsonio import parse_json

__all__ = [
    "clock_time",
    "dated",
    "first_of",
    "first_text",
    "is_small",
    "iso_time",
    "listed",
    "number",
    "objects_in",
    "parsed",
    "text",
    "texts",
    "whole_number",
    "within",
]

_SHORT = 200


def within(value: Any, *keys: str) -> Any:
    """What stands under keys of nested objects; None where one of them is missing.

    >>> within({"a": {"b": 1}}, "a", "b"), within([], "a")
    (1, None)
    """
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def text(value: Any) -> str | None:
    """A text that is not empty, else None."""
    return value if isinstance(value, str) and value else None


def first_text(values: Iterable[Any]) -> str | None:
    """The first text that is not empty; None where there is none.

    >>> first_text([None, "", "a", "b"])
    'a'
    """
    return next(filter(text, values), None)


def listed(value: Any) -> list[Any]:
    """A list; an empty one where it is none."""
    return value if isinstance(value, list) else []


def first_of(value: Any) -> Any:
    """The first element of a list; None where there is none."""
    return value[0] if isinstance(value, list) and value else None


def is_small(value: Any) -> bool:
    """Whether a value is a word, a number or a yes or no, as ``Recording.meta`` may hold it.

    >>> is_small("solved"), is_small(float("inf")), is_small({"a": 1})
    (True, False, False)
    """
    if isinstance(value, str):
        return len(value) <= _SHORT
    return isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value))


def objects_in(value: Any) -> tuple[dict[str, Any], ...]:
    """The JSON objects of a list; none where it is no list.

    >>> objects_in([{"a": 1}, None]), objects_in({"a": 1})
    (({'a': 1},), ())
    """
    return tuple(each for each in listed(value) if isinstance(each, dict))


def parsed(content: str | bytes) -> Any:
    """What a JSON text holds; None where it is none."""
    try:
        return parse_json(content)
    except ValueError:
        return None


_ABSURD = 1 << 60


def whole_number(value: Any) -> int:
    """A count, 0 where it is none.

    >>> whole_number(3), whole_number(None), whole_number(True), whole_number(-1)
    (3, 0, 0, 0)
    """
    counts = isinstance(value, int) and not isinstance(value, bool) and 0 < value < _ABSURD
    return value if counts else 0


def number(value: Any) -> float | None:
    """A finite number, None where it is none.

    >>> number(1), number(float("nan")), number("1")
    (1.0, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def iso_time(value: Any) -> float | None:
    """Seconds since 1970 of an ISO 8601 text, UTC where it names no zone; None where it is none.

    >>> iso_time("1970-01-01T00:01:00.500Z"), iso_time("yesterday")
    (60.5, None)
    """
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def clock_time(value: Any, pattern: str) -> float | None:
    """Seconds since 1970 of a text in a pattern of ``strptime``, taken as UTC; None where it is none.

    >>> clock_time("1970/01/01 00:01", "%Y/%m/%d %H:%M"), clock_time(None, "%Y")
    (60.0, None)
    """
    try:
        return datetime.strptime(value, pattern).replace(tzinfo=UTC).timestamp()
    except (TypeError, ValueError):
        return None


def texts(value: Any) -> tuple[str, ...]:
    """A text or a number, or a list of them, as texts; what else stands there is left out.

    >>> texts(2022), texts(["a", 1.5, None]), texts(None)
    (('2022',), ('a', '1.5'), ())
    """
    listed = value if isinstance(value, list) else [value]
    return tuple(
        str(each)
        for each in listed
        if isinstance(each, (str, int, float)) and not isinstance(each, bool)
    )


def dated(content: str, date: str | None) -> str:
    """A text below the date on which a session began, so that a model can read it.

    >>> dated("Hi!", "8 May, 2023")
    '[8 May, 2023]\\nHi!'
    """
    return f"[{date}]\n{content}" if date else content
