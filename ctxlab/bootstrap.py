"""A bootstrap over clusters says how much a ratio depends on which recordings happened to be there.

Recordings that repeat one task are no independent witnesses, so whole clusters are drawn, with
replacement. All configurations see the same draws: their differences are those of a paired design.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["ratio_interval"]

_Array = npt.NDArray[np.float64]


def ratio_interval(
    above: _Array, below: _Array, *, level: float = 0.95, samples: int = 2000, seed: int = 0
) -> tuple[_Array, _Array]:
    """Percentile bounds of ``sum(above) / sum(below)`` over clusters.

    ``above`` and ``below`` have shape ``(clusters, configurations)``; the bounds have one value a
    configuration. With fewer than two clusters, or nothing to divide by, they are NaN: nothing is known
    about other recordings.
    """
    clusters, configurations = above.shape
    if clusters < 2:
        return np.full(configurations, np.nan), np.full(configurations, np.nan)
    above, below = np.nan_to_num(above), np.nan_to_num(below)
    draws = np.random.default_rng(seed).multinomial(
        clusters, np.full(clusters, 1 / clusters), size=samples
    )
    bottom = draws @ below
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = np.where(bottom > 0, (draws @ above) / bottom, np.nan)
    tail = (1 - level) / 2
    low, high = np.full(configurations, np.nan), np.full(configurations, np.nan)
    known = ~np.isnan(ratios).all(axis=0)
    if known.any():
        low[known], high[known] = np.nanquantile(ratios[:, known], [tail, 1 - tail], axis=0)
    return low, high
