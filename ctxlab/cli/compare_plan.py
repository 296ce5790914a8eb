"""The plan of ``ctxlab compare``: which strategies are replayed within which limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from ctxlab._utils.humanize import parse_limit, split_limit
from ctxlab.cli.experiment import load_experiment
from ctxlab.cli.output import print_note
from ctxlab.errors import SpecError

if TYPE_CHECKING:
    from ctxlab.evaluation.results import Results
    from ctxlab.evaluation.spec import Spec


class StrategyChoice(NamedTuple):
    """A strategy and the limit that it is replayed within."""

    strategy: str
    "text of the strategy"
    limit: int | float | None
    "limit in tokens or as a share; None takes each limit of the experiment"

    def __str__(self) -> str:
        """Return the choice as users type it, such as ``full @ 16000``."""
        return self.strategy if self.limit is None else f"{self.strategy} @ {self.limit}"


class ComparePlan(NamedTuple):
    """The experiment to replay and the choices to compare."""

    spec: Spec
    "the experiment, which may replay more combinations than are compared"
    choices: list[StrategyChoice]
    "the strategies to compare"
    common_limits: tuple[int | float, ...] = ()
    "limits of the choices that name none"


def plan_comparison(
    path: str, choices: Sequence[str], spec_changes: dict[str, Any], match_tokens: bool
) -> ComparePlan:
    """Return the plan that replays the choices.

    Parameters
    ----------
    path : str
        Data, an experiment file or a saved run.
    choices : sequence of str
        Strategies, each optionally with ``@ LIMIT``.
    spec_changes : dict
        Fields of the experiment that options replace.
    match_tokens : bool
        Leave the limits of all but the first strategy to ``find_equal_token_limits``.

    Returns
    -------
    ComparePlan
        The plan.

    Raises
    ------
    SpecError
        If there are fewer than two different choices, or if options contradict them.
    """
    chosen = [StrategyChoice(*split_limit(choice)) for choice in choices]
    strategies = tuple(each.strategy for each in chosen)
    spec, _ = load_experiment([path], {**spec_changes, "strategies": strategies})
    if match_tokens:
        return _plan_equal_tokens(spec, chosen, "limits" in spec_changes)
    own = [each.limit for each in chosen if each.limit is not None]
    common = tuple(map(parse_limit, spec.limits)) if len(own) < len(chosen) else ()
    if not common and "limits" in spec_changes:
        raise SpecError(
            "--limit has no effect: each strategy has its own; remove --limit or an @ LIMIT"
        )
    if len(chosen) == 1:  # a single strategy is compared with itself at each of the limits
        chosen = [StrategyChoice(strategies[0], limit) for limit in common]
    if len(set(chosen)) < 2:
        raise SpecError("nothing to compare: name two strategies, or one strategy and two limits")
    limits = tuple(dict.fromkeys([*common, *own]))
    return ComparePlan(replace(spec, limits=limits), chosen, common)


def _plan_equal_tokens(spec: Spec, choices: list[StrategyChoice], has_limits: bool) -> ComparePlan:
    first, *others = choices
    if any(each.limit is not None for each in others):
        raise SpecError(
            "--equal-tokens finds the limits of the other strategies; remove their @ LIMIT"
        )
    if not others:
        raise SpecError("nothing to compare: --equal-tokens needs at least two strategies")
    if (len(spec.limits) > 1) if first.limit is None else has_limits:
        raise SpecError(
            "--equal-tokens: expected one limit, for the first strategy, such as -l 64k"
        )
    limit = parse_limit(spec.limits[0]) if first.limit is None else first.limit
    chosen = [StrategyChoice(first.strategy, limit), *others]
    return ComparePlan(replace(spec, limits=(limit,)), chosen)


def find_equal_token_limits(plan: ComparePlan, progress: bool | None) -> ComparePlan:
    """Find a limit for each strategy so that all of them send equally many tokens.

    Parameters
    ----------
    plan : ComparePlan
        A plan whose first choice has a limit.
    progress : bool, optional
        Show progress bars; None shows them on a terminal only.

    Returns
    -------
    ComparePlan
        The plan with a limit for each choice.
    """
    from ctxlab.evaluation.comparison.equal_tokens import find_equal_tokens_limit
    from ctxlab.evaluation.experiment import evaluate

    spec, (first, *others), _ = plan
    recordings = list(spec.recordings())
    limit = first.limit
    assert limit is not None
    alike: Any = {"reserve": spec.reserve, "profile": spec.profiles, "progress": progress}
    run = evaluate(recordings, first.strategy, limit, spec.model, metrics=["usage"], **alike)
    wanted = float(run.leaderboard()["tokens_mean"].iloc[0])
    alike["as_share"] = isinstance(limit, float)
    found = [first]
    for strategy, _ in others:
        equal = find_equal_tokens_limit(recordings, strategy, wanted, spec.model, **alike)
        found.append(StrategyChoice(strategy, equal.limit))
        print_note(
            f"{strategy} within {equal.limit:,.6g} sends {equal.tokens:,.0f} tokens per request; "
            f"{first.strategy} within {limit:,.6g} sends {wanted:,.0f}"
        )
    limits = tuple(dict.fromkeys(each.limit for each in found if each.limit is not None))
    return ComparePlan(replace(spec, limits=limits), found)


def select_choices(results: Results, plan: ComparePlan) -> Results:
    """Return results without the combinations of strategy and limit that are not compared.

    Parameters
    ----------
    results : Results
        Results of every strategy within every limit.
    plan : ComparePlan
        The plan.

    Returns
    -------
    Results
        The results of the plan's choices.
    """
    from ctxlab.evaluation.results import Results
    from ctxlab.strategies import parse_strategy

    if all(each.limit is None for each in plan.choices):
        return results
    wanted = {
        (repr(parse_strategy(strategy)), float(limit))
        for strategy, own in plan.choices
        for limit in (plan.common_limits if own is None else [own])
    }
    rows = results.requests
    pairs = zip(rows["strategy"].astype(str), rows["limit"], strict=True)
    return Results(rows[[pair in wanted for pair in pairs]], results.scores, results.manifest)
