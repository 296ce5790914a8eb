"""What ``ctxlab compare`` replays of data: the very strategies and limits that were named."""

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

__all__ = [
    "ComparePlan",
    "StrategyChoice",
    "find_equal_token_limits",
    "format_choice",
    "plan_comparison",
    "select_choices",
]


class StrategyChoice(NamedTuple):
    """A strategy as text and the limit that it is replayed within."""

    strategy: str
    limit: int | float | None
    "None: each of the experiment's"


class ComparePlan(NamedTuple):
    """What is replayed, and what of it is compared."""

    spec: Spec
    choices: list[StrategyChoice]
    common_limits: tuple[int | float, ...] = ()
    "limits of those that name none"


def format_choice(choice: StrategyChoice) -> str:
    """As it is typed: what ``split_limit`` reads."""
    return choice.strategy if choice.limit is None else f"{choice.strategy} @ {choice.limit}"


def plan_comparison(
    path: str, choices: Sequence[str], spec_changes: dict[str, Any], match_tokens: bool
) -> ComparePlan:
    """The experiment that replays the choices; ``match_tokens``: limits are to be found.

    Raises ``SpecError`` where there is nothing to compare.
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
        raise SpecError("-l is for strategies that name no limit, and each of these names its own")
    common = tuple(parse_limit(limit) for limit in spec.limits) if without_limit else ()
    if (
        len(choices_at_limits) == 1 and without_limit
    ):  # one strategy is compared with itself, limit with limit
        choices_at_limits = [
            StrategyChoice(choices_at_limits[0].strategy, limit) for limit in common
        ]
    if len(dict.fromkeys(choices_at_limits)) < 2:
        raise SpecError(
            "name the strategies to compare, at least two of them, or one at two limits"
        )
    own = [each.limit for each in choices_at_limits if each.limit is not None]
    limits = tuple(dict.fromkeys([*common, *own]))
    return ComparePlan(replace(spec, limits=limits), choices_at_limits, common)


def _plan_equal_tokens(spec: Spec, choices: list[StrategyChoice], has_limits: bool) -> ComparePlan:
    from msgspec.structs import replace

    first, *others = choices
    if any(each.limit is not None for each in others):
        raise SpecError("--equal-tokens finds the limits of all but the first: leave out their @")
    if not others:
        raise SpecError("name the strategies to compare, at least two of them")
    if (first.limit is not None and has_limits) or (first.limit is None and len(spec.limits) > 1):
        raise SpecError(
            "--equal-tokens: name one limit, which is that of the first strategy: -l 64k"
        )
    limit = parse_limit(spec.limits[0]) if first.limit is None else first.limit
    return ComparePlan(
        replace(spec, limits=(limit,)), [StrategyChoice(first.strategy, limit), *others]
    )


def find_equal_token_limits(plan: ComparePlan, progress: bool | None) -> ComparePlan:
    """The plan with a limit for each strategy under which all send as many tokens."""
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
            f"{other.strategy} within {equal.limit:,.6g} sends {equal.tokens:,.0f} tokens a request, "
            f"{first.strategy} within {limit:,.6g} {wanted:,.0f}"
        )
    limits = tuple(dict.fromkeys(each.limit for each in found if each.limit is not None))
    return ComparePlan(replace(spec, limits=limits), found)


def select_choices(results: Results, plan: ComparePlan) -> Results:
    """A run of every strategy within every limit, less what was not asked for."""
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
