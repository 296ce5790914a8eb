"""The plan of ``ctxlab compare``: which strategies are replayed within which limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxlab._utils.humanize import parse_limit, split_limit
from ctxlab.cli.options import load_experiment
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


class ComparePlan(NamedTuple):
    """The experiment to replay and the choices to compare."""

    spec: Spec
    "the experiment, which may replay more combinations than are compared"
    choices: list[StrategyChoice]
    "the strategies to compare"
    common_limits: tuple[int | float, ...] = ()
    "limits of the choices that name none"


def format_choice(choice: StrategyChoice) -> str:
    """Return a choice as users type it, such as ``full @ 16000``; ``split_limit`` reads it back.

    Parameters
    ----------
    choice : StrategyChoice
        The choice.

    Returns
    -------
    str
        The strategy, followed by its limit if it has one.
    """
    return choice.strategy if choice.limit is None else f"{choice.strategy} @ {choice.limit}"


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
    from msgspec.structs import replace

    choices_at_limits = [StrategyChoice(*split_limit(choice)) for choice in choices]
    spec, _ = load_experiment(
        [path], {**spec_changes, "strategies": tuple(each.strategy for each in choices_at_limits)}
    )
    without_limit = [each for each in choices_at_limits if each.limit is None]
    if match_tokens:
        return _plan_equal_tokens(spec, choices_at_limits, "limits" in spec_changes)
    if not without_limit and "limits" in spec_changes:
        raise SpecError(
            "--limit has no effect: each strategy names its own limit; remove --limit or an @ LIMIT"
        )
    common = tuple(parse_limit(limit) for limit in spec.limits) if without_limit else ()
    # A single strategy is compared with itself at each of the limits.
    if len(choices_at_limits) == 1 and without_limit:
        choices_at_limits = [
            StrategyChoice(choices_at_limits[0].strategy, limit) for limit in common
        ]
    if len(dict.fromkeys(choices_at_limits)) < 2:
        raise SpecError(
            "nothing to compare: name at least two strategies, or one strategy and two limits"
        )
    own = [each.limit for each in choices_at_limits if each.limit is not None]
    limits = tuple(dict.fromkeys([*common, *own]))
    return ComparePlan(replace(spec, limits=limits), choices_at_limits, common)


def _plan_equal_tokens(spec: Spec, choices: list[StrategyChoice], has_limits: bool) -> ComparePlan:
    from msgspec.structs import replace

    first, *others = choices
    if any(each.limit is not None for each in others):
        raise SpecError(
            "--equal-tokens finds the limits of all strategies but the first; remove their @ LIMIT"
        )
    if not others:
        raise SpecError("nothing to compare: --equal-tokens needs at least two strategies")
    if (first.limit is not None and has_limits) or (first.limit is None and len(spec.limits) > 1):
        raise SpecError(
            "--equal-tokens: expected one limit, for the first strategy; write for example -l 64k"
        )
    limit = parse_limit(spec.limits[0]) if first.limit is None else first.limit
    return ComparePlan(
        replace(spec, limits=(limit,)), [StrategyChoice(first.strategy, limit), *others]
    )


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
    from msgspec.structs import replace

    from ctxlab.evaluation.comparison.equal_tokens import find_equal_tokens_limit
    from ctxlab.evaluation.experiment import evaluate

    spec, (first, *others), _ = plan
    recordings = list(spec.recordings())
    limit = first.limit
    assert limit is not None
    common: dict[str, Any] = {
        "reserve": spec.reserve,
        "profile": spec.profiles,
        "progress": progress,
    }
    board = evaluate(
        recordings, [first.strategy], [limit], spec.model, metrics=["usage"], **common
    ).leaderboard()
    wanted = float(board["tokens_mean"].iloc[0])
    found = [first]
    for other in others:
        equal = find_equal_tokens_limit(
            recordings,
            other.strategy,
            wanted,
            spec.model,
            as_share=isinstance(limit, float),
            **common,
        )
        found.append(StrategyChoice(other.strategy, equal.limit))
        print_note(
            f"{other.strategy} within {equal.limit:,.6g} sends {equal.tokens:,.0f} tokens per request; "
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
