"""Search the parameters of strategies for the best trade-offs between cost and recall.

Successive halving finds the frontier on a part of the recordings, the tuning set. The frontier is
then evaluated on the other recordings, the held-out set. The recommended configuration is also chosen
on the tuning set, so that its figures on the held-out set are unbiased.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from ctxlab.errors import SpecError
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.fingerprint import identify_recordings
from ctxlab.evaluation.grid import DEFAULT_LIMITS, ExperimentGrid
from ctxlab.evaluation.metrics import METRICS
from ctxlab.evaluation.metrics.recall import HEADLINE_SCORE
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
from ctxlab.evaluation.verdict import control_name
from ctxlab.llm.base import Client
from ctxlab.messages.types import Recording, check_recordings
from ctxlab.strategies import models_used
from ctxlab.tokens.cache_timeline import CacheTtl, CostSettings
from ctxlab.tokens.profiles import TokenProfile
from ctxlab.tokens.reasoning import ReasoningMode

_REPORTED_CONTROLS = ("full", "random_drop()")


def tune(
    recordings: Iterable[Recording],
    spaces: str | SearchSpace | Iterable[str | SearchSpace] = tuple(DEFAULT_SPACES),
    limits: float | str | Iterable[float | str] = DEFAULT_LIMITS,
    model: str | None = None,
    *,
    holdout: float = 0.5,
    objective: tuple[str, str] = ("cost_usd", HEADLINE_SCORE),
    trials: int | None = None,
    eta: float = 2,
    rounds: int | None = None,
    seed: int = 0,
    reserve: int = 0,
    cache_ttl: CacheTtl = "recorded",
    fixed: int | Literal["recorded"] = "recorded",
    fixed_in_limit: bool = False,
    reasoning: ReasoningMode = "recorded",
    data: Sequence[str] = (),
    workers: int | None = None,
    progress: bool | None = None,
    profile: TokenProfile | Iterable[TokenProfile] | None = None,
    client: Client | None = None,
) -> TuningResults:
    """Search the parameters of strategies for the best trade-offs between cost and recall.

    All recordings are loaded into memory.

    Parameters
    ----------
    recordings : iterable of Recording
        Recordings to replay. Recordings without a model call are ignored.
    spaces : str, SearchSpace or iterable of them, optional
        Search spaces: strategies as strings with alternatives in ``[…]``, names of
        ``DEFAULT_SPACES``, or names of baselines, whose settings are then tried.
    limits : float, str or iterable of them, optional
        Limits under which each search space is searched, in tokens or as fractions of each
        recording's length.
    model : str, optional
        Model that determines the tokenizer, the prices and the API rules. None uses the model of
        each recording.
    holdout : float, default 0.5
        Share of the clusters that the search does not use, so that the frontier can be evaluated on
        them. With 0, the frontier is evaluated on the recordings that were used to find it.
    objective : (str, str), default ("cost_usd", HEADLINE_SCORE)
        Names of two scores: a cost (lower is better) and a gain (higher is better). With a score of
        the closed loop, such as ``closed_usd``, each configuration is replayed in a closed loop.
    trials : int, optional
        Number of configurations to draw at random. None searches all of them.
    eta : float, default 2
        Each round of the search keeps at least one in ``eta`` configurations.
    rounds : int, optional
        Number of rounds; see ``run_successive_halving``.
    seed : int, default 0
        Seed of the split into two sets, of the order of the recordings and of the random draw.
    reserve : int, default 0
        Number of tokens of each limit that are kept free for the reply.
    cache_ttl : {"recorded", "5m", "1h"}, default "recorded"
        Lifetime of cache writes; see ``ctxlab.tokens.cache_timeline.CostSettings``.
    fixed : int or "recorded", default "recorded"
        Unlogged tokens per request that the cost includes; see the same class.
    fixed_in_limit : bool, default False
        Count the unlogged tokens in the limit, as a context window does; see the same class.
    reasoning : {"recorded", "auto", "keep", "current_turn", "clear"}, default "recorded"
        Hidden reasoning of earlier replies that requests contain; see the same class.
    data : sequence of str, optional
        Sources of the recordings, such as their paths, to store in the manifest.
    workers : int, optional
        Number of processes. None uses all cores on Linux if no other thread runs, otherwise one.
    progress : bool, optional
        Show a progress bar. None shows it on a terminal.
    profile : TokenProfile or iterable of TokenProfile, optional
        Calibrations of token counts. Each one applies to one model family.
    client : Client, optional
        Client for the model calls of strategies. Required if a strategy calls a model.

    Returns
    -------
    TuningResults
        Frontier on the held-out recordings, and all trials of the search.

    Raises
    ------
    SpecError
        If an argument is not valid, no recording contains a model call, or there are too few
        clusters.
    StrategyError
        If a strategy fails during a replay.

    Examples
    --------
    >>> import ctxlab
    >>> recordings = list(ctxlab.load("bundled:coding-agent"))[:3]
    >>> space = "sliding_window(messages=[10, 20, 40])"
    >>> found = ctxlab.tune(recordings[:2], space, 8000, holdout=0, workers=1)
    >>> len(found.trials)
    4
    """
    check_recordings(recordings)
    telling = [recording for recording in recordings if recording.request_positions]
    if not telling:
        raise SpecError("no recording contains a model call to replay; use other recordings")
    grid = ExperimentGrid.from_arguments(
        *("full", limits, model, reserve, tuple(METRICS), profile),
        costs=CostSettings(cache_ttl, fixed, fixed_in_limit, reasoning),
    )
    searched = parse_spaces(spaces)
    configurations = sample_configurations(searched, grid.limits, trials, seed)
    asked = _check_strategies(configurations, client)
    tuned, held = split_holdout(telling, holdout, seed)
    scorer = make_trial_scorer(replace(grid, client=client), objective)
    several = 1 if asked else workers  # a client may not work in several processes
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
        cache_ttl=cache_ttl,
        fixed=fixed,
        fixed_in_limit=fixed_in_limit,
        reasoning=reasoning,
        closed_loop=not {s.name for s in METRICS["closed_loop"].scores}.isdisjoint(objective),
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
        "recordings": list(identify_recordings(telling, grid.model_choice)),
    }
    return TuningResults(results, found)


def _check_strategies(candidates: Sequence[CandidateConfiguration], client: Client | None) -> bool:
    """Return True if a strategy calls a model.

    Raise ``SpecError`` if there are no strategies, if one of them is a control, or if a strategy calls
    a model and ``client`` is None.
    """
    strategies = dict.fromkeys(strategy for strategy, _ in candidates)
    if not strategies:
        raise SpecError(
            "expected at least one strategy and one limit, got no configuration to search"
        )
    for strategy in strategies:
        if control_name(repr(strategy)):
            why = "remove it (full and random_drop are always evaluated)"
            raise SpecError(f"expected strategies to tune, got the control {strategy!r}; {why}")
    asked = ", ".join(models_used(*strategies))
    if asked and client is None:
        raise SpecError(f"{asked} would be called in every trial; pass a client to allow that")
    return bool(asked)
