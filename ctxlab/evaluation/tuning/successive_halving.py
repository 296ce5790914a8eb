"""Successive halving: many configurations run on a few recordings, and the best of them on all.

Each round replays the remaining configurations over more clusters. It then keeps whole Pareto
fronts, best first, until at least one in ``eta`` configurations is kept, so the current front never
leaves. Configurations that overflow their limit, or are rejected more often than the recordings,
are dropped at once. Sums are kept by cluster, so nothing is replayed twice and each recording is
counted once.

References
----------
- Jamieson and Talwalkar, AISTATS 2016. Its rule for one objective is replaced here by non-dominated
  sorting for two.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import ceil, log

import numpy as np
import numpy.typing as npt

from ctxlab._utils.progress import track
from ctxlab.errors import SpecError
from ctxlab.evaluation.metrics.base import FloatArray
from ctxlab.evaluation.parallel import map_parallel
from ctxlab.evaluation.recommendation import usable_rows
from ctxlab.evaluation.tuning.holdout import cluster_name
from ctxlab.evaluation.tuning.pareto import pareto_front, pareto_ranks
from ctxlab.evaluation.tuning.search_space import CandidateConfiguration
from ctxlab.evaluation.tuning.trials import REFERENCE_NOTE, TrialScorer, TrialSums
from ctxlab.messages.types import Recording
from ctxlab.strategies import full

_MIN_FIRST_CLUSTERS = 5
"minimum number of clusters of the first round; fewer would not separate the configurations"

_Rows = npt.NDArray[np.int64]


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
    """Replay configurations over growing parts of the recordings, and keep fewer of them each time.

    Parameters
    ----------
    scorer : TrialScorer
        Measures the configurations.
    recordings : sequence of Recording
        The recordings, in the order in which to use them.
    configurations : sequence of (Strategy, float)
        The configurations to search.
    eta : float, default 2
        One in ``eta`` configurations is kept in each round.
    rounds : int, optional
        Number of rounds. None takes as many as leave five clusters for the first one; 1 replays
        every configuration over every recording.
    workers : int, optional
        Number of processes. None takes every core if that is safe.
    progress : bool, optional
        Show a progress bar. None shows it on a terminal.

    Returns
    -------
    TrialSums
        Sums of each configuration, and why it left.

    Raises
    ------
    SpecError
        If no configuration fits its limit, or an objective is unknown for all of them.
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
    """Return how many clusters have been used after each round; the last number is all of them."""
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
    """Return the configurations that fit their limit, and record why the others leave."""
    frame = trials.frame
    fit = usable_rows(frame).to_numpy()
    for row in alive[~fit[alive]]:
        why = "overflows" if frame["overflow_rate"][row] > 0 else "is refused more often"
        trials.exclusion_reasons[row] = f"round {number}: {why}"
    kept = alive[fit[alive]]
    if not len(kept):
        rates = ["overflow_rate", "invalid_rate"]
        best = frame.loc[alive].sort_values(rates, kind="stable").iloc[0]
        raise SpecError(
            f"no configuration fits its limit at every request; {best['strategy']} at {best['limit']:g} "
            f"overflows at {best['overflow_rate']:.1%} of requests and is rejected at "
            f"{best['invalid_rate']:.1%}; end the strategy in panic, or set a larger limit"
        )
    return kept


def _objective_values(trials: TrialSums, alive: _Rows) -> tuple[FloatArray, FloatArray]:
    frame = trials.frame
    cost, kept = (frame[score.name].to_numpy()[alive] for score in trials.scorer.scores[:2])
    return cost, kept


def _keep_best_fronts(trials: TrialSums, alive: _Rows, eta: float, number: int) -> _Rows:
    """Keep whole fronts, best first, until there are enough; keep all if no figure is known yet."""
    of = pareto_ranks(*_objective_values(trials, alive))
    if (of < 0).all():
        return alive
    last = np.sort(of[of >= 0])[min(ceil(len(alive) / eta), (of >= 0).sum()) - 1]
    kept: npt.NDArray[np.bool_] = (of >= 0) & (of <= last)
    for row, rank in zip(alive[~kept], of[~kept], strict=True):
        why = "its figures are not known" if rank < 0 else "others keep more for less"
        trials.exclusion_reasons[row] = f"round {number}: {why}"
    stay: _Rows = alive[kept]
    return stay


def _keep_frontier(trials: TrialSums, alive: _Rows) -> None:
    """Keep the frontier; of configurations with equal figures keep the first."""
    cost, kept = _objective_values(trials, alive)
    best = pareto_front(cost, kept)
    if not best.any():
        pairs = zip(trials.scorer.scores, (cost, kept), strict=False)
        names = " and ".join(score.name for score, known in pairs if np.isnan(known).all())
        raise SpecError(
            f"{names} is unknown for every configuration; choose another objective, such as "
            "tokens_mean against recall"
        )
    seen: set[tuple[float, ...]] = set()
    for row, *figures, good in zip(alive.tolist(), cost, kept, best, strict=True):
        if not good:
            trials.exclusion_reasons[row] = "others keep more for less"
        elif tuple(figures) in seen:
            trials.exclusion_reasons[row] = "costs and keeps the same as another"
        seen.add(tuple(figures))
