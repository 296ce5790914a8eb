"""Tests of the frontier plot, which must show each strategy of the leaderboard once."""

from __future__ import annotations

import subprocess
import sys

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.legend import Legend

from ctxlab.errors import SpecError, UnknownName
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.metrics.recall import HEADLINE_SCORE
from ctxlab.evaluation.plots import plot_frontier
from ctxlab.evaluation.results import Results
from ctxlab.evaluation.survival import measure_survival
from ctxlab.messages.types import Recording

STRATEGIES = (
    "full",
    "sliding_window",
    "observation_mask(keep=3) | panic",
    "tool_stubs | panic",
    "panic",
    "nothing",
    "oracle",
)


@pytest.fixture(scope="module")
def results(recordings: list[Recording]) -> Results:
    return evaluate(recordings, STRATEGIES, (0.3, 0.6))


def points(ax: Axes) -> dict[str, tuple[float, float]]:
    return {
        line.get_gid(): (line.get_xdata()[0], line.get_ydata()[0])
        for line in ax.lines
        if line.get_gid()
    }


def test_it_draws_on_the_axes_it_is_given_and_returns_them(results: Results) -> None:
    _, ax = plt.subplots()
    assert plot_frontier(results, ax=ax) is ax
    assert points(ax)


def test_it_makes_axes_of_its_own_where_none_are_given(results: Results) -> None:
    assert isinstance(plot_frontier(results), Axes)


def test_every_configuration_is_one_point_where_the_leaderboard_has_it(results: Results) -> None:
    ax = plot_frontier(results)
    board = results.leaderboard()
    expected = {
        f"{row.strategy} @ {row.limit:g}": (row.tokens_mean, getattr(row, HEADLINE_SCORE))
        for row in board.itertuples()
    }
    assert len(expected) == 2 * len(STRATEGIES)
    assert points(ax) == expected


def test_the_intervals_drawn_are_those_of_the_leaderboard(recordings: list[Recording]) -> None:
    # Where all recordings say the same there is no interval: a random drop tells them apart.
    results = evaluate(recordings, ("full", "panic", "random_drop"), (0.5, 0.7))
    ax = plot_frontier(results)
    bars = [c for c in ax.collections if isinstance(c, LineCollection)]
    drawn = sorted(tuple(bar.get_segments()[0].ravel().round(9)) for bar in bars)
    columns = ["tokens_mean", f"{HEADLINE_SCORE}_low", "tokens_mean", f"{HEADLINE_SCORE}_high"]
    board = results.leaderboard()[columns].dropna()
    assert drawn
    assert drawn == sorted(map(tuple, board.to_numpy().round(9)))


def test_one_recording_has_no_interval(recordings: list[Recording]) -> None:
    ax = plot_frontier(evaluate(recordings[:1], ("full", "panic"), (0.5,)))
    assert not ax.collections


@pytest.mark.e2e
def test_limit_chooses_among_the_limits(results: Results) -> None:
    drawn = points(plot_frontier(results, limit=0.6))
    assert set(drawn) == {f"{s} @ 0.6" for s in results.leaderboard()["strategy"]}


def test_a_limit_that_was_not_evaluated_is_an_error_that_names_the_others(results: Results) -> None:
    with pytest.raises(SpecError, match=r"0\.5.*0\.3, 0\.6"):
        plot_frontier(results, limit=(0.3, 0.5))


@pytest.mark.e2e
def test_any_column_of_the_leaderboard_can_be_an_axis(results: Results) -> None:
    ax = plot_frontier(results, x="cost_usd", y="recall")
    board = results.leaderboard()
    assert set(points(ax).values()) == set(zip(board["cost_usd"], board["recall"], strict=True))
    assert "USD" in ax.get_xlabel()


def test_an_unknown_column_is_an_error_with_the_nearest_name(results: Results) -> None:
    with pytest.raises(UnknownName, match="tokens_mean"):
        plot_frontier(results, x="token_mean")


