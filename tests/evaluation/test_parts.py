"""Tests of runs in parts: they go on after any stop, compute nothing twice, and equal one run."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from msgspec.structs import replace
from running import a_recording

from ctxlab.errors import CtxlabError, RunIncomplete, SpecError, StrategyError
from ctxlab.evaluation import parts
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.parts import PARTS_FOLDER
from ctxlab.messages.types import Message, Recording, count_message_chars

RECORDINGS = tuple(a_recording(number) for number in range(6))
FEW = ("full", "panic()")
LIMITS = (0.5, 2000)
KILLS = int(os.environ.get("CTXLAB_KILLS", "3"))
CONTINUED = """
import sys
from running import a_recording
from ctxlab.evaluation import parts
from ctxlab.evaluation.experiment import evaluate
parts.BUCKET_CHARS = 1
evaluate([a_recording(n) for n in range(9)], {strategies}, (0.5, 2000), folder=sys.argv[1], workers=2)
"""


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each recording a bucket of its own."""
    monkeypatch.setattr(parts, "BUCKET_CHARS", 1)


def list_parts(folder: Path) -> dict[Path, int]:
    """Return the finished parts, and when each was written."""
    found = (folder / PARTS_FOLDER).glob("*/[!.]*")
    return {part: (part / "part.json").stat().st_mtime_ns for part in found}


def poisoned(messages: list[Message]) -> Sequence[Message]:
    """Fail for one recording."""
    if "order 2" in messages[1].text and os.environ.get("POISON"):
        raise ValueError("this recording is poisoned")
    return messages


def test_results_in_parts_equal_those_in_memory(tmp_path: Path) -> None:
    strategies = ("full", "random_drop()", "rolling_summary() | panic()", "random_drop(seed=3)")
    given = (*RECORDINGS, RECORDINGS[0], Recording("empty", (Message("user", "hi"),)))
    expected = evaluate(given, strategies, LIMITS)
    for workers in (1, 2):
        found = evaluate(given, strategies, LIMITS, folder=tmp_path / str(workers), workers=workers)
        assert found.equals(expected)
        again = evaluate(given, strategies, LIMITS, folder=tmp_path / str(workers), workers=1)
        assert again.equals(expected)


def test_a_run_with_more_strategies_computes_only_these(tmp_path: Path) -> None:
    evaluate(RECORDINGS, FEW, LIMITS, folder=tmp_path, workers=1)
    before = list_parts(tmp_path)
    more = ("tool_stubs()", *FEW)
    found = evaluate(RECORDINGS, more, (*LIMITS, 3000), folder=tmp_path, workers=1)
    assert found.equals(evaluate(RECORDINGS, more, (*LIMITS, 3000)))
    after = list_parts(tmp_path)
    assert {part: after[part] for part in before} == before
    new = [parts._check_part(part) for part in after.keys() - before.keys()]
    cells = {cell for part in new if part for cell in part.cells}
    assert cells == {("tool_stubs()", limit) for limit in LIMITS} | {
        (name, 3000.0) for name in ("tool_stubs()", "full()", "panic()")
    }


