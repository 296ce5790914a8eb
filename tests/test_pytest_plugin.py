"""Tests of the pytest plugin: failed budgets, errors, and the modules that it loads."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from running import a_recording

from ctxlab.formats import write

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[1]
OPTIONS = ("--strict-markers", "-W", "error", "-p", "ctxlab.pytest_plugin", "-p", "xdist")

TESTS = """
import pytest

def test_figures_are_attributes(ctxlab_replay):
    found = ctxlab_replay("logs", "tool_stubs(keep=3) | panic", 4000)
    assert found.overflow_rate == 0
    assert found.tokens_peak <= 4000
    assert found.results.cluster_count == 3
    assert found is ctxlab_replay("logs", "tool_stubs(3) | panic()", "4k")
    assert found is not ctxlab_replay("logs", "tool_stubs(3) | panic()", "4k", reserve=10)
    assert "tool_stubs(keep=3) | panic()" in repr(found)
    with pytest.raises(AttributeError, match="did you mean recall_far"):
        found.recal_far

def test_recordings_may_be_given(ctxlab_replay):
    from ctxlab import load
    recordings = list(load("logs"))
    found = ctxlab_replay(recordings, lambda messages: messages[-6:], 4000)
    assert found.messages_mean < 7
    whole = ctxlab_replay(recordings[0], "full", 4000)
    assert len(whole.results.recordings) == 1

@pytest.mark.ctxlab_budget("logs", "full", 8000, max_invalid_rate=0, max_tokens_mean="90k")
def test_holds(): pass

@pytest.mark.ctxlab_budget("logs", "full", 8000, max_tokens_mean=100, min_recall=0.5)
def test_breaks(): print("is not run")

@pytest.mark.ctxlab_budget("logs", "full", 8000, max_tokens_means=100)
def test_score(): pass

@pytest.mark.ctxlab_budget("logs", "full", 8000, most_tokens_mean=100)
def test_key(): pass

@pytest.mark.ctxlab_budget("logs", "full", max_tokens_mean=100)
def test_missing(): pass

@pytest.mark.ctxlab_budget("logs", "full", 8000)
def test_nothing(): pass

@pytest.mark.ctxlab_budget("logs", "full", 8000, margin_tokens_mean=1)
def test_margin(): pass

@pytest.mark.ctxlab_budget("logs", "full", 8000, margin_tokens_mean=1, baseline="base.json")
def test_baseline(): pass

@pytest.mark.ctxlab_budget("nowhere", "full", 8000, max_recall=1)
def test_data(): pass

@pytest.mark.ctxlab_budget("logs", "full", 8000, max_recall=1)
@pytest.mark.ctxlab_budget("logs", "panic", 8000, max_recall=1)
def test_twice(): pass
"""

MARGIN = """
import pytest

@pytest.mark.ctxlab_budget(
    "logs", "tool_stubs(keep=1)", 8000, baseline="base.json", margin_tokens_mean="1 %", name="a")
@pytest.mark.ctxlab_budget(
    "logs", "panic", 8000, baseline="base.json", margin_tokens_peak="1 %", name="b")
def test_margins(): pass
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Return a folder of six recordings in three clusters."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    # Other plugins of this environment may load and print what they like.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (pytester.path / "logs").mkdir()
    for number in range(6):
        write([a_recording(number)], pytester.path / "logs" / f"{number}.jsonl")
    return pytester


def text(result: pytest.RunResult) -> str:
    return result.stdout.str()


@pytest.mark.e2e
def test_markers_and_fixture_hold_fail_and_err(project: pytest.Pytester) -> None:
    project.makepyfile(TESTS)
    result = project.runpytest_subprocess(*OPTIONS)
    result.assert_outcomes(passed=3, failed=1, errors=8)
    said = text(result)
    name = "test_markers_and_fixture_hold_fail_and_err.py"
    assert re.search(
        rf"\n{name}::test_breaks at 8,000: token mean is [\d,]+, above its maximum of 100; the strategy "
        r"is full\(\)\n",
        said,
    )
    assert "is not run" not in said
    assert "Traceback" not in said
    for words in (
        "max: unknown score 'tokens_means'; did you mean tokens_mean",
        "unknown key 'most_tokens_mean'; choose from baseline, cache_ttl, fixed, margin_SCORE",
        "missing a required argument: 'limit'",
        "expected a bound, got none",
        "expected both margin_SCORE and baseline",
        "at 8,000 has no token mean in the baseline yet; run pytest --ctxlab-update to add it",
        "nowhere: no such file or folder",
        "give each marker a different name",
    ):
        assert f"{words}" in said


@pytest.mark.e2e
def test_a_baseline_is_written_when_asked_for_and_compared_with(project: pytest.Pytester) -> None:
    project.makepyfile(MARGIN)
    (path,) = project.path.glob("test_*.py")
    project.runpytest_subprocess(*OPTIONS, "--ctxlab-update").assert_outcomes(passed=1)
    assert (project.path / "base.json").is_file()
    # Under xdist each worker compares with it; none may write it.
    refused = project.runpytest_subprocess(*OPTIONS, "--ctxlab-update", "-n", "2")
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    path.write_text(path.read_text().replace("tool_stubs(keep=1)", "full"))
    result = project.runpytest_subprocess(*OPTIONS, "-n", "2")
    result.assert_outcomes(failed=1)
    said = text(result)
    assert re.search(r"/ a at 8,000: token mean rose from [\d,]+ to [\d,]+ \(\+", said)
    assert "the strategy is now full() and was tool_stubs(keep=1)" in said


def test_a_run_that_does_not_use_it_loads_nothing_of_it_and_prints_nothing(
    project: pytest.Pytester,
) -> None:
    project.makepyfile(
        """
import sys

def test_loaded():
    heavy = {"numpy", "pandas", "msgspec", "litellm", "tiktoken", "rich", "typer", "matplotlib"}
    ours = {name for name in sys.modules if name.split(".")[0] == "ctxlab"}
    assert ours == {"ctxlab", "ctxlab.pytest_plugin"}
    assert not heavy & set(sys.modules)
"""
    )
    result = project.runpytest_subprocess("-p", "ctxlab.pytest_plugin", "-W", "error")
    result.assert_outcomes(passed=1)
    assert "ctxlab" not in text(result)


@pytest.mark.e2e
def test_it_is_imported_in_a_moment() -> None:
    """The whole package takes hundreds of times as long to import: so little beside pytest itself."""
    code = (
        "import time, pytest, pathlib, ast\n"
        "begin = time.process_time(); import ctxlab.pytest_plugin\n"
        "ours = time.process_time() - begin\n"
        "begin = time.process_time(); import pandas\n"
        "print(ours / (time.process_time() - begin))"
    )
    shares = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(3)]
    assert min(shares) < 0.05


def test_pytest_finds_it_where_ctxlab_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"ctxlab": "ctxlab.pytest_plugin"}
