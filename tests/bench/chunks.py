"""Compare operations of the JSONL store on a long session and on a short one."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median

from synthetic import conversation
from table import Line, alternate, ratios

from ctxlab.sessions.jsonl.store import JsonlStore

_PEAK = """
import sys, tracemalloc
from ctxlab.sessions.jsonl.store import JsonlStore
store = JsonlStore(sys.argv[1])
tracemalloc.start()
store.open("a")
print(tracemalloc.get_traced_memory()[1])
"""


def lengths(quick: bool) -> Iterator[Line]:
    """Yield ratios of time and memory for sessions of 100,000 and of 100 messages."""
    long, runs = (10_000, 15) if quick else (100_000, 45)
    with tempfile.TemporaryDirectory() as folder:
        stores = {}
        for length in (100, long):
            store = stores[length] = JsonlStore(Path(folder, str(length)), fsync="never")
            _fill(store, length)
        for what, ask in _asked().items():
            short, other = alternate(runs, *(partial(ask, store) for store in stores.values()))
            figures = f"{median(other) * 1e3:.2f} ms / {median(short) * 1e3:.2f} ms"
            yield Line(f"{what}: {long:,} messages over 100", figures, ratios(other, short), 2.0)
        small, large = (_peak(Path(folder, str(length))) for length in stores)
        figures = f"{large / 1e3:,.0f} kB / {small / 1e3:,.0f} kB"
        yield Line(f"memory of open: {long:,} messages over 100", figures, [large / small], 2.0)


def _fill(store: JsonlStore, length: int) -> None:
    store.create(id="a")
    messages = conversation(300).messages[:100]
    for _ in range(length // 100):
        store.append("a", *messages)
    store.save("a")


def _asked() -> dict[str, Callable[[JsonlStore], object]]:
    messages = conversation(300).messages[:20]

    def append(store: JsonlStore) -> None:
        for message in messages:
            store.append("a", message)

    def opened(store: JsonlStore) -> None:
        store.close()
        store.open("a")

    def first(store: JsonlStore) -> None:
        store.close()
        store.append("a", messages[0])

    return {
        "append of 20 messages one by one": append,
        "first append of a process": first,
        "save": lambda store: store.save("a"),
        "open of a closed store": opened,
        "title": lambda store: store.retitle("a", "A title"),
        "a step in the middle": lambda store: store.read_turn("a", 1, 20),
    }


def _peak(folder: Path) -> int:
    command = [sys.executable, "-c", _PEAK, str(folder)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
