"""Bars 5 and 6: start-up time and peak memory of whole processes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from time import perf_counter

import msgspec
from children import peak_of
from synthetic import conversation
from table import Line, alternate, ratios

from ctxlab.errors import DataMissing
from ctxlab.formats import native
from ctxlab.formats.io.datasets import bundled_path

_CLI = (sys.executable, "-c", "from ctxlab.cli import main; main()")

_STREAM = """
from ctxlab.formats import load
messages = sum(len(recording.messages) for recording in load(sys.argv[1]))
print(peak())
"""
_DESCRIBE = """
import contextlib, os
from ctxlab.cli import main
with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
    assert main(["describe", sys.argv[1], "--json", "--no-progress"]) == 0
children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(max(peak(), children / (2**20 if sys.platform == "darwin" else 1024)))
"""
_MODELS = ("gpt-5", "gpt-4o", "claude-opus-4-5", "claude-sonnet-4-5", "gemini-2.5-pro")
_NO_LOGS = (
    (".py", b"print(1)\n" * 500),
    (".csv", b"id,price\n" + b"1,2\n" * 5_000),
    (".png", b"\x89PNG\r\n\x1a\n" + bytes(100_000)),
    (".json", b'{"type": "FeatureCollection", "features": [' + b'{"a": 1},' * 50_000 + b"{}]}"),
    (".cut.json", b'[{"task_id": 1, "traj": [{"role": "user", "content": "' + b"x" * 50_000),
    (".txt", b""),
)
_HOLD = """
import json
rows = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
print(peak())
"""


def start(quick: bool) -> Iterator[Line]:
    """Bar 5: time of ``ctxlab --help`` and of ``ctxlab eval`` on the bundled recordings."""
    bare, help_ = alternate(
        3 if quick else 9, _process(sys.executable, "-c", "pass"), _process(*_CLI, "--help")
    )
    allowed = [3 * seconds + 0.15 for seconds in bare]
    figures = f"{median(help_):.2f} s / (3 × {median(bare):.3f} s + 0.15 s)"
    yield Line(
        "ctxlab --help over 3 × python -c pass + 0.15 s", figures, ratios(help_, allowed), 1.0
    )
    try:
        found = any(bundled_path("datasets").glob("*/*.jsonl"))
    except DataMissing:
        found = False
    if not found:
        yield Line("ctxlab eval, bundled recordings, at most 5 s", "no bundled recordings")
        return
    (seconds,) = alternate(1 if quick else 3, _process(*_CLI, "eval"))
    yield Line("ctxlab eval, bundled recordings, at most 5 s", f"{median(seconds):.2f} s / 5 s",
               [each / 5 for each in seconds], 1.0)  # fmt: skip


def memory(quick: bool) -> Iterator[Line]:
    """Bar 6: compare the peak memory of ``load`` with that of parsing all rows into a list."""
    size = 20_000_000 if quick else 200_000_000
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "many.jsonl"
        recordings = write_recordings(file, size)
        rounds = range(1 if quick else 3)
        stream, hold = ([peak_of(each, file) for _ in rounds] for each in (_STREAM, _HOLD))
        figures = f"{median(stream):,.0f} MB / {median(hold):,.0f} MB"
        what = f"{size / 1e6:.0f} MB, {recordings:,} recordings: load over json.loads"
        # With a small file, most of the memory is used by Python itself, so there is no bar.
        yield Line(what, figures, ratios(stream, hold), None if quick else 0.25)


def folder(quick: bool) -> Iterator[Line]:
    """Bar 6: peak memory of ``ctxlab describe`` for a folder and for one ten times as large."""
    file, small, large = (2, 4, 40) if quick else (20, 100, 1000)  # MB
    with tempfile.TemporaryDirectory() as here:
        peaks, seconds = {}, {}
        for size in (small, large):
            below = Path(here) / str(size)
            below.mkdir()
            for number in range(size // file):
                write_recordings(below / f"{number:03}.jsonl", file * 1_000_000)
            begun = perf_counter()
            peaks[size] = peak_of(_DESCRIBE, below)
            seconds[size] = perf_counter() - begun
        figures = f"{peaks[large]:,.0f} MB / {peaks[small]:,.0f} MB"
        what = f"ctxlab describe, {large:,} MB over {small:,} MB: the largest process"
        yield Line(what, figures, [peaks[large] / peaks[small]], at_most=1.25)
        yield Line("  seconds of ctxlab describe", f"{seconds[large]:,.0f} s / {seconds[small]:,.1f} s",
                   [seconds[large] / seconds[small]])  # fmt: skip


def files(quick: bool) -> Iterator[Line]:
    """Bar 6: peak memory of ``ctxlab describe`` for mixed files and for four times as many."""
    few = 60 if quick else 250
    with tempfile.TemporaryDirectory() as here:
        peaks = {}
        for count in (few, 4 * few):
            below = Path(here) / str(count)
            below.mkdir()
            for number in range(count):
                _write_mixed(below, number)
            peaks[count] = peak_of(_DESCRIBE, below)
        figures = f"{peaks[4 * few]:,.0f} MB / {peaks[few]:,.0f} MB"
        what = f"ctxlab describe, {4 * few:,} mixed files over {few}: largest process"
        yield Line(what, figures, [peaks[4 * few] / peaks[few]], at_most=1.25)


def _write_mixed(folder: Path, number: int) -> None:
    """Write a log that differs from all others, or in one of three cases a file that is no log."""
    if number % 3:
        model = _MODELS[number % len(_MODELS)]
        recording = msgspec.structs.replace(conversation(200, number), model=model)
        (folder / f"{number:04}.jsonl").write_text(native.dumps(recording))
    else:
        name, content = _NO_LOGS[number // 3 % len(_NO_LOGS)]
        (folder / f"{number:04}{name}").write_bytes(content)


def write_recordings(file: Path, size: int) -> int:
    """Fill a file with recordings of 300 messages, and return the number of recordings."""
    text = [native.dumps(conversation(300, seed)).encode() for seed in range(50)]
    count = 0
    with file.open("wb") as out:
        while out.tell() < size:
            out.write(text[count % len(text)])
            count += 1
    return count


def _process(*command: str) -> Callable[[], object]:
    return lambda: subprocess.run(command, check=True, capture_output=True)
