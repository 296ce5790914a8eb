"""Calls are made in threads of their own, so that several run at once and Ctrl+C is heard meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from queue import Empty, SimpleQueue
from typing import TypeVar

__all__ = ["AT_A_TIME", "as_they_come"]

_HEARD = 0.2
"seconds after which an interruption is heard, where it does not end the wait itself"

AT_A_TIME = 5
"""Calls that are made at a time, by all processes of an evaluation together."""

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


def as_they_come(
    ask: Callable[[_Item, threading.Event], _Answer], items: Sequence[_Item], at_once: int
) -> Generator[tuple[int, _Answer], None, None]:
    """What ``ask`` gives for each item with the item's place, the first to be ready first.

    ``ask`` is also given an event: it is set once nobody wants the rest, because the caller was
    interrupted, closed the iterator, or got the error that an ``ask`` raised. No further item is
    then begun; the threads are daemons, which a program that ends does not wait for.

    >>> sorted(as_they_come(lambda item, unwanted: item * 2, [3, 1, 2], at_once=2))
    [(0, 6), (1, 2), (2, 4)]
    """
    todo, taking = iter(enumerate(items)), threading.Lock()
    unwanted = threading.Event()
    done: SimpleQueue[tuple[int, _Answer | None, BaseException | None]] = SimpleQueue()

    def work() -> None:
        while not unwanted.is_set():
            with taking:
                place, item = next(todo, (None, None))
            if place is None:
                return
            try:
                done.put((place, ask(item, unwanted), None))  # type: ignore[arg-type]
            except BaseException as error:  # it is raised where it is awaited
                done.put((place, None, error))

    for _ in range(min(at_once, len(items))):
        threading.Thread(target=work, name="ctxlab-llm", daemon=True).start()
    try:
        for _ in items:
            place, answer, error = _get(done)
            if error is not None:
                raise error
            yield place, answer  # type: ignore[misc]
    finally:
        unwanted.set()


def _get(done: SimpleQueue[_Answer]) -> _Answer:
    while True:
        try:
            return done.get(timeout=_HEARD)
        except Empty:
            pass
