"""``python tests/bench [--quick] [names…]`` measures ctxlab and its peers in one run, as a table.

Only ratios mean anything: what is compared runs alternately, on one machine, in one run. Ends with 1
if a bar falls short. It takes about six minutes; 40 seconds with ``--quick``, which takes fewer runs
and smaller data.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys

import bills
import chunks
import counts
import linear
import process
import replay
import workspace
from table import Group, show

GROUPS: dict[str, tuple[str, Group]] = {
    # First: once litellm is imported there are threads, and evaluate does not fork beside threads.
    "grid": (
        "1  The default grid, at most 2 × the floor (every message tokenised once)",
        replay.grid,
    ),
    "window": ("2  3,000 messages, keep-last window of 32k", replay.window),
    "linear": ("3  Cost grows with the length, no faster", linear.replays),
    "counts": ("4  Counts are those of one pass over the rendered request", counts.exact),
    "start": ("5  Starting takes no time", process.start),
    "memory": ("6  Reading is streaming", process.memory),
    "folder": ("6  Describing takes no more memory for more data", process.folder),
    "workspace": (
        "7  A long session of a workspace costs what a short one does",
        workspace.lengths,
    ),
    "chunks": ("7  A long session of chunks costs what a short one does", chunks.lengths),
    "bills": ("Counts of Claude, against what was billed", bills.claude),
}


def main() -> int:
    """Runs the groups that are asked for, in the order of the bars."""
    parser = argparse.ArgumentParser(prog="python tests/bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(GROUPS))
    parser.add_argument("--quick", action="store_true", help="fewer runs, smaller data")
    given = parser.parse_args()
    if unknown := set(given.names) - set(GROUPS):
        parser.error(f"no bars are called {', '.join(unknown)}; there are {', '.join(GROUPS)}")
    _tell_machine()
    fine = True
    for name in GROUPS:
        if not given.names or name in given.names:
            title, group = GROUPS[name]
            fine = show(title, group(given.quick)) and fine
    _tell_machine()
    print("all bars hold" if fine else "\na bar falls short")
    return 0 if fine else 1


def _tell_machine() -> None:
    """How busy it is: what runs on several cores falls behind where others use them."""
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    print(f"Python {platform.python_version()}, {cores} cores, load {load:.1f} at this moment")


if __name__ == "__main__":
    sys.exit(main())
