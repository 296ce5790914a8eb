"""Run one task per recording in several worker processes.

Results are returned in the order of the tasks. A task is read from the iterator only when a worker
will soon need it, so that an iterator of any length does not fill the memory. Each worker has its
own pipe to the main process. Workers share no lock and no queue, so killing a worker at any time
cannot cause a deadlock.
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
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeAlias, TypeVar

from ctxlab._utils.signals import defer_signals
from ctxlab.errors import CtxlabError, SpecError
from ctxlab.tokens.count_cache import close_count_caches

_Task = TypeVar("_Task")
_Answer = TypeVar("_Answer")
_Workers: TypeAlias = dict[Connection, BaseProcess]

MAX_DEATHS = 10
"""Number of times that a task is computed again because a worker process died."""

WORKER_DIED = "a worker process ended unexpectedly, perhaps out of memory; try workers=1"
"""Message of the error if a worker process died and its task is not computed again."""

_START_METHOD = "fork" if sys.platform == "linux" else "spawn"


def map_parallel(
    function: Callable[[_Task], _Answer],
    tasks: Iterable[_Task],
    workers: int | None = None,
    task_size: Callable[[_Task], int] | None = None,
    *,
    on_death: Callable[[_Task], _Task] | None = None,
) -> Iterator[_Answer]:
    """Compute ``function(task)`` for each task in worker processes, and yield the results in order.

    All workers are stopped when the iteration ends or the main process is killed.

    Parameters
    ----------
    function : callable
        Computes the result of one task.
    tasks : iterable
        Arguments of ``function``.
    workers : int, optional
        Number of worker processes; 1 computes everything in the current process. None calls
        ``default_worker_count``.
    task_size : callable, optional
        Estimates the relative duration of a task. If ``tasks`` is a sequence, tasks with a long
        duration start first.
    on_death : callable, optional
        Called with a task during which a worker process ended unexpectedly. Returns the task that a
        new process computes instead. None raises an error.

    Yields
    ------
    object
        Result of the next task.

    Raises
    ------
    SpecError
        If ``workers`` is not positive, or if a task or result cannot be pickled.
    CtxlabError
        If a worker process ends unexpectedly, and its task is not computed again.
    """
    count = default_worker_count() if workers is None else workers
    if count < 1:
        raise SpecError(f"workers: expected at least 1 process, got {workers}")
    if count == 1:
        try:
            yield from map(function, tasks)
        finally:
            close_count_caches()
        return
    work: Callable[[Any], _Answer] = function
    numbered: Iterator[tuple[int, Any]] = enumerate(tasks)
    window = 2 * count
    if _START_METHOD == "fork" and isinstance(tasks, Sequence) and on_death is None:
        # Forked workers inherit tasks that exist before the fork, so send only the index of a task.
        size = task_size or (lambda _: 0)
        order = sorted(range(len(tasks)), key=lambda place: -size(tasks[place]))
        work = partial(_call_at, function, tasks)
        numbered, window = zip(order, order, strict=True), max(len(tasks), 1)
        count = min(count, window)
    team: _Workers = {}
    try:
        for _ in range(count):
            _start_worker(team, work)
        yield from _iter_in_order(
            team, numbered, window, partial(_replace_worker, team, work), on_death
        )
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
    """Return the default number of processes.

    This is the number of available cores on Linux if the process has a single thread. Otherwise it
    is 1, because forking would not be safe or starting a process would be slow.

    Returns
    -------
    int
        Number of processes, at least 1.
    """
    # Another thread may hold a lock at the time of the fork. On macOS forking is never safe.
    if sys.platform != "linux" or threading.active_count() > 1:
        return 1
    return len(os.sched_getaffinity(0))


def _call_at(function: Callable[[_Task], _Answer], known: Sequence[_Task], place: int) -> _Answer:
    return function(known[place])


def _iter_in_order(
    team: _Workers,
    tasks: Iterator[tuple[int, Any]],
    window: int,
    replace_worker: Callable[[Connection], Connection],
    on_death: Callable[[Any], Any] | None,
) -> Iterator[Any]:
    """Yield results in the order of the task numbers, with at most ``window`` unfinished tasks."""
    ready: deque[tuple[int, Any]] = deque()  # tasks read in advance, so that workers need not wait
    idle, busy = list(team), dict[Connection, tuple[int, Any]]()
    deaths: Counter[int] = Counter()
    done: dict[int, tuple[bool, Any]] = {}
    begun = yielded = 0
    more = True
    while more or ready or busy or done:
        # Send a worker its next task only after its result is read, so that neither blocks on writing.
        while ready and idle:
            place, task = ready.popleft()
            connection = idle.pop()
            busy[connection] = place, task
            with suppress(_WorkerDied):  # noticed below: nothing can be received from it either
                _send(connection, _pickle(task))
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
            place, task = busy.pop(heard)
            try:
                with _translate_errors():
                    answer = heard.recv_bytes()
            except _WorkerDied:
                deaths[place] += 1
                if on_death is None or deaths[place] > MAX_DEATHS:
                    raise
                idle.append(replace_worker(heard))
                ready.appendleft((place, on_death(task)))
                continue
            done[place] = pickle.loads(answer)
            idle.append(heard)


class _WorkerDied(CtxlabError):
    """A worker process ended unexpectedly."""


def _replace_worker(team: _Workers, work: Callable[[Any], Any], old: Connection) -> Connection:
    """Start a process instead of one that ended, and return its connection."""
    process = team.pop(old)
    process.kill()
    process.join()
    old.close()
    return _start_worker(team, work)


def _start_worker(team: _Workers, work: Callable[[Any], Any]) -> Connection:
    context: Any = multiprocessing.get_context(_START_METHOD)
    ours: Connection
    ours, theirs = context.Pipe()
    process = context.Process(target=_run_worker, args=(theirs, work), daemon=True)
    # Defer signals: an exception that a signal raises during a fork may be lost.
    with warnings.catch_warnings(), _translate_errors(), defer_signals():
        # CPython warns about forking a process with threads, but only idle threads of numpy exist.
        warnings.filterwarnings("ignore", "This process", DeprecationWarning)
        process.start()
        team[ours] = process
    theirs.close()
    return ours


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
        raise _WorkerDied(WORKER_DIED) from None
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise SpecError(f"cannot send data to a worker process: {error}; try workers=1") from None


def _run_worker(connection: Connection, work: Callable[[Any], Any]) -> None:
    """Compute the tasks that arrive through the pipe, until an empty message arrives."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl+C and stops the workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    gc.freeze()  # scanning objects from before the fork would copy their memory pages
    with suppress(EOFError, OSError):  # the parent exited
        while data := connection.recv_bytes():
            task = pickle.loads(data)
            try:
                answer = _pickle((True, work(task)))
            except BaseException as error:
                answer = _pickle_error(error)
            connection.send_bytes(answer)
    close_count_caches()


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
