"""Tests that the predicted cost of recorded Claude Code sessions is that of their bills."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from ctxlab.evaluation.experiment import evaluate
from ctxlab.messages.types import Recording
from ctxlab.tokens.models import find_model

DOCS = Path(__file__).parents[1] / "docs"
LEAST_SESSIONS = 5
pytestmark = pytest.mark.recordings


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bills", DOCS / "bills.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def sessions(script: ModuleType, recorded: Path) -> list[Recording]:
    """Return the billed sessions of Claude Code, without subagents; skip the test if there are few."""
    found = [each for each in script.load_sessions(recorded) if "parent" not in each.meta]
    if len(found) < LEAST_SESSIONS:
        pytest.skip(f"fewer than {LEAST_SESSIONS} billed sessions of Claude Code beside the others")
    return found


def bill(recording: Recording) -> tuple[float, float]:
    """Return the cost and the cached share by the bills, with Anthropic's published factors."""
    price, cost, read, total = find_model(str(recording.model)).prices.input, 0.0, 0, 0
    for message in recording.messages:
        if message.role == "assistant" and (usage := message.usage):
            short = usage.cache_write - usage.cache_write_1h
            written = 1.25 * short + 2 * usage.cache_write_1h
            cost += price * (usage.input + 0.1 * usage.cache_read + written)
            read += usage.cache_read
            total += usage.input + usage.cache_read + usage.cache_write
    return cost, read / total


def test_cost_and_cached_share_are_those_of_the_bill_in_the_median_session(
    sessions: list[Recording],
) -> None:
    settings = {"cache_ttl": "recorded", "fixed": "recorded"}
    runs = evaluate(sessions, "recorded", 10**7, metrics=["cost"], progress=False, **settings).runs
    billed = np.array([bill(each) for each in sessions])
    assert (runs["requests"] == [len(each.request_positions) for each in sessions]).all()
    error = np.abs(runs["cost_usd"] / billed[:, 0] - 1)
    assert np.median(error) < 0.1
    assert np.median(np.abs(runs["cached_share"] - billed[:, 1])) < 0.03
    assert (error < 0.1).mean() > 0.6


def test_the_page_is_what_the_script_gives(script: ModuleType, recorded: Path) -> None:
    if not (recorded / ".." / "corpus").is_dir():
        pytest.skip("the page also needs the folder corpus beside the recordings")
    found = script.bills_page(script.load_sessions(recorded))
    assert (DOCS / "bills.md").read_text(encoding="utf-8") == found
