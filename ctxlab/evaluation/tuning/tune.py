"""Search strategy parameters for the best trade-offs, and report them on held-out recordings.

Successive halving finds the frontier on one part of the recordings. The other part measures it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

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
from ctxlab.evaluation.tuning.successive_halving import make_trial_scorer, run_successive_halving
from ctxlab.llm.base import Client
from ctxlab.messages.types import Recording, check_recordings
from ctxlab.strategies import models_used
from ctxlab.tokens.profiles import TokenProfile

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
    """Search parameters of strategies for the frontier of cost and recall.

    All recordings are held in memory.

    Parameters
    ----------
    recordings : iterable of Recording
        The recordings; those without a request are ignored.
    spaces : str, SearchSpace or iterable of them, optional
        Strategies as text with alternatives in ``[…]``, or names of ``DEFAULT_SPACES``.
    limits : float, str or iterable of them, optional
        Limits under which each space is searched: tokens, or fractions of each recording's length.
    model : str, optional
        Model whose tokenizer, prices and rules apply. None takes the model of each recording.
    holdout : float, default 0.5
        Share of the clusters that are held out for the report; 0 reports on the tuning part.
    objective : (str, str), default ("cost_usd", "recall_far")
        A score of which lower is better, and one of which higher is better.
    trials : int, optional
        Number of configurations to draw. None takes all.
    eta : float, default 2
        One in ``eta`` configurations is kept in each round.
    rounds : int, optional
        Number of rounds; see ``run_successive_halving``.
    seed : int, default 0
        Seed of the split, the draw and the order.
    reserve : int, default 0
        Tokens kept for the reply.
    data : sequence of str, optional
        Where the recordings come from, for the manifest.
    workers : int, optional
        Number of processes. None takes every core if that is safe.
    progress : bool, optional
        Show a progress bar. None shows it on a terminal.
    profile : TokenProfile or iterable of TokenProfile, optional
        Calibration of token counts by model family.
    client : Client, optional
        Answers the model calls of strategies; required if a strategy calls a model.

    Returns
    -------
    TuningResults
        The frontier on the held-out recordings, and all trials.

    Raises
    ------
    SpecError
        If too few clusters are left to hold any out, or an argument is not valid.
    StrategyError
        If a strategy fails.
    """
    check_recordings(recordings)
    telling = [recording for recording in recordings if recording.request_positions]
    if not telling:
        raise SpecError("nothing to measure: no recording contains a model call")
    grid = ExperimentGrid.from_arguments("full", limits, model, reserve, tuple(METRICS), profile)
    searched = parse_spaces(spaces)
    configurations = sample_configurations(searched, grid.limits, trials, seed)
    asked = _check_strategies(configurations, client)
    tuned, held = split_holdout(telling, holdout, seed)
    scorer = make_trial_scorer(replace(grid, client=client), objective)
    several = 1 if asked else workers  # a client may not work across processes
    found = run_successive_halving(
        scorer, tuned, configurations, eta=eta, rounds=rounds, workers=several, progress=progress
    )
    used = {limit for _, limit in found.frontier}
    results = evaluate(
        held or telling,
        [*dict.fromkeys(strategy for strategy, _ in found.frontier), *_REPORTED_CONTROLS],
        [limit for limit in grid.limits if limit in used],
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
        "limits": list(grid.limits),
        "configurations": len(configurations),
        "objective": list(objective),
        "holdout": holdout,
        "seed": seed,
        "tuned_on": found.clusters,
        "held_out": list(dict.fromkeys(map(cluster_name, held))),
        "recordings": identify_recordings(telling, grid.model_choice),
    }
    return TuningResults(results, found)


def _check_strategies(candidates: Sequence[CandidateConfiguration], client: Client | None) -> bool:
    """Check that there are strategies and no controls; return whether any of them calls a model."""
    strategies = dict.fromkeys(strategy for strategy, _ in candidates)
    if not strategies:
        raise SpecError("expected at least one space and one limit")
    for strategy in strategies:
        if control_name(repr(strategy)):
            why = "leave it out (full history and a random drop are always compared)"
            raise SpecError(f"{strategy!r} is a control and is never recommended; {why}")
    asked = ", ".join(models_used(*strategies))
    if asked and client is None:
        raise SpecError(f"{asked} would be called in every trial; pass a client to allow that")
    return bool(asked)
