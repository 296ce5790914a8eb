"""Calls are made in threads of their own, so that several run at once and Ctrl+C is heard meanwhile."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TypeVar, cast

__all__ = ["AT_A_TIME", "HEARD", "as_they_come", "undisturbed", "wait_for"]

_log = logging.getLogger("ctxlab.llm")
HEARD = 0.2
"""Seconds after which an interruption is heard, where it does not end the wait itself."""

AT_A_TIME = 5
"""Calls that are made at a time, by all processes of an evaluation together."""

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


def as_they_come(
    ask: Callable[[_Item, threading.Event], _Answer],
    items: Sequence[_Item],
    at_once: int,
    keep: Callable[[int, _Answer], object] | None = None,
) -> Generator[tuple[int, _Answer], None, None]:
    """What ``ask`` gives for each item with the item's place, the first to be ready first.

    ``keep`` is given place and answer before they are handed out, one answer at a time. It is called
    in the thread that asked: a signal interrupts the main thread at any point, in the middle of a
    transaction too. No more than ``at_once`` items are ever begun and not yet kept.

    ``ask`` is also given an event: it is set once nobody wants the rest, because the caller was
    interrupted, closed the iterator, or an ``ask`` raised an error, which goes on to the caller. No
    further item is then begun. What is under way has been paid for: where there is a ``keep``, it is
    waited for and kept before the interruption or the error goes on. A second interruption leaves at
    once, as the first does where nothing is kept: the threads are daemons, which a program that ends
    does not wait for.

    >>> sorted(as_they_come(lambda item, unwanted: item * 2, [3, 1, 2], at_once=2))
    [(0, 6), (1, 2), (2, 4)]
    """
    todo, taking, keeping = iter(enumerate(items)), threading.Lock(), threading.Lock()
    unwanted, under_way = threading.Event(), set[int]()
    ready: SimpleQueue[tuple[int, _Answer | None, BaseException | None]] = SimpleQueue()

    def work() -> None:
        while True:
            with taking:
                place, item = (None, None) if unwanted.is_set() else next(todo, (None, None))
                if place is None:
                    return
                under_way.add(place)
            try:
                answer = ask(item, unwanted)  # type: ignore[arg-type]
                if keep is not None:
                    with keeping:
                        keep(place, answer)
                came: tuple[int, _Answer | None, BaseException | None] = place, answer, None
            except BaseException as error:  # it is raised where it is awaited
                unwanted.set()
                came = place, None, error
            under_way.remove(place)
            ready.put(came)

    for _ in range(min(at_once, len(items))):
        threading.Thread(target=work, name="ctxlab-llm", daemon=True).start()
    try:
        for _ in items:
            place, answer, error = wait_for(ready)
            if error is not None:
                raise error
            yield place, answer  # type: ignore[misc]
    except (KeyboardInterrupt, GeneratorExit):
        if keep is not None and (calls := len(under_way)):
            _log.warning("waiting for %d calls under way; interrupt again to leave", calls)
        raise
    finally:
        with taking:
            unwanted.set()
        # By what the threads themselves say: an interruption may have lost what came out of the queue.
        while under_way and keep is not None:
            with suppress(Empty):
                ready.get(timeout=HEARD)


def undisturbed(do: Callable[[], _Answer]) -> _Answer:
    """What ``do`` gives, done to its end in a thread that no signal interrupts.

    >>> undisturbed(lambda: 2 + 2)
    4
    """
    ((_, done),) = as_they_come(lambda todo, _: todo(), [do], 1, keep=lambda *_: None)
    return cast("_Answer", done)


def wait_for(ready: SimpleQueue[_Item]) -> _Item:
    """What comes out of a queue next, in a wait that an interruption ends."""
    while True:
        try:
            return ready.get(timeout=HEARD)
        except Empty:
            pass
