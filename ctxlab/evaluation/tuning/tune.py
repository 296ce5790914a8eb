"""``tune`` finds which parameters are worth their price, and reports that on recordings it has not seen.

The frontier is found on one part of the recordings by successive halving, and measured on the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ctxlab._utils.humanize import read_limit
from ctxlab.errors import SpecError
from ctxlab.evaluation.experiment import (
    DEFAULT_LIMITS,
    Grid,
    evaluate,
)
from ctxlab.evaluation.fingerprint import identities
from ctxlab.evaluation.metrics import METRICS
from ctxlab.evaluation.recommendation import control_in
from ctxlab.evaluation.tuning.holdout import (
    cluster_of,
    split,
)
from ctxlab.evaluation.tuning.results import Tuning
from ctxlab.evaluation.tuning.search_space import (
    SPACES,
    Configuration,
    Space,
    as_spaces,
    draw,
)
from ctxlab.evaluation.tuning.successive_halving import halve
from ctxlab.evaluation.tuning.trials import gauge_of
from ctxlab.llm.base import Client
from ctxlab.messages.types import (
    Recording,
    several,
)
from ctxlab.strategies import models_asked
from ctxlab.tokens.profiles import Profile

__all__ = ["tune"]

_CONTROLS = ("full", "random_drop()")


def tune(
    recordings: Iterable[Recording],
    spaces: str | Space | Iterable[str | Space] = tuple(SPACES),
    limits: float | str | Iterable[float | str] = DEFAULT_LIMITS,
    model: str | None = None,
    *,
    holdout: float = 0.5,
    objective: tuple[str, str] = ("cost_usd", "recall_far"),
    trials: int | None = None,
    eta: float = 2,
    rounds: int | None = None,
    seed: int = 0,
    reserve: int = 0,
    data: Sequence[str] = (),
    workers: int | None = None,
    progress: bool | None = None,
    profile: Profile | Iterable[Profile] | None = None,
    client: Client | None = None,
) -> Tuning:
    """Searches parameters of strategies for the frontier of what they cost against what they keep.

    ``spaces``: strategies as text in which ``[…]`` holds alternatives, or names of ``SPACES``; each is
    searched under every limit. ``trials`` draws so many of the configurations; None takes all.
    ``holdout``: the share of the clusters that the frontier is reported on and not found on; 0 reports
    it on what it was found on. ``objective``: a figure of which lower is better, and one of which higher
    is. ``eta`` and ``rounds`` are those of ``ctxlab.evaluation.tuning.successive_halving.halve``.
    ``seed``: of the split, the
    draw and the order. ``client``: whom strategies ask that call a model; without one they are
    refused. The rest is as ``evaluate`` has it, but all recordings are held in memory. Raises
    ``SpecError`` where too few clusters are left to hold any out, and what ``evaluate`` raises.
    """
    several(recordings)
    telling = [recording for recording in recordings if recording.requests]
    if not telling:
        raise SpecError("there is nothing to measure: no recording holds a model call")
    given = [limits] if isinstance(limits, (str, int, float)) else limits
    bounds = list(dict.fromkeys(read_limit(limit) for limit in given))
    searched = as_spaces(spaces)
    configurations = draw(searched, bounds, trials, seed)
    asked = _checked(configurations, client)
    grid = Grid.make("full", bounds, model, reserve, tuple(METRICS), profile)
    tuned, held = split(telling, holdout, seed)
    found = halve(
        gauge_of(replace(grid, client=client), objective),
        tuned,
        configurations,
        eta=eta,
        rounds=rounds,
        workers=1 if asked else workers,  # a client need not be fit to be shared by processes
        progress=progress,
    )
    results = evaluate(
        held or telling,
        [*dict.fromkeys(strategy for strategy, _ in found.frontier), *_CONTROLS],
        [bound for bound in bounds if any(bound == limit for _, limit in found.frontier)],
        model,
        reserve=reserve,
        data=data,
        workers=workers,
        progress=progress,
        profile=profile,
        client=client,
    )
    results.manifest["tuning"] = {
        "spaces": [space.text for space in searched],
        "limits": bounds,
        "configurations": len(configurations),
        "objective": list(objective),
        "holdout": holdout,
        "seed": seed,
        "tuned_on": found.clusters,
        "held_out": list(dict.fromkeys(map(cluster_of, held))),
        "recordings": identities(telling, grid.models),
    }
    return Tuning(results, found)


def _checked(configurations: Sequence[Configuration], client: Client | None) -> bool:
    """Whether any asks a model, which needs a client; there is something to search, and no control."""
    strategies = dict.fromkeys(strategy for strategy, _ in configurations)
    if not strategies:
        raise SpecError("tuning needs at least one space and one limit")
    for strategy in strategies:
        if control_in(repr(strategy)):
            raise SpecError(
                f"{strategy!r} is a control, which is never recommended; full history and a random drop "
                "are compared anyway"
            )
    asked = models_asked(*strategies)
    if asked and client is None:
        raise SpecError(
            f"{', '.join(asked)} would be asked at every trial: tune needs a client for that"
        )
    return bool(asked)
