"""``tune`` finds which parameters are worth their price, and reports that on recordings it has not seen.

The frontier is found on one part of the recordings by successive halving, and measured on the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ctxlab._utils.humanize import parse_limit
from ctxlab.errors import SpecError
from ctxlab.evaluation.experiment import DEFAULT_LIMITS, ExperimentGrid, evaluate
from ctxlab.evaluation.fingerprint import identify_recordings
from ctxlab.evaluation.metrics import METRICS
from ctxlab.evaluation.recommendation import control_name
from ctxlab.evaluation.tuning.holdout import cluster_name, split_holdout
from ctxlab.evaluation.tuning.results import TuningResults
from ctxlab.evaluation.tuning.search_space import (
    DEFAULT_SPACES,
    CandidateConfiguration,
    SearchSpace,
    parse_spaces,
    sample_configurations,
)
from ctxlab.evaluation.tuning.successive_halving import run_successive_halving
from ctxlab.evaluation.tuning.trials import make_trial_scorer
from ctxlab.llm.base import Client
from ctxlab.messages.types import Recording, check_recordings
from ctxlab.strategies import models_used
from ctxlab.tokens.profiles import TokenProfile

__all__ = ["tune"]

_REPORTED_CONTROLS = ("full", "random_drop()")


def tune(
    recordings: Iterable[Recording],
    spaces: str | SearchSpace | Iterable[str | SearchSpace] = tuple(DEFAULT_SPACES),
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
    profile: TokenProfile | Iterable[TokenProfile] | None = None,
    client: Client | None = None,
) -> TuningResults:
    """Searches parameters of strategies for the frontier of what they cost against what they keep.

    ``spaces``: strategies as text in which ``[…]`` holds alternatives, or names of
    ``DEFAULT_SPACES``; each is searched under every limit. ``trials`` draws so many of the
    configurations; None takes all. ``holdout``: the share of the clusters that the frontier is
    reported on and not found on; 0 reports it on what it was found on. ``objective``: a figure of
    which lower is better, and one of which higher is. ``eta`` and ``rounds`` are those of
    ``ctxlab.evaluation.tuning.successive_halving.run_successive_halving``. ``seed``: of the split,
    the draw and the order. ``client``: whom strategies ask that call a model; without one they are
    refused. The rest is as ``evaluate`` has it, but all recordings are held in memory. Raises
    ``SpecError`` where too few clusters are left to hold any out, and what ``evaluate`` raises.
    """
    check_recordings(recordings)
    telling = [recording for recording in recordings if recording.request_positions]
    if not telling:
        raise SpecError("there is nothing to measure: no recording holds a model call")
    limit_values = [limits] if isinstance(limits, (str, int, float)) else limits
    bounds = list(dict.fromkeys(parse_limit(limit) for limit in limit_values))
    searched = parse_spaces(spaces)
    configurations = sample_configurations(searched, bounds, trials, seed)
    asked = _check_strategies(configurations, client)
    grid = ExperimentGrid.from_arguments("full", bounds, model, reserve, tuple(METRICS), profile)
    tuned, held = split_holdout(telling, holdout, seed)
    found = run_successive_halving(
        make_trial_scorer(replace(grid, client=client), objective),
        tuned,
        configurations,
        eta=eta,
        rounds=rounds,
        workers=1 if asked else workers,  # a client need not be fit to be shared by processes
        progress=progress,
    )
    results = evaluate(
        held or telling,
        [*dict.fromkeys(strategy for strategy, _ in found.frontier), *_REPORTED_CONTROLS],
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
        "held_out": list(dict.fromkeys(map(cluster_name, held))),
        "recordings": identify_recordings(telling, grid.model_choice),
    }
    return TuningResults(results, found)


def _check_strategies(
    configurations: Sequence[CandidateConfiguration], client: Client | None
) -> bool:
    """Whether any asks a model, which needs a client; there is something to search, and no control."""
    strategies = dict.fromkeys(strategy for strategy, _ in configurations)
    if not strategies:
        raise SpecError("tuning needs at least one space and one limit")
    for strategy in strategies:
        if control_name(repr(strategy)):
            raise SpecError(
                f"{strategy!r} is a control, which is never recommended; full history and a random drop "
                "are compared anyway"
            )
    asked = models_used(*strategies)
    if asked and client is None:
        raise SpecError(
            f"{', '.join(asked)} would be asked at every trial: tune needs a client for that"
        )
    return bool(asked)
