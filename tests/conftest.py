"""How much hypothesis tries, and where the real recordings are."""

from __future__ import annotations

import gc
import os
import signal
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
# How many examples each property is tried with: few by default, more in ``nox -s properties``, and
# new ones every time in ``nox -s thorough``.
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
# A shell that starts the tests in its background has them ignore Ctrl+C, which some of them press.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.load_profile(os.environ.get("CTXLAB_HYPOTHESIS", "quick"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the real recordings; keep the first case of ``smoke=True`` in the default."""
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
    """Leave what was imported out of searches for garbage, each of which would take half a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def counter() -> TokenCounter:
    """One counter for all tests, since a vocabulary takes a moment to load."""
    return TokenCounter("gpt-4o")


@pytest.fixture(scope="session")
def recorded() -> Path:
    """The folder of real recordings; tests that need it skip where it is absent."""
    beside = Path(__file__).parents[1] / ".." / "shared" / "data"
    folder = Path(os.environ.get("CTXLAB_DATA") or beside).resolve()
    if not folder.is_dir():
        pytest.skip(
            "no real recordings: CTXLAB_DATA names no folder and there is no ../shared/data"
        )
    return folder


@pytest.fixture
def tables() -> Iterator[None]:
    """Whatever a test registers is forgotten after it."""
    kept = [(table, dict(table)) for table in (STRATEGIES, FORMATS, METRICS)]
    yield
    for table, before in kept:
        table.clear()
        table.update(before)  # type: ignore[arg-type]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of data sets; nothing of this machine's own is seen, and loopback is reached."""
    for name in ("HOME", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("CTXLAB_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server on loopback that every published address leads to."""
    with serving() as served:
        monkeypatch.setenv("CTXLAB_MIRROR", served.address)
        yield served
