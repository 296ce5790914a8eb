"""Recordings are independent, so an evaluation can use every core: one recording is one task.

Results come back in the order of the recordings, and no more of them are in flight than the workers
need, so that a stream of any length stays a stream. Each worker is a process with a pipe of its own and
shares nothing else, no lock and no queue, so it can be killed at any moment and nobody hangs.
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
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeAlias, TypeVar

from ctxlab.errors import CtxlabError, SpecError

__all__ = ["default_worker_count", "map_parallel"]

_Task = TypeVar("_Task")
_Answer = TypeVar("_Answer")
_WorkerPool: TypeAlias = dict[Connection, BaseProcess]

_CANCEL_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_END_OF_TASKS = object()


def map_parallel(
    function: Callable[[_Task], _Answer],
    tasks: Iterable[_Task],
    workers: int | None = None,
    task_size: Callable[[_Task], int] | None = None,
) -> Iterator[_Answer]:
    """``function(task)`` for every task, in order, on ``workers`` processes.

    None uses every core where a process can be forked cheaply and safely, else none but this one.
    ``task_size`` says how long a task takes beside the others, so that the longest begin first
    where all are at hand. Raises what ``function`` raises; ``SpecError`` where it cannot be sent to
    another process; ``CtxlabError`` where a process dies. However this ends, no worker is left, nor
    when this process is killed.
    """
    count = default_worker_count() if workers is None else workers
    if count < 1:
        raise SpecError(f"workers is at least 1, not {workers}")
    if count == 1:
        yield from map(function, tasks)
        return
    # What is at hand before the fork need not be sent: its place is enough.
    known = tasks if _start_method() == "fork" and isinstance(tasks, Sequence) else ()
    team: _WorkerPool = {}
    try:
        for _ in range(min(count, len(known) or count)):
            _start_worker(team, function, known)
        if known:
            yield from _iter_in_order(team, _longest_first(known, task_size), len(known))
        else:
            yield from _iter_in_order(team, enumerate(tasks), 2 * count)
        for connection in team:
            _send(connection, b"")
        for process in team.values():
            process.join()
    finally:
        # After a failure, when cancelled, or when nobody listens any more, some are still at work.
        for process in team.values():
            process.kill()
        for connection, process in team.items():
            process.join()
            connection.close()


def default_worker_count() -> int:
    """Cores that an evaluation takes by itself: all, where forking is cheap and safe, else one."""
    # A thread of this program's own may hold a lock at the moment of the fork; macOS forbids it anyway.
    if sys.platform != "linux" or threading.active_count() > 1:
        return 1
    return len(os.sched_getaffinity(0))


def _start_method() -> str:
    return "fork" if sys.platform == "linux" else "spawn"


def _longest_first(
    known: Sequence[Any], task_size: Callable[[Any], int] | None
) -> Iterator[tuple[int, int]]:
    places = range(len(known))
    order = sorted(places, key=lambda place: -task_size(known[place])) if task_size else places
    return ((place, place) for place in order)


def _iter_in_order(
    team: _WorkerPool, tasks: Iterator[tuple[int, Any]], window: int
) -> Iterator[Any]:
    """The answer to each ``(place, task)`` by place; at most ``window`` are begun and not yet given."""
    ready: deque[tuple[int, Any]] = deque()  # read while all are at work, so that nobody waits
    idle, busy = list(team), dict[Connection, int]()
    done: dict[int, tuple[bool, Any]] = {}
    begun = yielded = 0
    more = True
    while more or ready or busy or done:
        # A worker gets its next task when its answer is here: no two ever wait to write to each other.
        while ready and idle:
            place, task = ready.popleft()
            connection = idle.pop()
            _send(connection, _pickle(task))
            busy[connection] = place
        if yielded in done:
            yield _unwrap_answer(*done.pop(yielded))
            yielded += 1
            continue
        room = more and begun < yielded + window and len(ready) < len(team)
        if room:
            following: Any = next(tasks, _END_OF_TASKS)
            if following is _END_OF_TASKS:
                more = False
            else:
                ready.append(following)
                begun += 1
        for heard in wait(list(busy), 0 if room else None):
            assert isinstance(heard, Connection)
            done[busy.pop(heard)] = pickle.loads(_receive(heard))
            idle.append(heard)


def _unwrap_answer(good: bool, answer: Any) -> Any:
    if good:
        return answer
    error, where = answer
    error.add_note(f"In a worker process:\n{where}")
    raise error


def _start_worker(team: _WorkerPool, work: Callable[[Any], Any], known: Sequence[Any]) -> None:
    context: Any = multiprocessing.get_context(_start_method())
    ours, theirs = context.Pipe()
    process = context.Process(target=_run_worker, args=(theirs, work, known), daemon=True)
    with warnings.catch_warnings(), _translate_pickle_errors(), _defer_signals():
        # CPython warns about threads: those that are there are numpy's, and idle.
        warnings.filterwarnings("ignore", "This process", DeprecationWarning)
        process.start()
        team[ours] = process
    theirs.close()


def _send(connection: Connection, data: bytes) -> None:
    with _translate_worker_death():
        connection.send_bytes(data)


def _receive(connection: Connection) -> bytes:
    with _translate_worker_death():
        return connection.recv_bytes()


@contextmanager
def _translate_worker_death() -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError):
        raise CtxlabError(
            "a worker process ended unexpectedly, perhaps for want of memory; try workers=1"
        ) from None


def _pickle(thing: Any) -> bytes:
    with _translate_pickle_errors():
        return pickle.dumps(thing)


@contextmanager
def _translate_pickle_errors() -> Iterator[None]:
    try:
        yield
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise SpecError(
            f"this cannot be sent to a worker process: {error}; try workers=1"
        ) from None


@contextmanager
def _defer_signals() -> Iterator[None]:
    """A cancel waits for the end of the block: what is raised while a process forks may be lost."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread hears signals
        return
    heard: list[int] = []
    before = {number: signal.getsignal(number) for number in _CANCEL_SIGNALS}
    for number in _CANCEL_SIGNALS:
        signal.signal(number, lambda number, _: heard.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for again in heard:
            signal.raise_signal(again)


def _run_worker(connection: Connection, work: Callable[[Any], Any], known: Sequence[Any]) -> None:
    """What a worker does: answers one task after the other until it is told nothing."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the parent, which ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    gc.freeze()  # what was there before the fork need not be looked at again, nor copied
    with suppress(EOFError, OSError):  # the parent is gone
        while data := connection.recv_bytes():
            task = pickle.loads(data)
            try:
                answer = _pickle((True, work(known[task] if known else task)))
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
        pickle.loads(data)  # some errors can be sent and not be received
        return data
    except Exception:
        told = RuntimeError(f"{type(error).__name__}: {error}")
        return pickle.dumps((False, (told, where)))
