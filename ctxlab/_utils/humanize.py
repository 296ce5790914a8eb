"""Parse numbers such as ``16k``, ``1.5M``, ``20_000`` and ``25%``, and format counts with nouns."""

from __future__ import annotations

import math
import re
from typing import SupportsFloat

from ctxlab.errors import SpecError

_QUANTITY = re.compile(r"(\d[\d_,]*\.?\d*|\.\d+)\s*([kKmM%]?)")
_MULTIPLIERS = {"k": 1e3, "m": 1e6}


def pluralize(count: int, noun: str, plural: str | None = None) -> str:
    """Format a count and its noun. Unless the count is 1, the noun gets an ``s`` or is ``plural``.

    >>> pluralize(1, "file"), pluralize(4164, "request"), pluralize(2, "match", "matches")
    ('1 file', '4,164 requests', '2 matches')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def parse_quantity(text: str) -> tuple[int | float, str] | None:
    """Parse a number with an optional suffix ``k``, ``M`` or ``%``.

    Return the number and its unit, or None if the string is not such a number. The unit is ``"%"`` or
    ``""``, because the number is multiplied by 1,000 for ``k`` and by 1,000,000 for ``M``.

    >>> parse_quantity("16k"), parse_quantity("2.5"), parse_quantity("25 %"), parse_quantity("many")
    ((16000, ''), (2.5, ''), (25, '%'), None)
    """
    found = _QUANTITY.fullmatch(text.strip())
    if found is None:
        return None
    number, unit = re.sub("[_,]", "", found[1]), found[2].lower()
    value = float(number) if "." in number else int(number)
    if unit in _MULTIPLIERS:
        return round(value * _MULTIPLIERS[unit]), ""
    return value, unit


def parse_limit(limit: int | float | str) -> int | float:
    """Parse a limit: a number of tokens, or a share of a recording's length.

    A number of tokens is returned as an int, a share as a float of at most 1. Raise ``SpecError`` for
    any other value.

    >>> [parse_limit(limit) for limit in (8000, "16k", 0.25, "25%", "1.5M", 4000.0)]
    [8000, 16000, 0.25, 0.25, 1500000, 4000]
    """
    value: float = math.nan
    if isinstance(limit, str):
        value, unit = parse_quantity(limit) or (math.nan, "")
        if unit:
            value = round(value / 100, 12)
            value = value if value <= 1 else math.nan
    elif isinstance(limit, SupportsFloat) and not isinstance(limit, bool):
        value = limit
    if math.isfinite(value) and value > 0:
        if isinstance(value, int) or value <= 1:
            return value
        if value == int(value):
            return int(value)
    how = "tokens (16000, 16k) or a share of each recording's length (0.25, 25%)"
    raise SpecError(f"limits: expected a number of {how}, got {limit!r}")


def split_limit(strategy_text: str) -> tuple[str, int | float | None]:
    """Split a string such as ``"panic @ 16k"`` into a strategy expression and a limit.

    The limit is None if the string does not end with ``@`` and a number or percentage.

    >>> split_limit("panic @ 16k"), split_limit("tool_stubs | panic")
    (('panic', 16000), ('tool_stubs | panic', None))
    """
    text, _, at = strategy_text.rpartition("@")
    if text.strip() and parse_quantity(at):
        return text.strip(), parse_limit(at.strip())
    return strategy_text.strip(), None
