"""Fixtures: the folder of real recordings, and a function that writes small files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ctxlab.formats import load
from ctxlab.messages.types import Recording


@pytest.fixture(scope="session")
def data(recorded: Path) -> Path:
    """Return the folder of real recordings."""
    return recorded


@pytest.fixture
def write_lines(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes rows to a named file; strings as they are, others as JSON."""

    def write(*rows: Any, name: str = "session.jsonl") -> Path:
        path = tmp_path / name
        lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path

    return write


@pytest.fixture
def read(write_lines: Callable[..., Path]) -> Callable[..., list[Recording]]:
    return lambda *rows, **options: list(load(write_lines(*rows), **options))
