"""Tests of invalid input: one sentence and a non-zero exit status, never a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from running import PROGRAM, Run, a_recording

from ctxlab.formats import write

BAD: dict[str, tuple[Sequence[str], str]] = {
    "missing path": (["eval", "nowhere"], "nowhere: no such file or folder"),
    "missing experiment": (["eval", "nowhere.toml"], "No such file"),
    "folder without recordings": (["eval", "empty"], "found no recording (files read: 1)"),
    "unknown file": (["eval", "empty/notes.txt"], "the file looks like plain text"),
    "broken file": (["eval", "broken.jsonl", "-l", "4k"], "broken.jsonl:3: not JSON"),
    "strategy": (["eval", "logs", "-s", "panick"], "did you mean panic"),
    "parameter": (["eval", "logs", "-s", "panic(foo=1)"], "foo"),
    "strategy syntax": (["eval", "logs", "-s", "panic("], "cannot parse the strategy"),
    "strategy that raises": (["eval", "logs", "-s", "os.getcwd"], "getcwd failed at message"),
    "limit": (["eval", "logs", "-l", "many"], "(0.25, 25%), got 'many'"),
    "limit of nothing": (["eval", "logs", "-l", "0"], "(0.25, 25%), got '0'"),
    "share above all": (["eval", "logs", "-l", "150%"], "(0.25, 25%), got '150%'"),
    "reserve": (["eval", "logs", "--reserve", "-1"], "0 or more"),
    "cache lifetime": (
        ["eval", "logs", "--cache-ttl", "2h"],
        "cache_ttl: expected recorded, 5m, 1h",
    ),
    "fixed part": (["eval", "logs", "--fixed", "10%"], "--fixed: expected recorded or 0 or more"),
    "reserve that is no number": (["eval", "logs", "--reserve", "x"], "reserve"),
    "least recall": (
        ["eval", "logs", "--min-recall", "2"],
        "min_recall: expected a share from 0 to 1",
    ),
    "metric": (["eval", "logs", "--metric", "recal"], "did you mean recall?"),
    "format": (["eval", "logs", "--format", "nativ"], "did you mean native"),
    "policy": (["eval", "logs", "--on-error", "ignore"], "raise or skip"),
    "key": (["eval", "key.toml"], "key.toml: unknown key 'limit'; did you mean limits"),
    "type": (["eval", "type.toml"], "type.toml: reserve: expected int, got str"),
    "strategy in a file": (
        ["eval", "strategy.toml"],
        "strategy.toml: strategies: unknown strategy",
    ),
    "two experiments": (["eval", "key.toml", "type.toml"], "expected one experiment, got 2"),
    "place to save": (
        ["eval", "logs", "--out", "key.toml/run"],
        "key.toml; name another path",
    ),
    "file to save into": (
        ["eval", "logs", "--out", "key.toml"],
        "expected a folder, got the file key.toml; name another path",
    ),
    "option": (["eval", "logs", "--lmit", "4k"], "--limit"),
    "command": (["evaluate"], "No such command 'evaluate'"),
    "nothing to describe": (["describe"], "PATH"),
    "missing path to describe": (["describe", "nowhere"], "no such file or folder"),
    "bundled data": (["eval", "bundled:nothing"], "nothing"),
    "no path": (["describe", ""], "expected a path, got ''"),
    "no place to save": (["eval", "logs", "--out", ""], "--out: expected a folder, got an empty"),
    "no place to write": (["convert", "logs", ""], "expected an output path, got an empty string"),
    "no recording left to replay": (["eval", "logs", "-w", "id=x"], "meets the conditions"),
    "no recording left to describe": (["describe", "logs", "-w", "id=x"], "meets the conditions"),
    "none to write": (["convert", "logs", "a.jsonl", "-w", "id=x"], "meets the conditions"),
}


@pytest.fixture
def bad(logs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = logs.parent
    good = (logs / "0.jsonl").read_text().split("\n")
    (folder / "broken.jsonl").write_text("\n".join([*good[:2], "{broken", *good[2:]]))
    (folder / "key.toml").write_text('data = ["logs"]\nlimit = [4000]\n')
    (folder / "type.toml").write_text('data = ["logs"]\nreserve = "much"\n')
    (folder / "strategy.toml").write_text('data = ["logs"]\nstrategies = ["panick"]\n')
    (folder / "empty").mkdir()
    (folder / "empty" / "notes.txt").write_text("nothing of use")
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.e2e(smoke=True)
@pytest.mark.parametrize("case", BAD)
def test_bad_input_ends_with_a_sentence(case: str, run: Run, bad: Path) -> None:
    arguments, words = BAD[case]
    said = run(*arguments)
    last = said.err.rstrip("\n").split("\n")[-1]
    assert said.code == 2
    assert said.out == ""
    assert last.startswith("ctxlab: ")
    assert words in last
    assert "Traceback" not in said.err


@pytest.mark.e2e(smoke=True)
@pytest.mark.parametrize("command", ["eval", "compare", "tune", "gate", "canaries", "next-action",
                                     "probe", "describe", "convert", "calibrate", "strategies",
                                     "formats", "metrics", "datasets list"])  # fmt: skip
def test_what_a_command_does_not_take_names_its_own_help(command: str, run: Run) -> None:
    said = run(*command.split(), "--nosuch")
    assert said.code == 2
    assert f"; see ctxlab {command} --help" in said.err


def test_a_place_to_save_is_made_when_there_is_something_to_save(run: Run, bad: Path) -> None:
    for command in (["eval", "logs", "-s", "os.getcwd"], ["tune", "logs", "-l", "many"],
                    ["probe", "logs", "-a", "gpt-4o"]):  # fmt: skip
        assert run(*command, "--out", "new/run").code == 2
        assert not (bad / "new").exists()


def test_a_broken_line_names_the_way_around_it(run: Run, bad: Path) -> None:
    assert "--on-error skip" in run("eval", "broken.jsonl", "-l", "4k").err


@pytest.mark.e2e
def test_the_program_exits_as_the_function_returns(program: Run, bad: Path) -> None:
    said = program("eval", "nowhere", cwd=bad)
    assert said == (2, "", "ctxlab: nowhere: no such file or folder\n")


def test_an_unexpected_failure_is_named_and_not_hidden(
    run: Run, bad: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bad / "odd_tricks.py").write_text("raise ZeroDivisionError('at import')\n")
    monkeypatch.delenv("CTXLAB_DEBUG", raising=False)
    said = run("eval", "logs", "-s", "odd_tricks.first")
    assert said.code == 2  # 1 is left to a check that does not hold
    assert said.err == (
        "ctxlab: unexpected ZeroDivisionError: at import (CTXLAB_DEBUG=1 shows the traceback)\n"
    )
    monkeypatch.setenv("CTXLAB_DEBUG", "1")
    assert "Traceback" in run("eval", "logs", "-s", "odd_tricks.first").err


@pytest.mark.e2e
def test_a_closed_pipe_is_no_failure(program: Run, bad: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*PROGRAM, "metrics"], stdout=writer, stderr=subprocess.PIPE, timeout=60)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.e2e
@pytest.mark.skipif(os.name == "nt", reason="signals are sent as POSIX has it")
@pytest.mark.parametrize(("how", "delay"), [("SIGINT", 0), ("SIGTERM", 0.02)])
def test_cancelling_says_so(bad: Path, how: str, delay: float) -> None:
    # A strategy that says that it is at work, and waits to be interrupted, by whichever process.
    (bad / "slow_tricks.py").write_text(
        "import time\n\ndef wait(messages):\n    print('here', flush=True)\n"
        "    for _ in range(600):\n        time.sleep(0.1)\n"
    )
    command = [*PROGRAM, "eval", "logs", "-s", "slow_tricks.wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delay)
        process.send_signal(getattr(signal, how))
        # A worker that lives on keeps the pipes open, and this from returning.
        _, err = process.communicate(timeout=50)
    assert process.returncode == 130
    assert err.strip() == b"Cancelled"


@pytest.mark.e2e
@pytest.mark.skipif(os.name == "nt", reason="signals are sent as POSIX has it")
def test_what_was_half_done_is_cleared_away_on_termination(bad: Path) -> None:
    many = bad / "many.jsonl"
    write([a_recording(number) for number in range(400)], many)
    (bad / "new").mkdir()
    command = [*PROGRAM, "convert", many, "new/all.jsonl"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        while not list((bad / "new").glob("*/*")) and process.poll() is None:
            time.sleep(0.001)  # until it writes
        process.terminate()
        _, err = process.communicate(timeout=50)
    assert (process.returncode, err.strip()) == (130, b"Cancelled")
    assert list((bad / "new").iterdir()) == []


def test_signals_are_heard_as_before_when_a_command_has_run(run: Run, bad: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    run("eval", "nowhere")
    assert signal.getsignal(signal.SIGTERM) is before
