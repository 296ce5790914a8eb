"""Run programs in new processes, and measure their time and peak memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

# ru_maxrss of a child starts at its parent's value, which is large. On Linux, read VmHWM instead.
PEAK = """
import resource, sys
def peak():
    try:
        status = open("/proc/self/status").read()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024
    except OSError:
        unit = 2**20 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
"""
"""Source of a function ``peak`` that returns the peak memory of its process in MB."""

_COMMAND = """
import contextlib, json, os, time
cores, status, *words = json.loads(sys.argv[1])
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
from ctxlab.cli import main
begun = time.perf_counter()
with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
    found = main(words)
seconds = time.perf_counter() - begun
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
children = used[1].ru_maxrss / (2**20 if sys.platform == "darwin" else 1024)
cpu = sum(each.ru_utime + each.ru_stime for each in used)
print(json.dumps([seconds, cpu, max(peak(), children), peak(), children]))
sys.exit(found not in status)
"""


class Measured(NamedTuple):
    """Time and memory of a program."""

    seconds: float
    "wall time of the command, without the start of Python"
    cpu_seconds: float
    "processor time of all its processes, with the start of Python"
    peak_mb: float
    "peak memory of the largest process"
    main_mb: float
    "peak memory of the main process"
    worker_mb: float
    "peak memory of the largest worker process; 0 if there is none"


def peak_of(program: str, file: Path) -> float:
    """Run a program, which prints ``peak()``, in a new process; return its peak memory in MB."""
    command = [sys.executable, "-c", PEAK + program, str(file)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure_command(words: Sequence[str], cores: int = 1, status: Sequence[int] = (0,)) -> Measured:
    """Run ``ctxlab`` in a new process, on a number of cores, and return its time and memory.

    Parameters
    ----------
    words : sequence of str
        Arguments of ``ctxlab``. On Linux, the command starts as many processes as it has cores.
    cores : int, default 1
        Number of cores. Only Linux can restrict them.
    status : sequence of int, default (0,)
        Exit codes that are no error.

    Returns
    -------
    Measured
        Time and memory.
    """
    given = json.dumps([cores, list(status), *words])
    command = [sys.executable, "-c", PEAK + _COMMAND, given]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"ctxlab {' '.join(words)[:200]}: {done.stderr.strip()[-2000:]}")
    return Measured(*json.loads(done.stdout))
