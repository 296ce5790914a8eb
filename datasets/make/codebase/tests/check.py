"""Assertions whose messages read the same everywhere."""

from __future__ import annotations

from collections.abc import Callable

from stockroom.errors import StockroomError


def equal(actual: object, expected: object) -> None:
    """Fail where two values differ, showing both."""
    if actual != expected:
        raise AssertionError(f"got {actual!r}, expected {expected!r}")


def refused(code: str, function: Callable[..., object], *arguments: object) -> None:
    """Fail where a call is not refused with this code."""
    try:
        result = function(*arguments)
    except StockroomError as error:
        if error.code != code:
            raise AssertionError(f"refused with {error.code}, expected {code}") from None
        return
    raise AssertionError(f"got {result!r}, expected a refusal with {code}")