def test_where_nothing_was_said_long_before_there_is_nothing_to_draw(
    recordings: list[Recording],
) -> None:
    short = Recording("short", recordings[0].messages[:6])
    with pytest.raises(SpecError, match=HEADLINE_SCORE):
        plot_frontier(evaluate([short], ("full", "panic"), (0.5,)))


def test_the_steps_hold_no_control_no_overflow_and_nothing_that_another_beats(
    results: Results,
) -> None:
    ax = plot_frontier(results)
    steps = next(line for line in ax.lines if line.get_drawstyle() == "steps-post")
    corners = np.array(steps.get_xydata())
    assert len(corners)
    board = results.leaderboard()
    controls = board["strategy"].isin(["full()", "nothing()", "oracle()"])
    usable = board[~controls & (board["overflow_rate"] == 0) & (board["newly_invalid_rate"] == 0)]
    every = usable[["tokens_mean", HEADLINE_SCORE]].to_numpy()
    for tokens, recall in corners:
        assert [tokens, recall] in every.tolist()
        assert not ((every[:, 0] < tokens) & (every[:, 1] >= recall)).any()


def test_a_strategy_that_overflows_is_hollow(results: Results) -> None:
    ax = plot_frontier(results)
    board = results.leaderboard()
    over = board[(board["overflow_rate"] > 0) & (board["strategy"] != "full()")]
    hollow = {line.get_gid() for line in ax.lines if line.get_gid() and line.get_mfc() == "white"}
    assert hollow == {f"{row.strategy} @ {row.limit:g}" for row in over.itertuples()}


def test_every_limit_has_a_colour_of_its_own(recordings: list[Recording]) -> None:
    limits = tuple(range(1500, 5500, 500))
    ax = plot_frontier(evaluate(recordings, ("sliding_window", "panic"), limits))
    legend = next(c for c in ax.get_children() if isinstance(c, Legend))
    shown = zip(legend.get_texts(), legend.legend_handles, strict=True)
    colors = {t.get_text(): h.get_mec() for t, h in shown if t.get_text().startswith("limit")}
    assert len(set(colors.values())) == len(colors) == len(limits)


def test_the_key_names_every_strategy_that_is_no_control(results: Results) -> None:
    ax = plot_frontier(results)
    legend = ax.get_legend()
    assert legend is not None
    names = [text.get_text().split("  ", 1)[1] for text in legend.get_texts()]
    assert names == [
        "sliding_window",
        "observation_mask(keep=3) | panic",
        "tool_stubs | panic",
        "panic",
    ]


def test_labels_do_not_cover_each_other(results: Results) -> None:
    ax = plot_frontier(results)
    boxes = [t.get_window_extent() for t in ax.texts if t.get_text()]
    assert len(boxes) > 5
    for i, one in enumerate(boxes):
        assert not any(one.overlaps(other) for other in boxes[i + 1 :])


def test_the_caption_says_what_stands_behind_it(results: Results) -> None:
    legend = plot_frontier(results).get_legend()
    assert legend is not None
    caption = legend.get_title().get_text()
    assert "5 recordings in 5 clusters" in caption
    assert "Off-policy" in caption
    assert "upper bound" in caption


@pytest.mark.e2e(smoke=True)
@pytest.mark.parametrize("module", ["ctxlab.evaluation.plots", "ctxlab"])
def test_importing_it_loads_no_matplotlib(module: str) -> None:
    code = f"import sys, {module}; from {module} import plot_frontier, plot_context_map\n"
    code += "sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_holds_results_is_refused_with_where_they_are(recordings: list[Recording]) -> None:
    with pytest.raises(SpecError, match=r"got SurvivalResults; pass its attribute \.results"):
        plot_frontier(measure_survival(recordings[:1], "full", 1.0, workers=1))  # type: ignore[arg-type]
