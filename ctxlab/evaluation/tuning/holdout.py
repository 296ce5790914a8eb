"""Split recordings into a tuning set and a held-out set, by whole clusters.

Recordings that depend on each other, such as trials of one task, form a cluster. All recordings of
a cluster are in the same set, so that no task is used both for tuning and for the evaluation.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from math import ceil, floor

from ctxlab.errors import SpecError
from ctxlab.evaluation.bootstrap import MIN_CLUSTERS
from ctxlab.messages.types import Recording

MIN_TUNING_CLUSTERS = 2
"minimum number of clusters in the tuning set"


def cluster_name(recording: Recording) -> str:
    """Return the name of the cluster that a recording belongs to.

    Parameters
    ----------
    recording : Recording
        Recording with or without a cluster.

    Returns
    -------
    str
        Name of the cluster; the recording's id if the recording has no cluster.
    """
    return recording.cluster or recording.id


def split_holdout(
    recordings: Sequence[Recording], holdout: float, seed: int = 0
) -> tuple[list[Recording], list[Recording]]:
    """Split recordings into a tuning set and a held-out set.

    The split is stratified by format and length. Each format with two or more clusters is in both
    sets, and so are short and long recordings. The tuning set is ordered so that any number of its
    first recordings contains the formats in about the same proportions as the whole tuning set.

    Parameters
    ----------
    recordings : sequence of Recording
        Recordings to split.
    holdout : float
        Share of the clusters to hold out, from 0 to below 1. With 0, the held-out set is empty.
    seed : int, default 0
        Seed of the split and of the order of the tuning set.

    Returns
    -------
    tuned : list of Recording
        Tuning set, in the order in which its recordings are to be used.
    held : list of Recording
        Held-out set, in the order of ``recordings``.

    Raises
    ------
    SpecError
        If ``holdout`` is out of range, or a set would have too few clusters.
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
        # Round the cumulative number: the total is right, and each stratum is close to its share.
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
    """Group clusters by format and sort each group by length.

    The last group contains the clusters of all formats with only one cluster.
    """
    length = {name: sum(len(r.messages) for r in some) for name, some in groups.items()}
    formats: dict[str, list[str]] = {}
    for name in sorted(groups, key=lambda name: (length[name], name)):
        formats.setdefault(str(groups[name][0].format), []).append(name)
    alone = [name for names in formats.values() if len(names) == 1 for name in names]
    return [names for names in (*formats.values(), alone) if len(names) > 1 or names is alone]


def _draw_spread(names: list[str], count: int, chance: random.Random) -> list[str]:
    """Draw ``count`` names at random, spread evenly over the list."""
    fewer = min(count, len(names) - count)
    edges = [place * len(names) // fewer for place in range(fewer + 1)] if fewer else [0]
    chosen = [chance.choice(names[start:stop]) for start, stop in pairwise(edges)]
    return chosen if fewer == count else [name for name in names if name not in chosen]


def _interleave(strata: list[list[str]], chance: random.Random) -> list[str]:
    """Merge the strata into one list. The names of each stratum are shuffled and spread evenly."""
    spread: list[tuple[float, str]] = []
    for names in strata:
        mixed = chance.sample(names, len(names))
        spread += [((i + chance.random()) / len(mixed), name) for i, name in enumerate(mixed)]
    return [name for _, name in sorted(spread)]


def _check_cluster_counts(clusters: int, held: int, holdout: float) -> None:
    if held >= MIN_CLUSTERS and clusters - held >= MIN_TUNING_CLUSTERS:
        return
    least = MIN_CLUSTERS + MIN_TUNING_CLUSTERS
    remedy = f"provide at least {least} clusters"
    if clusters >= least:
        enough = ceil(100 * MIN_CLUSTERS / clusters) / 100
        remedy = f"use a holdout of {enough:g}" if held < MIN_CLUSTERS else "use a smaller holdout"
    raise SpecError(
        f"too few clusters: with a holdout of {holdout:g}, {clusters - held} of {clusters} are used for "
        f"tuning (at least {MIN_TUNING_CLUSTERS} are needed) and {held} for the evaluation (at least "
        f"{MIN_CLUSTERS} are needed); {remedy}, or use a holdout of 0 to evaluate on the tuning set, "
        "and measure the choice on other recordings later"
    )
