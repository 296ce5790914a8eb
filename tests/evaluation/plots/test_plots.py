"""Tests of all plots: they draw on given axes, say in words what they show, and draw frames."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from plotted import recorded

import ctxlab
from ctxlab.errors import SpecError
from ctxlab.messages.types import Message, Recording, ToolCall, Usage

STRATEGIES = ["full", "nothing", "sliding_window()", "observation_mask(keep=2) | panic",
              "rolling_summary | panic"]  # fmt: skip
BASELINES = str(Path(__file__).parent / "baseline")


@cache
def recordings() -> list[Recording]:
    names = ("alpha", "beta", "gamma", "delta", "omega")
    return [recorded(name, 9 + i) for i, name in enumerate(names)]


@cache
def results() -> ctxlab.Results:
    return ctxlab.evaluate(recordings(), STRATEGIES, [3000, 5000], "gpt-4o", closed_loop=True)


@cache
def replay(strategy: str = "rolling_summary | panic") -> ctxlab.Replay:
    return ctxlab.replay(recordings()[0], strategy, 3000, "gpt-4o")


@cache
def replays(strategy: str) -> list[ctxlab.Replay]:
    return [ctxlab.replay(each, strategy, 3000, "gpt-4o") for each in recordings()]


@cache
def survival() -> ctxlab.SurvivalResults:
    return ctxlab.measure_survival(recordings(), STRATEGIES[2:], [3000], "gpt-4o", workers=1)


@cache
def tuning() -> ctxlab.TuningResults:
    space = ["observation_mask(keep=[1, 3]) | panic"]
    return ctxlab.tune(recordings(), space, [3000], "gpt-4o", holdout=0, workers=1)


def billed() -> Recording:
    reply = Message("assistant", "word " * 200, usage=Usage(input=1200, output=250))
    later = Message("assistant", "end", usage=Usage(input=1500, output=5))
    return Recording("billed", (Message("user", "go " * 900), reply, Message("user", "on"), later))


PLOTS: dict[str, Callable[..., Any]] = {
    "bills": lambda ax: ctxlab.plot_bills([billed()], ax=ax),
    "canaries": lambda ax: ctxlab.plot_canaries(survival(), "sliding_window", ax=ax),
    "contents": lambda ax: ctxlab.plot_contents(replay("full"), ax=ax),
    "context_map": lambda ax: ctxlab.plot_context_map(replay(), ax=ax),
    "cost": lambda ax: ctxlab.plot_cost(replay(), ax=ax),
    "differences": lambda ax: ctxlab.plot_differences(
        ctxlab.compare_strategies(results(), "rolling_summary | panic", "sliding_window()"), ax=ax
    ),
    "equal_knowledge": lambda ax: ctxlab.plot_equal_knowledge(results(), ax=ax),
    "frontier": lambda ax: ctxlab.plot_frontier(results(), limit=3000, ax=ax),
    "recall_by_distance": lambda ax: ctxlab.plot_recall_by_distance(
        [*replays("rolling_summary | panic"), *replays("sliding_window()")], ax=ax
    ),
    "recordings": lambda ax: ctxlab.plot_recordings(results(), ax=ax),
    "request_sizes": lambda ax: ctxlab.plot_request_sizes([replay(), replay("full")], ax=ax),
    "size_distribution": lambda ax: ctxlab.plot_size_distribution(results(), ax=ax),
    "survival": lambda ax: ctxlab.plot_survival(survival(), ax=ax),
    "tuning": lambda ax: ctxlab.plot_tuning(tuning(), ax=ax),
}


def test_every_plot_is_tested_here() -> None:
    public = {name.removeprefix("plot_") for name in dir(ctxlab) if name.startswith("plot_")}
    assert set(PLOTS) == public


@pytest.mark.skipif(
    matplotlib.__version_info__ < (3, 11), reason="matplotlib measures text differently since 3.11"
)
@pytest.mark.parametrize("name", PLOTS)
@pytest.mark.mpl_image_compare(
    baseline_dir=BASELINES, remove_text=True, tolerance=6, savefig_kwargs={"dpi": 50}
)
def test_a_plot_looks_as_before(name: str) -> Figure:
    figure, ax = plt.subplots(figsize=(6, 4))
    drawn = PLOTS[name](ax)
    assert drawn is ax
    assert len(drawn.get_label()) > 20
    return figure


def test_the_cost_is_that_of_the_requests() -> None:
    for strategy in ("full", "rolling_summary | panic"):
        close = replay(strategy)
        ax = ctxlab.plot_cost(close)
        top = max(path.vertices[:, 1].max() for c in ax.collections for path in c.get_paths())
        assert np.isclose(top, close.requests["cost_usd"].sum())


def test_the_contents_are_the_tokens_of_the_requests() -> None:
    close = replay("observation_mask(keep=2) | panic")
    assert (close.contents.sum(axis=1) == close.requests["tokens"]).all()
    ax = ctxlab.plot_contents(close)
    top = max(path.vertices[:, 1].max() for c in ax.collections for path in c.get_paths())
    assert top == close.requests["tokens"].max()


def test_the_share_at_a_distance_is_that_of_the_needs() -> None:
    closes = replays("sliding_window()")
    (line,) = (each for each in ctxlab.plot_recall_by_distance(closes).lines if each.get_gid())
    needs = pd.concat([close.needs for close in closes])
    found = []
    edges = [0, *(250 * 2**step for step in range(9))]
    for low, high in pairwise(edges):
        here = needs[(needs["gap"] > low) & (needs["gap"] <= high)]
        if len(here) >= 5:
            found.append((here["tier"] == "held").mean())
    drawn = np.asarray(line.get_ydata(), float)
    assert found
    assert np.allclose(drawn[~np.isnan(drawn)], found)


def test_without_data_a_plot_says_why() -> None:
    silent = Recording("silent", (Message("user", "hello"),))
    empty = ctxlab.replay(silent, "full", 100, "gpt-4o")
    for draw in (ctxlab.plot_contents, ctxlab.plot_cost, ctxlab.plot_request_sizes):
        ax = draw(empty)
        assert "no model call" in ax.get_label()
        assert not ax.axison
    unpriced = ctxlab.replay(recordings()[0], "full", 3000, "some-local-model")
    assert "prices of some-local-model are unknown" in ctxlab.plot_cost(unpriced).get_label()


def test_what_was_not_measured_is_an_error_that_says_what_to_do() -> None:
    plain = ctxlab.evaluate(recordings()[:1], "full", 3000, "gpt-4o", metrics=["usage"])
    with pytest.raises(SpecError, match="closed_loop=True"):
        ctxlab.plot_equal_knowledge(plain)
    with pytest.raises(SpecError, match="metric recall"):
        ctxlab.plot_recordings(plain)
    with pytest.raises(SpecError, match="choose from 3000"):
        ctxlab.plot_size_distribution(plain, limit=7)
    comparison = ctxlab.compare_strategies(results(), "full", "sliding_window()")
    with pytest.raises(SpecError, match="was not compared; choose from"):
        ctxlab.plot_differences(comparison, "beauty")


def test_names_of_logs_are_drawn_as_they_are() -> None:
    name = "a$\\foo{$b\ud800"
    call = ToolCall("c", name, '{"path": "src/x.py"}')
    messages = (
        Message("user", "see src/x.py"),
        Message("assistant", "", (call,)),
        Message("tool", "x = 1", tool_call_id="c"),
        Message("assistant", "done"),
    )
    close = ctxlab.replay(Recording(name, messages), "full", 3000, "gpt-4o")
    for draw in (ctxlab.plot_contents, ctxlab.plot_context_map, ctxlab.plot_request_sizes):
        figure = draw(close).get_figure(root=True)
        assert figure is not None
        figure.draw_without_rendering()


def test_the_share_that_fits_is_that_of_the_leaderboard() -> None:
    reserved = ctxlab.evaluate(recordings(), ["full"], 5000, "gpt-4o", reserve=2000)
    rate = reserved.leaderboard()["overflow_rate"][0]
    label = ctxlab.plot_size_distribution(reserved).get_label()
    assert f"{1 - rate:.0%} of the requests fit" in label


def test_limits_are_written_as_for_evaluate() -> None:
    for draw in (ctxlab.plot_size_distribution, ctxlab.plot_equal_knowledge, ctxlab.plot_frontier):
        assert draw(results(), limit="5k").get_title("left").startswith("within 5,000 tokens")


def test_with_controls_only_a_plot_shows_them_or_says_so() -> None:
    controls = ctxlab.evaluate(recordings(), ["full"], 5000, "gpt-4o")
    assert "1.0 with full" in ctxlab.plot_recordings(controls).get_label()
    without = ctxlab.plot_frontier(controls, controls=False)
    assert without.get_label() == "Only controls were evaluated."  # type: ignore[union-attr]
