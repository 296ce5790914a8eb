"""Split recordings into a tuning part and a held-out part, by whole clusters.

Recordings of one task share a cluster. If one of them was used for tuning, the others are not
unseen.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from math import ceil, floor

from ctxlab.errors import SpecError
from ctxlab.evaluation.bootstrap import MIN_CLUSTERS
from ctxlab.messages.types import Recording

_MIN_TUNING_CLUSTERS = 2
"minimum number of clusters to tune on"


def cluster_name(recording: Recording) -> str:
    """Return the cluster of a recording, or its id if it names no cluster.

    Parameters
    ----------
    recording : Recording
        The recording.

    Returns
    -------
    str
        Name of the cluster.
    """
    return recording.cluster or recording.id


def split_holdout(
    recordings: Sequence[Recording], holdout: float, seed: int = 0
) -> tuple[list[Recording], list[Recording]]:
    """Split recordings into a tuning set and a held-out set.

    The split is stratified by format and length. A format with two or more clusters is in both
    sets, and clusters of similar length are distributed over both. The tuning set is ordered so that
    its first recordings, however many are used, contain the formats in the proportion of the whole.

    Parameters
    ----------
    recordings : sequence of Recording
        All recordings.
    holdout : float
        Share of the clusters to hold out, at least 0 and below 1; 0 holds out nothing.
    seed : int, default 0
        Seed of the split and the order.

    Returns
    -------
    tuned : list of Recording
        Recordings to tune on, in the order in which to use them.
    held : list of Recording
        Recordings that are held out.

    Raises
    ------
    SpecError
        If a part would have too few clusters.
    """
    if not 0 <= holdout < 1:
        raise SpecError(f"holdout must be at least 0 and below 1, got {holdout:g}")
    chance = random.Random(seed)
    groups: dict[str, list[Recording]] = {}
    for recording in recordings:
        groups.setdefault(cluster_name(recording), []).append(recording)
    strata = _strata_by_format(groups)
    held: set[str] = set()
    passed = 0
    for names in strata:
        # Round cumulatively: the total is exact, each stratum as close as possible.
        count = floor((passed + len(names)) * holdout + 0.5) - floor(passed * holdout + 0.5)
        if holdout > 0 and len(names) > 1:
            count = min(max(count, 1), len(names) - 1)
        held.update(_draw_spread(names, count, chance))
        passed += len(names)
    if holdout > 0:
        _check_cluster_counts(len(groups), len(held), holdout)
    order = _interleave([[n for n in names if n not in held] for names in strata], chance)
    tuned = [recording for name in order for recording in groups[name]]
    return tuned, [recording for recording in recordings if cluster_name(recording) in held]


def _strata_by_format(groups: dict[str, list[Recording]]) -> list[list[str]]:
    """Group clusters by format, in order of length; formats with one cluster are pooled."""
    length = {name: sum(len(r.messages) for r in some) for name, some in groups.items()}
    formats: dict[str, list[str]] = {}
    for name in sorted(groups, key=lambda name: (length[name], name)):
        formats.setdefault(str(groups[name][0].format), []).append(name)
    alone = [name for names in formats.values() if len(names) == 1 for name in names]
    return [names for names in (*formats.values(), alone) if len(names) > 1 or names is alone]


def _draw_spread(names: list[str], count: int, chance: random.Random) -> list[str]:
    """Draw ``count`` names, spread evenly over their order."""
    fewer = min(count, len(names) - count)
    edges = [place * len(names) // fewer for place in range(fewer + 1)] if fewer else [0]
    chosen = [chance.choice(names[start:stop]) for start, stop in pairwise(edges)]
    return chosen if fewer == count else [name for name in names if name not in chosen]


def _interleave(strata: list[list[str]], chance: random.Random) -> list[str]:
    """Merge all names, each stratum shuffled and spread evenly over the result."""
    spread: list[tuple[float, str]] = []
    for names in strata:
        mixed = chance.sample(names, len(names))
        spread += [((i + chance.random()) / len(mixed), name) for i, name in enumerate(mixed)]
    return [name for _, name in sorted(spread)]


def _check_cluster_counts(clusters: int, held: int, holdout: float) -> None:
    if held >= MIN_CLUSTERS and clusters - held >= _MIN_TUNING_CLUSTERS:
        return
    least = MIN_CLUSTERS + _MIN_TUNING_CLUSTERS
    remedy = f"provide at least {least}"
    if clusters >= least:
        enough = ceil(100 * MIN_CLUSTERS / clusters) / 100
        remedy = f"use a holdout of {enough:g}" if held < MIN_CLUSTERS else "use a smaller holdout"
    raise SpecError(
        f"too few clusters: of {clusters}, a holdout of {holdout:g} leaves {clusters - held} to tune on "
        f"and {held} to report on, and an interval needs {MIN_CLUSTERS}; {remedy}, add recordings, or "
        "use a holdout of 0 to report on the tuning part"
    )
