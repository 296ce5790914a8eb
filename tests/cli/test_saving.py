"""Tests of ``--out``: the folder is checked before a run starts, and no earlier run is overwritten."""

from __future__ import annotations

import json
import os
import resource
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace
from running import PROGRAM, Run, a_recording

from ctxlab.evaluation.results import Results
from ctxlab.evaluation.run_files import replace_run_files
from ctxlab.formats import write

FEW = ("-l", "4k", "-s", "full")
SAME = "contains a run with the same recordings and model, which will be "


@pytest.fixture
def others(tmp_path: Path) -> Path:
    """Return a folder of recordings that differ from those of ``logs``."""
    folder = tmp_path / "others"
    folder.mkdir()
    write([a_recording(77)], folder / "77.jsonl")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_over_other_recordings_is_refused_before_anything_is_replayed(
    run: Run, logs: Path, others: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    assert run("eval", logs, *FEW, "--out", out).code == 0
    before = contents(out)
    # A strategy that fails as soon as it is replayed shows that nothing was.
    said = run("eval", others, "-l", "4k", "-s", "operator.truediv", "--out", out)
    assert said.code == 2
    assert said.out == ""
    assert "contains a run with different recordings (missing now: 6 of 6; new: 1)" in said.err
    assert "name another folder" in said.err
    assert contents(out) == before


def test_a_run_by_another_model_is_refused(run: Run, logs: Path, tmp_path: Path) -> None:
    run("eval", logs, *FEW, "--out", tmp_path / "run")
    said = run("eval", logs, *FEW, "-m", "claude-opus-4-5", "--out", tmp_path / "run")
    assert said.code == 2
    assert "a run with the same recordings but a different model" in said.err


@pytest.mark.e2e
def test_a_run_over_the_same_recordings_and_model_is_replaced(
    run: Run, logs: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    run("eval", logs, *FEW, "--out", out)
    moved = logs.rename(tmp_path / "moved")
    said = run("eval", moved, "-l", "4k", "-s", "panic", "-m", "gpt-5", "--out", out)
    assert said.code == 0
    assert SAME in said.err
    assert set(Results.load(out).requests["strategy"]) == {"panic()"}


def test_a_folder_that_holds_anything_else_is_refused(run: Run, logs: Path, tmp_path: Path) -> None:
    said = run("eval", logs, *FEW, "--out", logs)
    assert said.code == 2
    assert "with 6 entries (0.jsonl, …); name another" in said.err
    (tmp_path / "empty").mkdir()
    assert run("eval", logs, *FEW, "--out", tmp_path / "empty").code == 0


@pytest.mark.e2e
def test_a_run_of_another_kind_is_refused(run: Run, logs: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    searched = ("-s", "panic(protect=[1, 2])", "-l", "4k", "--holdout", "0")
    assert run("tune", logs, *searched, "--out", out).code == 0
    assert (
        "contains a run of ctxlab tune, but this is a run of ctxlab eval"
        in run("eval", logs, *FEW, "--out", out).err
    )
    again = run("tune", logs, *searched, "--out", out)
    assert again.code == 0
    assert SAME in again.err
    (logs / "0.jsonl").unlink()
    assert "missing now: 1 of 6" in run("tune", logs, *searched, "--out", out).err
    compared = run("compare", logs, "full", "panic", "-l", "4k", "--out", out)
    assert "contains a run of ctxlab tune" in compared.err


def test_a_folder_that_cannot_be_written_is_refused_at_once(run: Run, logs: Path) -> None:
    said = run("eval", logs, "-l", "4k", "-s", "operator.truediv", "--out", "/proc/run")
    assert said.code == 2
    assert "--out: cannot write to /proc" in said.err


@pytest.mark.e2e
def test_a_disk_that_fills_still_gives_the_table(logs: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = ["eval", str(logs), *FEW, "--json", "--no-progress"]

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    wanted = subprocess.run([*PROGRAM, *command], capture_output=True, text=True, check=True)
    said = subprocess.run(
        [*PROGRAM, *command, "--out", str(out)],
        capture_output=True, text=True, preexec_fn=small_files, check=False,
    )  # fmt: skip
    assert said.returncode == 2
    assert json.loads(said.stdout) == json.loads(wanted.stdout)
    assert f"{out}: the run could not be saved" in said.stderr
    assert "Traceback" not in said.stderr
    assert not out.exists()
    reader, writer = os.pipe()
    os.close(reader)  # nobody reads
    unread = subprocess.run(
        [*PROGRAM, *command, "--out", str(out)],
        stdout=writer, stderr=subprocess.PIPE, text=True, preexec_fn=small_files, check=False,
    )  # fmt: skip
    os.close(writer)
    assert unread.returncode == 2
    assert "could not be saved" in unread.stderr


def test_what_cannot_be_written_whole_leaves_an_earlier_run_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with replace_run_files(folder) as beside:
        (beside / "manifest.json").write_text("first")

    def fails() -> None:
        with replace_run_files(folder) as beside:
            (beside / "manifest.json").write_text("second")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        fails()
    assert contents(folder) == {"manifest.json": b"first"}


def test_a_file_that_cannot_be_put_in_its_place_brings_the_earlier_run_back(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with replace_run_files(folder) as made:
        for name in ("manifest.json", "answers.parquet", "requests.parquet"):
            (made / name).write_text("first")
    (folder / "frontier.parquet").mkdir()  # no file can take its place
    before = {path.name: path.read_text() for path in folder.glob("*") if path.is_file()}

    def fails() -> None:
        with replace_run_files(folder) as made:
            for name in ("manifest.json", "frontier.parquet", "answers.parquet"):
                (made / name).write_text("second")

    with pytest.raises(OSError, match=r"frontier\.parquet"):
        fails()
    assert {path.name: path.read_text() for path in folder.glob("*") if path.is_file()} == before
    (folder / "frontier.parquet").rmdir()
    with replace_run_files(folder) as made:
        (made / "manifest.json").write_text("third")
    assert contents(folder) == {"manifest.json": b"third"}  # nothing of the earlier run is left


def test_recordings_at_other_times_are_other_recordings(run: Run, tmp_path: Path) -> None:
    for name, hours in (("a", 0), ("b", 5)):
        recording = a_recording(1)
        timed = [
            message.replace(time=1e9 + 3600 * hours * place)
            for place, message in enumerate(recording.messages)
        ]
        write([replace(recording, messages=tuple(timed))], tmp_path / name / "1.jsonl")
    run("eval", tmp_path / "a", *FEW, "--out", tmp_path / "run")
    changed = run("eval", tmp_path / "b", *FEW, "--out", tmp_path / "run")
    assert "different recordings" in changed.err


def test_a_manifest_that_is_no_runs_is_no_run(run: Run, logs: Path, tmp_path: Path) -> None:
    out = tmp_path / "mine"
    out.mkdir()
    for text in ('{"recordings": ["a", "b"]}', '{"recordings": [], "spec": {}}', "no JSON"):
        (out / "manifest.json").write_text(text)
        said = run("eval", logs, *FEW, "--out", out)
        assert (said.code, said.out) == (2, "")
        assert "with manifest.json; name another" in said.err


def test_a_link_to_nowhere_is_refused_at_once(run: Run, logs: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    said = run("eval", logs, "-l", "4k", "-s", "operator.truediv", "--out", tmp_path / "link")
    assert "links to a folder that does not exist" in said.err


def test_the_models_of_recordings_are_part_of_what_is_the_same(run: Run, tmp_path: Path) -> None:
    for name, model in (("a", "gpt-4o"), ("b", "gpt-5")):
        (tmp_path / name).mkdir()
        write([replace(a_recording(1), model=model)], tmp_path / name / "1.jsonl")
    run("eval", tmp_path / "a", *FEW, "--out", tmp_path / "run")
    assert (
        "but a different model" in run("eval", tmp_path / "b", *FEW, "--out", tmp_path / "run").err
    )


def test_a_stopped_run_goes_on_and_other_recordings_are_refused(
    run: Run, logs: Path, others: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    whole = run("eval", logs, *FEW, "--out", out)
    for path in out.glob("*.*"):  # as if the process was killed before it saved the results
        path.unlink()
    refused = run("eval", others, *FEW, "--out", out)
    assert refused.code == 2
    assert (
        "contains a stopped run with other recordings or models; name another folder" in refused.err
    )
    found = run("eval", logs, *FEW, "--out", out)
    assert "contains a stopped run, which goes on" in found.err
    assert (found.code, found.out) == (0, whole.out)
    assert (out / "manifest.json").is_file()


def test_a_recording_that_fails_gives_exit_code_3(
    run: Run, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "own_strategies.py"
    module.write_text(
        "def picky(messages):\n"
        "    if 'order 2' in messages[1].text:\n        raise ValueError('too hard')\n"
        "    return messages\n"
    )
    said = run("eval", logs, "-l", "4k", "-s", "own_strategies.picky", "--out", tmp_path / "run")
    assert said.code == 3
    assert "2.jsonl: not evaluated: StrategyError" in said.err
    assert "too hard" in said.err
