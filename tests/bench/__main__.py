"""Compare the speed and memory of ctxlab and other packages: ``python tests/bench [--quick] [NAME…]``.

The table shows ratios, because absolute times depend on the machine: the measurements that are
compared alternate in one run. Some ratios have a bar, that is a bound. The exit status is 1 if a ratio
misses its bar. A run takes about six minutes. With ``--quick``, which uses fewer rounds and smaller
data, it takes 40 seconds.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys

import bills
import cache
import chunks
import closed_loop
import counts
import linear
import process
import replay
import workspace
from table import Group, show

GROUPS: dict[str, tuple[str, Group]] = {
    # "grid" is first: litellm starts threads when imported, and evaluate does not fork with threads.
    "grid": (
        "1  The default grid takes at most 2 × the floor (every message tokenised once)",
        replay.grid,
    ),
    "cache": ("1  Stored token counts save the time of tokenizing in later runs", cache.counts),
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
    "bills": ("Token counts for Claude, compared with billed tokens", bills.claude),
}


def main() -> int:
    """Run the named groups of measurements, or all; return 1 if a ratio misses its bar."""
    parser = argparse.ArgumentParser(prog="python tests/bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(GROUPS))
    parser.add_argument("--quick", action="store_true", help="fewer rounds, smaller data")
    given = parser.parse_args()
    if unknown := set(given.names) - set(GROUPS):
        parser.error(f"unknown names: {', '.join(unknown)}; choose from {', '.join(GROUPS)}")
    # All other groups measure without stored counts.
    os.environ["CTXLAB_CACHE"] = ""
    _tell_machine()
    fine = True
    for name in GROUPS:
        if not given.names or name in given.names:
            title, group = GROUPS[name]
            fine = show(title, group(given.quick)) and fine
    _tell_machine()
    print("all ratios are within their bars" if fine else "\na ratio misses its bar")
    return 0 if fine else 1


def _tell_machine() -> None:
    """Print version, cores and load; other processes slow down measurements on several cores."""
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    print(f"Python {platform.python_version()}, {cores} cores, current load {load:.1f}")


if __name__ == "__main__":
    sys.exit(main())
