"""Results of a search: the frontier on held-out recordings, and its optimism on the tuning part.

The best of many configurations is partly best by luck, so it looks better on the recordings that
selected it. This difference is the optimism of the search; it is reported for each figure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pandas as pd

from ctxlab.evaluation.bootstrap import ratio_interval
from ctxlab.evaluation.metrics.base import FloatArray, divide_sums
from ctxlab.evaluation.recommendation import (
    control_names,
    format_limit,
    leaderboard_verdict,
    qualifying_rows,
    usable_rows,
)
from ctxlab.evaluation.results import Results, replace_run_files
from ctxlab.evaluation.tuning.pareto import pareto_front
from ctxlab.evaluation.tuning.successive_halving import REFERENCE_NOTE, TrialSums

_ConfigurationKey: TypeAlias = tuple[float, str]
"a limit, and a strategy as text"
_Ratio: TypeAlias = tuple[FloatArray, FloatArray]
"numerators and denominators of a ratio, each of shape ``(clusters, configurations)``"


@dataclass
class TuningResults:
    """Results of a search; a notebook displays them as the frontier."""

    results: Results
    """evaluation of the frontier and of controls on the held-out recordings; it can be compared,
    gated, plotted and saved like any other"""
    trial_sums: TrialSums
    "every trial on the tuning part, as sums by cluster"

    @property
    def heldout_clusters(self) -> tuple[str, ...]:
        """Clusters that the search did not use; empty if nothing was held out."""
        return tuple(self.results.manifest["tuning"]["held_out"])

    @property
    def tuning_clusters(self) -> tuple[str, ...]:
        """Clusters on which the frontier was found."""
        return tuple(self.trial_sums.clusters)

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row per configuration: its scores on the clusters it was replayed over.

        ``rounds`` and ``clusters`` are the numbers of those it was replayed in. ``left`` says why it
        was dropped; it is empty for the frontier. Full history under each limit comes first.
        """
        return self.trial_sums.frame

    @cached_property
    def frontier(self) -> pd.DataFrame:
        """One row per configuration of the frontier, on held-out recordings, in order of cost.

        ``cost_share`` is the cost as a share of full history's on the same requests. It and the
        gain have 95 % intervals over clusters. ``tuned_…`` is the score on the tuning part, and
        ``…_optimism`` is that score minus the held-out one, with its interval; it is nan if either
        has no interval. ``fits`` is True if the configuration fits its limit on the held-out part
        too. ``dominated`` is True if it does not fit, or another one of the frontier gains more for
        less there.
        """
        cost, kept = self.trial_sums.scorer.scores[:2]
        here = self.heldout_leaderboard[control_names(self.heldout_leaderboard) == ""]
        keys = list(zip(here["limit"], here["strategy"], strict=True))
        frame = here[["strategy", "limit", cost.name]].reset_index(drop=True)
        for name, now, before in self._iter_objective_sums(keys):
            frame = frame.assign(**self._optimism_columns(name, now, before))
        frame["fits"] = usable_rows(self.heldout_leaderboard)[here.index].to_numpy()
        frame["dominated"] = ~pareto_front(frame[cost.name].where(frame["fits"]), frame[kept.name])
        return frame.sort_values(cost.name, kind="stable").reset_index(drop=True)

    @cached_property
    def optimism(self) -> pd.DataFrame:
        """Scores of the whole frontier: on the tuning part, held out, and the difference.

        There is one row for the cost share and one for the gain. ``low`` and ``high`` bound the
        difference; it is nan if either part has no interval.
        """
        keys = list(zip(self.frontier["limit"], self.frontier["strategy"], strict=True))
        rows = {}
        for name, *parts in self._iter_objective_sums(keys):
            pooled = [(a.sum(1, keepdims=True), b.sum(1, keepdims=True)) for a, b in parts]
            found = self._optimism_columns(name, *pooled)
            gap = f"{name}_optimism"
            columns = (f"tuned_{name}", name, gap, f"{gap}_low", f"{gap}_high")
            rows[name] = [found[column][0] for column in columns]
        heads = ["tuned", "held_out", "optimism", "low", "high"]
        return pd.DataFrame.from_dict(rows, orient="index", columns=heads)

    @cached_property
    def heldout_leaderboard(self) -> pd.DataFrame:
        """The leaderboard of the held-out part, limited to the frontier and the controls."""
        board = self.results.leaderboard()
        frontier = {(limit, repr(strategy)) for strategy, limit in self.trial_sums.frontier}
        keys = zip(board["limit"], board["strategy"], strict=True)
        kept = np.array([key in frontier for key in keys])
        return board[kept | (control_names(board) != "")].reset_index(drop=True)

    def winner(self, min_recall: float = 0.95) -> tuple[str, float] | None:
        """Return the configuration that the verdict names.

        Parameters
        ----------
        min_recall : float, default 0.95
            Far recall to keep, as a share of full history's.

        Returns
        -------
        (str, float) or None
            Strategy and limit; None if the verdict names none.
        """
        if not self._uses_far_recall:
            return None
        best = qualifying_rows(self.heldout_leaderboard, min_recall)
        return None if best.empty else (best["strategy"].iloc[0], best["limit"].iloc[0])

    def verdict(self, min_recall: float = 0.95) -> str:
        """Name the cheapest configuration of the frontier that keeps enough far recall.

        The choice uses the held-out figures. A second sentence follows if the tuning part alone
        would have chosen another configuration; the held-out figures of that one are unbiased.

        Parameters
        ----------
        min_recall : float, default 0.95
            Far recall to keep, as a share of full history's.

        Returns
        -------
        str
            One or two sentences.
        """
        if not self._uses_far_recall:
            cost, kept = (score.name for score in self.trial_sums.scorer.scores[:2])
            return f"A verdict needs far recall; this is the frontier of {cost} against {kept}."
        said = leaderboard_verdict(self.heldout_leaderboard, min_recall)
        if not self.heldout_clusters:
            return f"Nothing was held out, so these figures are optimistic. {said}"
        said = f"On {len(self.heldout_clusters)} held-out clusters: {said[:1].lower()}{said[1:]}"
        tuned = self.trials
        blind = qualifying_rows(tuned[tuned["left"].isin(["", REFERENCE_NOTE])], min_recall)
        if blind.empty or qualifying_rows(self.heldout_leaderboard, 0).empty:
            return said
        strategy, limit = blind[["strategy", "limit"]].iloc[0]
        if (strategy, limit) == self.winner(min_recall):
            return said
        row = self.heldout_leaderboard.set_index(["strategy", "limit"]).loc[(strategy, limit)]
        low, high = row["recall_far_low"], row["recall_far_high"]
        bounds = "" if np.isnan(low) else f" ({low:.2f}–{high:.2f})"
        return (
            f"{said} The tuning part alone would have chosen {strategy} at "
            f"{format_limit(limit)}, which keeps {row['recall_far']:.2f}{bounds} here."
        )

    def save(self, folder: str | Path) -> Path:
        """Write the files of ``Results.save``, the frontier and the trials.

        Parameters
        ----------
        folder : str or Path
            The folder; it is created if missing.

        Returns
        -------
        Path
            The folder.
        """
        with replace_run_files(Path(folder)) as beside:
            self.results.write_files(beside)
            self.frontier.to_parquet(beside / "frontier.parquet", index=False)
            self.trials.to_parquet(beside / "trials.parquet", index=False)
        return Path(folder)

    def _repr_html_(self) -> str:
        table = self.frontier.to_html(index=False, float_format=lambda v: f"{v:,.3g}")
        note = f"{self.verdict()} Off-policy replay; recall is availability, an upper bound. "
        return f"{table}<p>{note}{self.results.model_note}</p>"

    @property
    def _uses_far_recall(self) -> bool:
        return self.trial_sums.scorer.scores[1].name == "recall_far"

    def _iter_objective_sums(
        self, keys: Sequence[_ConfigurationKey]
    ) -> Iterator[tuple[str, _Ratio, _Ratio]]:
        """Yield each objective's name and its sums for the keys, held out and on the tuning part."""
        cost, kept = self.trial_sums.scorer.scores[:2]
        whole: list[_ConfigurationKey] = [(limit, "full()") for limit, _ in keys]
        now, before = self.results.cluster_sums, self._tuning_sums
        spent = now(cost.column, keys), now(cost.column, whole)
        yield "cost_share", spent, (before(0, 0, keys), before(0, 0, whole))
        held = now(kept.column, keys), now(kept.per or "requests", keys)
        yield kept.name, held, (before(1, 0, keys), before(1, 1, keys))

    def _tuning_sums(self, score: int, side: int, keys: Sequence[_ConfigurationKey]) -> FloatArray:
        """Return a score's numerators (side 0) or denominators (1) by cluster of the tuning part."""
        every = [(float(limit), repr(s)) for s, limit in self.trial_sums.configurations]
        return self.trial_sums.sums[:, side, score, [every.index(key) for key in keys]]

    def _optimism_columns(self, name: str, now: _Ratio, before: _Ratio) -> dict[str, FloatArray]:
        """Return a score held out and on the tuning part, and the difference, with intervals.

        The two parts share no cluster, so the interval of the difference follows from theirs (Zou
        and Donner, Statistics in Medicine 27, 2008).
        """
        if not self.heldout_clusters:
            before = np.full_like(before[0], np.nan), np.full_like(before[1], np.nan)
        held, low, high = _ratios_with_intervals(*now)
        tuned, tuned_low, tuned_high = _ratios_with_intervals(*before)
        gap = tuned - held
        down = gap - np.hypot(tuned - tuned_low, high - held)
        up = gap + np.hypot(tuned_high - tuned, held - low)
        return {
            name: held,
            f"{name}_low": low,
            f"{name}_high": high,
            f"tuned_{name}": tuned,
            f"{name}_optimism": np.where(np.isnan(down + up), np.nan, gap),
            f"{name}_optimism_low": down,
            f"{name}_optimism_high": up,
        }


def _ratios_with_intervals(
    numerators: FloatArray, denominators: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the ratio of each configuration, and the bounds of its interval over clusters."""
    value = divide_sums(numerators.sum(axis=0), denominators.sum(axis=0))
    return value, *ratio_interval(numerators, denominators)
