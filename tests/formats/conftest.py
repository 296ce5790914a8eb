"""Where the real recordings are, and how a test writes a small one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real recordings; tests that need it skip where it is absent."""
    beside = Path(__file__).parents[2] / ".." / "shared" / "data"
    folder = Path(os.environ.get("CTXLAB_DATA") or beside).resolve()
    if not folder.is_dir():
        pytest.skip(
            "no real recordings: CTXLAB_DATA names no folder and there is no ../shared/data"
        )
    return folder


@pytest.fixture
def write_lines(tmp_path: Path) -> Callable[..., Path]:
    """Writes rows, a JSON value a line (text as it is), to a file that is called as one likes."""

    def write(*rows: Any, name: str = "session.jsonl") -> Path:
        path = tmp_path / name
        lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path

    return write
