"""Describe the machine of a run, without anything that identifies it."""

from __future__ import annotations

import os
import platform
import subprocess
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

PACKAGES = ("ctxlab", "tiktoken", "numpy", "pandas", "langchain-core", "litellm", "distributed")
"""Packages whose versions are stored. A package that is not installed has the version None."""

_ROOT = Path(__file__).parents[2]


def describe_machine() -> dict[str, Any]:
    """Return processor, cores, memory, system, versions, commit and date."""
    return {
        "cpu": _cpu_model(),
        "cores": count_cores(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        # Without the name of the build, which may be that of a host or of a company.
        "os": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "packages": {name: _version(name) for name in PACKAGES},
        "commit": _commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def current_load() -> float:
    """Return the mean number of running processes of the last minute."""
    return round(os.getloadavg()[0], 2)


def _cpu_model() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    with suppress(PackageNotFoundError):
        return version(package)
    return None


def _commit() -> str | None:
    """Return the commit of the code, with ``+`` if files were changed; None without a repository."""
    with suppress(OSError, subprocess.CalledProcessError):
        commit = _git("rev-parse", "HEAD")
        return commit + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")
    return None


def _git(*words: str) -> str:
    command = ["git", "-C", str(_ROOT), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
