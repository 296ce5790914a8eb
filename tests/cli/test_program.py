"""Tests of the program as a whole: fast help, shell completion, output streams, and pipes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from running import NAMELESS, Run

import ctxlab
from ctxlab.cli.options import complete_strategy

COMMANDS = (
    *("eval", "describe", "convert", "calibrate", "strategies", "formats", "metrics", "datasets"),
)
HEAVY = ("pandas", "numpy", "litellm", "matplotlib", "tiktoken", "rich")


def test_help_loads_nothing_heavy() -> None:
    code = f"import ctxlab.cli, sys; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_is_the_packages(option: str, run: Run) -> None:
    assert run(option) == (0, f"ctxlab {ctxlab.__version__}\n", "")


def test_the_shell_completes_names() -> None:
    assert {"rolling_summary", "recorded"} <= {*complete_strategy("r")}
    assert complete_strategy("no_such") == []


def test_completion_can_be_installed(run: Run) -> None:
    assert "--install-completion" in run("--help").out


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_names_every_command(arguments: list[str], run: Run) -> None:
    said = run(*arguments)
    assert said.code == 0
    assert all(f"  {command} " in said.out for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_that_fits_80_columns(command: str, run: Run) -> None:
    said = run(command, "--help")
    assert said.code == 0
    assert max(map(len, said.out.split("\n"))) <= 80
    assert f"Usage: ctxlab {command}" in said.out


def test_the_help_of_eval_teaches_by_examples(run: Run) -> None:
    assert run("eval", "--help").out.count("  ctxlab eval") >= 3


@pytest.mark.e2e
def test_a_pipe_gets_json_and_nothing_else(program: Run, logs: Path) -> None:
    said = program("eval", logs, "-l", "4k", "-s", "full", "-s", "panic", "--json")
    assert (said.code, said.err) == (0, NAMELESS)
    assert [row["strategy"] for row in json.loads(said.out)] == ["full()", "panic()"]
