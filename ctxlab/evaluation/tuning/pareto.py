"""Pareto fronts of points with a cost and a gain, such as configurations with a cost and a recall.

The first front contains the points that no other point dominates. The second front is the first
front of the remaining points, and so on. The rank of a point is the number of its front. This is
known as non-dominated sorting. With two objectives, one pass over the sorted points finds a front.

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

    A point dominates another point if it is at least as good in both cost and gain, and better in
    one of them. Equal points do not dominate each other.

    Parameters
    ----------
    cost : array_like of shape (n,)
        Cost of each point; lower is better.
    gain : array_like of shape (n,)
        Gain of each point; higher is better.

    Returns
    -------
    numpy.ndarray of bool, shape (n,)
        True for the points of the front. A point with a nan is never on the front.

    Examples
    --------
    >>> pareto_front([1, 2, 2, 3], [0.5, 0.9, 0.4, 0.9]).tolist()
    [True, True, False, False]
    """
    points = np.column_stack([np.asarray(cost, dtype=float), -np.asarray(gain, dtype=float)])
    best = np.zeros(len(points), dtype=bool)
    known = np.flatnonzero(~np.isnan(points).any(axis=1))
    # Sort the distinct points by cost, and points of equal cost by falling gain.
    unique, which = np.unique(points[known], axis=0, return_inverse=True)
    before = np.minimum.accumulate(np.concatenate([[np.inf], unique[:, 1]]))[:-1]
    best[known] = (unique[:, 1] < before)[which.reshape(-1)]
    return best


def pareto_ranks(cost: _Values, gain: _Values) -> npt.NDArray[np.int64]:
    """Return the number of the Pareto front of each point. The first front has the number 0.

    Parameters
    ----------
    cost : array_like of shape (n,)
        Cost of each point; lower is better.
    gain : array_like of shape (n,)
        Gain of each point; higher is better.

    Returns
    -------
    numpy.ndarray of int, shape (n,)
        Number of the front of each point; -1 for points with a nan.

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
