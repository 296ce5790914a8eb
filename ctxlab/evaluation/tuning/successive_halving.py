"""Successive halving: replay many configurations on a few recordings, and only the best on all.

Each round replays the remaining configurations on more clusters and ranks them by Pareto fronts in
cost and gain (see ``ctxlab.evaluation.tuning.pareto``). It keeps whole fronts, best first, until at
least one in ``eta`` configurations is kept. A configuration is removed at once if one of its
requests exceeds the limit, or is invalid where the full history is valid. The sums
of each score are stored by cluster, so that no configuration is replayed twice over a recording.

References
----------
- Jamieson and Talwalkar, "Non-stochastic best arm identification and hyperparameter optimization",
  AISTATS 2016. The paper ranks by one objective; ctxlab ranks by two, with non-dominated sorting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, log

import numpy as np
import numpy.typing as npt
import pandas as pd

from ctxlab._utils.progress import track
from ctxlab.errors import SpecError, require_known
from ctxlab.evaluation.engine import replay_traces
from ctxlab.evaluation.grid import ExperimentGrid, measure_metrics
from ctxlab.evaluation.metrics.base import FloatArray, Score
from ctxlab.evaluation.metrics.recall import HEADLINE_SCORE
from ctxlab.evaluation.parallel import map_parallel
from ctxlab.evaluation.tuning.holdout import cluster_name
from ctxlab.evaluation.tuning.pareto import pareto_front, pareto_ranks
from ctxlab.evaluation.tuning.search_space import CandidateConfiguration
from ctxlab.evaluation.verdict import usable_rows
from ctxlab.messages.types import Recording
from ctxlab.strategies import full

REFERENCE_NOTE = "full history, for comparison only"
"""Element of ``TrialSums.exclusion_reasons`` for full history, which is not searched."""

_EXTRA_SCORES = (
    "cost_usd",
    HEADLINE_SCORE,
    "far_arguments",
    "tokens_mean",
    "overflow_rate",
    "newly_invalid_rate",
)
"""scores measured in addition to the objective, to check if a configuration fits its limit, and to
write the verdict"""

_MIN_FIRST_CLUSTERS = 5
"minimum number of clusters in the first round; scores on fewer clusters are too uncertain"

_Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TrialScorer:
    """Replays configurations and measures the scores that the objective and the verdict need."""

    grid: ExperimentGrid
    "settings of the evaluation, such as the models, the metrics and the client"
    scores: tuple[Score, ...]
    "scores to measure; the first two are the cost and the gain. Each is a sum or a ratio of sums"

    def measure_sums(
        self, configurations: Sequence[CandidateConfiguration], recording: Recording
    ) -> FloatArray:
        """Replay configurations over one recording and sum the columns of their scores.

        Parameters
        ----------
        configurations : sequence of (Strategy, float)
            Strategy and limit of each configuration.
        recording : Recording
            Recording to replay.

        Returns
        -------
        numpy.ndarray of shape (2, scores, configurations)
            Numerators (first row) and denominators (second row) of each score.
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
            # A sum in dollars is unknown if any value is unknown. Other sums skip unknown values.
            add = np.sum if score.unit == "USD" else np.nansum
            found[0, number, places] = add(figures[score.column], axis=1)
            if score.per:
                found[1, number, places] = np.nansum(figures[score.per], axis=1)
        return found


