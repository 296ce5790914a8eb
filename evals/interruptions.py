"""Check on real recordings that interruptions change no result and that nothing is computed twice.

    python evals/interruptions.py ../shared/data ../shared/corpus

The default lineup and ten products are evaluated under two limits: without interruption; killed at
random moments (SIGKILL to all processes) and continued; in three shares, as the jobs of an array; and
on a Dask cluster of two workers, one of which is killed. All four must have the same tables, to the last
bit, and nothing may be computed twice. With two cores, 100 MB of recordings take about an hour, and
``--files 40`` about seven minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic

from ctxlab.evaluation.parts import PARTS_FOLDER
from ctxlab.evaluation.results import Results

PRODUCTS = (
    *("claude_code", "codex", "gemini_cli", "opencode", "cline"),
    *("goose", "roo", "swe_agent.last_5", "aider", "deepagents"),
)
LIMITS = ("8k", "32k")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all four evaluations and compare them; return 1 if they differ."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", nargs="+", help="recordings")
    parser.add_argument("--kills", type=int, default=20, help="interruptions (default: 20)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments")
    parser.add_argument("--files", type=int, help="number of files, drawn at random")
    parser.add_argument("--out", type=Path, help="new folder for the runs; deleted if left out")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.out or Path(temporary)
        data = given.data
        if given.files:  # --sample of ctxlab eval would read all files at each start
            every = sorted(str(each) for path in data for each in Path(path).rglob("*.json*"))
            data = random.Random(given.seed).sample(every, given.files)
        command = [sys.executable, "-m", "ctxlab", "eval", *data, "--no-progress"]
        command += ["--on-error", "skip"]
        for strategy in ("lineup", *PRODUCTS):
            command += ["-s", strategy]
        for limit in LIMITS:
            command += ["-l", limit]
        seconds, again = (run([*command, "--out", str(folder / "whole")]) for _ in range(2))
        expected = Results.load(folder / "whole")
        rows = len(expected.requests)
        parts = len(list_parts(folder / "whole"))
        times = f"{seconds:.0f} s, {again:.0f} s if all parts are there"
        tell("without interruption", f"{times}, {rows:,} rows, {parts} parts")
        moments = random.Random(given.seed)
        # Each start first reads the recordings again.
        longest = 2 * (again + (seconds - again) / given.kills)
        delays = [moments.uniform(0, longest) for _ in range(given.kills)]
        said, twice = kill_repeatedly(command, folder / "killed", delays)
        good = compare("killed and continued", said, expected, folder / "killed") and not twice
        for number in (1, 2, 3):
            run([*command, "--out", str(folder / "shares"), "--part", f"{number}/3"])
        good &= compare("three shares", "joined by the last", expected, folder / "shares")
        said = run_on_cluster(command, folder / "cluster", again + (seconds - again) / 2)
        good &= compare("two Dask workers, one killed", said, expected, folder / "cluster")
    return 0 if good else 1


def tell(what: str, text: str) -> None:
    """Print a result at once."""
    print(f"{what}: {text}", flush=True)


def run(command: Sequence[str]) -> float:
    """Run a command, and return its seconds. Print what it said if it fails."""
    start = monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):  # 3: some recordings cannot be evaluated
        raise SystemExit(f"{' '.join(command[:4])} failed:\n{done.stderr[-2000:]}")
    return monotonic() - start


def list_parts(folder: Path) -> dict[Path, tuple[int, int]]:
    """Return the finished parts, with what changes if a part is written again."""
    found = {}
    for file in (folder / PARTS_FOLDER).glob("*/[!.]*/part.json"):
        about = file.stat()
        found[file] = about.st_ino, about.st_mtime_ns
    return found


def count_work(folder: Path) -> Counter[tuple[str, str]]:
    """Count how often each configuration of each bucket was computed.

    The strategies of a long recording are divided among parts, in other ways after an interruption.
    """
    found: Counter[tuple[str, str]] = Counter()
    for file in list_parts(folder):
        listed = json.loads(file.read_text(encoding="utf-8").splitlines()[0])
        found.update((file.parents[1].name, key) for *_, key in listed["cells"])
    return found


def kill_repeatedly(
    command: Sequence[str], folder: Path, delays: Sequence[float]
) -> tuple[str, int]:
    """Start the command and kill it after each delay; then let it finish.

    Return a description, and the number of finished parts that were written again.
    """
    command = [*command, "--out", str(folder)]
    written: dict[Path, tuple[int, int]] = {}
    twice = struck = 0
    for delay in [*delays, None]:
        process = subprocess.Popen(
            command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        with suppress(subprocess.TimeoutExpired):
            process.wait(delay)
        struck += process.poll() is None
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        before, written = written, list_parts(folder)
        twice += sum(written.get(part) != stamp for part, stamp in before.items())
    text = f"{struck} kills, {len(before)} of {len(written)} parts written before the last start"
    return f"{text}, {twice} written twice", twice


def run_on_cluster(command: Sequence[str], folder: Path, delay: float) -> str:
    """Run the command on a Dask cluster of two processes, and kill one of them after a delay."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        victim = next(iter(cluster.workers.values())).pid
        timer = threading.Timer(delay, os.kill, (victim, signal.SIGKILL))
        timer.start()
        run([*command, "--out", str(folder), "--scheduler", cluster.scheduler_address])
        timer.cancel()
    return "finished before the kill" if timer.is_alive() else f"killed after {delay:.0f} s"


def compare(what: str, said: str, expected: Results, folder: Path) -> bool:
    """Print whether the results are the expected ones, and whether the same work was done once."""
    same = Results.load(folder).equals(expected)
    work = count_work(folder)
    again = work.total() - len(work)
    once = not again and work == count_work(folder.with_name("whole"))
    said = f"{said}; {'the same results' if same else 'OTHER RESULTS'}"
    tell(what, f"{said}, {len(work)} configurations of buckets, {again} of them computed twice")
    return same and once


if __name__ == "__main__":
    sys.exit(main())
