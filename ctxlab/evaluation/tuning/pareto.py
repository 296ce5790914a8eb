"""Pareto fronts: the points that no other point beats in both cost and gain.

Removing the first front leaves a second one, and so on; the rank of a point is the number of its
front (non-dominated sorting). With two objectives each front is found by one sweep.

References
----------
- Deb et al., "A fast and elitist multiobjective genetic algorithm: NSGA-II", 2002.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_Values = npt.ArrayLike


def pareto_front(cost: _Values, gain: _Values) -> npt.NDArray[np.bool_]:
    """Find the points that no other point dominates.

    A point dominates another if it costs no more and gains no less, and is better in at least one.
    Equal points do not dominate each other.

    Parameters
    ----------
    cost : array_like of shape (n,)
        Cost of each point; lower is better.
    gain : array_like of shape (n,)
        Gain of each point; higher is better.

    Returns
    -------
    numpy.ndarray of bool, shape (n,)
        True for points of the front; False for points with nan.

    Examples
    --------
    >>> pareto_front([1, 2, 2, 3], [0.5, 0.9, 0.4, 0.9]).tolist()
    [True, True, False, False]
    """
    points = np.column_stack([np.asarray(cost, dtype=float), -np.asarray(gain, dtype=float)])
    best = np.zeros(len(points), dtype=bool)
    known = np.flatnonzero(~np.isnan(points).any(axis=1))
    # Distinct points, cheapest first; at equal cost the highest gain first.
    unique, which = np.unique(points[known], axis=0, return_inverse=True)
    before = np.minimum.accumulate(np.concatenate([[np.inf], unique[:, 1]]))[:-1]
    best[known] = (unique[:, 1] < before)[which.reshape(-1)]
    return best


def pareto_ranks(cost: _Values, gain: _Values) -> npt.NDArray[np.int64]:
    """Return the number of each point's front, starting from 0.

    Parameters
    ----------
    cost : array_like of shape (n,)
        Cost of each point; lower is better.
    gain : array_like of shape (n,)
        Gain of each point; higher is better.

    Returns
    -------
    numpy.ndarray of int, shape (n,)
        Rank of each point; -1 for points with nan.

    Examples
    --------
    >>> pareto_ranks([1, 2, 2, 3], [0.5, 0.9, 0.4, 0.9]).tolist()
    [0, 0, 1, 1]
    """
    cost, gain = np.array(cost, dtype=float), np.array(gain, dtype=float)
    found = np.full(len(cost), -1)
    number = 0
    while (best := pareto_front(cost, gain)).any():
        found[best] = number
        cost[best] = np.nan
        number += 1
    return found
