"""Means and spread of random strategies over several seeds.

A random strategy without a seed, such as the control ``random_drop``, is replayed with several seeds.
A draw is the replay with one of them. Tables have one row per configuration, with the means over its
draws. The standard deviation of a score over the draws needs the sums of each draw, which are
collected here and stored in the manifest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ctxlab.evaluation.engine import Trace
from ctxlab.evaluation.metrics.base import Figures, FloatArray, Score
from ctxlab.strategies.base import SEEDS

DrawSums: TypeAlias = dict[int, dict[str, FloatArray]]
"""Sums of columns with one element per draw, by number of the configuration and name of the column."""


def average_draws(figures: Figures, traces: Sequence[Trace]) -> dict[str, FloatArray]:
    """Average the rows of columns over the draws of each configuration.

    Parameters
    ----------
    figures : mapping of str to numpy.ndarray of shape (draws, requests)
        Columns with one row for each draw of each trace, in order.
    traces : sequence of Trace
        One trace per configuration.

    Returns
    -------
    dict of str to numpy.ndarray of shape (traces, requests)
        Columns with one row per configuration.
    """
    counts = np.array([len(trace.draws) for trace in traces], dtype=np.intp)
    if (counts == 1).all():
        return dict(figures)
    first = np.cumsum(counts) - counts
    several = np.flatnonzero(counts > 1)
    drawn = np.concatenate([np.arange(first[i], first[i] + counts[i]) for i in several])
    starts, divisors = np.cumsum(counts[several]) - counts[several], counts[several, None]
    found = {}
    for name, rows in figures.items():
        found[name] = rows[first]
        found[name][several] = np.add.reduceat(rows[drawn], starts, axis=0) / divisors
    return found


def sum_draws(figures: Figures, traces: Sequence[Trace], scores: Iterable[Score]) -> DrawSums:
    """Sum columns over the requests of one recording, separately for each draw.

    Parameters
    ----------
    figures : mapping of str to numpy.ndarray of shape (draws, requests)
        Columns with one row for each draw of each trace, in order.
    traces : sequence of Trace
        One trace per configuration.
    scores : iterable of Score
        Scores whose columns are summed; only those with an interval.

    Returns
    -------
    DrawSums
        Sums of the configurations with more than one draw.
    """
    columns = {c for s in scores if s.interval for c in (s.column, s.per) if c in figures}
    found: DrawSums = {}
    row = 0
    for number, trace in enumerate(traces):
        rows = slice(row, row + len(trace.draws))
        row = rows.stop
        if trace.other_draws:
            found[number] = {name: np.nansum(figures[name][rows], axis=1) for name in columns}
    return found


class DrawTotals:
    """Running totals of the sums of draws over the recordings of an evaluation."""

    def __init__(self) -> None:
        self._totals: DrawSums = {}

    def add(self, sums: DrawSums) -> None:
        """Add the sums of one recording.

        Parameters
        ----------
        sums : DrawSums
            Sums of the recording.
        """
        for number, columns in sums.items():
            totals = self._totals.setdefault(number, {})
            for name, values in columns.items():
                totals[name] = totals.get(name, 0.0) + values

    def manifest(self, configurations: Sequence[tuple[str, float]]) -> dict[str, Any]:
        """Return the totals as they are stored in the manifest.

        Parameters
        ----------
        configurations : sequence of (str, float)
            Strategy and limit of each configuration.

        Returns
        -------
        dict
            The key ``draws`` contains one object per random configuration: its ``strategy``, its
            ``limit``, and the ``sums`` of each column, one per seed. Without a random
            configuration, the dict is empty.
        """
        rows = [
            {
                "strategy": configurations[number][0],
                "limit": configurations[number][1],
                "sums": {name: columns[name].tolist() for name in sorted(columns)},
            }
            for number, columns in sorted(self._totals.items())
        ]
        return {"draws": rows} if rows else {}


def score_spread(
    score: Score, rows: Iterable[Mapping[str, Any]], requests: Mapping[tuple[float, str], float]
) -> dict[tuple[float, str], float]:
    """Compute the standard deviation of a score over the draws of each random configuration.

    Parameters
    ----------
    score : Score
        Score to compute; a ratio of sums.
    rows : iterable of mapping
        Value of the key ``draws`` of a manifest.
    requests : mapping of (float, str) to float
        Number of requests by limit and strategy, for scores that are means per request.

    Returns
    -------
    dict of (float, str) to float
        Standard deviation (with ``n - 1`` in the denominator) by limit and strategy.
    """
    found = {}
    for row in rows:
        key, sums = (float(row["limit"]), row["strategy"]), row["sums"]
        numerators = np.array(sums[score.column])
        denominators = np.array(sums[score.per]) if score.per else np.full(SEEDS, requests[key])
        found[key] = float(np.std(score.compute(numerators, denominators), ddof=1))
    return found
