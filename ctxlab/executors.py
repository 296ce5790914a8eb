"""Recordings are independent, so an evaluation can use every core: one recording is one task.

Results come back in the order of the recordings, and no more of them are in flight than the workers
need, so that a stream of any length stays a stream.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pickle import PicklingError
from typing import Any, TypeVar

from ctxlab.errors import CtxlabError, SpecError

__all__ = ["execute", "usable_workers"]

_Task = TypeVar("_Task")
_Answer = TypeVar("_Answer")

# In a worker: what it does, and what it does it to.
_work: Callable[[Any], Any] | None = None
_known: Sequence[Any] = ()


def execute(
    work: Callable[[_Task], _Answer],
    tasks: Iterable[_Task],
    workers: int | None = None,
    size: Callable[[_Task], int] | None = None,
) -> Iterator[_Answer]:
    """``work(task)`` for every task, in order, on ``workers`` processes.

    None uses every core where a process can be forked cheaply and safely, else none but this one.
    ``size`` says how long a task takes beside the others, so that the longest begin first where all are
    at hand. Raises what ``work`` raises; ``SpecError`` where it cannot be sent to another process.
    """
    count = usable_workers() if workers is None else workers
    if count < 1:
        raise SpecError(f"workers is at least 1, not {workers}")
    if count == 1:
        yield from map(work, tasks)
        return
    # What is at hand before the fork need not be sent: its place is enough.
    known = tasks if _method() == "fork" and isinstance(tasks, Sequence) else ()
    others = set(multiprocessing.active_children())
    with _pool(work, known, count) as pool:
        try:
            if known:
                yield from _longest_first(pool, known, size)
                return
            ahead: deque[Future[_Answer]] = deque()
            for task in tasks:
                ahead.append(pool.submit(_call, task))
                if len(ahead) > 2 * count:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        except BrokenProcessPool:
            raise CtxlabError(
                "a worker process ended unexpectedly, perhaps for want of memory; try workers=1"
            ) from None
        except (AttributeError, TypeError, PicklingError) as error:
            if "pickle" not in str(error):
                raise
            raise SpecError(
                f"this cannot be sent to a worker process: {error}; try workers=1"
            ) from None
        except BaseException:
            # Cancelled, or nobody listens any more: what is under way is not worth waiting for.
            left = set(multiprocessing.active_children()) - others
            for worker in left:
                worker.terminate()
            for worker in left:
                worker.join()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def usable_workers() -> int:
    """Cores that an evaluation takes by itself: all, where forking is cheap and safe, else one."""
    # A thread of this program's own may hold a lock at the moment of the fork; macOS forbids it anyway.
    if sys.platform != "linux" or threading.active_count() > 1:
        return 1
    return len(os.sched_getaffinity(0))


def _longest_first(
    pool: ProcessPoolExecutor, known: Sequence[Any], size: Callable[[Any], int] | None
) -> Iterator[Any]:
    places = range(len(known))
    order = sorted(places, key=lambda place: -size(known[place])) if size else places
    futures = {place: pool.submit(_call, place) for place in order}
    for place in places:
        yield futures.pop(place).result()


def _method() -> str:
    return "fork" if sys.platform == "linux" else "spawn"


def _pool(work: Callable[[Any], Any], known: Sequence[Any], count: int) -> ProcessPoolExecutor:
    context = multiprocessing.get_context(_method())
    return _Quiet(count, context, initializer=_begin, initargs=(work, known))


class _Quiet(ProcessPoolExecutor):
    """Forks without CPython's warning about threads: those that are there are numpy's, and idle."""

    def submit(self, /, *args: Any, **kwargs: Any) -> Future[Any]:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "This process", DeprecationWarning)
            return super().submit(*args, **kwargs)


def _begin(work: Callable[[Any], Any], known: Sequence[Any]) -> None:
    global _work, _known
    _work, _known = work, known
    gc.freeze()  # what was there before the fork need not be looked at again, nor copied
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the parent, which ends its workers


def _call(task: Any) -> Any:
    assert _work is not None
    return _work(_known[task] if _known else task)
