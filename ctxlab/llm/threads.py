"""Calls are made in threads of their own, so that several run at once and Ctrl+C is heard meanwhile."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Sequence
from queue import Empty, SimpleQueue
from typing import TypeVar

__all__ = ["AT_A_TIME", "as_they_come"]

_log = logging.getLogger("ctxlab.llm")
_HEARD = 0.2
"seconds after which an interruption is heard, where it does not end the wait itself"

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

    ``keep`` is given place and answer before they are handed out, in the caller's thread. No more than
    ``at_once`` items are ever begun and not yet kept.

    ``ask`` is also given an event: it is set once nobody wants the rest, because the caller was
    interrupted, closed the iterator, or an ``ask`` raised an error, which goes on to the caller. No
    further item is then begun. What is under way has been paid for: where there is a ``keep``, it is
    waited for and kept before the interruption or the error goes on. A second interruption leaves at
    once, as the first does where nothing is kept: the threads are daemons, which a program that ends
    does not wait for.

    >>> sorted(as_they_come(lambda item, unwanted: item * 2, [3, 1, 2], at_once=2))
    [(0, 6), (1, 2), (2, 4)]
    """
    todo, taking = iter(enumerate(items)), threading.Lock()
    unwanted, room = threading.Event(), threading.Semaphore(at_once)
    # An interruption may come at any point of the caller's thread. So an answer is taken out of
    # ``begun``, where its thread left it, only once it has been kept.
    begun: dict[int, tuple[_Answer | None, BaseException | None] | None] = {}
    ready: SimpleQueue[int] = SimpleQueue()

    def work() -> None:
        while room.acquire():
            with taking:
                place, item = (None, None) if unwanted.is_set() else next(todo, (None, None))
                if place is None:
                    return
                begun[place] = None
            try:
                begun[place] = ask(item, unwanted), None  # type: ignore[arg-type]
            except BaseException as error:  # it is raised where it is awaited
                begun[place] = None, error
            ready.put(place)

    for _ in range(min(at_once, len(items))):
        threading.Thread(target=work, name="ctxlab-llm", daemon=True).start()
    try:
        for _ in items:
            place = _get(ready)
            answer, error = begun[place]  # type: ignore[misc]
            if error is not None:
                raise error
            if keep is not None:
                keep(place, answer)  # type: ignore[arg-type]
            del begun[place]
            room.release()
            yield place, answer  # type: ignore[misc]
    except (KeyboardInterrupt, GeneratorExit):
        under_way = sum(each is None for each in [*begun.values()])
        if under_way and keep is not None:
            _log.warning("waiting for %d calls under way; interrupt again to leave", under_way)
        raise
    finally:
        with taking:
            unwanted.set()
        room.release(at_once)  # who waits for room finds that nothing is left to do
        if keep is not None:
            _settle(begun, keep, ready)


def _settle(
    begun: dict[int, tuple[_Answer | None, BaseException | None] | None],
    keep: Callable[[int, _Answer], object],
    ready: SimpleQueue[int],
) -> None:
    """Waits for what is under way, and keeps it."""
    while begun:
        for place, came in [*begun.items()]:
            if came is None:
                continue
            answer, error = came
            if error is None:
                keep(place, answer)  # type: ignore[arg-type]
            del begun[place]
        if begun:
            _get(ready)


def _get(ready: SimpleQueue[int]) -> int:
    while True:
        try:
            return ready.get(timeout=_HEARD)
        except Empty:
            pass
