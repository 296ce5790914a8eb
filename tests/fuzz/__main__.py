"""``python tests/fuzz [--inputs N] [FORMAT…]`` gives every reader mutated files, and says how it went.

Each input is read as what it looks like and as the format that it was made from, stopping at the first
broken line and reading on. Anything but a ``ReadError`` that names the file is a fault, and so is an
input that takes more than ten seconds or two gigabytes. A fault is kept as a file with its seed.
"""

from __future__ import annotations

import argparse
import random
import resource
import signal
import sys
import time
import traceback
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from tempfile import gettempdir
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from mutating import mutated
from reading import try_to_read
from samples import SAMPLES, files_of, format_of

_SECONDS = 10
_BYTES = 2 << 30
_BATCH = 500


@dataclass
class Outcome:
    """What came of some inputs of one format."""

    format: str
    inputs: int = 0
    refused: int = 0
    slowest: float = 0.0
    peak: int = 0
    faults: list[str] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        """The inputs of both."""
        self.inputs += other.inputs
        self.refused += other.refused
        self.slowest = max(self.slowest, other.slowest)
        self.peak = max(self.peak, other.peak)
        self.faults += other.faults


def main() -> int:
    """Fuzzes the formats that are named, or all; 1 where there is a fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("formats", nargs="*", help="names of formats; none: all")
    parser.add_argument("--inputs", type=int, default=10_000, help="for each format [10000]")
    parser.add_argument("--seed", type=int, default=0, help="another seed makes other inputs")
    asked = parser.parse_args()
    outcomes: dict[str, Outcome] = {}
    begun = time.monotonic()
    with get_context("fork").Pool(initializer=_limit, maxtasksperchild=1) as pool:
        for outcome in pool.imap(_batch, _batches(asked)):
            outcomes.setdefault(outcome.format, Outcome(outcome.format)).add(outcome)
    print(f"{'format':24}{'inputs':>8}{'refused':>9}{'slowest s':>11}{'peak MB':>9}{'faults':>8}")
    for each in outcomes.values():
        print(
            f"{each.format:24}{each.inputs:8,}{each.refused / each.inputs:9.0%}"
            f"{each.slowest:11.2f}{each.peak >> 20:9,}{len(each.faults):8}"
        )
    faults = [fault for each in outcomes.values() for fault in each.faults]
    print(f"{len(faults)} faults, {time.monotonic() - begun:,.0f} s")
    for fault in faults[:20]:
        print(fault)
    return bool(faults)


def _batches(asked: Any) -> Iterator[tuple[list[Path], int, int]]:
    """Samples of one format, and from which seed on; the inputs of a format go round its samples."""
    names = asked.formats or sorted({format_of(sample) for sample in SAMPLES})
    for name in names:
        samples = [sample for sample in SAMPLES if format_of(sample) == name]
        if not samples:
            raise SystemExit(f"no sample of a format called {name}")
        base = (asked.seed << 32) + (zlib.crc32(name.encode()) << 8)
        for first in range(0, asked.inputs, _BATCH):
            yield samples, base + first, min(_BATCH, asked.inputs - first)


def _batch(given: tuple[list[Path], int, int]) -> Outcome:
    samples, first, count = given
    outcome = Outcome(format_of(samples[0]), count)
    files = [files_of(sample) for sample in samples]
    for seed in range(first, first + count):
        content = mutated(files[seed % len(files)], random.Random(seed))
        begun = time.perf_counter()
        signal.alarm(_SECONDS)
        try:
            outcome.refused += try_to_read(content, outcome.format) == 0
        except BaseException as error:
            kept = Path(gettempdir(), f"ctxlab-fuzz-{outcome.format}-{seed}")
            kept.write_bytes(content)
            where = traceback.extract_tb(error.__traceback__)[-1]
            outcome.faults.append(
                f"{type(error).__name__}: {error!s:.200} at {where.name}:{where.lineno}; {kept}"
            )
        finally:
            signal.alarm(0)
        outcome.slowest = max(outcome.slowest, time.perf_counter() - begun)
    outcome.peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return outcome


def _limit() -> None:
    signal.signal(signal.SIGALRM, _too_long)
    resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))


def _too_long(number: int, frame: Any) -> None:
    raise TimeoutError(f"still reading after {_SECONDS} seconds")


if __name__ == "__main__":
    sys.exit(main())
