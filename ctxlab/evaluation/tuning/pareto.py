"""What is worth its price: the points than which no other costs no more and keeps no less.

A front is what is left when every point that another one beats is taken away. Taken away itself, it
leaves a second front, and so on: the number of its front is how far a point is from being worth its
price (non-dominated sorting, as in Deb et al., "NSGA-II", 2002; with two figures a sweep finds each).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["pareto_front", "pareto_ranks"]

_Values = npt.ArrayLike


def pareto_front(cost: _Values, gain: _Values) -> npt.NDArray[np.bool_]:
    """Which points no other point beats: costs no more and keeps no less, and one of both is better.

    Equal points do not beat each other. A point of which a figure is NaN is in no front.

    >>> pareto_front([1, 2, 2, 3], [0.5, 0.9, 0.4, 0.9]).tolist()
    [True, True, False, False]
    """
    points = np.column_stack([np.asarray(cost, dtype=float), -np.asarray(gain, dtype=float)])
    best = np.zeros(len(points), dtype=bool)
    known = np.flatnonzero(~np.isnan(points).any(axis=1))
    # Each point once, the cheapest first, and of equal cost the one that keeps most.
    unique, which = np.unique(points[known], axis=0, return_inverse=True)
    before = np.minimum.accumulate(np.concatenate([[np.inf], unique[:, 1]]))[:-1]
    best[known] = (unique[:, 1] < before)[which.reshape(-1)]
    return best


def pareto_ranks(cost: _Values, gain: _Values) -> npt.NDArray[np.int64]:
    """The number of the front of each point, from 0; -1 where a figure is NaN.

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
