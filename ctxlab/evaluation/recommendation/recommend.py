"""Recommend a setting of the product that recorded the logs: what it saves, and what it forgets.

The default of the product, its other settings (see ``Baseline.variants``) and strategies that any
agent can use are replayed over one part of the recordings, the tuning set. The cheapest setting that
keeps enough of what the default keeps is chosen there. It is measured on the other, held-out part,
beside the default and the recorded requests, and also in a closed loop, in which the agent fetches
again what it lacks. If the held-out part does not confirm the choice, the default is to be kept.

Recall is held far recall (``HEADLINE_SCORE``), which is availability.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from ctxlab.errors import SpecError
from ctxlab.evaluation.bootstrap import MIN_CLUSTERS
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.grid import StrategyLike, resolve_strategy
from ctxlab.evaluation.recommendation.agent_setup import AgentSetup, find_agent_setup
from ctxlab.evaluation.recommendation.choice import (
    Candidates,
    choose,
    explain_few_arguments,
    explain_no_choice,
    explain_rejection,
    is_better,
)
from ctxlab.evaluation.recommendation.effects import (
    Effect,
    add_summary_costs,
    measure_effect,
    score_strategies,
)
from ctxlab.evaluation.recommendation.results import Evidence, Recommendation
from ctxlab.evaluation.results import Results
from ctxlab.evaluation.tuning.holdout import MIN_TUNING_CLUSTERS, cluster_name, split_holdout
from ctxlab.evaluation.verdict import ConfigurationKey, control_name
from ctxlab.messages.types import Recording, check_recordings
from ctxlab.strategies import Strategy
from ctxlab.strategies.base import tools_needed
from ctxlab.strategies.baselines import NamedStrategy
from ctxlab.strategies.recorded import recorded
from ctxlab.strategies.registry import DEFAULT_LINEUP
from ctxlab.tokens.cache_timeline import CacheTtl
from ctxlab.tokens.profiles import TokenProfile

PORTABLE_STRATEGIES: tuple[str, ...] = tuple(s for s in DEFAULT_LINEUP if not control_name(s))
"""Strategies that any agent can use: those of the default lineup, without its controls."""

_METRICS = ("usage", "validity", "cost", "recall")


def recommend(
    recordings: Iterable[Recording],
    product: str | None = None,
    window: int | None = None,
    model: str | None = None,
    *,
    portable: Iterable[StrategyLike] = PORTABLE_STRATEGIES,
    reserve: int | None = None,
    cache_ttl: CacheTtl = "recorded",
    min_recall: float = 0.95,
    holdout: float = 0.5,
    seed: int = 0,
    workers: int | None = None,
    progress: bool | None = None,
    profile: TokenProfile | Iterable[TokenProfile] | None = None,
) -> Recommendation:
    """Recommend the setting of a product that saves most for the recorded work and forgets little.

    Parameters
    ----------
    recordings : iterable of Recording
        Recordings of one product, as ``ctxlab.load`` reads them from its logs.
    product : str, optional
        Product, by the name of its baseline. None takes the one that wrote most of the requests.
    window : int, optional
        Context window in tokens. None takes it from the logs, the product or the model.
    model : str, optional
        Model that counts and prices all recordings. None takes the model of each recording.
    portable : iterable of Strategy, str or callable, optional
        Strategies for any agent, to compare with the settings of the product.
    reserve : int, optional
        Tokens of the window to keep free for the reply. None takes the longest logged reply.
    cache_ttl : {"recorded", "5m", "1h"}, default "recorded"
        Lifetime of cache writes.
    min_recall : float, default 0.95
        Minimum held far recall of a setting, as a share of that of the default.
    holdout : float, default 0.5
        Share of the clusters that the choice does not use and that measure it. With 0, or with too few
        clusters, choice and figures are those of the same recordings.
    seed : int, default 0
        Seed of the split into two parts.
    workers : int, optional
        Number of processes. None uses all cores on Linux if no other thread runs, otherwise one.
    progress : bool, optional
        Show progress bars. None shows them only on a terminal.
    profile : TokenProfile or iterable of TokenProfile, optional
        Calibrations of token counts, one per model family.

    Returns
    -------
    Recommendation
        The setting, what it saves and what it forgets.

    Raises
    ------
    SpecError
        If the product is unknown, no recording can be priced, or an argument is invalid.

    Examples
    --------
    >>> import ctxlab
    >>> recordings = [next(iter(ctxlab.load("bundled:coding-agent")))]
    >>> found = ctxlab.recommend(recordings, "codex", 8000, "gpt-4", portable=[], workers=1)
    >>> [*found.lines]
    ['Setting', 'Saves', 'Forgets', 'Evidence']
    """
    check_recordings(recordings)
    if not 0 < min_recall <= 1:
        raise SpecError(f"min_recall: expected a share above 0 and up to 1, got {min_recall:g}")
    if not 0 <= holdout < 1:
        raise SpecError(f"holdout must be at least 0 and below 1, got {holdout:g}")
    strategies = [resolve_strategy(each) for each in portable]
    setup = find_agent_setup(
        list(recordings), product, window, model,
        reserve=reserve, cache_ttl=cache_ttl, profile=profile, workers=workers,
    )  # fmt: skip
    tuned, held = _split(setup.recordings, holdout, seed)
    first, *variants = setup.baseline.variants(setup.sizes)
    default = _key(setup.window, first)
    settings = {_key(setup.window, each): each for each in variants}
    others: Candidates = {
        _key(limit, strategy): strategy
        for limit in _portable_limits(setup)
        for strategy in strategies
    }

    def run(some: Sequence[Recording], keys: Iterable[ConfigurationKey], closed: bool) -> Results:
        limits = list(dict.fromkeys(limit for limit, _ in keys))
        chosen = [known[name] for name in dict.fromkeys(name for _, name in keys)]
        results = evaluate(
            some, chosen, limits, model,
            reserve=setup.reserve, cache_ttl=cache_ttl, fixed_in_limit=True, metrics=_METRICS,
            closed_loop=closed, workers=workers, progress=progress, profile=profile,
        )  # fmt: skip
        add_summary_costs(results, of_product, setup.baseline.caches_summaries)
        return results

    was = _key(setup.window, recorded())
    of_product = {default[1], was[1], *(name for _, name in settings)}
    known: dict[str, Strategy] = {
        name: each
        for (_, name), each in {**others, **settings, default: first, was: recorded()}.items()
    }
    groups = [[default, *settings], list(others)]
    trials = pd.concat(score_strategies(run(tuned, keys, closed=False)) for keys in groups if keys)
    choice = choose(trials, settings, default, min_recall)
    tried = [choice.key] if choice else []
    measured_on = held or tuned
    results = run(measured_on, [default, was, *tried], closed=True)

    def measure(key: ConfigurationKey, of: Results) -> Effect:
        return measure_effect(of, key, results, default, was)

    effect = measure(default, results)
    candidate = measure(choice.key, results) if choice else None
    tried_changes = _changes_of(settings[choice.key]) if choice else {}
    written = tuple(setup.baseline.write_settings(tried_changes, setup.window))
    name = " and ".join(" ".join(each.text.split()) for each in written)
    reason = explain_few_arguments(trials)
    if not reason and candidate and choice and choice.qualifies:
        reason = explain_rejection(candidate, effect, min_recall, name)
    elif not reason:
        reason = explain_no_choice(len(settings), candidate, effect, min_recall, name)
    changes = {} if reason else tried_changes
    rival = choose(trials, others, default, min_recall, choice.key if choice and changes else None)
    portable_effect = None
    if rival is not None and rival.qualifies and not explain_few_arguments(trials):
        found = measure(rival.key, run(measured_on, [rival.key], closed=True))
        if is_better(found, candidate if changes else None, effect, min_recall):
            portable_effect = found
    return Recommendation(
        product=setup.baseline.name,
        facts=setup.facts,
        changes=changes,
        settings=() if reason else written,
        tried_setting=name,
        reason=reason,
        default=effect,
        candidate=candidate,
        portable=portable_effect,
        portable_tools=tools_needed(others[rival.key]) if portable_effect and rival else (),
        evidence=Evidence(
            tuning_recordings=len(tuned),
            tuning_clusters=len(set(map(cluster_name, tuned))),
            recordings=results.recording_count,
            clusters=results.cluster_count,
            requests=sum(len(each.request_positions) for each in measured_on),
            is_held_out=bool(held),
            left_out=setup.left_out,
        ),
        trials=trials,
        results=results,
    )


def _changes_of(strategy: Strategy) -> dict[str, Any]:
    return dict(strategy.changes) if isinstance(strategy, NamedStrategy) else {}


def _key(limit: float, strategy: Strategy) -> ConfigurationKey:
    return float(limit), repr(strategy)


def _portable_limits(setup: AgentSetup) -> list[int]:
    """Return the limits under which portable strategies are tried: the window and a smaller one.

    The smaller one is in the middle between the tokens that each request has and the usual longest
    request. In a large window, a strategy would otherwise do nothing.
    """
    middle = round((setup.sizes.smallest + setup.sizes.longest) / 2000) * 1000
    is_usable = setup.sizes.smallest + setup.reserve < middle < setup.window
    return [setup.window, middle] if is_usable else [setup.window]


def _split(
    recordings: Sequence[Recording], holdout: float, seed: int
) -> tuple[list[Recording], list[Recording]]:
    """Split the recordings into a tuning set and a held-out set, which is empty with few clusters."""
    clusters = len(set(map(cluster_name, recordings)))
    if not holdout or clusters < MIN_CLUSTERS + MIN_TUNING_CLUSTERS:
        return list(recordings), []
    least, most = MIN_CLUSTERS / clusters, 1 - MIN_TUNING_CLUSTERS / clusters
    return split_holdout(recordings, min(max(holdout, least), most), seed)
