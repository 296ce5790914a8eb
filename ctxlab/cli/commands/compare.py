"""``ctxlab compare``: compare strategies on the same requests, with intervals and tests."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ctxlab._utils.humanize import parse_quantity
from ctxlab.cli.compare_plan import (
    find_equal_token_limits,
    format_choice,
    plan_comparison,
    select_choices,
)
from ctxlab.cli.notices import note_counting_model, note_strategy_calls, note_strategy_models
from ctxlab.cli.options import (
    AsJson,
    FormatName,
    Limits,
    ModelName,
    NoProgress,
    OnErrorPolicy,
    Reserve,
    Sample,
    Seed,
    Where,
    drop_unset,
    parse_reserve,
    suggest_on_error_skip,
)
from ctxlab.cli.output import print_result, report_skipped
from ctxlab.cli.saving import check_output_folder, parse_out_folder, save_then_print
from ctxlab.errors import SpecError

if TYPE_CHECKING:
    from ctxlab.evaluation.results import Results
    from ctxlab.evaluation.spec import Spec

_MIN_RESAMPLES = 1000
"fewest resamples of the bootstrap; with fewer, the bounds of intervals are too noisy"


def command(
    path: Annotated[
        str,
        typer.Argument(
            metavar="RUN|PATH",
            help="A saved run, which is compared without a replay; or an experiment file or "
            "recordings (a file, a folder, a glob in quotes, bundled:NAME, dataset:NAME), which "
            "are replayed through the strategies.",
        ),
    ],
    strategies: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="STRATEGY…",
            help="Strategies, such as 'tool_stubs | panic', or 'panic @ 16k' to give one a limit of "
            "its own. Every pair is compared. Without any, all strategies of a saved run are compared.",
            show_default=False,
        ),
    ] = None,
    limit: Limits = None,
    model: ModelName = None,
    reserve: Reserve = None,
    equal_tokens: Annotated[
        bool,
        typer.Option(
            "--equal-tokens",
            help="Find a limit for each strategy after the first, so that it sends as many tokens per "
            "request as the first one does.",
        ),
    ] = False,
    score: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Score to compare, as listed by ctxlab metrics. May be repeated."
        ),
    ] = None,
    margin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=MARGIN",
            help="Non-inferiority margin: how much worse the first strategy may be and still count as "
            "no worse, such as recall_far=0.02 or cost_usd=5%. May be repeated.",
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help="Compare separately for each value of this field: format, model or source.",
        ),
    ] = None,
    resamples: Annotated[
        int, typer.Option(metavar="N", help="Number of bootstrap resamples, at least 1000.")
    ] = 10_000,
    where: Where = None,
    sample: Sample = None,
    seed: Seed = None,
    format: FormatName = None,
    on_error: OnErrorPolicy = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", parser=parse_out_folder, help="Save the replay as a run in this folder."
        ),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Print a LaTeX tabular.")] = False,
    json: AsJson = False,
    no_progress: NoProgress = False,
) -> None:
    """Compare strategies on the same requests, with confidence intervals and tests.

    \b
    Examples:
      ctxlab compare runs/a rolling_summary 'tool_stubs | panic'
      ctxlab compare runs/a 'panic @ 16k' 'panic @ 32k' --score recall_far --margin recall_far=0.02
      ctxlab compare logs/ observation_mask sliding_window -l 200k --equal-tokens
      ctxlab compare logs/ 'rolling_summary @ 16k' 'sliding_window @ 32k' --out runs/b
      ctxlab compare runs/a full 'tool_stubs | panic' --by format --latex

    Differences are paired by request. Intervals come from a bootstrap that resamples whole clusters of
    recordings; repeated trials of one task count as one cluster.
    """
    from ctxlab.cli.render.comparison import comparison_text
    from ctxlab.cli.render.format import to_json_array
    from ctxlab.cli.render.leaderboard import describe_counting
    from ctxlab.evaluation.comparison.paired import compare_strategies

    if resamples < _MIN_RESAMPLES:
        raise SpecError(
            f"--resamples: expected at least {_MIN_RESAMPLES:,}, got {resamples:,}; fewer give noisy "
            "bounds"
        )
    margins = dict(map(_parse_margin, margin or ()))
    changes = drop_unset(
        limits=limit,
        model=model,
        reserve=parse_reserve(reserve),
        where=where,
        sample=sample,
        seed=seed,
        format=format,
        on_error=on_error,
    )
    if sum([markdown, latex, json]) > 1:
        raise SpecError("--markdown, --latex and --json exclude each other; use only one of them")
    ran, results, choices = _load_or_replay(
        path, strategies or [], changes, equal_tokens, out, no_progress
    )
    again = " ".join(shlex.quote(each) for each in (str(out), *choices))
    said = f"saved to {out}; compare it again with: ctxlab compare {again}"
    with save_then_print(out, ran.save, said):
        found = compare_strategies(
            results, *choices, scores=score, margins=margins, by=by, resamples=resamples
        )
        if json:
            rows = zip(*(found.table[name] for name in found.table), strict=True)
            print_result(
                to_json_array(dict(zip(map(str, found.table), row, strict=True)) for row in rows)
            )
        elif markdown or latex:
            print_result(found.to_markdown() if markdown else found.to_latex())
        else:
            priced = "cost_usd" in set(found.table["score"])
            print_result(comparison_text(found, describe_counting(results.manifest, priced)))


def _load_or_replay(
    path: str,
    strategies: list[str],
    changes: dict[str, Any],
    equal_tokens: bool,
    out: Path | None,
    no_progress: bool,
) -> tuple[Results, Results, Sequence[str]]:
    """Return the run (saved or replayed now), the part to compare and the names of its strategies."""
    from ctxlab.evaluation.results import Results
    from ctxlab.evaluation.spec import is_spec

    if is_spec(path) and Path(path).suffix != ".toml" and not equal_tokens:
        others = [*changes, *(["out"] if out is not None else [])]
        if others:
            raise SpecError(
                f"{path} is a saved run, which is compared without a replay, so "
                f"{', '.join(sorted(others))} cannot be set; name the data instead"
            )
        folder = Path(path) if Path(path).is_dir() else Path(path).parent
        saved = Results.load(folder)
        return saved, saved, strategies
    if not strategies:
        raise SpecError("nothing to compare: name at least two strategies")
    plan = plan_comparison(path, strategies, changes, equal_tokens)
    with suggest_on_error_skip(plan.spec.on_error):
        check_output_folder(out, plan.spec.recordings, plan.spec.model_choice)
    if plan.spec.strategy_models:
        note_strategy_models(plan.spec)
    progress = False if no_progress else None
    with suggest_on_error_skip(plan.spec.on_error):
        if equal_tokens:
            plan = find_equal_token_limits(plan, progress)
        results = _replay(plan.spec, progress)
    note_strategy_calls(results.manifest)
    note_counting_model(results.manifest["recordings"], plan.spec.model)
    names = [format_choice(each) for each in plan.choices]
    return results, select_choices(results, plan), names


def _replay(spec: Spec, progress: bool | None) -> Results:
    """Run an experiment and note what was not read, even if it fails."""
    from ctxlab.evaluation.spec import run_experiment

    with report_skipped() as (on_skip, rows):
        results = run_experiment(spec, progress, on_skip)
        for recording in results.manifest["recordings"]:
            rows.update(recording["skipped"])
    return results


def _parse_margin(text: str) -> tuple[str, float]:
    name, _, amount = (part.strip() for part in text.partition("="))
    found = parse_quantity(amount)
    if found is None and amount[:1] in "-−" and parse_quantity(amount[1:]):
        raise SpecError(f"--margin: expected 0 or more for {name}, got {amount}")
    if found is None or not name:
        raise SpecError(
            f"--margin: expected NAME=MARGIN, such as recall_far=0.02 or cost_usd=5%, got {text!r}"
        )
    return name, found[0] / 100 if found[1] else float(found[0])
