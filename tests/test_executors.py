"""Work on several processes gives what one process gives, in order, and nothing is waited for."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Iterator

import pytest

from ctxlab.conversation import Message, Recording
from ctxlab.errors import SpecError, StrategyError
from ctxlab.executors import execute
from ctxlab.experiment import evaluate

WORKERS = (1, 2)
forks = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks cheaply")


def square(number: int) -> int:
    return number * number


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("stream", [False, True])
def test_answers_come_in_the_order_of_the_tasks(workers: int, stream: bool) -> None:
    tasks = range(20)
    given = iter(tasks) if stream else tasks
    answers = list(execute(square, given, workers, size=lambda task: -task))
    assert answers == [square(task) for task in tasks]


@forks
def test_two_workers_are_other_processes() -> None:
    assert os.getpid() not in set(execute(lambda _: os.getpid(), range(8), 2))


@forks
def test_a_stream_is_not_read_far_ahead() -> None:
    read = []

    def tasks() -> Iterator[int]:
        for number in range(1000):
            read.append(number)
            yield number

    answers = execute(square, tasks(), 2)
    next(answers)
    assert len(read) < 10
    answers.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("workers", WORKERS)
def test_what_the_work_raises_is_raised(workers: int) -> None:
    def fail(number: int) -> int:
        raise StrategyError(f"not {number}")

    with pytest.raises(StrategyError, match="not 0"):
        list(execute(fail, range(4), workers))


@forks
def test_no_worker_is_left_when_nobody_listens() -> None:
    before = set(multiprocessing.active_children())
    answers = execute(square, range(50), 2)
    next(answers)
    answers.close()  # type: ignore[attr-defined]
    # A worker that is dead is listed until it has been asked after.
    soon = time.monotonic() + 10
    while set(multiprocessing.active_children()) - before and time.monotonic() < soon:
        time.sleep(0.01)
    assert set(multiprocessing.active_children()) <= before


def test_fewer_than_one_worker_is_refused() -> None:
    with pytest.raises(SpecError, match="at least 1"):
        list(execute(square, range(3), 0))


@forks
def test_an_evaluation_is_the_same_on_any_number_of_workers() -> None:
    talk = (Message("user", "see a.py"), Message("assistant", "seen"), Message("user", "again"))
    recordings = [
        Recording(f"r{i}", (*talk * (i + 1), Message("assistant", "bye"))) for i in range(5)
    ]
    one, two = (
        evaluate(recordings, ["full", "sliding_window()"], [30], workers=workers, progress=False)
        for workers in WORKERS
    )
    assert one.equals(two)
