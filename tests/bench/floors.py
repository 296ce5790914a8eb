"""Other floors: what reading, storing, hashing and distributing cost with and without ctxlab.

These lines have no bars. They show how far ctxlab is from the libraries below it.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import diskcache
import msgspec
import numpy as np
import pandas as pd
from process import write_recordings
from replay import corpora, forget
from synthetic import conversation
from table import Line, alternate, ratios

from ctxlab.errors import SpecError
from ctxlab.evaluation.executors import LOCAL, Executor, choose_executor
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.fingerprint import recording_digest
from ctxlab.evaluation.parallel import map_parallel
from ctxlab.evaluation.results import Results
from ctxlab.formats import load
from ctxlab.messages.types import Message


def reading(quick: bool) -> Iterator[Line]:
    """Yield the time to parse JSONL with libraries and with ``load``, over ``json.loads``."""
    size = 5_000_000 if quick else 50_000_000
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "many.jsonl")
        write_recordings(file, size)
        decode = msgspec.json.decode
        steps: dict[str, Callable[[], object]] = {
            "json": lambda: _each_line(file, json.loads),
            "msgspec": lambda: _each_line(file, decode),
            "ctxlab.load": lambda: sum(1 for _ in load(file)),
        }
        with_orjson = _find_orjson()
        if with_orjson is not None:
            steps["orjson"] = lambda: _each_line(file, with_orjson)
        base, *others = alternate(2 if quick else 7, *steps.values())
    for name, seconds in zip([*steps][1:], others, strict=True):
        figures = f"{median(seconds):.3f} s / {median(base):.3f} s"
        yield Line(
            f"{size / 1e6:.0f} MB of JSONL: {name} over json", figures, ratios(seconds, base)
        )


def _each_line(file: Path, parse: Callable[[bytes], object]) -> None:
    with file.open("rb") as lines:
        for line in lines:
            parse(line)


def _find_orjson() -> Callable[[bytes], object] | None:
    try:
        import orjson
    except ImportError:
        return None
    found: Callable[[bytes], object] = orjson.loads
    return found


def frames(quick: bool) -> Iterator[Line]:
    """Yield the time to build a frame from arrays and from dicts, and to load the frame of a run."""
    rows = 50_000 if quick else 1_000_000
    names = [f"strategy {i}" for i in range(20)]
    code = np.arange(rows) % len(names)
    numbers = np.arange(rows, dtype=np.float64)

    def from_dicts() -> object:
        pairs = zip(code.tolist(), numbers.tolist(), strict=True)
        return pd.DataFrame([{"strategy": names[i], "tokens": n, "cost": n} for i, n in pairs])

    def from_arrays() -> object:
        chosen = pd.Categorical.from_codes(code, names)
        return pd.DataFrame({"strategy": chosen, "tokens": numbers, "cost": numbers})

    dicts, arrays = alternate(2 if quick else 5, from_dicts, from_arrays)
    figures = f"{median(arrays) * 1e3:.1f} ms / {median(dicts) * 1e3:.0f} ms"
    what = f"a frame of {rows:,} rows from arrays over one from dicts"
    yield Line(what, figures, ratios(arrays, dicts))
    recordings = [conversation(300, seed) for seed in range(2 if quick else 20)]
    results = evaluate(recordings, limits=32_000, metrics=["usage"], workers=1, progress=False)
    count = len(results.requests)
    with tempfile.TemporaryDirectory() as folder:
        results.save(folder)
        (taken,) = alternate(2 if quick else 5, lambda: Results.load(folder).requests)
    per_row = [1e6 * seconds / count for seconds in taken]
    yield Line("Results.load(…).requests, a row", f"{count:,} rows", per_row, unit="µs")


def storing(quick: bool) -> Iterator[Line]:
    """Yield the entries per second that diskcache and SQLite write and read."""
    entries = 1000 if quick else 20_000
    pairs = [(f"key {i}", i) for i in range(entries)]
    with tempfile.TemporaryDirectory() as folder:
        cache = diskcache.Cache(str(Path(folder, "cache")))
        database = sqlite3.connect(Path(folder, "counts.db"))
        database.execute("CREATE TABLE counts (key TEXT PRIMARY KEY, value INTEGER)")

        def write_cache() -> None:
            for key, value in pairs:
                cache[key] = value

        def read_cache() -> None:
            for key, _ in pairs:
                cache[key]

        def write_database() -> None:
            with database:
                database.executemany("INSERT OR REPLACE INTO counts VALUES (?, ?)", pairs)

        steps = {
            "diskcache, written": write_cache,
            "diskcache, read": read_cache,
            "SQLite, written in one batch": write_database,
        }
        taken = alternate(1 if quick else 3, *steps.values())
        cache.close()
        database.close()
    for what, seconds in zip(steps, taken, strict=True):
        rates = [entries / each / 1000 for each in seconds]
        yield Line(f"{what}: {entries:,} entries", "", rates, unit="k/s")


def digests(quick: bool) -> Iterator[Line]:
    """Yield the time of a recording's digest over that of blake2b over the texts alone."""
    for name, recordings in corpora().items():
        messages = [message for recording in recordings for message in recording.messages]

        def digest(recordings: Sequence[object] = recordings) -> None:
            for recording in recordings:
                recording_digest(recording)

        floors, taken = alternate(
            3 if quick else 9, partial(_hash_texts, messages), digest, before=forget
        )
        per = 1e6 / len(messages)
        figures = f"{median(taken) * per:.1f} µs / {median(floors) * per:.1f} µs a message"
        what = f"{name}: digest of recordings over blake2b"
        yield Line(what, figures, ratios(taken, floors))


