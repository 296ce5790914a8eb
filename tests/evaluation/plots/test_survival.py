"""Tests of the survival plot, which shows the values and intervals of ``breakdown``."""

from __future__ import annotations

import numpy as np
import pytest

from ctxlab.errors import SpecError, UnknownName
from ctxlab.evaluation.plots import plot_survival
from ctxlab.evaluation.survival import SurvivalResults, measure_survival
from ctxlab.messages.types import Recording

SPECS = ("full", "rolling_summary", "sliding_window", "observation_mask(keep=2)")


def found(recordings: list[Recording], *limits: float) -> SurvivalResults:
    return measure_survival(recordings, SPECS, limits or (0.5,), workers=1)


@pytest.mark.simulations(smoke=True)
@pytest.mark.parametrize(
    ("by", "figure"), [("round", "survival"), ("distance", "survival"), ("depth", "survival_end")]
)
def test_a_line_holds_the_shares_of_its_strategy(
    recordings: list[Recording], by: str, figure: str
) -> None:
    survival = found(recordings)
    ax = plot_survival(survival, by)
    board = survival.breakdown(by)
    lines = {line.get_gid(): line for line in ax.get_lines() if line.get_gid()}
    assert set(lines) == set(board["strategy"])
    labels = [tick.get_text() for tick in ax.get_xticklabels()]
    for strategy, rows in board.groupby("strategy", sort=False):
        x, y = lines[strategy].get_data()
        assert np.allclose(np.asarray(y), rows[figure])
        told = [v if isinstance(v, str) else f"{v:g}" for v in rows[by]]
        assert [labels[int(place)] for place in np.asarray(x)] == told


def test_only_five_clusters_have_intervals_and_filled_points(recordings: list[Recording]) -> None:
    for several, filled in ((recordings, True), (recordings[:4], False)):
        survival = found(several)
        ax = plot_survival(survival, "depth")
        points = [line for line in ax.get_lines() if np.size(line.get_xdata()) == 1]
        assert (
            any(point.get_markerfacecolor() == ax.get_facecolor() for point in points) is not filled
        )
        bars = [
            segment
            for lines in ax.collections
            for segment in lines.get_segments()  # type: ignore[attr-defined]
            if segment.size and np.isfinite(segment).all()
        ]
        assert bool(bars) is filled


def test_it_says_what_stands_behind_it(recordings: list[Recording]) -> None:
    ax = plot_survival(found(recordings, 2000.0, 0.5), limit=2000)
    assert ax.get_title("left").startswith("50 canaries, 5 clusters, within 2,000 tokens")
    assert "availability" in ax.get_ylabel()
    legend = ax.get_legend()
    assert legend is not None
    assert "rolling_summary" in [text.get_text() for text in legend.get_texts()]


def test_a_limit_that_is_not_there_or_not_chosen_is_refused(recordings: list[Recording]) -> None:
    survival = found(recordings, 2000.0, 0.5)
    with pytest.raises(SpecError, match=r"choose one of 0\.5, 2000"):
        plot_survival(survival)
    with pytest.raises(SpecError, match="choose one of"):
        plot_survival(survival, limit=16000)
    with pytest.raises(UnknownName, match="unknown x-axis"):
        plot_survival(survival, "kinds")


def test_results_are_refused_with_what_draws_them(recordings: list[Recording]) -> None:
    with pytest.raises(SpecError, match="got Results; use plot_frontier"):
        plot_survival(found(recordings).results)  # type: ignore[arg-type]
