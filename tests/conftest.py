"""Hypothesis profiles, markers and fixtures for all tests."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from serving import Server, serving

from ctxlab.evaluation.metrics import METRICS
from ctxlab.formats import FORMATS
from ctxlab.strategies import STRATEGIES
from ctxlab.tokens.counter import TokenCounter

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
# The number of examples of each property: few by default, more in ``nox -s properties``, and new
# random ones in each run of ``nox -s thorough``.
for _name, _examples, _steps in (("quick", 10, 20), ("many", 60, 50)):
    settings.register_profile(
        _name,
        derandomize=True,
        deadline=None,
        max_examples=_examples,
        stateful_step_count=_steps,
        suppress_health_check=_SLOW,
    )
settings.register_profile(
    "thorough",
    deadline=None,
    max_examples=int(os.environ.get("CTXLAB_EXAMPLES", "2000")),
    suppress_health_check=_SLOW,
    print_blob=True,
)
# If a shell starts pytest in the background, SIGINT is ignored. Some tests send it, so restore it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Even where Python may store no compiled code, tests do: they start many processes, and each of them,
# and of the workers of pytest-xdist, would compile ctxlab again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Stored counts would hide faults of counting, also in the processes that tests start.
os.environ["CTXLAB_CACHE"] = ""

settings.load_profile(os.environ.get("CTXLAB_HYPOTHESIS", "quick"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that need real recordings, and unmark one case of each test with a smoke mark.

    A marker such as ``@pytest.mark.properties(smoke=True)`` moves a test out of the default suite.
    The first case of the test stays in it.
    """
    seen: set[str] = set()
    for item in items:
        if "recorded" in getattr(item, "fixturenames", ()) and not item.get_closest_marker(
            "recordings"
        ):
            item.add_marker("recordings")
        name = item.nodeid.partition("[")[0]
        for mark in [mark for mark in item.own_markers if mark.kwargs.get("smoke")]:
            if name not in seen:
                seen.add(name)
                item.own_markers.remove(mark)


def pytest_collection_finish() -> None:
    """Exclude imported modules from garbage collection, which would otherwise take 0.5 s each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def counter() -> TokenCounter:
    """Return a token counter, shared by all tests because loading a vocabulary is slow."""
    return TokenCounter("gpt-4o")


@pytest.fixture(scope="session")
def recorded() -> Path:
    """Return the folder of real recordings; skip the test if the folder does not exist."""
    beside = Path(__file__).parents[1] / ".." / "shared" / "data"
    folder = Path(os.environ.get("CTXLAB_DATA") or beside).resolve()
    if not folder.is_dir():
        pytest.skip(f"no real recordings: {folder} is not a folder; set CTXLAB_DATA")
    return folder


@pytest.fixture
def tables() -> Iterator[None]:
    """Remove the strategies, formats and metrics that a test registers when it ends."""
    kept = [(table, dict(table)) for table in (STRATEGIES, FORMATS, METRICS)]
    yield
    for table, before in kept:
        table.clear()
        table.update(before)  # type: ignore[arg-type]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder for data sets; home and cache are temporary, loopback uses no proxy."""
    for name in ("HOME", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("CTXLAB_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Yield a server on loopback that ctxlab uses as the mirror of all published data sets."""
    with serving() as served:
        monkeypatch.setenv("CTXLAB_MIRROR", served.address)
        yield served