def _hash_texts(messages: Sequence[Message]) -> None:
    for message in messages:
        digest = hashlib.blake2b(message.text.encode("utf-8", "surrogatepass"), digest_size=16)
        for call in message.tool_calls:
            digest.update(call.arguments.encode("utf-8", "surrogatepass"))
        digest.digest()


def tasks(quick: bool) -> Iterator[Line]:
    """Yield the time of a task that does nothing, in processes and on a Dask cluster.

    Processes are measured first, because Dask starts threads, and forking with threads is not safe.
    """
    number = 500 if quick else 5000
    rounds = 1 if quick else 5

    def in_processes() -> None:
        for _ in map_parallel(abs, iter(range(number)), workers=2):
            pass

    def in_pool() -> None:
        with multiprocessing.get_context("fork" if os.name == "posix" else "spawn").Pool(2) as pool:
            for _ in pool.imap_unordered(abs, range(number)):
                pass

    ours, pool = alternate(rounds, in_processes, in_pool)
    figures = f"{1e6 * median(ours) / number:.0f} µs / {1e6 * median(pool) / number:.0f} µs"
    yield Line("a task in two processes, over multiprocessing.Pool", figures, ratios(ours, pool))
    yield from _dask_tasks(number // 5, rounds)


def _dask_tasks(number: int, rounds: int) -> Iterator[Line]:
    try:
        taken = [1e3 * dask_seconds_per_task(number) for _ in range(rounds)]
    except SpecError as error:
        yield Line(f"Dask: {error}")
        return
    yield Line("Dask: a task that does nothing", f"{number:,} tasks", taken, unit="ms")


def dask_seconds_per_task(number: int, payload: object = None) -> float:
    """Return the time of a task that does nothing, on a cluster of two workers on this machine.

    This is the difference of two runs, so that it does not contain the start of the cluster.

    Parameters
    ----------
    number : int
        Number of tasks.
    payload : object, optional
        Argument of each task, which travels from this process to a worker.

    Returns
    -------
    float
        Seconds per task.

    Raises
    ------
    SpecError
        If ``distributed`` is not installed.
    """
    execute = choose_executor(2, LOCAL)
    few, many = alternate(1, *(partial(_run_all, execute, n, payload) for n in (2, number + 2)))
    return (many[0] - few[0]) / number


def _run_all(execute: Executor, number: int, payload: object) -> None:
    for _ in execute(bool, (payload for _ in range(number)), on_death=lambda task: task):
        pass
