"""Ask several requests at once: threads that hear Ctrl+C, and the client protocol on top of them."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from queue import Empty, SimpleQueue
from typing import TypeVar, cast

from ctxlab.errors import ModelUnavailable
from ctxlab.llm.base import Reply, Request

__all__ = [
    "MAX_CONCURRENT_CALLS",
    "POLL_SECONDS",
    "BatchMixin",
    "get_interruptibly",
    "map_unordered",
    "run_uninterrupted",
]

_log = logging.getLogger("ctxlab.llm")
POLL_SECONDS = 0.2
"""Seconds after which an interruption is heard, where it does not end the wait itself."""
MAX_CONCURRENT_CALLS = 5
"""Calls that are made at a time, by all processes of an evaluation together."""
_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


def map_unordered(
    function: Callable[[_Item, threading.Event], _Answer],
    items: Sequence[_Item],
    max_workers: int,
    on_result: Callable[[int, _Answer], object] | None = None,
) -> Generator[tuple[int, _Answer], None, None]:
    """What ``function`` gives for each item with the item's place, the first to be ready first.

    ``on_result`` is given place and answer before they are handed out, one answer at a time. It is
    called in the thread that asked: a signal interrupts the main thread at any point, in the middle
    of a transaction too. No more than ``max_workers`` items are ever begun and not yet kept.

    ``function`` is also given an event: it is set once nobody wants the rest, because the caller was
    interrupted, closed the iterator, or a call of ``function`` raised an error, which goes on to the
    caller. No further item is then begun. What is under way has been paid for: where there is an
    ``on_result``, it is waited for and kept before the interruption or the error goes on. A second
    interruption leaves at once, as the first does where nothing is kept: the threads are daemons,
    which a program that ends does not wait for.

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
            except BaseException as error:  # it is raised where it is awaited
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
            _log.warning("waiting for %d calls under way; interrupt again to leave", calls)
        raise
    finally:
        with taking:
            cancelled.set()
        # By what the threads themselves say: an interruption may have lost what came out of the queue.
        while under_way and on_result is not None:
            with suppress(Empty):
                ready.get(timeout=POLL_SECONDS)


def run_uninterrupted(function: Callable[[], _Answer]) -> _Answer:
    """What ``function`` gives, done to its end in a thread that no signal interrupts.

    >>> run_uninterrupted(lambda: 2 + 2)
    4
    """
    ((_, done),) = map_unordered(lambda todo, _: todo(), [function], 1, on_result=lambda *_: None)
    return cast("_Answer", done)


def get_interruptibly(queue: SimpleQueue[_Item]) -> _Item:
    """What comes out of a queue next, in a wait that an interruption ends."""
    while True:
        try:
            return queue.get(timeout=POLL_SECONDS)
        except Empty:
            pass


class BatchMixin(ABC):
    """The rest of a client's protocol, made from ``complete_each``."""

    def complete(self, request: Request, /) -> Reply:
        """The reply; raises ``ModelRequestRejected`` or ``ModelUnavailable``."""
        (reply,) = self.complete_all([request])
        if isinstance(reply, ModelUnavailable):
            raise reply
        return reply

    def complete_all(self, requests: Sequence[Request], /) -> list[Reply | ModelUnavailable]:
        """The replies in order; what stayed unanswered stands as its error, a refusal is raised."""
        with closing(self.complete_each(requests)) as replies:
            return [reply for _, reply in sorted(replies, key=lambda pair: pair[0])]

    @abstractmethod
    def complete_each(
        self, requests: Sequence[Request], /
    ) -> Generator[tuple[int, Reply | ModelUnavailable], None, None]:
        """The replies as they come, each with the place of its request."""
