"""Compare the speed and memory of ctxlab and other packages: ``python tests/bench [--quick] [NAME…]``.

The table shows ratios, because absolute times depend on the machine: the measurements that are
compared alternate in one run. Each line has the median over the rounds and its spread, which is the
interquartile range of at least five rounds or the range of fewer. Some lines have a bar, that is a
bound of the median. The exit status is 1 if a bar is missed. ``--quick`` uses fewer rounds and smaller
data.

``--json FILE`` and ``--markdown FILE`` store the run with facts about the machine.
``python tests/bench --compare OLD.json NEW.json`` compares two stored runs; the exit status is 1 if a
bar that the old run met is missed in the new run.

``python tests/bench scaling --help`` describes a longer run, which measures how time and memory grow.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import bills
import cache
import chunks
import closed_loop
import counts
import floors
import linear
import process
import replay
import report
import scaling
import workspace
from machine import current_load, describe_machine
from table import Group, Line, show

GROUPS: dict[str, tuple[str, Group]] = {
    # "grid" is first: litellm starts threads when imported, and evaluate does not fork with threads.
    "grid": (
        "1  The default grid takes at most 2 × the floor (every message tokenised once)",
        replay.grid,
    ),
    "cache": ("1  Stored token counts save the time of tokenizing in later runs", cache.counts),
    "second": (
        "1  A second run with one strategy more takes little longer than this strategy alone",
        cache.second_run,
    ),
    "window": ("2  A window of the newest 32k tokens over 3,000 messages", replay.window),
    "linear": ("3  Time grows at most linearly with the length", linear.replays),
    "closed": (
        "3  The closed loop takes at most 2.5 × the time of the open loop",
        closed_loop.loops,
    ),
    "counts": ("4  Token counts equal those of one pass over the rendered request", counts.exact),
    "start": ("5  Programs start quickly", process.start),
    "memory": ("6  Recordings are read one at a time", process.memory),
    "folder": ("6  The memory of ctxlab describe does not grow with the data", process.folder),
    "files": (
        "6  The memory of ctxlab describe does not grow with the number of files",
        process.files,
    ),
    "workspace": (
        "7  SQLite store: time and memory do not grow with the length of a session",
        workspace.lengths,
    ),
    "chunks": ("7  JSONL store: no growth of time and memory", chunks.lengths),
    "reading": ("Reading JSONL", floors.reading),
    "frames": ("Data frames", floors.frames),
    "storing": ("Databases", floors.storing),
    "digests": ("Digests of recordings", floors.digests),
    "tasks": ("Tasks in processes and on a Dask cluster", floors.tasks),
    "bills": ("Token counts for Claude, compared with billed tokens", bills.claude),
}


def main(arguments: list[str] | None = None) -> int:
    """Run the named groups of measurements, or all, or compare two runs; return the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["scaling"]:
        return scaling.main(arguments[1:])
    parser = argparse.ArgumentParser(
        prog="python tests/bench",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(GROUPS))
    parser.add_argument("--quick", action="store_true", help="fewer rounds, smaller data")
    parser.add_argument("--json", type=Path, metavar="FILE", help="store the run as JSON")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="store the run as Markdown")
    parser.add_argument("--overwrite", action="store_true", help="replace files that exist")
    parser.add_argument(
        "--compare", nargs=2, type=Path, metavar=("OLD", "NEW"), help="compare two stored runs"
    )
    given = parser.parse_args(arguments)
    if given.compare:
        text, fine = report.compare(*map(report.loads, given.compare))
        print(text)
        return 0 if fine else 1
    if unknown := set(given.names) - set(GROUPS):
        parser.error(f"unknown names: {', '.join(unknown)}; choose from {', '.join(GROUPS)}")
    report.check_new((given.json, given.markdown), given.overwrite, parser.error)
    # All other groups measure without stored counts.
    os.environ["CTXLAB_CACHE"] = ""
    machine = {**describe_machine(), "load_before": current_load()}
    load, packages = machine["load_before"], machine["packages"]
    print(
        f"{machine['python']}, {machine['cores']} cores, load {load}, ctxlab {packages['ctxlab']}"
    )
    shown: dict[str, tuple[str, list[Line]]] = {}
    for name, (title, group) in GROUPS.items():
        if not given.names or name in given.names:
            shown[name] = title, show(title, group(given.quick))
    machine["load_after"] = current_load()
    print(f"load {machine['load_after']}")
    run = report.to_dict(shown, machine, given.quick)
    if given.json:
        report.write_new(given.json, report.dumps(run), given.overwrite)
    if given.markdown:
        report.write_new(given.markdown, report.to_markdown(run), given.overwrite)
    fine = _tell_missed(line for _, lines in shown.values() for line in lines)
    return 0 if fine else 1


def _tell_missed(lines: Iterable[Line]) -> bool:
    """Print which bars are missed; return True if none is."""
    missed = [line.what.strip() for line in lines if line.met is False]
    print("\nall bars are met" if not missed else "\nmissed: " + "; ".join(missed))
    return not missed


if __name__ == "__main__":
    sys.exit(main())
