"""Measurement of trial configurations, and the sums of all trials of a search.

Only sums are kept of each recording: numerators and denominators of the objective and of the scores
that a verdict reads, by cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from ctxlab.errors import require_known
from ctxlab.evaluation.engine import replay_traces
from ctxlab.evaluation.experiment import ExperimentGrid, measure_metrics
from ctxlab.evaluation.metrics.base import FloatArray, Score
from ctxlab.evaluation.tuning.search_space import CandidateConfiguration
from ctxlab.messages.types import Recording

REFERENCE_NOTE = "there to compare with"
"""Value of ``TrialSums.exclusion_reasons`` for full history."""

_EXTRA_SCORES = (
    "cost_usd",
    "recall_far",
    "far_arguments",
    "tokens_mean",
    "overflow_rate",
    "invalid_rate",
)
"""scores measured besides the objective: they decide if a configuration fits, and the verdict reads
them"""


@dataclass(frozen=True)
class TrialScorer:
    """Measures configurations: the two scores of the objective, and those that a verdict needs."""

    grid: ExperimentGrid
    "provides the models, metrics and client"
    scores: tuple[Score, ...]
    "the scores, cost and gain first; each is a sum or a ratio of sums"

    def measure_sums(
        self, configurations: Sequence[CandidateConfiguration], recording: Recording
    ) -> FloatArray:
        """Replay configurations over one recording and sum their scores.

        Parameters
        ----------
        configurations : sequence of (Strategy, float)
            The configurations.
        recording : Recording
            The recording to replay.

        Returns
        -------
        numpy.ndarray of shape (2, scores, configurations)
            Numerators and denominators of each score.
        """
        grid = self.grid
        prepared = grid.prepare_recording(recording)
        traces, places = [], []
        for limit in dict.fromkeys(limit for _, limit in configurations):
            some = [i for i, (_, of) in enumerate(configurations) if of == limit]
            budget = prepared.make_budget(limit, grid.reserve)
            traces += replay_traces(prepared, [configurations[i][0] for i in some], [budget])
            places += some
        figures = measure_metrics(grid.metrics, prepared, traces)
        requests = float(len(prepared.request_positions))
        found = np.full((2, len(self.scores), len(configurations)), requests)
        for number, score in enumerate(self.scores):
            # A partial sum of money would be misleading; unknown values of other columns are skipped.
            add = np.sum if score.unit == "USD" else np.nansum
            found[0, number, places] = add(figures[score.column], axis=1)
            if score.per:
                found[1, number, places] = np.nansum(figures[score.per], axis=1)
        return found


@dataclass
class TrialSums:
    """Sums of all configurations after each round; full history under each limit comes first."""

    scorer: TrialScorer
    "measured the configurations"
    configurations: list[CandidateConfiguration]
    "all configurations; full history under each limit comes first"
    clusters: list[str]
    "the clusters, in the order in which they were replayed"
    sums: FloatArray
    "shape ``(clusters, 2, scores, configurations)``; 0 after a configuration left"
    rounds: list[int]
    "number of rounds of each configuration"
    exclusion_reasons: list[str]
    "why each configuration left; empty for the frontier"

    @property
    def frame(self) -> pd.DataFrame:
        """One row per configuration: its scores over the clusters that it was replayed over.

        The columns are those of a leaderboard, and ``rounds``, ``clusters`` and ``left``.
        """
        numerators, denominators = self.sums.sum(axis=0)
        found: dict[str, object] = {
            "strategy": [repr(strategy) for strategy, _ in self.configurations],
            "limit": [float(limit) for _, limit in self.configurations],
        }
        for score, top, bottom in zip(self.scorer.scores, numerators, denominators, strict=True):
            found[score.name] = score.compute(top, bottom)
        found["rounds"] = self.rounds
        found["clusters"] = (self.sums[:, 1] > 0).any(axis=1).sum(axis=0)
        found["left"] = self.exclusion_reasons
        return pd.DataFrame(found)

    @property
    def frontier(self) -> list[CandidateConfiguration]:
        """The configurations of the frontier, in the order in which they were drawn."""
        pairs = zip(self.configurations, self.exclusion_reasons, strict=True)
        return [configuration for configuration, left in pairs if not left]


def make_trial_scorer(grid: ExperimentGrid, objective: tuple[str, str]) -> TrialScorer:
    """Create the scorer for two scores.

    Parameters
    ----------
    grid : ExperimentGrid
        Provides the metrics.
    objective : (str, str)
        A cost of which lower is better, and a gain of which higher is better.

    Returns
    -------
    TrialScorer
        A scorer with the needed metrics only.

    Raises
    ------
    SpecError
        If a score cannot be used as a cost or a gain.
    """
    known = {score.name: score for score in grid.scores}
    sums = [score for score in grid.scores if score.how != "max"]
    costs = [s.name for s in sums if s.better == "lower" and s.unit in ("USD", "tokens")]
    gains = [s.name for s in sums if s.better == "higher" and s.how == "ratio"]
    for kind, name, usable in zip(("cost", "gain"), objective, (costs, gains), strict=True):
        require_known(kind, name, usable)
    scores = [known[name] for name in dict.fromkeys([*objective, *_EXTRA_SCORES])]
    needed = [metric for metric in grid.metrics if not set(scores).isdisjoint(metric.scores)]
    return TrialScorer(replace(grid, metrics=tuple(needed)), tuple(scores))
