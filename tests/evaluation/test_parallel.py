"""Tests of parallel work: same results as one process, in order, and no waiting after an error."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxlab.errors import CtxlabError, SpecError, StrategyError
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.parallel import map_parallel
from ctxlab.messages.types import Message, Recording

WORKERS = (1, 2)
forks = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks cheaply")


def square(number: int) -> int:
    return number * number


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("stream", [False, True])
def test_answers_come_in_the_order_of_the_tasks(workers: int, stream: bool) -> None:
    tasks = range(20)
    given = iter(tasks) if stream else tasks
    answers = list(map_parallel(square, given, workers, task_size=lambda task: -task))
    assert answers == [square(task) for task in tasks]


@forks
def test_two_workers_are_other_processes() -> None:
    assert os.getpid() not in set(map_parallel(lambda _: os.getpid(), range(8), 2))


@forks
def test_a_stream_is_not_read_far_ahead() -> None:
    read = []

    def tasks() -> Iterator[int]:
        for number in range(1000):
            read.append(number)
            yield number

    answers = map_parallel(square, tasks(), 2)
    next(answers)
    assert len(read) < 10
    answers.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("workers", WORKERS)
def test_what_the_work_raises_is_raised(workers: int) -> None:
    def fail(number: int) -> int:
        raise StrategyError(f"not {number}")

    with pytest.raises(StrategyError, match="not 0"):
        list(map_parallel(fail, range(4), workers))


@forks
def test_no_worker_is_left_when_nobody_listens() -> None:
    before = set(multiprocessing.active_children())
    answers = map_parallel(square, range(50), 2)
    next(answers)
    assert len(set(multiprocessing.active_children()) - before) == 2
    answers.close()  # type: ignore[attr-defined]
    assert set(multiprocessing.active_children()) <= before


@forks
def test_no_thread_is_started_beside_the_workers() -> None:
    before = threading.active_count()
    answers = map_parallel(square, range(50), 2)
    next(answers)
    assert threading.active_count() == before
    answers.close()  # type: ignore[attr-defined]


@forks
@pytest.mark.parametrize("delay", [0.002, 0.02, 0.1])
def test_an_interrupt_ends_at_once_and_work_can_begin_again(delay: float) -> None:
    def large(_: int) -> bytes:  # workers are stopped while they write, sooner or later
        return bytes(3_000_000)

    def endless() -> Iterator[int]:
        while True:
            yield 0

    def run_until_interrupted() -> None:
        signal.setitimer(signal.ITIMER_REAL, delay)  # may be over before the next line
        deque(map_parallel(large, endless(), 2), maxlen=0)

    before = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        with pytest.raises(KeyboardInterrupt):
            run_until_interrupted()
        began = time.monotonic()
        assert list(map_parallel(square, range(8), 2)) == [square(number) for number in range(8)]
        assert time.monotonic() - began < 60
    finally:
        signal.signal(signal.SIGALRM, before)


@forks
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_workers_die_with_their_parent(how: signal.Signals) -> None:
    code = (
        "import os, time\nfrom ctxlab.evaluation.parallel import map_parallel\n"
        # One write a line: two workers share the pipe.
        "def wait(_):\n    os.write(1, b'%d\\n' % os.getpid())\n    time.sleep(60)\n"
        "list(map_parallel(wait, range(2), 2))\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        workers = [int(process.stdout.readline()) for _ in range(2)]
        assert all(map(runs, workers))
        process.send_signal(how)
    soon = time.monotonic() + 5
    while any(map(runs, workers)) and time.monotonic() < soon:
        time.sleep(0.01)
    assert not any(map(runs, workers))


def runs(process: int) -> bool:
    """Return True if a process exists and is not a zombie."""
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False


@forks
@pytest.mark.parametrize("stream", [False, True])
def test_a_worker_that_is_killed_is_an_error_and_not_a_wait(stream: bool) -> None:
    def die(_: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(CtxlabError, match="ended unexpectedly"):
        list(map_parallel(die, iter(range(9)) if stream else range(9), 2))


@forks
def test_what_cannot_be_sent_is_refused() -> None:
    with pytest.raises(SpecError, match="cannot send data to a worker process"):
        list(map_parallel(lambda _: lambda: None, range(3), 2))
    with pytest.raises(SpecError, match="cannot send data to a worker process"):
        list(map_parallel(square, iter([lambda: None]), 2))  # type: ignore[list-item]


class Odd(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


@forks
def test_an_error_that_cannot_be_received_says_what_it_was() -> None:
    def fail(_: int) -> None:
        raise Odd(1, 2)

    with pytest.raises(RuntimeError, match="Odd: 1 and 2"):
        list(map_parallel(fail, range(3), 2))


@forks
def test_what_workers_print_is_not_lost() -> None:
    code = (
        "import sys\nfrom ctxlab.evaluation.parallel import map_parallel\n"
        # One write a line: print makes several where Python is told to buffer nothing.
        "def say(n):\n    sys.stdout.write(f'said {n}\\n')\n"
        "for _ in map_parallel(say, range(6), 2): pass\n"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, timeout=60)
    assert sorted(done.stdout.split()) == sorted(
        b"said 0 said 1 said 2 said 3 said 4 said 5".split()
    )


def test_fewer_than_one_worker_is_refused() -> None:
    with pytest.raises(SpecError, match="at least 1"):
        list(map_parallel(square, range(3), 0))


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
