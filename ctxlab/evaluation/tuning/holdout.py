"""What is chosen on some recordings is reported on others: whole clusters are held out, never a part.

Recordings that repeat one task share a cluster: what was tuned on one of them has seen them all.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from math import ceil, floor

from ctxlab.errors import SpecError
from ctxlab.evaluation.bootstrap import MIN_CLUSTERS
from ctxlab.messages.types import Recording

__all__ = ["cluster_name", "split_holdout"]

_MIN_TUNING_CLUSTERS = 2
"clusters that must be left to tune on"


def cluster_name(recording: Recording) -> str:
    """The cluster of a recording; one that names none is one by itself."""
    return recording.cluster or recording.id


def split_holdout(
    recordings: Sequence[Recording], holdout: float, seed: int = 0
) -> tuple[list[Recording], list[Recording]]:
    """Parts recordings into those to tune on and those held out, ``holdout`` of the clusters.

    Of every format with two clusters or more some are in both. Of clusters that stand side by side in
    order of length one is drawn, so that the two parts are alike. The first part comes in the order in
    which it is to be used: its beginning holds the formats in proportion. A share of 0 holds nothing
    out. Raises ``SpecError`` where that leaves too few clusters.
    """
    if not 0 <= holdout < 1:
        raise SpecError(f"holdout is a share of the clusters from 0 to below 1, not {holdout:g}")
    chance = random.Random(seed)
    groups: dict[str, list[Recording]] = {}
    for recording in recordings:
        groups.setdefault(cluster_name(recording), []).append(recording)
    strata = _strata_by_format(groups)
    held: set[str] = set()
    passed = 0
    for names in strata:
        # Of all together the share is right, and of each as nearly as it can be.
        count = floor((passed + len(names)) * holdout + 0.5) - floor(passed * holdout + 0.5)
        if holdout > 0 and len(names) > 1:
            count = min(max(count, 1), len(names) - 1)
        held.update(_draw_spread(names, count, chance))
        passed += len(names)
    if holdout > 0:
        _check_cluster_counts(len(groups), len(held), holdout)
    order = _interleave([[n for n in names if n not in held] for names in strata], chance)
    tuned = [recording for name in order for recording in groups[name]]
    return tuned, [each for each in recordings if cluster_name(each) in held]


def _strata_by_format(groups: dict[str, list[Recording]]) -> list[list[str]]:
    """Clusters by format, in order of length; formats with one cluster are put together."""
    length = {name: sum(len(r.messages) for r in some) for name, some in groups.items()}
    formats: dict[str, list[str]] = {}
    for name in sorted(groups, key=lambda name: (length[name], name)):
        formats.setdefault(str(groups[name][0].format), []).append(name)
    alone = [name for names in formats.values() if len(names) == 1 for name in names]
    return [names for names in (*formats.values(), alone) if len(names) > 1 or names is alone]


def _draw_spread(names: list[str], count: int, chance: random.Random) -> list[str]:
    """So many of the names in their order: one of each few that stand side by side."""
    fewer = min(count, len(names) - count)
    edges = [place * len(names) // fewer for place in range(fewer + 1)] if fewer else [0]
    chosen = [chance.choice(names[start:stop]) for start, stop in pairwise(edges)]
    return chosen if fewer == count else [name for name in names if name not in chosen]


def _interleave(strata: list[list[str]], chance: random.Random) -> list[str]:
    """All names, each kind shuffled and spread evenly over the whole."""
    spread: list[tuple[float, str]] = []
    for names in strata:
        mixed = chance.sample(names, len(names))
        spread += [((i + chance.random()) / len(mixed), name) for i, name in enumerate(mixed)]
    return [name for _, name in sorted(spread)]


def _check_cluster_counts(clusters: int, held: int, holdout: float) -> None:
    if held >= MIN_CLUSTERS and clusters - held >= _MIN_TUNING_CLUSTERS:
        return
    least = MIN_CLUSTERS + _MIN_TUNING_CLUSTERS
    remedy = f"at least {least} are needed"
    if clusters >= least:
        enough = ceil(100 * MIN_CLUSTERS / clusters) / 100
        remedy = (
            f"a holdout of {enough:g} is enough"
            if held < MIN_CLUSTERS
            else "take a smaller holdout"
        )
    raise SpecError(
        f"of {clusters} clusters a holdout of {holdout:g} leaves {clusters - held} to tune on and "
        f"{held} to report on, where an interval needs {MIN_CLUSTERS}: {remedy}, or more recordings; a "
        "holdout of 0 reports on what it was tuned on"
    )