@dataclass
class TrialSums:
    """For each configuration, the sums from which its scores are computed; updated after each round."""

    scorer: TrialScorer
    "scorer that measured the configurations"
    configurations: list[CandidateConfiguration]
    "all configurations; the first ones are full history under each limit"
    clusters: list[str]
    "names of the clusters, in the order in which they are replayed"
    sums: FloatArray
    "shape ``(clusters, 2, scores, configurations)``; 0 for clusters that were not replayed"
    rounds: list[int]
    "number of rounds in which each configuration was replayed"
    exclusion_reasons: list[str]
    "reason why each configuration was removed; empty for the frontier"

    @property
    def frame(self) -> pd.DataFrame:
        """Table of the configurations, with their scores on the clusters that were replayed.

        The columns are ``strategy``, ``limit``, the scores, ``rounds`` and ``clusters`` (the number
        of rounds and clusters in which the configuration was replayed), and ``left`` (the reason
        why it was removed).
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
        """Configurations of the frontier, in the order of ``configurations``."""
        pairs = zip(self.configurations, self.exclusion_reasons, strict=True)
        return [configuration for configuration, left in pairs if not left]


def make_trial_scorer(grid: ExperimentGrid, objective: tuple[str, str]) -> TrialScorer:
    """Create a scorer for an objective of two scores.

    Parameters
    ----------
    grid : ExperimentGrid
        Settings of the evaluation, with all metrics.
    objective : (str, str)
        Names of two scores: a cost (lower is better) and a gain (higher is better).

    Returns
    -------
    TrialScorer
        Scorer with only the metrics that it needs.

    Raises
    ------
    SpecError
        If the first score cannot be used as a cost, or the second score as a gain.
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


def run_successive_halving(
    scorer: TrialScorer,
    recordings: Sequence[Recording],
    configurations: Sequence[CandidateConfiguration],
    *,
    eta: float = 2,
    rounds: int | None = None,
    workers: int | None = None,
    progress: bool | None = None,
) -> TrialSums:
    """Find the frontier in rounds, each with more recordings and fewer configurations.

    Parameters
    ----------
    scorer : TrialScorer
        Scorer that measures the configurations.
    recordings : sequence of Recording
        Recordings, in the order in which the rounds use them.
    configurations : sequence of (Strategy, float)
        Strategy and limit of each configuration to search.
    eta : float, default 2
        Each round keeps at least one in ``eta`` configurations. It must be above 1.
    rounds : int, optional
        Number of rounds. None uses as many rounds as possible with at least five clusters in the
        first one. With 1, every configuration is replayed over every recording.
    workers : int, optional
        Number of processes. None uses all cores on Linux if no other thread runs, otherwise one.
    progress : bool, optional
        Show a progress bar. None shows it on a terminal.

    Returns
    -------
    TrialSums
        Sums of the scores of each configuration, and the reason why it was removed.

    Raises
    ------
    SpecError
        If ``eta`` or ``rounds`` is too small, no configuration fits its limit, or a score of the
        objective is unknown for all configurations.
    """
    groups: dict[str, list[Recording]] = {}
    for recording in recordings:
        groups.setdefault(cluster_name(recording), []).append(recording)
    whole = [(full(), limit) for limit in dict.fromkeys(limit for _, limit in configurations)]
    every = [*whole, *configurations]
    shape = (len(groups), 2, len(scorer.scores), len(every))
    left = [REFERENCE_NOTE] * len(whole) + [""] * len(configurations)
    trials = TrialSums(scorer, every, list(groups), np.zeros(shape), [0] * len(every), left)
    stops = _cluster_counts(len(groups), len(configurations), eta, rounds)
    alive = np.arange(len(whole), len(every))
    for number, (start, stop) in enumerate(zip([0, *stops], stops, strict=False), 1):
        rows = [*range(len(whole)), *alive]
        for row in rows:
            trials.rounds[row] = number
        some = [(c, r) for c in range(start, stop) for r in groups[trials.clusters[c]]]
        work = partial(scorer.measure_sums, [every[row] for row in rows])
        tasks = [recording for _, recording in some]
        found = map_parallel(work, tasks, workers, task_size=lambda r: len(r.messages))
        bar = f"round {number} of {len(stops)}, {len(alive):,} configurations"
        for (cluster, _), sums in zip(some, track(found, bar, len(some), progress), strict=True):
            trials.sums[cluster][..., rows] += sums
        alive = _drop_unusable(trials, alive, number)
        if number < len(stops):
            alive = _keep_best_fronts(trials, alive, eta, number)
    _keep_frontier(trials, alive)
    return trials


