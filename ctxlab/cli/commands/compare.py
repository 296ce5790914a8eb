"""``ctxlab compare``: compare strategies on the same requests, with confidence intervals and tests.

A ``ComparePlan`` lists the strategies to replay and their limits.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from ctxlab._utils.humanize import parse_limit, parse_quantity, split_limit
from ctxlab.cli.experiment import load_experiment, replay_spec
from ctxlab.cli.notices import note_strategy_models
from ctxlab.cli.options import (
    READING,
    TABLE,
    Options,
    argument,
    complete_strategy,
    flag,
    option,
    with_options,
)
from ctxlab.cli.output import print_note, print_result, report_skipped
from ctxlab.cli.saving import check_output_folder, save_then_print
from ctxlab.errors import SpecError

if TYPE_CHECKING:
    from ctxlab.evaluation.results import Results
    from ctxlab.evaluation.spec import Spec

_MIN_RESAMPLES = 1000
"minimum number of bootstrap resamples; with fewer, the bounds of intervals are too noisy"


@with_options(
    "limits model reserve cache_ttl fixed fixed_in_limit reasoning closed_loop max_refetches "
    "repeatable latency" + READING + " on_error out" + TABLE + " json no_cache no_progress",
    out="Save the replay as a run in this folder.",
    sort="Sort the pairs of each score by this column, in ascending order. -COLUMN reverses the order. "
    "--csv prints the names of the columns.",
    top="Print only the first N pairs of each score.",
    shown="Print these columns, and the strategies, their limits and the score.",
)
def command(
    options: Options,
    path: str = argument(
        "RUN|PATH",
        "RUN: the folder of a saved run, which is compared without a new replay. PATH: an "
        "experiment file or recordings (a file, a folder, a glob in quotes, bundled:NAME, "
        "dataset:NAME), which are replayed through the strategies.",
        default=...,
    ),
    strategies: list[str] | None = argument(
        "STRATEGY…",
        "Strategies to compare; every two of them form a pair. A pipeline such as 'tool_stubs | "
        "panic' is one strategy. 'panic @ 16k' gives a strategy its own limit. Default for a saved "
        "run: all strategies of the run.",
        show_default=False,
        autocompletion=complete_strategy,
    ),
    equal_tokens: bool = flag(
        "--equal-tokens",
        "Choose the limit of every other strategy so that it sends as many tokens per request as the "
        "first strategy.",
    ),
    score: list[str] | None = option(
        "--score NAME",
        "Score to compare; ctxlab metrics lists the names. May be repeated. Default: the main scores.",
    ),
    margin: list[str] | None = option(
        "--margin NAME=MARGIN",
        "Non-inferiority margin of a score: how much worse the first strategy of a pair may be "
        "without counting as worse, such as recall_far_held=0.02 or cost_usd=5%. May be repeated.",
    ),
    by: str | None = option(
        "--by FIELD", "Compare recordings separately for each format, model or source."
    ),
    resamples: int = option(
        "--resamples N", "Number of bootstrap resamples; 1000 is the minimum.", default=10_000
    ),
    all: bool = flag("--all", "Show all pairs. By default, more than six pairs are summarized."),
    markdown: bool = flag("--markdown", "Print the table as Markdown."),
    latex: bool = flag("--latex", "Print the table as a LaTeX tabular."),
) -> None:
    """Compare strategies on the same requests, with confidence intervals and tests.

    Examples
    --------
    ctxlab compare runs/a rolling_summary 'tool_stubs | panic'
    ctxlab compare runs/a 'panic @ 16k' 'panic @ 32k' --margin cost_usd=5%
    ctxlab compare logs/ observation_mask sliding_window -l 200k --equal-tokens
    ctxlab compare logs/ 'rolling_summary @ 16k' 'panic @ 32k' --out runs/b
    ctxlab compare runs/a full 'tool_stubs | panic' --by format --latex

    Differences are paired: both strategies are measured at the same requests. The confidence intervals
    come from a bootstrap that resamples whole clusters of recordings. Repeated trials of one task are
    one cluster.
    """
    from ctxlab.cli.render.comparison import arrange_comparison, comparison_text
    from ctxlab.cli.render.leaderboard import describe_counting
    from ctxlab.cli.render.table import TableView
    from ctxlab.evaluation.comparison.paired import compare_strategies
    from ctxlab.evaluation.comparison.report import COMPARISON_COLUMNS

    view = options.view
    view.check(COMPARISON_COLUMNS)
    if resamples < _MIN_RESAMPLES:
        raise SpecError(f"--resamples: expected {_MIN_RESAMPLES:,} or more, got {resamples:,}")
    margins = dict(map(_parse_margin, margin or ()))
    if sum([markdown, latex, options.json, options.csv]) > 1:
        several = "expected --markdown, --latex, --json or --csv, got several"
        raise SpecError(f"{several}; use only one of them")
    ran, results, choices = _load_or_replay(path, strategies or [], options, equal_tokens)
    out = options.out
    again = " ".join(shlex.quote(each) for each in (str(out), *choices))
    said = f"saved to {out}; compare it again with: ctxlab compare {again}"
    with save_then_print(out, ran.save, said):
        found = compare_strategies(
            results, *choices, scores=score, margins=margins, by=by, resamples=resamples
        )
        chosen = arrange_comparison(found, view)
        if options.json or options.csv:
            rows = TableView(columns=view.columns)
            print_result(rows.to_data(chosen.table, {}, within=(), as_csv=options.csv))
        elif markdown or latex:
            print_result(chosen.to_markdown() if markdown else chosen.to_latex())
        else:
            counting = describe_counting(results.manifest, "cost_usd" in set(found.table["score"]))
            print_result(comparison_text(found, results.runs, counting, all, view))


def _load_or_replay(
    path: str, strategies: list[str], options: Options, equal_tokens: bool
) -> tuple[Results, Results, Sequence[str]]:
    """Load a saved run, or replay the experiment.

    Return the complete results, the results to compare, and the strategies to compare.
    """
    from ctxlab.evaluation.results import Results
    from ctxlab.evaluation.spec import is_spec

    changes = options.changes
    if is_spec(path) and Path(path).suffix != ".toml" and not equal_tokens:
        if others := [*changes, *(["out"] if options.out is not None else [])]:
            raise SpecError(
                f"{path} is a saved run and is not replayed, so {', '.join(sorted(others))} cannot be "
                "set; name the recordings instead of the run, or remove the options"
            )
        saved = Results.load(path if Path(path).is_dir() else Path(path).parent)
        return saved, saved, strategies
    if not strategies:
        raise SpecError("expected two or more strategies, got none; add them after the path")
    plan = plan_comparison(path, strategies, changes, equal_tokens)
    check_output_folder(options.out, plan.spec)
    note_strategy_models(plan.spec)
    if equal_tokens:
        with report_skipped(plan.spec.on_error):
            plan = find_equal_token_limits(plan, options.progress)
    results = replay_spec(plan.spec, options.progress)
    return results, select_choices(results, plan), list(map(str, plan.choices))


def _parse_margin(text: str) -> tuple[str, float]:
    name, _, amount = (part.strip() for part in text.partition("="))
    found = parse_quantity(amount)
    if found is None and amount[:1] in "-−" and parse_quantity(amount[1:]):
        raise SpecError(f"--margin: expected a margin of 0 or more for {name}, got {amount}")
    if found is None or not name:
        raise SpecError(f"--margin: expected NAME=MARGIN, such as cost_usd=5%, got {text!r}")
    return name, found[0] / 100 if found[1] else float(found[0])


class StrategyChoice(NamedTuple):
    """A strategy to compare, and its limit if the user gave one, as in ``contents @ 32k``."""

    strategy: str
    "strategy as a string"
    limit: int | float | None
    "limit of this strategy: tokens, or a share of each recording; None: all limits of the experiment"

    def __str__(self) -> str:
        """Return the strategy and its limit as users type them, such as ``full @ 16000``."""
        return self.strategy if self.limit is None else f"{self.strategy} @ {self.limit}"


class ComparePlan(NamedTuple):
    """An experiment to replay, and the strategies to compare."""

    spec: Spec
    """experiment to replay; every strategy is replayed under every limit, also in combinations that
    are not compared"""
    choices: list[StrategyChoice]
    "strategies to compare, with their limits"
    common_limits: tuple[int | float, ...] = ()
    "limits that apply to strategies without their own limit"


def plan_comparison(
    path: str, choices: Sequence[str], spec_changes: dict[str, Any], match_tokens: bool
) -> ComparePlan:
    """Plan the replay of the strategies to compare.

    Parameters
    ----------
    path : str
        Path of recordings, an experiment file or a saved run.
    choices : sequence of str
        Strategies as strings, each optionally followed by its limit: ``"panic @ 16k"``.
    spec_changes : dict
        Values of the options, which replace fields of the experiment.
    match_tokens : bool
        If True, only the first strategy of the plan has a limit. Use ``find_equal_token_limits`` to
        find the limits of the other strategies.

    Returns
    -------
    ComparePlan
        Experiment to replay and strategies to compare.

    Raises
    ------
    SpecError
        If there are fewer than two different pairs of strategy and limit, or if ``--limit`` or
        ``match_tokens`` contradicts the limits in ``choices``.
    """
    chosen = [StrategyChoice(*split_limit(choice)) for choice in choices]
    strategies = tuple(each.strategy for each in chosen)
    spec, _ = load_experiment([path], {**spec_changes, "strategies": strategies})
    if match_tokens:
        return _plan_equal_tokens(spec, chosen, "limits" in spec_changes)
    own = [each.limit for each in chosen if each.limit is not None]
    common = tuple(map(parse_limit, spec.limits)) if len(own) < len(chosen) else ()
    if not common and "limits" in spec_changes:
        raise SpecError("--limit has no effect if every strategy has an @ LIMIT; remove --limit")
    if len(chosen) == 1:  # compare a single strategy under each limit
        chosen = [StrategyChoice(strategies[0], limit) for limit in common]
    if len(set(chosen)) < 2:
        raise SpecError(
            f"expected two strategies, or one strategy and two limits, got {', '.join(choices)}"
        )
    limits = tuple(dict.fromkeys([*common, *own]))
    return ComparePlan(replace(spec, limits=limits), chosen, common)


def _plan_equal_tokens(spec: Spec, choices: list[StrategyChoice], has_limits: bool) -> ComparePlan:
    first, *others = choices
    if any(each.limit is not None for each in others):
        raise SpecError(
            "--equal-tokens: only the first strategy can have an @ LIMIT; remove the other limits"
        )
    if not others:
        raise SpecError("--equal-tokens: expected two or more strategies, got one")
    if (len(spec.limits) > 1) if first.limit is None else has_limits:
        raise SpecError(
            "--equal-tokens: expected one limit, got several; set a single -l or a single @ LIMIT"
        )
    limit = parse_limit(spec.limits[0]) if first.limit is None else first.limit
    chosen = [StrategyChoice(first.strategy, limit), *others]
    return ComparePlan(replace(spec, limits=(limit,)), chosen)


def find_equal_token_limits(plan: ComparePlan, progress: bool | None) -> ComparePlan:
    """Find limits at which the other strategies send as many tokens per request as the first one.

    Parameters
    ----------
    plan : ComparePlan
        Plan whose first strategy has a limit, which does not change.
    progress : bool, optional
        Show progress bars. None shows them only on a terminal.

    Returns
    -------
    ComparePlan
        Plan with a limit for each strategy.
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
            f"{strategy} under the limit {equal.limit:,.6g} sends {equal.tokens:,.0f} tokens per "
            f"request; {first.strategy} under the limit {limit:,.6g} sends {wanted:,.0f}"
        )
    limits = tuple(dict.fromkeys(each.limit for each in found if each.limit is not None))
    return ComparePlan(replace(spec, limits=limits), found)


def select_choices(results: Results, plan: ComparePlan) -> Results:
    """Select the results of the combinations of strategy and limit that are compared.

    Parameters
    ----------
    results : Results
        Results of every strategy under every limit.
    plan : ComparePlan
        Plan with the strategies to compare and their limits.

    Returns
    -------
    Results
        Results of the combinations in the plan.
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
    rows = rows[[pair in wanted for pair in pairs]]
    return Results(rows, results.scores, results.manifest, results.recordings)
