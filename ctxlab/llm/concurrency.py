"""Concurrent calls in threads that react to Ctrl+C."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TypeVar, cast

_log = logging.getLogger("ctxlab.llm")
POLL_SECONDS = 0.2
"""Interval in seconds at which a wait checks for interruptions."""
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
    """Yield the result of ``function`` for each item, in order of completion.

    The caller no longer wants results when it is interrupted, when it closes the generator, or when
    a call of ``function`` raises (the error is passed on). Then ``cancelled`` is set and no further
    item is started. Calls that are already running are paid for: with ``on_result``, they are
    awaited and stored before the interruption or error is passed on. A second interruption leaves
    at once. Without ``on_result``, the first one does. The threads are daemons, so a program that
    exits does not wait for them.

    Parameters
    ----------
    function : callable
        Called with an item and the event ``cancelled``.
    items : sequence
        The items.
    max_workers : int
        Maximum number of items that are started and not yet passed to ``on_result``.
    on_result : callable, optional
        Called with index and result before they are yielded, one result at a time. It runs in the
        worker thread, because a signal may interrupt the main thread at any point, even within a
        database transaction.

    Yields
    ------
    tuple of int and object
        Index of the item and its result.

    Examples
    --------
    >>> sorted(map_unordered(lambda item, cancelled: item * 2, [3, 1, 2], max_workers=2))
    [(0, 6), (1, 2), (2, 4)]
    """
    todo, taking, keeping = iter(enumerate(items)), threading.Lock(), threading.Lock()
    cancelled, under_way = threading.Event(), set[int]()
    ready: SimpleQueue[tuple[int, _Answer | None, BaseException | None]] = SimpleQueue()

    def work() -> None:
        while True:
            with taking:
                place, item = (None, None) if cancelled.is_set() else next(todo, (None, None))
                if place is None:
                    return
                under_way.add(place)
            try:
                answer = function(item, cancelled)  # type: ignore[arg-type]
                if on_result is not None:
                    with keeping:
                        on_result(place, answer)
                came: tuple[int, _Answer | None, BaseException | None] = place, answer, None
            except BaseException as error:  # raised again in the thread that waits for it
                cancelled.set()
                came = place, None, error
            under_way.remove(place)
            ready.put(came)

    for _ in range(min(max_workers, len(items))):
        threading.Thread(target=work, name="ctxlab-llm", daemon=True).start()
    try:
        for _ in items:
            place, answer, error = get_interruptibly(ready)
            if error is not None:
                raise error
            yield place, answer  # type: ignore[misc]
    except (KeyboardInterrupt, GeneratorExit):
        if on_result is not None and (calls := len(under_way)):
            _log.warning("waiting for %d running calls; interrupt again to leave now", calls)
        raise
    finally:
        with taking:
            cancelled.set()
        # Rely on the threads' own record: an interruption may have lost an item of the queue.
        while under_way and on_result is not None:
            with suppress(Empty):
                ready.get(timeout=POLL_SECONDS)


def run_uninterrupted(function: Callable[[], _Answer]) -> _Answer:
    """Run a function to its end in a thread that no signal interrupts.

    Parameters
    ----------
    function : callable
        Called without arguments.

    Returns
    -------
    object
        Result of the function.

    Examples
    --------
    >>> run_uninterrupted(lambda: 2 + 2)
    4
    """
    ((_, done),) = map_unordered(lambda todo, _: todo(), [function], 1, on_result=lambda *_: None)
    return cast("_Answer", done)


def get_interruptibly(queue: SimpleQueue[_Item]) -> _Item:
    """Return the next item of a queue; an interruption ends the wait.

    Parameters
    ----------
    queue : queue.SimpleQueue
        The queue.

    Returns
    -------
    object
        The item.
    """
    while True:
        try:
            return queue.get(timeout=POLL_SECONDS)
        except Empty:
            pass
