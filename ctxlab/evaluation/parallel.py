"""Run one task per recording on several processes.

Results are returned in the order of the tasks. Only as many tasks as the workers need are in
flight, so a stream of any length stays a stream. Each worker is a process with its own pipe.
Workers share no lock and no queue, so any of them can be killed at any moment without a deadlock.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeAlias, TypeVar

from ctxlab._utils.signals import defer_signals
from ctxlab.errors import CtxlabError, SpecError

_Task = TypeVar("_Task")
_Answer = TypeVar("_Answer")
_Workers: TypeAlias = dict[Connection, BaseProcess]

_START_METHOD = "fork" if sys.platform == "linux" else "spawn"


def map_parallel(
    function: Callable[[_Task], _Answer],
    tasks: Iterable[_Task],
    workers: int | None = None,
    task_size: Callable[[_Task], int] | None = None,
) -> Iterator[_Answer]:
    """Yield ``function(task)`` for every task, in order, computed on several processes.

    No worker process outlives the iteration, even if this process is killed.

    Parameters
    ----------
    function : callable
        Computes the result of one task.
    tasks : iterable
        The tasks.
    workers : int, optional
        Number of processes. None takes every core if forking is cheap and safe, else only this
        process.
    task_size : callable, optional
        Returns the relative duration of a task. If all tasks are known in advance, the longest
        start first.

    Yields
    ------
    object
        The result of each task.

    Raises
    ------
    SpecError
        If ``workers`` is not positive, or a task cannot be sent to another process.
    CtxlabError
        If a worker process dies.
    """
    count = default_worker_count() if workers is None else workers
    if count < 1:
        raise SpecError(f"workers must be at least 1, got {workers}")
    if count == 1:
        yield from map(function, tasks)
        return
    work: Callable[[Any], _Answer] = function
    numbered: Iterator[tuple[int, Any]] = enumerate(tasks)
    window = 2 * count
    if _START_METHOD == "fork" and isinstance(tasks, Sequence):
        # Tasks that are known before the fork are inherited: send only their index.
        size = task_size or (lambda _: 0)
        order = sorted(range(len(tasks)), key=lambda place: -size(tasks[place]))
        work = partial(_call_at, function, tasks)
        numbered, window = zip(order, order, strict=True), max(len(tasks), 1)
        count = min(count, window)
    team: _Workers = {}
    try:
        for _ in range(count):
            _start_worker(team, work)
        yield from _iter_in_order(team, numbered, window)
        for connection in team:
            _send(connection, b"")
        for process in team.values():
            process.join()
    finally:
        # After a failure or a cancellation some workers are still running.
        for process in team.values():
            process.kill()
        for connection, process in team.items():
            process.join()
            connection.close()


def default_worker_count() -> int:
    """Return the default number of processes: all cores if forking is cheap and safe, else one.

    Returns
    -------
    int
        Number of processes.
    """
    # Another thread may hold a lock at the moment of the fork; on macOS forking is not safe at all.
    if sys.platform != "linux" or threading.active_count() > 1:
        return 1
    return len(os.sched_getaffinity(0))


def _call_at(function: Callable[[_Task], _Answer], known: Sequence[_Task], place: int) -> _Answer:
    return function(known[place])


def _iter_in_order(team: _Workers, tasks: Iterator[tuple[int, Any]], window: int) -> Iterator[Any]:
    """Yield the result of each ``(place, task)`` by place, with at most ``window`` tasks in flight."""
    ready: deque[tuple[int, Any]] = deque()  # tasks read in advance, so that no worker waits
    idle, busy = list(team), dict[Connection, int]()
    done: dict[int, tuple[bool, Any]] = {}
    begun = yielded = 0
    more = True
    while more or ready or busy or done:
        # A worker gets its next task only after its answer is read, so both never block on writing.
        while ready and idle:
            place, task = ready.popleft()
            connection = idle.pop()
            _send(connection, _pickle(task))
            busy[connection] = place
        if yielded in done:
            good, answer = done.pop(yielded)
            if not good:
                error, where = answer
                error.add_note(f"In a worker process:\n{where}")
                raise error
            yield answer
            yielded += 1
            continue
        room = more and begun < yielded + window and len(ready) < len(team)
        if room:
            following = list(islice(tasks, 1))
            more = bool(following)
            ready += following
            begun += len(following)
        for heard in wait(list(busy), 0 if room else None):
            assert isinstance(heard, Connection)
            with _translate_errors():
                answer = heard.recv_bytes()
            done[busy.pop(heard)] = pickle.loads(answer)
            idle.append(heard)


def _start_worker(team: _Workers, work: Callable[[Any], Any]) -> None:
    context: Any = multiprocessing.get_context(_START_METHOD)
    ours, theirs = context.Pipe()
    process = context.Process(target=_run_worker, args=(theirs, work), daemon=True)
    # An exception in the middle of a fork may be lost.
    with warnings.catch_warnings(), _translate_errors(), defer_signals():
        # CPython warns about forking with threads; the only ones are numpy's idle threads.
        warnings.filterwarnings("ignore", "This process", DeprecationWarning)
        process.start()
        team[ours] = process
    theirs.close()


def _send(connection: Connection, data: bytes) -> None:
    with _translate_errors():
        connection.send_bytes(data)


def _pickle(thing: Any) -> bytes:
    with _translate_errors():
        return pickle.dumps(thing)


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError):
        what = "a worker process ended unexpectedly, perhaps out of memory; try workers=1"
        raise CtxlabError(what) from None
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise SpecError(f"cannot be sent to a worker process: {error}; try workers=1") from None


def _run_worker(connection: Connection, work: Callable[[Any], Any]) -> None:
    """Answer one task after another until an empty message arrives."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl+C and ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    gc.freeze()  # do not scan, and so copy, objects from before the fork
    with suppress(EOFError, OSError):  # the parent exited
        while data := connection.recv_bytes():
            task = pickle.loads(data)
            try:
                answer = _pickle((True, work(task)))
            except BaseException as error:
                answer = _pickle_error(error)
            connection.send_bytes(answer)


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _pickle_error(error: BaseException) -> bytes:
    where = traceback.format_exc()
    try:
        data = pickle.dumps((False, (error, where)))
        pickle.loads(data)  # some errors can be pickled but not unpickled
        return data
    except Exception:
        told = RuntimeError(f"{type(error).__name__}: {error}")
        return pickle.dumps((False, (told, where)))
