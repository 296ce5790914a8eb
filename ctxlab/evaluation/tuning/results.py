"""Results of a search: the frontier on the held-out recordings, and the optimism of the search.

The best of many configurations was selected partly by chance. Its scores are therefore usually
better on the tuning set, which was used to select it, than on other recordings. The difference is
the optimism of the search. It is reported for both scores of the objective: the cost and the gain.
The recommended configuration is chosen on the tuning set alone. The held-out set measures it, and can
only confirm or refuse it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pandas as pd

from ctxlab._utils.tables import legend_of
from ctxlab.evaluation.bootstrap import difference_of_samples, ratio_interval
from ctxlab.evaluation.metrics.base import FloatArray, divide_sums
from ctxlab.evaluation.metrics.recall import HEADLINE_LABEL, HEADLINE_SCORE
from ctxlab.evaluation.results import Results
from ctxlab.evaluation.run_files import replace_run_files
from ctxlab.evaluation.tuning.pareto import pareto_front
from ctxlab.evaluation.tuning.successive_halving import REFERENCE_NOTE, TrialSums
from ctxlab.evaluation.verdict import (
    Choice,
    choose_configuration,
    control_names,
    is_confirmed,
    leaderboard_verdict,
    no_verdict_reason,
    usable_rows,
)

_ConfigurationKey: TypeAlias = tuple[float, str]
"key of a configuration: the limit, and the strategy as a string"
_Ratio: TypeAlias = tuple[FloatArray, FloatArray]
"numerators and denominators of a ratio, each of shape ``(clusters, configurations)``"


@dataclass(repr=False)
class TuningResults:
    """Results of a search. A notebook displays them as a table of the frontier.

    Examples
    --------
    >>> import ctxlab
    >>> recordings = list(ctxlab.load("bundled:coding-agent"))[:3]
    >>> space = "observation_mask(keep=[1, 10]) | panic()"
    >>> found = ctxlab.tune(recordings[:2], space, 8000, holdout=0, workers=1)
    >>> found.frontier["cost_share"].is_monotonic_increasing
    True
    """

    results: Results
    """evaluation of the frontier and of controls on the held-out recordings, or on all recordings if
    ``holdout`` was 0. It is an ordinary result of ``evaluate``"""
    trial_sums: TrialSums
    "sums of the scores of all trials on the tuning set, by cluster"

    @property
    def heldout_clusters(self) -> tuple[str, ...]:
        """Names of the clusters that the search did not use; empty if ``holdout`` was 0."""
        return tuple(self.results.manifest["tuning"]["held_out"])

    @property
    def tuning_clusters(self) -> tuple[str, ...]:
        """Names of the clusters that the search used to find the frontier."""
        return tuple(self.trial_sums.clusters)

    @cached_property
    def trials(self) -> pd.DataFrame:
        """Table of all trials: one row per configuration, with its scores on the tuning set.

        The scores cover only the clusters over which the configuration was replayed. ``rounds`` and
        ``clusters`` are the number of rounds and of clusters in which it was replayed. ``left`` is
        the reason why the search removed it, and an empty string for the frontier. The first rows
        are full history under each limit.
        """
        return self.trial_sums.frame

    @cached_property
    def frontier(self) -> pd.DataFrame:
        """Table of the frontier, cheapest first: one row per configuration, with held-out scores.

        ``cost_share`` is the cost divided by the cost of full history on the same requests. In the
        following column names, ``SCORE`` is ``cost_share`` or the name of the score that the search
        maximises (the gain), such as ``recall``:

        - ``SCORE``, ``SCORE_low``, ``SCORE_high``: held-out score and its 95 % interval over clusters
        - ``tuned_SCORE``: score on the tuning set
        - ``SCORE_optimism``: ``tuned_SCORE`` minus ``SCORE``; nan if one of them has no interval
        - ``SCORE_optimism_low``, ``SCORE_optimism_high``: 95 % interval of the optimism

        ``fits`` is True if the configuration is usable on the held-out set (see ``usable_rows`` in
        ``ctxlab.evaluation.verdict``). ``dominated`` is True if ``fits`` is False, or if
        another configuration of the frontier dominates it on the held-out set (see
        ``pareto_front``).
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
        """Table of the optimism of the search, with one row per score that was optimised.

        The requests of all configurations of the frontier are pooled: ``tuned`` and ``held_out`` are
        the score of the pool on the tuning set and on the held-out set. ``optimism`` is their
        difference, and ``low`` and ``high`` are the bounds of its 95 % interval. All three are nan if
        the interval of one of the scores is unknown.
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
        """Leaderboard of the held-out set, with only the frontier and the controls."""
        board = self.results.leaderboard()
        frontier = {(limit, repr(strategy)) for strategy, limit in self.trial_sums.frontier}
        keys = zip(board["limit"], board["strategy"], strict=True)
        kept = np.array([key in frontier for key in keys])
        return board[kept | (control_names(board) != "")].reset_index(drop=True)

    def chosen(self, min_recall: float = 0.95) -> tuple[str, float] | None:
        """Return the configuration that was chosen on the tuning set.

        The held-out set has no influence on this choice, so the held-out figures of this
        configuration are unbiased. If nothing was held out, all recordings are the tuning set.

        Parameters
        ----------
        min_recall : float, default 0.95
            Minimum of the headline recall score, as a share of its value for full history.

        Returns
        -------
        (str, float) or None
            Strategy and limit of the cheapest configuration of the frontier with enough recall. If
            none has enough, that with the highest recall. None if the tuning set supports no choice, or
            if the headline recall score was not part of the objective.
        """
        choice = self._choose(min_recall)
        return None if choice is None else choice.key[::-1]

    def winner(self, min_recall: float = 0.95) -> tuple[str, float] | None:
        """Return the configuration that ``verdict`` recommends.

        Parameters
        ----------
        min_recall : float, default 0.95
            Minimum of the headline recall score, as a share of its value for full history.

        Returns
        -------
        (str, float) or None
            Strategy and limit: the result of ``chosen``, if it has enough recall on the tuning set
            and on the held-out set, and is usable on both. Otherwise None.
        """
        choice = self._choose(min_recall)
        if choice is None or not is_confirmed(choice, self.heldout_leaderboard, min_recall):
            return None
        return choice.key[::-1]

    def verdict(self, min_recall: float = 0.95) -> str:
        """Recommend the cheapest configuration of the frontier that keeps enough recall.

        The choice is based on the tuning set alone, and the figures are those of the held-out set.
        They are reported whether or not they confirm the choice, so they are unbiased. If they do not
        confirm it, there is no recommendation, and the last sentence names the configuration that the
        held-out set would have chosen, whose figures are optimistic. If nothing was held out, the
        choice and the figures are those of the same recordings.

        Parameters
        ----------
        min_recall : float, default 0.95
            Minimum of the headline recall score, as a share of its value for full history.

        Returns
        -------
        str
            One paragraph. If no configuration keeps enough recall, or if the headline recall score
            was not part of the objective, it says so.
        """
        if not self._uses_headline:
            cost, kept = (score.name for score in self.trial_sums.scorer.scores[:2])
            return (
                f"A verdict needs {HEADLINE_LABEL}, but this is the frontier of {cost} and {kept}."
            )
        board, sums = self.heldout_leaderboard, self.results.headline_sums
        if not self.heldout_clusters:
            said = leaderboard_verdict(board, sums, min_recall)
            return f"Nothing was held out, so these figures are optimistic. {said}"
        for name, rows in (("tuning", self._tuning_leaderboard), ("held-out", board)):
            if said := no_verdict_reason(rows):
                return f"On the {name} set: {said[:1].lower()}{said[1:]}"
        return leaderboard_verdict(board, sums, min_recall, self._choose(min_recall))

    def save(self, folder: str | Path) -> Path:
        """Write the files of ``Results.save``, the frontier and all trials to a folder.

        The frontier is written to ``frontier.parquet``, and the trials to ``trials.parquet``.

        Parameters
        ----------
        folder : str or Path
            Folder to write to. It is created if it does not exist.

        Returns
        -------
        Path
            Folder with the saved files.
        """
        with replace_run_files(Path(folder)) as beside:
            self.results.write_files(beside)
            self.frontier.to_parquet(beside / "frontier.parquet", index=False)
            self.trials.to_parquet(beside / "trials.parquet", index=False)
        return Path(folder)

    def __repr__(self) -> str:
        """Return a short description with the numbers of configurations."""
        tried = self.results.manifest["tuning"]["configurations"]
        kept = len(self.trial_sums.frontier)
        return f"<TuningResults: {kept:,} of {tried:,} configurations on the frontier>"

    def _repr_html_(self) -> str:
        from ctxlab.evaluation.html import paragraph, table_html, wrap_with_frame
        from ctxlab.evaluation.tuning.frontier_table import (
            frontier_columns,
            frontier_notes,
            name_columns,
        )

        columns = [*name_columns(self.frontier), *frontier_columns(self, self.frontier)]
        rows = [(i, bool(quiet)) for i, quiet in enumerate(self.frontier["dominated"])]
        bound = "Recall is availability, an upper bound on what is used."
        notes = [*frontier_notes(self, legend_of(columns)), f"{bound} {self.results.model_note}"]
        parts = [
            paragraph(self.verdict()),
            table_html(columns, rows),
            *(paragraph(note, is_note=True) for note in notes),
        ]
        return wrap_with_frame(parts, self.frontier)

    @property
    def _uses_headline(self) -> bool:
        return self.trial_sums.scorer.scores[1].name == HEADLINE_SCORE

    @property
    def _tuning_leaderboard(self) -> pd.DataFrame:
        """Return the scores of the frontier and of full history on the tuning set."""
        if not self.heldout_clusters:
            return self.heldout_leaderboard
        return self.trials[self.trials["left"].isin(["", REFERENCE_NOTE])]

    def _choose(self, min_recall: float) -> Choice | None:
        """Choose a configuration on the tuning set.

        The frontier is usable there, so this is None only if the tuning set supports no choice.
        """
        if not self._uses_headline:
            return None
        return choose_configuration(self._tuning_leaderboard, min_recall)

    def _iter_objective_sums(
        self, keys: Sequence[_ConfigurationKey]
    ) -> Iterator[tuple[str, _Ratio, _Ratio]]:
        """Yield the name of each objective, its sums on the held-out set and on the tuning set.

        ``keys`` are the configurations for which the sums are computed.
        """
        cost, kept = self.trial_sums.scorer.scores[:2]
        whole: list[_ConfigurationKey] = [(limit, "full()") for limit, _ in keys]
        now, before = self.results.cluster_sums, self._tuning_sums
        spent = now(cost.column, keys), now(cost.column, whole)
        yield "cost_share", spent, (before(0, 0, keys), before(0, 0, whole))
        held = now(kept.column, keys), now(kept.per or "requests", keys)
        yield kept.name, held, (before(1, 0, keys), before(1, 1, keys))

    def _tuning_sums(self, score: int, side: int, keys: Sequence[_ConfigurationKey]) -> FloatArray:
        """Return the sums of the score with index ``score``, by cluster of the tuning set.

        ``side`` is 0 for numerators and 1 for denominators.
        """
        every = [(float(limit), repr(s)) for s, limit in self.trial_sums.configurations]
        return self.trial_sums.sums[:, side, score, [every.index(key) for key in keys]]

    def _optimism_columns(self, name: str, now: _Ratio, before: _Ratio) -> dict[str, FloatArray]:
        """Return the columns of ``frontier`` for one score.

        ``now`` has the sums of the held-out set, and ``before`` those of the tuning set. The two
        sets have no cluster in common, so the interval of the optimism can be computed from the
        intervals on both sets.
        """
        if not self.heldout_clusters:
            before = np.full_like(before[0], np.nan), np.full_like(before[1], np.nan)
        held, low, high = here = _ratios_with_intervals(*now)
        tuned, *_ = there = _ratios_with_intervals(*before)
        gap, down, up = difference_of_samples(there, here)
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
    """Return each configuration's ratio, and the lower and upper bound of its 95 % interval."""
    value = divide_sums(numerators.sum(axis=0), denominators.sum(axis=0))
    return value, *ratio_interval(numerators, denominators)