def _cluster_counts(clusters: int, trials: int, eta: float, rounds: int | None) -> list[int]:
    """Return the number of clusters used by the end of each round. The last round uses all of them."""
    if eta <= 1:
        raise SpecError(f"eta must be above 1, got {eta:g}")
    if rounds is not None and rounds < 1:
        raise SpecError(f"rounds must be at least 1, got {rounds}")
    if rounds is None:
        most = min(clusters / _MIN_FIRST_CLUSTERS, trials)
        rounds = 1 + int(log(max(most, 1), eta))
    counts = [ceil(clusters / eta**left) for left in reversed(range(rounds))]
    return list(dict.fromkeys(counts))


def _drop_unusable(trials: TrialSums, alive: _Rows, number: int) -> _Rows:
    """Return the rows of the usable configurations, and record why the others are removed.

    A configuration is usable if no request exceeds its limit and if the provider would accept each
    request for which it would accept the full history.
    """
    frame = trials.frame
    fit = usable_rows(frame).to_numpy()
    for row in alive[~fit[alive]]:
        why = "overflows" if frame["overflow_rate"][row] > 0 else "makes requests invalid"
        trials.exclusion_reasons[row] = f"round {number}: {why}"
    kept = alive[fit[alive]]
    if not len(kept):
        rates = ["overflow_rate", "newly_invalid_rate"]
        best = frame.loc[alive].sort_values(rates, kind="stable").iloc[0]
        raise SpecError(
            f"no configuration fits its limit in every request; the best one, {best['strategy']} at "
            f"{best['limit']:g}, exceeds it in {best['overflow_rate']:.1%} of its requests, and "
            f"makes {best['newly_invalid_rate']:.1%} of them invalid; add '| panic', or raise the limit"
        )
    return kept


def _objective_values(trials: TrialSums, alive: _Rows) -> tuple[FloatArray, FloatArray]:
    frame = trials.frame
    cost, kept = (frame[score.name].to_numpy()[alive] for score in trials.scorer.scores[:2])
    return cost, kept


def _keep_best_fronts(trials: TrialSums, alive: _Rows, eta: float, number: int) -> _Rows:
    """Keep whole Pareto fronts, best first, until at least one in ``eta`` configurations is kept.

    All configurations are kept if none of their scores is known yet.
    """
    of = pareto_ranks(*_objective_values(trials, alive))
    if (of < 0).all():
        return alive
    last = np.sort(of[of >= 0])[min(ceil(len(alive) / eta), (of >= 0).sum()) - 1]
    kept: npt.NDArray[np.bool_] = (of >= 0) & (of <= last)
    for row, rank in zip(alive[~kept], of[~kept], strict=True):
        why = "unknown scores" if rank < 0 else "dominated by another configuration"
        trials.exclusion_reasons[row] = f"round {number}: {why}"
    stay: _Rows = alive[kept]
    return stay


def _keep_frontier(trials: TrialSums, alive: _Rows) -> None:
    """Keep only the frontier. Of several configurations with equal scores, keep the first one."""
    cost, kept = _objective_values(trials, alive)
    best = pareto_front(cost, kept)
    if not best.any():
        pairs = zip(trials.scorer.scores, (cost, kept), strict=False)
        names = " and ".join(score.name for score, known in pairs if np.isnan(known).all())
        hint = "choose another objective, such as tokens_mean against recall"
        raise SpecError(f"no configuration has a value of {names}; {hint}")
    seen: set[tuple[float, ...]] = set()
    for row, *figures, good in zip(alive.tolist(), cost, kept, best, strict=True):
        if not good:
            trials.exclusion_reasons[row] = "dominated by another configuration"
        elif tuple(figures) in seen:
            trials.exclusion_reasons[row] = "same cost and gain as another configuration"
        seen.add(tuple(figures))
