"""What must be there is taken, or a ``ValueError`` says what stands in its place.

Every reader asks so for what it cannot do without, and ``Source.guard`` says where in the file it
was missing. What may be missing is asked of ``loose``.
"""

from __future__ import annotations

from typing import Any

__all__ = ["a_list", "a_text", "an_object", "objects"]


def an_object(value: Any, what: str) -> dict[str, Any]:
    """The value, which is a JSON object.

    >>> an_object(["hi"], "a message")
    Traceback (most recent call last):
    ValueError: a message is an object, not list
    """
    if not isinstance(value, dict):
        raise ValueError(f"{what} is an object, not {type(value).__name__}")
    return value


def a_text(value: Any, what: str) -> str:
    """The value, which is a text, be it empty."""
    if not isinstance(value, str):
        raise ValueError(f"{what} is text, not {type(value).__name__}")
    return value


def a_list(value: Any, what: str) -> list[Any]:
    """The value, which is a list."""
    if not isinstance(value, list):
        raise ValueError(f"{what} is a list, not {type(value).__name__}")
    return value


def objects(value: Any, what: str) -> list[dict[str, Any]]:
    """The value, which is a list of JSON objects."""
    if isinstance(value, list) and all(isinstance(each, dict) for each in value):
        return value
    raise ValueError(f"{what} is a list of objects")
