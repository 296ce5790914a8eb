"""Successive halving: many configurations see a few recordings, and the best of them see all.

In each round what is left is replayed over more clusters, and whole fronts are kept, the best first,
until at least one in ``eta`` is: what is worth its price so far never leaves. What does not fit its
limit at every request, or is refused more often than the recordings themselves, leaves at once. Sums are
kept by cluster, so nothing is replayed twice and every recording is counted once.

Source: Jamieson and Talwalkar, AISTATS 2016; its rule for one figure is here that of non-dominated
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
from ctxlab.evaluation.metrics.base import Array
from ctxlab.evaluation.parallel import execute
from ctxlab.evaluation.recommendation import fits
from ctxlab.evaluation.tuning.holdout import cluster_of
from ctxlab.evaluation.tuning.pareto import (
    front,
    ranks,
)
from ctxlab.evaluation.tuning.search_space import Configuration
from ctxlab.evaluation.tuning.trials import (
    REFERENCE,
    Gauge,
    Trials,
)
from ctxlab.messages.types import Recording
from ctxlab.strategies import full

__all__ = ["halve"]

_FIRST = 5
"clusters that the first round has at least: fewer say little of which configurations are alike"


_Rows = npt.NDArray[np.int64]


def halve(
    gauge: Gauge,
    recordings: Sequence[Recording],
    configurations: Sequence[Configuration],
    *,
    eta: float = 2,
    rounds: int | None = None,
    workers: int | None = None,
    progress: bool | None = None,
) -> Trials:
    """Replays configurations over more and more of the recordings, and fewer of them each time.

    ``rounds``: None takes as many as leave the first one five clusters; 1 replays everything over
    everything. Raises what a replay raises, and ``SpecError`` where no configuration fits, or where the
    two figures of none are known.
    """
    groups: dict[str, list[Recording]] = {}
    for recording in recordings:
        groups.setdefault(cluster_of(recording), []).append(recording)
    whole = [(full(), limit) for limit in dict.fromkeys(limit for _, limit in configurations)]
    every = [*whole, *configurations]
    shape = (len(groups), 2, len(gauge.scores), len(every))
    left = [REFERENCE] * len(whole) + [""] * len(configurations)
    trials = Trials(gauge, every, list(groups), np.zeros(shape), [0] * len(every), left)
    stops = _stops(len(groups), len(configurations), eta, rounds)
    alive = np.arange(len(whole), len(every))
    for number, (start, stop) in enumerate(zip([0, *stops], stops, strict=False), 1):
        rows = [*range(len(whole)), *alive]
        for row in rows:
            trials.rounds[row] = number
        some = [(c, r) for c in range(start, stop) for r in groups[trials.clusters[c]]]
        work = partial(gauge.sums, [every[row] for row in rows])
        found = execute(work, [r for _, r in some], workers, size=lambda r: len(r.messages))
        bar = f"round {number} of {len(stops)}, {len(alive):,} configurations"
        for (cluster, _), sums in zip(some, track(found, bar, len(some), progress), strict=True):
            trials.sums[cluster][..., rows] += sums
        last = number == len(stops)
        alive = _fitting(trials, alive, number)
        alive = _front(trials, alive) if last else _fronts(trials, alive, eta, number)
    return trials


def _stops(clusters: int, configurations: int, eta: float, rounds: int | None) -> list[int]:
    """How many clusters have been seen after each round; the last number is all of them."""
    if eta <= 1:
        raise SpecError(f"eta: one in more than 1 is kept of each round, not in {eta:g}")
    if rounds is not None and rounds < 1:
        raise SpecError(f"rounds: there is at least one, not {rounds}")
    if rounds is None:
        most = min(clusters / _FIRST, configurations)
        rounds = 1 + int(log(max(most, 1), eta))
    counts = [ceil(clusters / eta**left) for left in reversed(range(rounds))]
    return list(dict.fromkeys(counts))


def _fitting(trials: Trials, alive: _Rows, number: int) -> _Rows:
    """Those of the configurations that fit; the others leave."""
    frame = trials.frame
    fit = fits(frame).to_numpy()
    for row in alive[~fit[alive]]:
        over = frame["overflow_rate"][row] > 0
        trials.left[row] = f"round {number}: " + ("overflows" if over else "is refused more often")
    kept = alive[fit[alive]]
    if not len(kept):
        best = (
            frame.loc[alive].sort_values(["overflow_rate", "invalid_rate"], kind="stable").iloc[0]
        )
        raise SpecError(
            f"no configuration fits its limit at every request; {best['strategy']} at {best['limit']:g} "
            f"overflows at {best['overflow_rate']:.1%} and is refused at {best['invalid_rate']:.1%}: a "
            "strategy that ends in panic, or a larger limit, fits more"
        )
    return kept


def _figures(trials: Trials, alive: _Rows) -> tuple[Array, Array]:
    frame = trials.frame
    cost, kept = (frame[score.name].to_numpy()[alive] for score in trials.gauge.scores[:2])
    return cost, kept


def _fronts(trials: Trials, alive: _Rows, eta: float, number: int) -> _Rows:
    """Whole fronts, the best first, until there are enough; all where nothing can be told yet."""
    of = ranks(*_figures(trials, alive))
    if (of < 0).all():
        return alive
    last = np.sort(of[of >= 0])[min(ceil(len(alive) / eta), (of >= 0).sum()) - 1]
    kept: npt.NDArray[np.bool_] = (of >= 0) & (of <= last)
    for row, rank in zip(alive[~kept], of[~kept], strict=True):
        why = "its figures are not known" if rank < 0 else "others keep more for less"
        trials.left[row] = f"round {number}: {why}"
    stay: _Rows = alive[kept]
    return stay


def _front(trials: Trials, alive: _Rows) -> _Rows:
    """The frontier; of configurations with equal figures the first stands for all."""
    cost, kept = _figures(trials, alive)
    best = front(cost, kept)
    if not best.any():
        names = [score.name for score, known in zip(trials.gauge.scores, (cost, kept), strict=False)
                 if np.isnan(known).all()]  # fmt: skip
        raise SpecError(
            f"{' and '.join(names)} is known of no configuration: nothing to search by; another "
            "objective may be, such as tokens_mean against recall"
        )
    seen: set[tuple[float, ...]] = set()
    for row, *figures, good in zip(alive.tolist(), cost, kept, best, strict=True):
        if not good:
            trials.left[row] = "others keep more for less"
        elif tuple(figures) in seen:
            trials.left[row] = "costs and keeps the same as another"
        seen.add(tuple(figures))
    stay: _Rows = alive[[not trials.left[row] for row in alive]]
    return stay
