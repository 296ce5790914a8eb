"""What the tests of stores begin with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxlab.sessions.sqlite.store import SqliteStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    made = SqliteStore(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace in which every example of a property has a session of its own."""
    return tmp_path_factory.mktemp("workspace")
