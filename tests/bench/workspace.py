"""Compare operations of the SQLite store on a long session and on a short one."""

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

from ctxlab.sessions.sqlite.store import SqliteStore

_PEAK = """
import sys, tracemalloc
from ctxlab.sessions.sqlite.store import SqliteStore
store = SqliteStore(sys.argv[1])
store.sessions()
tracemalloc.start()
store.open(sys.argv[2])
print(tracemalloc.get_traced_memory()[1])
"""


def lengths(quick: bool) -> Iterator[Line]:
    """Yield ratios of time and memory for sessions of 100,000 and of 100 messages."""
    long = 10_000 if quick else 100_000
    with tempfile.TemporaryDirectory() as folder:
        stores = {}
        for length in (100, long):
            store = stores[length] = SqliteStore(Path(folder, str(length)))
            _fill(store, length)
        runs = 5 if quick else 15
        for what, ask in _asked().items():
            short, other = alternate(runs, *(partial(ask, store) for store in stores.values()))
            yield Line(
                f"{what}: {long:,} messages over 100",
                f"{median(other) * 1e3:.2f} ms / {median(short) * 1e3:.2f} ms",
                ratios(other, short),
                at_most=2.0,
            )
        for store in stores.values():
            store.close()
        small, large = (_peak(Path(folder, str(length))) for length in stores)
        figures = f"{large / 1e3:,.0f} kB / {small / 1e3:,.0f} kB"
        yield Line(f"memory of open: {long:,} messages over 100", figures, [large / small], 2.0)


def _fill(store: SqliteStore, length: int) -> None:
    store.create(id="a")
    messages = conversation(300).messages[:100]
    for _ in range(length // 100):
        store.append("a", *messages)
    store.save("a")


def _asked() -> dict[str, Callable[[SqliteStore], object]]:
    messages = conversation(300).messages[:20]

    def append(store: SqliteStore) -> None:
        for message in messages:
            store.append("a", message)

    def saved(store: SqliteStore) -> None:
        for _ in range(10):
            store.save("a")

    def opened(store: SqliteStore) -> None:
        for _ in range(5):
            store.close()
            store.open("a")

    return {"append, 20 times": append, "save, 10 times": saved, "open, 5 times": opened}


def _peak(folder: Path) -> int:
    command = [sys.executable, "-c", _PEAK, str(folder), "a"]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
