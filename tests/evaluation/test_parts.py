"""Tests of runs in parts: they go on after any stop, compute nothing twice, and equal one run."""

from __future__ import annotations

import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from msgspec.structs import replace
from running import a_recording

from ctxlab.errors import RunIncomplete, SpecError, StrategyError
from ctxlab.evaluation import experiment, parts
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.parts import PARTS_FOLDER
from ctxlab.formats import load, native
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


@pytest.mark.properties
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


@pytest.mark.e2e
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


def fatal(messages: list[Message]) -> Sequence[Message]:
    """End the process at one recording, at most as many times as there are files in a folder."""
    if "order 4" in messages[1].text and (left := list(Path(os.environ["DEATHS"]).iterdir())):
        left[0].unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return messages


@pytest.fixture
def allow_deaths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[int], dict[str, Any]]:
    """Return a function that lets the next processes die, and returns options of a run."""
    folder = tmp_path / "deaths"
    folder.mkdir()
    monkeypatch.setenv("DEATHS", str(folder))
    monkeypatch.setattr(parts, "BUCKET_CHARS", 10**9)  # one bucket

    def allow(count: int) -> dict[str, Any]:
        for number in range(count):
            (folder / f"{number}").touch()
        return {"folder": tmp_path / "run", "workers": 2}

    return allow


@pytest.mark.e2e
def test_a_part_whose_worker_died_is_computed_by_another(
    allow_deaths: Callable[[int], dict[str, Any]],
) -> None:
    found = evaluate(RECORDINGS, fatal, LIMITS, **allow_deaths(1))
    assert found.equals(evaluate(RECORDINGS, fatal, LIMITS))


def test_a_recording_during_which_two_workers_died_is_left_out(
    allow_deaths: Callable[[int], dict[str, Any]], tmp_path: Path
) -> None:
    options = allow_deaths(2)
    found = evaluate(RECORDINGS, fatal, LIMITS, **options)
    (failed,) = found.manifest["failed"]
    assert failed["recording"] == "order-4"
    assert "ended unexpectedly, perhaps out of memory" in failed["reason"]
    rest = [each for each in RECORDINGS if each.id != "order-4"]
    assert found.requests.equals(evaluate(rest, fatal, LIMITS).requests)
    assert not list((tmp_path / "run").glob(".*"))
    retried = evaluate(RECORDINGS, fatal, LIMITS, retry_failed=True, **options)
    assert retried.equals(evaluate(RECORDINGS, fatal, LIMITS))


def greedy(messages: list[Message]) -> Sequence[Message]:
    """Find no memory for one recording."""
    if "order 4" in messages[1].text:
        raise MemoryError
    return messages


def test_a_recording_for_which_the_memory_is_too_small_is_left_out(tmp_path: Path) -> None:
    found = evaluate(RECORDINGS, greedy, LIMITS, folder=tmp_path, workers=1)
    (failed,) = found.manifest["failed"]
    assert failed["recording"] == "order-4"
    assert failed["reason"].startswith("MemoryError: not enough memory; use fewer processes")
    assert len(found.recordings) == len(RECORDINGS) - 1


class Sending:
    """Executor that sends tasks as to a cluster: it pickles all of them, and then computes them."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.before_work: Callable[[], object] = list

    def __call__(self, function: Any, tasks: Any, *, on_death: object) -> Iterator[Any]:
        sent = list(map(pickle.dumps, tasks))
        self.sizes += map(len, sent)
        self.before_work()
        for task in sent:
            yield pickle.loads(pickle.dumps(function(pickle.loads(task))))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Sending:
    """Return the executor of a run with a scheduler."""
    sending = Sending()
    monkeypatch.setattr(experiment, "choose_executor", lambda workers, scheduler: sending)
    return sending


def write_files(folder: Path) -> None:
    """Write a file with four recordings, and one with two."""
    folder.mkdir()
    for name, some in (("a", RECORDINGS[:4]), ("b", RECORDINGS[4:])):
        text = "".join(map(native.dumps, some))
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")


def test_workers_of_a_cluster_read_the_recordings_themselves(
    tmp_path: Path, cluster: Sending
) -> None:
    write_files(tmp_path / "logs")
    read = partial(load, tmp_path / "logs", where="id!=a/order-2")
    found = evaluate(read(), FEW, LIMITS, folder=tmp_path / "run", scheduler="here")
    assert found.equals(evaluate(read(), FEW, LIMITS))
    assert max(cluster.sizes) < min(len(pickle.dumps(each)) for each in RECORDINGS) / 2


@pytest.mark.parametrize("change", ["gone", "changed"])
def test_a_file_that_changes_before_a_worker_reads_it_changes_no_result_and_is_told(
    tmp_path: Path, cluster: Sending, change: str
) -> None:
    write_files(tmp_path / "logs")
    file, read = tmp_path / "logs" / "a.jsonl", partial(load, tmp_path / "logs")
    expected = evaluate(read(), FEW, LIMITS)

    def change_file() -> None:
        file.unlink(missing_ok=True)
        if change == "changed":
            file.write_text(native.dumps(RECORDINGS[5]))

    cluster.before_work = change_file
    with pytest.warns(UserWarning, match=r"a\.jsonl: the file changed since it was read"):
        found = evaluate(read(), FEW, LIMITS, folder=tmp_path / "run", scheduler="here")
    assert found.equals(expected)


def test_a_file_that_cannot_be_read_alone_travels_as_contents(
    tmp_path: Path, cluster: Sending, recwarn: pytest.WarningsRecorder
) -> None:
    write_files(tmp_path / "logs")
    given = [
        replace(each, messages=(*each.messages, Message("user", f"from another file {number}")))
        for number, each in enumerate(load(tmp_path / "logs"))
    ]
    found = evaluate(given, FEW, LIMITS, folder=tmp_path / "run", scheduler="here")
    assert found.equals(evaluate(given, FEW, LIMITS))
    assert len(cluster.sizes) == 2 * len(given)  # each was tried
    assert not recwarn.list


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
