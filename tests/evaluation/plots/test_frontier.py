"""Tests of the frontier plot, which must show each strategy of the leaderboard once."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from ctxlab.errors import SpecError, UnknownName
from ctxlab.evaluation.columns import short_strategy
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


def panels(drawn: Any) -> list[Axes]:
    return list(np.atleast_1d(drawn))


def points(drawn: Any) -> dict[str, tuple[float, float]]:
    return {
        line.get_gid(): (line.get_xdata()[0], line.get_ydata()[0])
        for ax in panels(drawn)
        for line in ax.lines
        if "@" in (line.get_gid() or "")
    }


def texts(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts if text.get_text()]


def test_it_draws_one_limit_on_the_axes_it_is_given(results: Results) -> None:
    _, ax = plt.subplots()
    assert plot_frontier(results, limit=0.6, ax=ax) is ax
    with pytest.raises(SpecError, match="one limit for one axes, got 2"):
        plot_frontier(results, ax=ax)


def test_each_limit_has_a_panel_and_each_configuration_a_point_in_it(results: Results) -> None:
    drawn = panels(plot_frontier(results, x="tokens_mean"))
    assert [ax.get_title("left") for ax in drawn] == [
        "within 30 % of each recording", "within 60 % of each recording",
    ]  # fmt: skip
    board = results.leaderboard()
    for ax, limit in zip(drawn, (0.3, 0.6), strict=True):
        assert points(ax) == {
            f"{row.strategy} @ {limit:g}": (row.tokens_mean, getattr(row, HEADLINE_SCORE))
            for row in board[board["limit"] == limit].itertuples()
            if row.strategy != "nothing()"
        }


def test_nothing_is_a_line_and_controls_can_be_left_out(results: Results) -> None:
    ax = plot_frontier(results, limit=0.3)
    assert isinstance(ax, Axes)
    assert any("nothing kept" in text for text in texts(ax))
    assert {"full", "oracle"} <= set(texts(ax))
    bare = plot_frontier(results, limit=0.3, controls=False)
    assert isinstance(bare, Axes)
    assert len(points(bare)) == 4
    assert not any(each in text for text in texts(bare) for each in ("full", "nothing"))


def test_the_intervals_drawn_are_those_of_the_leaderboard(recordings: list[Recording]) -> None:
    # Where all recordings say the same there is no interval: a random drop tells them apart.
    results = evaluate(recordings, ("full", "panic", "random_drop"), (0.5, 0.7))
    drawn = panels(plot_frontier(results, x="tokens_mean"))
    bars = [c for ax in drawn for c in ax.collections if isinstance(c, LineCollection)]
    found = sorted(tuple(bar.get_segments()[0].ravel().round(9)) for bar in bars)
    columns = ["tokens_mean", f"{HEADLINE_SCORE}_low", "tokens_mean", f"{HEADLINE_SCORE}_high"]
    board = results.leaderboard()[columns].dropna()
    assert found
    assert found == sorted(map(tuple, board.to_numpy().round(9)))


def test_one_recording_has_no_interval(recordings: list[Recording]) -> None:
    ax = plot_frontier(evaluate(recordings[:1], ("full", "panic"), (0.5,)))
    assert isinstance(ax, Axes)
    assert not ax.collections


def test_a_limit_that_was_not_evaluated_is_an_error_that_names_the_others(results: Results) -> None:
    with pytest.raises(SpecError, match=r"0\.5.*0\.3, 0\.6"):
        plot_frontier(results, limit=(0.3, 0.5))


def test_an_unknown_column_is_an_error_with_the_nearest_name(results: Results) -> None:
    with pytest.raises(UnknownName, match="tokens_mean"):
        plot_frontier(results, x="token_mean")


def test_where_nothing_was_said_long_before_a_sentence_says_so(recordings: list[Recording]) -> None:
    short = Recording("short", recordings[0].messages[:6])
    ax = plot_frontier(evaluate([short], ("full", "panic"), (0.5,)))
    assert isinstance(ax, Axes)
    assert texts(ax)[0].startswith("No strategy has both")


def test_the_steps_hold_no_control_no_overflow_and_nothing_that_another_beats(
    results: Results,
) -> None:
    for limit in (0.3, 0.6):
        ax = plot_frontier(results, limit=limit, x="tokens_mean")
        assert isinstance(ax, Axes)
        steps = next(line for line in ax.lines if line.get_drawstyle() == "steps-post")
        corners = np.array(steps.get_xydata())
        assert len(corners)
        board = results.leaderboard().query("limit == @limit")
        controls = board["strategy"].isin(["full()", "nothing()", "oracle()"])
        fits = (board["overflow_rate"] == 0) & (board["newly_invalid_rate"] == 0)
        every = board.loc[~controls & fits, ["tokens_mean", HEADLINE_SCORE]].to_numpy()
        for tokens, recall in corners:
            assert [tokens, recall] in every.tolist()
            assert not ((every[:, 0] < tokens) & (every[:, 1] >= recall)).any()


def test_a_strategy_that_overflows_is_hollow(results: Results) -> None:
    drawn = panels(plot_frontier(results))
    board = results.leaderboard()
    over = board[(board["overflow_rate"] > 0) & (board["strategy"] != "full()")]
    hollow = {
        line.get_gid()
        for ax in drawn
        for line in ax.lines
        if line.get_gid() and line.get_mfc() == ax.get_facecolor()
    }
    assert hollow == {f"{row.strategy} @ {row.limit:g}" for row in over.itertuples()}


def test_up_to_ten_strategies_are_named_at_their_points(results: Results) -> None:
    ax = plot_frontier(results, limit=0.6)
    assert isinstance(ax, Axes)
    shown = ", ".join(texts(ax))
    for name in ("sliding_window", "observation_mask(keep=3) | panic", "tool_stubs | panic"):
        assert name in shown


def test_of_many_strategies_the_best_are_numbered_by_recall(recordings: list[Recording]) -> None:
    many = [f"observation_mask(keep={keep}) | panic" for keep in range(1, 16)]
    results = evaluate(recordings, ["full", *many], (0.5,))
    ax = plot_frontier(results)
    assert isinstance(ax, Axes)
    figure = ax.get_figure(root=True)
    assert figure is not None
    (legend,) = figure.legends
    numbers, names = zip(*(t.get_text().split(maxsplit=1) for t in legend.get_texts()), strict=True)
    assert list(map(int, numbers)) == list(range(1, len(names) + 1))
    board = results.leaderboard()
    recall = dict(zip(map(short_strategy, board["strategy"]), board[HEADLINE_SCORE], strict=True))
    ranked = [recall[name] for name in names]
    assert ranked == sorted(ranked, reverse=True)


def test_labels_do_not_cover_each_other(results: Results) -> None:
    for ax in panels(plot_frontier(results)):
        boxes = [t.get_window_extent() for t in ax.texts if t.get_text()]
        assert len(boxes) > 3
        for i, one in enumerate(boxes):
            assert not any(one.overlaps(other) for other in boxes[i + 1 :])


def test_the_caption_says_what_stands_behind_it(results: Results) -> None:
    figure = panels(plot_frontier(results))[0].get_figure(root=True)
    assert figure is not None
    caption = figure.get_supxlabel()
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
