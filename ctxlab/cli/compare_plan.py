"""What ``ctxlab compare`` replays of data: the very strategies and limits that were named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxlab._utils.humanize import (
    read_limit,
    split_limit,
)
from ctxlab.cli.options import experiment
from ctxlab.cli.output import note
from ctxlab.errors import SpecError

if TYPE_CHECKING:
    from ctxlab.evaluation.results import Results
    from ctxlab.evaluation.spec import Spec

__all__ = ["Asked", "Planned", "matched", "of_those", "planned", "written"]


class Asked(NamedTuple):
    """A strategy as text and the limit that it is replayed within."""

    strategy: str
    limit: int | float | None
    "None: each of the experiment's"


class Planned(NamedTuple):
    """What is replayed, and what of it is compared."""

    spec: Spec
    asked: list[Asked]
    common: tuple[int | float, ...] = ()
    "limits of those that name none"


def written(asked: Asked) -> str:
    """As it is typed: what ``split_limit`` reads."""
    return asked.strategy if asked.limit is None else f"{asked.strategy} @ {asked.limit}"


def planned(path: str, choices: Sequence[str], given: dict[str, Any], equal: bool) -> Planned:
    """The experiment that replays the choices; ``equal``: limits are to be found.

    Raises ``SpecError`` where there is nothing to compare.
    """
    from msgspec.structs import replace

    asked = [Asked(*split_limit(choice)) for choice in choices]
    spec, _ = experiment([path], {**given, "strategies": tuple(each.strategy for each in asked)})
    bare = [each for each in asked if each.limit is None]
    if equal:
        return _equal(spec, asked, "limits" in given)
    if not bare and "limits" in given:
        raise SpecError("-l is for strategies that name no limit, and each of these names its own")
    common = tuple(read_limit(limit) for limit in spec.limits) if bare else ()
    if len(asked) == 1 and bare:  # one strategy is compared with itself, limit with limit
        asked = [Asked(asked[0].strategy, limit) for limit in common]
    if len(dict.fromkeys(asked)) < 2:
        raise SpecError(
            "name the strategies to compare, at least two of them, or one at two limits"
        )
    own = [each.limit for each in asked if each.limit is not None]
    limits = tuple(dict.fromkeys([*common, *own]))
    return Planned(replace(spec, limits=limits), asked, common)


def _equal(spec: Spec, asked: list[Asked], limited: bool) -> Planned:
    from msgspec.structs import replace

    first, *others = asked
    if any(each.limit is not None for each in others):
        raise SpecError("--equal-tokens finds the limits of all but the first: leave out their @")
    if not others:
        raise SpecError("name the strategies to compare, at least two of them")
    if (first.limit is not None and limited) or (first.limit is None and len(spec.limits) > 1):
        raise SpecError(
            "--equal-tokens: name one limit, which is that of the first strategy: -l 64k"
        )
    limit = read_limit(spec.limits[0]) if first.limit is None else first.limit
    return Planned(replace(spec, limits=(limit,)), [Asked(first.strategy, limit), *others])


def matched(plan: Planned, progress: bool | None) -> Planned:
    """The plan with a limit for each strategy under which all send as many tokens."""
    from msgspec.structs import replace

    from ctxlab.evaluation.comparison.equal_tokens import equal_tokens
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
        equal = equal_tokens(
            recordings, other.strategy, wanted, spec.model, share=isinstance(limit, float), **common
        )
        found.append(Asked(other.strategy, equal.limit))
        note(
            f"{other.strategy} within {equal.limit:,.6g} sends {equal.tokens:,.0f} tokens a request, "
            f"{first.strategy} within {limit:,.6g} {wanted:,.0f}"
        )
    limits = tuple(dict.fromkeys(each.limit for each in found if each.limit is not None))
    return Planned(replace(spec, limits=limits), found)


def of_those(results: Results, plan: Planned) -> Results:
    """A run of every strategy within every limit, less what was not asked for."""
    from ctxlab.evaluation.results import Results
    from ctxlab.strategies import parse

    if all(each.limit is None for each in plan.asked):
        return results
    wanted = {
        (repr(parse(strategy)), float(limit))
        for strategy, own in plan.asked
        for limit in (plan.common if own is None else [own])
    }
    rows = results.requests
    pairs = zip(rows["strategy"].astype(str), rows["limit"], strict=True)
    return Results(rows[[pair in wanted for pair in pairs]], results.scores, results.manifest)
