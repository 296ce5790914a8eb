"""Count false alarms of ``ctxlab gate --old --new``: ``python evals/false_alarms.py PATH…``.

The recordings of each product are measured once, as recorded. Then some of their clusters are drawn at
random as old logs and others as new logs, again and again. Both differ by chance only, so each breach is
a false alarm. The table contains the share of draws in which at least one of the default scores is a
breach:

- if nothing changed,
- if every new score is worse by exactly its margin, which is the largest change that is no loss,
- if every amount of the new logs is one and a half times as large. Here, a breach is right.

The table is printed as Markdown.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ctxlab._utils.tables import markdown_table
from ctxlab.evaluation.bootstrap import difference_of_samples, ratio_interval
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.gate.logs import DEFAULT_LOG_SCORES, DEFAULT_SHARE_MARGIN, LogMetric
from ctxlab.evaluation.metrics import METRICS
from ctxlab.formats import load
from ctxlab.messages.types import Recording

Array: TypeAlias = npt.NDArray[np.float64]

Estimate: TypeAlias = tuple[Array, Array, Array]
"""Value of a score, and lower and upper bound of its interval; arrays of one number."""

SIZES = (6, 12, 25)
"number of clusters of the old logs, and of the new logs"
DRAWS, RESAMPLES = 2000, 1000
RELATIVE_MARGIN = 0.05
_UNKNOWN = (np.full(1, np.nan),) * 3
CHANGES = ("nothing changed", "worse by the margin", "1.5 times as much")


class Sums(NamedTuple):
    """Numerators and denominators of a score, one per cluster."""

    above: Array
    below: Array
    share: bool
    "the score is a share that should be high, and not an amount that should be low"


def measure(recordings: Sequence[Recording]) -> dict[str, Sums]:
    """Measure the default scores of recordings: sums by name of score.

    Parameters
    ----------
    recordings : sequence of Recording
        Recordings of one product.

    Returns
    -------
    dict of str to Sums
        Sums of each score that has a value.
    """
    metrics = [*(METRICS[name] for name in ("usage", "validity", "cost", "recall")), LogMetric()]
    results = evaluate(recordings, "recorded", 1.0, metrics=metrics, progress=False)
    scores = {score.name: score for metric in metrics for score in metric.scores}
    row = results.leaderboard().iloc[0]
    found = {}
    for name in DEFAULT_LOG_SCORES:
        above, below = (
            results.cluster_sums(column, [(row["limit"], row["strategy"])])[:, 0]
            for column in scores[name].run_columns
        )
        if not np.isnan(row[name]):
            found[name] = Sums(above, below, scores[name].unit == "share")
    return found


def count_alarms(scores: Mapping[str, Sums], size: int, draws: int, seed: int = 0) -> list[float]:
    """Return the share of random draws with a breach, for each of ``CHANGES``.

    Parameters
    ----------
    scores : mapping of str to Sums
        Sums of each score. All scores have the same clusters.
    size : int
        Number of clusters of the old logs, and of the new logs.
    draws : int
        Number of random draws.
    seed : int, default 0
        Seed of the draws.

    Returns
    -------
    list of float
        Shares in the order of ``CHANGES``.
    """
    random = np.random.default_rng(seed)
    clusters = len(next(iter(scores.values())).above)
    alarms = np.zeros(len(CHANGES))
    for _ in range(draws):
        drawn = random.permutation(clusters)[: 2 * size]
        alarms += np.any(
            [_breaches(each, drawn[:size], drawn[size:]) for each in scores.values()], 0
        )
    return [float(share) for share in alarms / draws]


def _breaches(sums: Sums, old: npt.NDArray[np.int64], new: npt.NDArray[np.int64]) -> list[bool]:
    """Say for each of ``CHANGES`` if the score is a breach."""
    before, now = _estimate(sums, old), _estimate(sums, new)
    if sums.share:
        worse = _move(now, 1, -DEFAULT_SHARE_MARGIN)
        differences = [difference_of_samples(each, before) for each in (now, worse, now)]
        return [bool(-high > DEFAULT_SHARE_MARGIN) for _, _, high in differences]
    changed = [_move(now, factor) for factor in (1, 1 + RELATIVE_MARGIN, 1.5)]
    differences = [difference_of_samples(each, before) for each in changed]
    return [bool(low > RELATIVE_MARGIN * before[0]) for _, low, _ in differences]


def _estimate(sums: Sums, clusters: npt.NDArray[np.int64]) -> Estimate:
    """Return a score of some clusters, and its interval."""
    above, below = sums.above[clusters, None], sums.below[clusters, None]
    if not below.sum() > 0:
        return _UNKNOWN
    low, high = ratio_interval(above, below, resamples=RESAMPLES)
    return above.sum(axis=0) / below.sum(axis=0), low, high


def _move(found: Estimate, factor: float, shift: float = 0.0) -> Estimate:
    value, low, high = found
    return factor * value + shift, factor * low + shift, factor * high + shift


def render_table(recordings: Iterable[Recording], draws: int = DRAWS) -> str:
    """Return a Markdown table with one row per product and number of clusters.

    Parameters
    ----------
    recordings : iterable of Recording
        Recordings of any number of products. A product with fewer than twelve clusters is left out.
    draws : int, default 2000
        Number of random draws.

    Returns
    -------
    str
        Table with percentages of the draws.
    """
    products = defaultdict(list)
    for recording in recordings:
        products[recording.format or ""].append(recording)
    rows = []
    for product, logs in sorted(products.items()):
        scores = measure(logs)
        clusters = len(next(iter(scores.values())).above)
        for size in SIZES:
            if 2 * size <= clusters:
                alarms = (f"{each:.1%}" for each in count_alarms(scores, size, draws))
                rows.append([product, str(clusters), str(size), *alarms])
    return markdown_table(["product", "clusters", "old and new, each", *CHANGES], rows)


def main(paths: Sequence[str]) -> None:
    """Print the table of all recordings in the paths."""
    if not paths:
        sys.exit(__doc__)
    print(render_table(each for path in paths for each in load(path, on_error="skip")))


if __name__ == "__main__":
    main(sys.argv[1:])
