"""How a test writes a small one."""

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
    """The folder of real recordings."""
    return recorded


@pytest.fixture
def write_lines(tmp_path: Path) -> Callable[..., Path]:
    """Writes rows, a JSON value a line (text as it is), to a file that is called as one likes."""

    def write(*rows: Any, name: str = "session.jsonl") -> Path:
        path = tmp_path / name
        lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path

    return write


@pytest.fixture
def read(write_lines: Callable[..., Path]) -> Callable[..., list[Recording]]:
    return lambda *rows, **options: list(load(write_lines(*rows), **options))
