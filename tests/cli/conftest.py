"""Fixtures: a folder of recordings, and two ways to run the command line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from running import PROGRAM, Run, Said, a_recording

from ctxlab.cli import main
from ctxlab.formats import write


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Return a folder of six recordings."""
    folder = tmp_path / "logs"
    folder.mkdir()
    for number in range(6):
        write([a_recording(number)], folder / f"{number}.jsonl")
    return folder


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs ctxlab in this process, with output as in a pipe."""
    monkeypatch.delenv("COLUMNS", raising=False)  # pytest-xdist's workers have it

    def call(*arguments: object) -> Said:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Said(code, captured.out, captured.err)

    return call


@pytest.fixture
def program() -> Run:
    """Return a function that runs ctxlab in a new process."""

    def call(*arguments: object, cwd: Path | None = None) -> Said:
        command = [*PROGRAM, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, cwd=cwd, encoding="utf-8", timeout=60)
        return Said(done.returncode, done.stdout, done.stderr)

    return call