def test_only_what_changed_is_computed_again(tmp_path: Path) -> None:
    evaluate(RECORDINGS, FEW, LIMITS, folder=tmp_path, workers=1)
    before = list_parts(tmp_path)
    changed = replace(RECORDINGS[1], messages=RECORDINGS[1].messages[:-3])
    given = (RECORDINGS[0], changed, *RECORDINGS[2:])
    found = evaluate(given, FEW, LIMITS, folder=tmp_path, workers=1)
    assert found.equals(evaluate(given, FEW, LIMITS))
    assert len(list_parts(tmp_path).keys() - before.keys()) == 1


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pd.DataFrame]:
    """Return the folder of a run of three recordings, and its table of requests."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "BUCKET_CHARS", 1)
        results = evaluate(RECORDINGS[:3], FEW, LIMITS, folder=folder, workers=1)
        return folder, results.requests


@pytest.mark.parametrize("file", ["figures.parquet", "compactions.parquet", "part.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_a_damaged_part_is_computed_again(
    tmp_path: Path, finished: tuple[Path, pd.DataFrame], file: str, damage: str
) -> None:
    folder, expected = finished
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    before = list_parts(tmp_path)
    path = sorted(before)[2] / file
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data if damage == "flip" else data[: len(data) // 2])
    if damage == "gone":
        path.unlink()
    again = evaluate(RECORDINGS[:3], FEW, LIMITS, folder=tmp_path, workers=1)
    pd.testing.assert_frame_equal(again.requests, expected)
    after = list_parts(tmp_path)
    assert [part for part in before if after[part] != before[part]] == [path.parent]


def test_the_strategies_of_a_long_recording_are_divided_among_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategies = ("full", "panic()", "sliding_window()", "random_drop()", "contents()")
    (recording,) = RECORDINGS[:1]
    expected = evaluate([recording], strategies, LIMITS)
    chars = sum(map(count_message_chars, recording.messages))
    monkeypatch.setattr(parts, "TASK_CHARS", chars // 2)  # 1 + 2 tasks
    assert evaluate([recording], strategies, LIMITS, folder=tmp_path, workers=2).equals(expected)
    assert len(list_parts(tmp_path)) == 3


def test_a_recording_that_fails_is_listed_and_the_others_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategies = ("full", poisoned)
    monkeypatch.setenv("POISON", "1")
    found = evaluate(RECORDINGS, strategies, LIMITS, folder=tmp_path)
    (failed,) = found.manifest["failed"]
    assert failed["recording"] == "order-2"
    assert "this recording is poisoned" in failed["reason"]
    rest = [each for each in RECORDINGS if each.id != "order-2"]
    assert found.requests.equals(evaluate(rest, strategies, LIMITS).requests)
    monkeypatch.delenv("POISON")
    again = evaluate(RECORDINGS, strategies, LIMITS, folder=tmp_path)
    assert again.manifest["failed"] == found.manifest["failed"]
    retried = evaluate(RECORDINGS, strategies, LIMITS, folder=tmp_path, retry_failed=True)
    assert retried.equals(evaluate(RECORDINGS, strategies, LIMITS))


def exhausting(messages: list[Message]) -> Sequence[Message]:
    """Let the system kill the process at one recording, as if the memory were exhausted."""
    if "order 4" in messages[1].text and os.environ.get("POISON"):
        os.kill(os.getpid(), signal.SIGKILL)
    return messages


def test_a_run_goes_on_after_a_worker_ran_out_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POISON", "1")
    with pytest.raises(
        CtxlabError, match="a worker process ended unexpectedly, perhaps out of mem"
    ):
        evaluate(RECORDINGS, exhausting, LIMITS, folder=tmp_path, workers=2)
    before = list_parts(tmp_path)
    assert before
    monkeypatch.delenv("POISON")
    found = evaluate(RECORDINGS, exhausting, LIMITS, folder=tmp_path, workers=2)
    assert found.equals(evaluate(RECORDINGS, exhausting, LIMITS))
    assert before.items() <= list_parts(tmp_path).items()


def test_a_run_does_not_depend_on_the_clock(tmp_path: Path) -> None:
    evaluate(RECORDINGS, FEW, LIMITS, folder=tmp_path)
    for part, moment in zip(list_parts(tmp_path), (0, 4e9, 1, 2, 3, 4), strict=True):
        os.utime(part / "part.json", (moment, moment))
    before = list_parts(tmp_path)
    evaluate(RECORDINGS, FEW, LIMITS, folder=tmp_path)
    assert list_parts(tmp_path) == before


def test_a_run_in_which_each_recording_fails_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POISON", "1")
    with pytest.raises(StrategyError, match=r"no recording could be evaluated.*poisoned"):
        evaluate(RECORDINGS[2:3], poisoned, LIMITS, folder=tmp_path / "new" / "run")
    assert not (tmp_path / "new").exists()


def test_what_is_defined_interactively_is_always_computed_again(tmp_path: Path) -> None:
    scope: dict[str, object] = {"__name__": "__main__"}
    exec("def newest(messages):\n    return messages[:2] + messages[-1:]", scope)
    for _ in range(2):
        evaluate(RECORDINGS[:2], scope["newest"], LIMITS, folder=tmp_path, workers=1)  # type: ignore[arg-type]
    assert len(list_parts(tmp_path)) == 4


def start(folder: Path, strategies: Sequence[str] = FEW) -> subprocess.Popen[bytes]:
    here = Path(__file__).parents[1] / "helpers"
    paths = os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")])
    code = CONTINUED.format(strategies=repr(tuple(strategies)))
    return subprocess.Popen(
        [sys.executable, "-c", code, folder],
        env=os.environ | {"PYTHONPATH": paths},
        start_new_session=True,
    )


@pytest.mark.e2e
def test_a_run_that_is_killed_again_and_again_goes_on_and_computes_nothing_twice(
    tmp_path: Path,
) -> None:
    given = [a_recording(number) for number in range(9)]
    dice, written = random.Random(0), dict[Path, int]()
    for _ in range(KILLS):
        process = start(tmp_path)
        wanted = min(len(written) + dice.randint(0, 2), len(given))
        while len(list_parts(tmp_path)) < wanted and process.poll() is None:
            time.sleep(0.002)
        time.sleep(dice.random() / 20)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        now = list_parts(tmp_path)
        assert {part: now.get(part) for part in written} == written
        written = now
    found = evaluate(given, FEW, LIMITS, folder=tmp_path)
    assert found.equals(evaluate(given, FEW, LIMITS))
    now = list_parts(tmp_path)
    assert {part: now[part] for part in written} == written
    assert len(now) == len(given)
    assert not list((tmp_path / PARTS_FOLDER).glob("*/.*"))


@pytest.mark.e2e
def test_two_processes_may_run_in_one_folder(tmp_path: Path) -> None:
    given = [a_recording(number) for number in range(9)]
    both = [start(tmp_path), start(tmp_path, (*FEW, "tool_stubs()"))]
    assert [process.wait() for process in both] == [0, 0]
    strategies = (*FEW, "tool_stubs()")
    found = evaluate(given, strategies, LIMITS, folder=tmp_path)
    assert found.equals(evaluate(given, strategies, LIMITS))
    assert not list((tmp_path / PARTS_FOLDER).glob("*/.*"))


def test_the_shares_of_a_run_are_joined_by_the_last(tmp_path: Path) -> None:
    expected = evaluate(RECORDINGS, FEW, LIMITS)
    for number in (2, 1):
        with pytest.raises(RunIncomplete, match="of 6 buckets of recordings wait"):
            evaluate(RECORDINGS, FEW, LIMITS, folder=tmp_path, share=(number, 3))
        assert len(list_parts(tmp_path)) == 2 * (3 - number)
    assert evaluate(RECORDINGS, FEW, LIMITS, folder=tmp_path, share=(3, 3)).equals(expected)


@pytest.mark.parametrize("wrong", [{"share": (1, 3)}, {"scheduler": "local"}])
def test_shares_and_clusters_need_a_folder(wrong: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="pass folder"):
        evaluate(RECORDINGS, FEW, LIMITS, **wrong)


@pytest.mark.e2e
def test_a_cluster_gives_the_same_results_although_a_worker_is_killed(tmp_path: Path) -> None:
    from distributed import LocalCluster

    given = [a_recording(number) for number in range(9)]
    killed = threading.Event()
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:

        def kill_one() -> None:
            while len(list_parts(tmp_path)) < 2:
                time.sleep(0.01)
            os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)
            killed.set()

        threading.Thread(target=kill_one, daemon=True).start()
        address = cluster.scheduler_address
        found = evaluate(given, FEW, LIMITS, folder=tmp_path, scheduler=address)
    assert killed.is_set()
    assert found.equals(evaluate(given, FEW, LIMITS, workers=1))


@pytest.mark.e2e
def test_a_scheduler_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"cannot reach tcp://127\.0\.0\.1:9 .*dask scheduler"):
        evaluate(RECORDINGS, FEW, LIMITS, folder=tmp_path, scheduler="tcp://127.0.0.1:9")
