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
from ctxlab.evaluation.engine import play_all
from ctxlab.evaluation.experiment import Grid
from ctxlab.evaluation.metrics.base import (
    Array,
    Score,
)
from ctxlab.evaluation.tuning.search_space import Configuration
from ctxlab.messages.types import Recording

__all__ = ["REFERENCE", "Gauge", "Trials", "gauge_of"]

REFERENCE = "there to compare with"
"""What ``Trials.left`` says of full history."""

_BESIDE = (
    "cost_usd",
    "recall_far",
    "far_arguments",
    "tokens_mean",
    "overflow_rate",
    "invalid_rate",
)
"what is measured of every configuration besides: what decides whether it fits, and what a verdict reads"


@dataclass(frozen=True)
class Gauge:
    """What is measured of a configuration: two figures to weigh, and what else a verdict needs."""

    grid: Grid
    "whose models, metrics and client apply"
    scores: tuple[Score, ...]
    "cost and what is kept first; each a sum or a ratio of sums"

    def sums(self, configurations: Sequence[Configuration], recording: Recording) -> Array:
        """Above and below the line of every score: shape ``(2, scores, configurations)``."""
        grid = self.grid
        tape = grid.prepare(recording)
        traces, places = [], []
        for limit in dict.fromkeys(limit for _, limit in configurations):
            some = [i for i, (_, of) in enumerate(configurations) if of == limit]
            budget = tape.budget(limit, grid.reserve)
            traces += play_all(tape, [configurations[i][0] for i in some], [budget])
            places += some
        figures: dict[str, Array] = {}
        for metric in grid.metrics:
            figures.update(metric.measure(tape, traces))
        found = np.full((2, len(self.scores), len(configurations)), float(len(tape.requests)))
        for number, score in enumerate(self.scores):
            # Less than all of a bill is no bill; of other figures what is not known is not there.
            add = np.sum if score.unit == "USD" else np.nansum
            found[0, number, places] = add(figures[score.column], axis=1)
            if score.per:
                found[1, number, places] = np.nansum(figures[score.per], axis=1)
        return found


@dataclass
class Trials:
    """What the rounds found; full history under every limit stands first, to compare with."""

    gauge: Gauge
    configurations: list[Configuration]
    clusters: list[str]
    "in the order in which they were replayed"
    sums: Array
    "of shape ``(clusters, 2, scores, configurations)``; 0 where a configuration had left"
    rounds: list[int]
    "how many rounds each configuration was in"
    left: list[str]
    "why it left; empty for those that are worth their price on all clusters, the frontier"

    @property
    def frame(self) -> pd.DataFrame:
        """A row a configuration: its scores over the clusters that it was replayed over.

        The columns are those of a leaderboard, and ``rounds``, ``clusters`` and ``left``.
        """
        above, below = self.sums.sum(axis=0)
        found: dict[str, object] = {
            "strategy": [repr(strategy) for strategy, _ in self.configurations],
            "limit": [float(limit) for _, limit in self.configurations],
        }
        for score, top, bottom in zip(self.gauge.scores, above, below, strict=True):
            unknown = np.full_like(top, np.nan)
            ratio = np.divide(top, bottom, where=bottom > 0, out=unknown)
            found[score.name] = ratio if score.how == "ratio" else top
        found["rounds"] = self.rounds
        found["clusters"] = (self.sums[:, 1] > 0).any(axis=1).sum(axis=0)
        found["left"] = self.left
        return pd.DataFrame(found)

    @property
    def frontier(self) -> list[Configuration]:
        """Those that are worth their price, in the order in which they were drawn."""
        pairs = zip(self.configurations, self.left, strict=True)
        return [configuration for configuration, left in pairs if not left]


def gauge_of(grid: Grid, objective: tuple[str, str]) -> Gauge:
    """What is measured where two scores are weighed. Raises ``SpecError`` for what cannot be weighed."""
    known = {score.name: score for score in grid.scores}
    sums = [score for score in grid.scores if score.how != "max"]
    costs = [s.name for s in sums if s.better == "lower" and s.unit in ("USD", "tokens")]
    gains = [s.name for s in sums if s.better == "higher" and s.how == "ratio"]
    for kind, name, usable in zip(("cost", "gain"), objective, (costs, gains), strict=True):
        if name not in usable:
            raise UnknownName(kind, name, usable)
    scores = [known[name] for name in dict.fromkeys([*objective, *_BESIDE])]
    needed = [metric for metric in grid.metrics if not set(scores).isdisjoint(metric.scores)]
    return Gauge(replace(grid, metrics=tuple(needed)), tuple(scores))
