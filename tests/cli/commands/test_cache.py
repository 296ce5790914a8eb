"""Tests of ``ctxlab cache`` and of the option ``--no-cache``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from running import Run

from ctxlab.formats import write
from ctxlab.messages.types import Message, Recording


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of an empty cache, which the commands use."""
    monkeypatch.setenv("CTXLAB_CACHE", str(tmp_path / "counts"))
    return tmp_path / "counts"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return a recording with two long messages."""
    messages = Message("user", "one word " * 99), Message("assistant", "another word " * 99)
    write([Recording("a", messages)], tmp_path / "a.jsonl")
    return tmp_path / "a.jsonl"


def test_info_and_clear_tell_what_the_cache_contains(run: Run, folder: Path, log: Path) -> None:
    assert run("eval", log).code == 0
    said = run("cache", "info").out.split()
    assert said[:4] == ["folder", str(folder), "entries", "2"]
    assert said[-2:] == ["maximum", "128MB"]
    assert run("cache", "clear").out.startswith("deleted 2 token counts (")
    assert run("cache", "info").out.split()[3] == "0"


def test_no_cache_stores_nothing_and_changes_nothing(run: Run, folder: Path, log: Path) -> None:
    plain = run("eval", log, "--no-cache", "--json").out
    assert not folder.exists()
    assert run("eval", log, "--json").out == plain
    assert folder.exists()
    assert "no_cache" not in json.loads(plain)


def test_info_of_an_unused_cache_creates_no_folder(run: Run, folder: Path) -> None:
    assert run("cache", "info").out.split()[2:4] == ["entries", "0"]
    assert not folder.exists()


def test_an_empty_variable_is_explained(run: Run) -> None:
    for command in ("info", "clear"):
        assert "CTXLAB_CACHE is empty" in run("cache", command).out
