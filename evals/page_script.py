"""Helpers of the scripts that make pages of ``docs/`` from recordings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path


def with_bounds(value: float, low: float, high: float, form: str) -> str:
    """Return a value with its interval in parentheses, if there is one."""
    return f"{value:{form}}" + (f" ({low:{form}}–{high:{form}})" if low < high else "")


def print_or_write(make: Callable[[Sequence[str]], str], page: Path, usage: str | None) -> None:
    """Make a page from the folders on the command line, and print it, or write it with ``--write``."""
    options = [word for word in sys.argv[1:] if word.startswith("--")]
    folders = [word for word in sys.argv[1:] if not word.startswith("--")]
    if not folders or options not in ([], ["--write"]):
        sys.exit(usage)
    text = make(folders)
    if options:
        page.write_text(text, encoding="utf-8")
    else:
        print(text)
