"""What is measured of a configuration that is tried, and what all trials together found.

Of every recording only sums are kept: two figures to weigh and what a verdict reads, above and below the
line, by cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from ctxlab.errors import UnknownName
from ctxlab.evaluation.engine import replay_traces
from ctxlab.evaluation.experiment import ExperimentGrid
from ctxlab.evaluation.metrics.base import FloatArray, Score
from ctxlab.evaluation.tuning.search_space import CandidateConfiguration
from ctxlab.messages.types import Recording

__all__ = ["REFERENCE_NOTE", "TrialScorer", "TrialSums", "make_trial_scorer"]

REFERENCE_NOTE = "there to compare with"
"""What ``TrialSums.exclusion_reasons`` says of full history."""

_EXTRA_SCORES = (
    "cost_usd",
    "recall_far",
    "far_arguments",
    "tokens_mean",
    "overflow_rate",
    "invalid_rate",
)
"what is measured of every configuration besides: what decides whether it fits, and what a verdict reads"


@dataclass(frozen=True)
class TrialScorer:
    """What is measured of a configuration: two figures to weigh, and what else a verdict needs."""

    grid: ExperimentGrid
    "whose models, metrics and client apply"
    scores: tuple[Score, ...]
    "cost and what is kept first; each a sum or a ratio of sums"

    def measure_sums(
        self, configurations: Sequence[CandidateConfiguration], recording: Recording
    ) -> FloatArray:
        """Above and below the line of every score: shape ``(2, scores, configurations)``."""
        grid = self.grid
        prepared = grid.prepare_recording(recording)
        traces, places = [], []
        for limit in dict.fromkeys(limit for _, limit in configurations):
            some = [i for i, (_, of) in enumerate(configurations) if of == limit]
            budget = prepared.make_budget(limit, grid.reserve)
            traces += replay_traces(prepared, [configurations[i][0] for i in some], [budget])
            places += some
        figures: dict[str, FloatArray] = {}
        for metric in grid.metrics:
            figures.update(metric.measure(prepared, traces))
        found = np.full(
            (2, len(self.scores), len(configurations)), float(len(prepared.request_positions))
        )
        for number, score in enumerate(self.scores):
            # Less than all of a bill is no bill; of other figures what is not known is not there.
            add = np.sum if score.unit == "USD" else np.nansum
            found[0, number, places] = add(figures[score.column], axis=1)
            if score.per:
                found[1, number, places] = np.nansum(figures[score.per], axis=1)
        return found


@dataclass
class TrialSums:
    """What the rounds found; full history under every limit stands first, to compare with."""

    scorer: TrialScorer
    configurations: list[CandidateConfiguration]
    clusters: list[str]
    "in the order in which they were replayed"
    sums: FloatArray
    "of shape ``(clusters, 2, scores, configurations)``; 0 where a configuration had left"
    rounds: list[int]
    "how many rounds each configuration was in"
    exclusion_reasons: list[str]
    "why it left; empty for those that are worth their price on all clusters, the frontier"

    @property
    def frame(self) -> pd.DataFrame:
        """A row a configuration: its scores over the clusters that it was replayed over.

        The columns are those of a leaderboard, and ``rounds``, ``clusters`` and ``left``.
        """
        numerators, denominators = self.sums.sum(axis=0)
        found: dict[str, object] = {
            "strategy": [repr(strategy) for strategy, _ in self.configurations],
            "limit": [float(limit) for _, limit in self.configurations],
        }
        for score, top, bottom in zip(self.scorer.scores, numerators, denominators, strict=True):
            unknown = np.full_like(top, np.nan)
            ratio = np.divide(top, bottom, where=bottom > 0, out=unknown)
            found[score.name] = ratio if score.how == "ratio" else top
        found["rounds"] = self.rounds
        found["clusters"] = (self.sums[:, 1] > 0).any(axis=1).sum(axis=0)
        found["left"] = self.exclusion_reasons
        return pd.DataFrame(found)

    @property
    def frontier(self) -> list[CandidateConfiguration]:
        """Those that are worth their price, in the order in which they were drawn."""
        pairs = zip(self.configurations, self.exclusion_reasons, strict=True)
        return [configuration for configuration, left in pairs if not left]


def make_trial_scorer(grid: ExperimentGrid, objective: tuple[str, str]) -> TrialScorer:
    """What is measured where two scores are weighed. Raises ``SpecError`` for what cannot be weighed."""
    known = {score.name: score for score in grid.scores}
    sums = [score for score in grid.scores if score.how != "max"]
    costs = [s.name for s in sums if s.better == "lower" and s.unit in ("USD", "tokens")]
    gains = [s.name for s in sums if s.better == "higher" and s.how == "ratio"]
    for kind, name, usable in zip(("cost", "gain"), objective, (costs, gains), strict=True):
        if name not in usable:
            raise UnknownName(kind, name, usable)
    scores = [known[name] for name in dict.fromkeys([*objective, *_EXTRA_SCORES])]
    needed = [metric for metric in grid.metrics if not set(scores).isdisjoint(metric.scores)]
    return TrialScorer(replace(grid, metrics=tuple(needed)), tuple(scores))
