"""Run calls concurrently in threads, and let Ctrl+C interrupt the wait for their results."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TypeVar

_log = logging.getLogger("ctxlab.llm")
POLL_SECONDS = 0.2
"""Interval in seconds at which a waiting thread checks for interruptions such as Ctrl+C."""
MAX_CONCURRENT_CALLS = 5
"""Maximum number of concurrent calls, over all processes of an evaluation."""
_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


def map_unordered(
    function: Callable[[_Item, threading.Event], _Answer],
    items: Sequence[_Item],
    max_workers: int,
    on_result: Callable[[int, _Answer], object] | None = None,
) -> Generator[tuple[int, _Answer], None, None]:
    """Call a function for each item in several threads; yield results in order of completion.

    The work ends early if the caller is interrupted, if the caller closes the generator, or if a
    call of ``function`` raises an exception, which is passed on to the caller. The event
    ``cancelled`` is then set, and no further item is started. With ``on_result``, the generator
    waits until the running calls have ended and their results have been passed to ``on_result``,
    because the provider bills these calls. A second interruption ends this wait. Without
    ``on_result``, the generator does not wait. The threads are daemons, so a program that exits does
    not wait for them.

    Parameters
    ----------
    function : callable
        Called with an item and the event ``cancelled``; returns the result for the item.
    items : sequence
        Items to process.
    max_workers : int
        Maximum number of threads. Each thread processes one item at a time.
    on_result : callable, optional
        Called with the index of an item and its result, before both are yielded. Only one call runs
        at a time. It runs in the worker thread, because a signal may interrupt the main thread at
        any point, even during a database transaction.

    Yields
    ------
    tuple of int and object
        Index of an item, and the result for this item.

    Examples
    --------
    >>> sorted(map_unordered(lambda item, cancelled: item * 2, [3, 1, 2], max_workers=2))
    [(0, 6), (1, 2), (2, 4)]
    """
    waiting, take_lock, result_lock = iter(enumerate(items)), threading.Lock(), threading.Lock()
    cancelled, running = threading.Event(), set[int]()
    done: SimpleQueue[tuple[int, _Answer | None, BaseException | None]] = SimpleQueue()

    def work() -> None:
        while True:
            with take_lock:
                index, item = (None, None) if cancelled.is_set() else next(waiting, (None, None))
                if index is None:
                    return
                running.add(index)
            answer = failure = None
            try:
                answer = function(item, cancelled)  # type: ignore[arg-type]
                if on_result is not None:
                    with result_lock:
                        on_result(index, answer)
            except BaseException as error:  # raised again in the thread that waits for it
                cancelled.set()
                failure = error
            running.remove(index)
            done.put((index, answer, failure))

    for _ in range(min(max_workers, len(items))):
        threading.Thread(target=work, name="ctxlab-llm", daemon=True).start()
    try:
        for _ in items:
            index, answer, failure = get_interruptibly(done)
            if failure is not None:
                raise failure
            yield index, answer  # type: ignore[misc]
    except (KeyboardInterrupt, GeneratorExit):
        if on_result is not None and (calls := len(running)):
            _log.warning("waiting for %d running calls; press Ctrl+C again to stop at once", calls)
        raise
    finally:
        with take_lock:
            cancelled.set()
        # Check the set of running calls, because an interruption may have lost a result of the queue.
        while running and on_result is not None:
            with suppress(Empty):
                done.get(timeout=POLL_SECONDS)


def run_uninterrupted(function: Callable[[], object]) -> None:
    """Run a function to its end in another thread, so that no signal interrupts it.

    Parameters
    ----------
    function : callable
        Function to call, without arguments.

    Examples
    --------
    >>> run_uninterrupted(lambda: print("done"))
    done
    """
    list(map_unordered(lambda run, _: run(), [function], 1, on_result=lambda *_: None))


def get_interruptibly(queue: SimpleQueue[_Item]) -> _Item:
    """Wait for the next item of a queue and return it; Ctrl+C ends the wait at once.

    Parameters
    ----------
    queue : queue.SimpleQueue
        Queue to read from.

    Returns
    -------
    object
        Next item of the queue.
    """
    while True:
        try:
            return queue.get(timeout=POLL_SECONDS)
        except Empty:
            pass
