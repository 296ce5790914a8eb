"""Read mutated files in each format and print a table: ``python tests/fuzz [--inputs N] [FORMAT…]``.

Each file is read four times: with the detected format and with the format of the original file, and
with ``on_error="raise"`` and ``on_error="skip"``. Any exception other than a ``ReadError`` that names
the file is a fault. A read that takes more than ten seconds of processor time or two gigabytes is a
fault as well. Files that cause a fault are saved under a name that contains the seed.
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
    """Results of reading some mutated files of one format."""

    format: str
    inputs: int = 0
    refused: int = 0
    slowest: float = 0.0
    peak: int = 0
    faults: list[str] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        """Add the results of other files of the same format."""
        self.inputs += other.inputs
        self.refused += other.refused
        self.slowest = max(self.slowest, other.slowest)
        self.peak = max(self.peak, other.peak)
        self.faults += other.faults


def main() -> int:
    """Fuzz the named formats, or all formats; return 1 if there is a fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("formats", nargs="*", help="names of formats; default: all formats")
    parser.add_argument("--inputs", type=int, default=10_000, help="files per format [10000]")
    parser.add_argument("--seed", type=int, default=0, help="seed of the mutations [0]")
    asked = parser.parse_args()
    known = sorted({format_of(sample) for sample in SAMPLES})
    if unknown := sorted(set(asked.formats) - set(known)):
        parser.error(f"unknown format {unknown[0]!r}; choose from {', '.join(known)}")
    asked.formats = asked.formats or known
    outcomes: dict[str, Outcome] = {}
    begun = time.monotonic()
    print(f"{'format':24}{'inputs':>8}{'refused':>9}{'slowest s':>11}{'peak MB':>9}{'faults':>8}")
    with get_context("fork").Pool(initializer=_limit, maxtasksperchild=1) as pool:
        for outcome in pool.imap(_batch, _batches(asked)):
            each = outcomes.setdefault(outcome.format, Outcome(outcome.format))
            each.add(outcome)
            if each.inputs == asked.inputs:
                print(
                    f"{each.format:24}{each.inputs:8,}{each.refused / each.inputs:9.0%}"
                    f"{each.slowest:11.2f}{each.peak >> 20:9,}{len(each.faults):8}",
                    flush=True,
                )
    faults = [fault for each in outcomes.values() for fault in each.faults]
    print(f"{len(faults)} faults, {time.monotonic() - begun:,.0f} s")
    for fault in faults[:20]:
        print(fault)
    return bool(faults)


def _batches(asked: Any) -> Iterator[tuple[list[Path], int, int]]:
    """Yield batches of mutated files: samples of a format, first seed, and number of files.

    The files of a batch are mutations of the format's samples in turn.
    """
    for name in asked.formats:
        samples = [sample for sample in SAMPLES if format_of(sample) == name]
        base = (asked.seed << 32) + (zlib.crc32(name.encode()) << 8)
        for first in range(0, asked.inputs, _BATCH):
            yield samples, base + first, min(_BATCH, asked.inputs - first)


def _batch(given: tuple[list[Path], int, int]) -> Outcome:
    samples, first, count = given
    outcome = Outcome(format_of(samples[0]), count)
    files = [files_of(sample) for sample in samples]
    for seed in range(first, first + count):
        content = mutated(files[seed % len(files)], random.Random(seed))
        begun = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, _SECONDS)
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
            signal.setitimer(signal.ITIMER_PROF, 0)
        outcome.slowest = max(outcome.slowest, time.process_time() - begun)
    outcome.peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return outcome


def _limit() -> None:
    signal.signal(signal.SIGPROF, _too_long)
    resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))


def _too_long(number: int, frame: Any) -> None:
    raise TimeoutError(f"Expected the file to be read within {_SECONDS} seconds of processor time")


if __name__ == "__main__":
    sys.exit(main())
