"""Fixtures for tests of session stores."""

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
    """Return a workspace for property tests; each example uses a new session in it."""
    return tmp_path_factory.mktemp("workspace")
