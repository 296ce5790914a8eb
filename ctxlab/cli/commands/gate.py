"""``ctxlab gate``: check in CI that strategies meet their budgets, or compare new logs with old ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

from ctxlab.cli.notices import note_strategy_models
from ctxlab.cli.options import Options, argument, flag, option, with_options
from ctxlab.cli.output import print_note, print_result, report_skipped
from ctxlab.errors import SpecError

if TYPE_CHECKING:
    from ctxlab.evaluation.gate.check import GateResults

_Found = TypeVar("_Found")
_DEFAULT_FILE = Path("evals/budgets.toml")
_SUMMARY_ENV_VAR = "GITHUB_STEP_SUMMARY"


@with_options(
    "strategies limits model json no_cache no_progress",
    strategies="With --old and --new: strategy for tokens, input cost and recall. Default: recorded, "
    "which sends what the product sent.",
    limits="With --old and --new: limit of the strategy, in tokens (16000, 16k) or as a share of each "
    "recording's length (25%). Default: no limit.",
    model="With --old and --new: model used for token counts and prices. Default: the model that each "
    "recording names.",
    json="Print the result of each check as JSON.",
)
def command(
    options: Options,
    file: Path | None = argument(
        "FILE",
        "File with the budgets. Experiment files and the baseline must be in the same folder. Default: "
        "evals/budgets.toml.",
        show_default=False,
    ),
    update: bool = flag(
        "--update", "Store the current results as the baseline, and print the changes."
    ),
    experiment: list[str] | None = option(
        "--experiment -e NAME", "Check only this experiment. May be repeated."
    ),
    old: list[str] | None = option(
        "--old LOGS",
        "Logs of the agent before a change: files, folders or globs. May be repeated. Compares these "
        "logs with those of --new; no FILE is read.",
    ),
    new: list[str] | None = option(
        "--new LOGS", "Logs of the agent after the change. May be repeated."
    ),
    margin: list[str] | None = option(
        "--margin NAME=MARGIN",
        "With --old and --new: how much worse a score may be, such as tokens_mean=10% or recall=0.05. "
        "May be repeated. Default: 0.02 for shares, 5% of the old score for other scores.",
    ),
    strict: bool = flag(
        "--strict", "With --old and --new: exit with 1 also if a score is unclear."
    ),
    markdown: Path | None = option(
        "--markdown FILE",
        "Also write the table to this file as Markdown. Default in GitHub Actions: the table is "
        "added to the step summary.",
    ),
    junit: Path | None = option(
        "--junit FILE", "Also write JUnit XML to this file, for test reports of CI systems."
    ),
) -> None:
    """Check that strategies meet their budgets, or that new logs of an agent are no worse than old ones.

    A budget is a strategy with bounds for its scores. The baseline is a file with earlier scores. Both
    are replays of the same recordings, so every loss beyond a margin is a breach.

    With --old and --new, the recordings themselves differ: they show what the agent did before and
    after a change. Calls, tokens, cost and recall per recording are compared, with 95 % intervals over
    clusters of recordings. A score is a breach only if its whole interval is beyond the margin. It is
    unclear if the interval contains the margin, or if there are too few clusters for an interval.

    Examples
    --------
    ctxlab gate           check evals/budgets.toml
    ctxlab gate --update  store the results as the new baseline
    ctxlab gate budgets.toml -e logs --junit gate.xml
    ctxlab gate --old logs/may --new logs/june --margin tokens_mean=10%
    ctxlab gate --old logs/may --new logs/june -s panic -l 32k --json

    A file with budgets:
      [logs]                               # the experiment in logs.toml
      max = { overflow_rate = 0 }          # bound for all budgets
      [logs.masking]                       # a budget with the name masking
      strategy = "observation_mask(keep=10) | sliding_window | panic"
      min = { recall_far_held = 0.6 }
      margin = { tokens_mean = "2 %" }     # largest deterioration

    Exit code: 0 if no bound is violated, 1 if a bound is violated or, with --strict, unclear, 2 if an
    error occurred. Without --strict, 0 does not mean that the bounds are met: read how many are unclear.
    """
    from ctxlab.cli.render import gate as render
    from ctxlab.evaluation.gate.check import run_gate, update_baseline

    if old or new:
        if not (old and new):
            raise SpecError("expected both --old and --new, got only one of them")
        if file or update or experiment:
            raise SpecError("--old and --new take no FILE, --update or --experiment; remove them")
        gate = _compare_logs(old, new, margin or [], options)
    elif margin or strict or options.strategies or options.limits or options.model:
        raise SpecError("--margin, --strict, --strategy, --limit and --model need --old and --new")
    elif update:
        if markdown or junit or options.json:
            raise SpecError("--update writes no report; remove --markdown, --junit and --json")
        written = _run(update_baseline, file, experiment, options.progress)
        return print_result(render.update_text(written))
    else:
        gate = _run(run_gate, file, experiment, options.progress)
    if markdown is not None:
        _write_text(markdown, render.findings_markdown(gate))
    elif summary := os.environ.get(_SUMMARY_ENV_VAR):
        with open(summary, "a", encoding="utf-8") as added:
            added.write(render.findings_markdown(gate))
        print_note("the table was added to the step summary")
    if junit is not None:
        _write_text(junit, render.findings_junit_xml(gate))
    print_result(render.findings_json(gate) if options.json else render.findings_text(gate))
    if not gate.passed or (strict and gate.unclear):
        raise typer.Exit(1)
    return None


def _run(
    check: Callable[..., _Found],
    file: Path | None,
    experiments: list[str] | None,
    progress: bool | None,
) -> _Found:
    """Run or update the experiments of a gate file, and print notes about models and skipped files."""
    from ctxlab.evaluation.gate.config import read_gate_config

    budgets = read_gate_config(file or _DEFAULT_FILE)
    chosen = budgets.select(experiments or ())
    for each in chosen:
        note_strategy_models(each.spec)
    names = [each.name for each in chosen]
    with report_skipped() as skipped:
        return check(budgets, names, progress=progress, on_skip=skipped)


def _compare_logs(
    old: list[str], new: list[str], margins: list[str], options: Options
) -> GateResults:
    """Read old and new logs, and compare them."""
    from ctxlab.evaluation.gate.logs import compare_logs
    from ctxlab.evaluation.spec import Spec

    strategies, limits = options.strategies or ["recorded"], options.limits or []
    if len(strategies) > 1 or len(limits) > 1:
        raise SpecError("--old and --new: expected at most one --strategy and one --limit")
    allowed = dict(map(_parse_margin, margins))
    specs = [
        Spec(data=tuple(data), strategies=tuple(strategies), on_error="skip") for data in (old, new)
    ]
    note_strategy_models(specs[0])
    with report_skipped("skip") as skipped:
        before, after = (skipped.counting(spec.recordings(skipped)) for spec in specs)
        return compare_logs(
            before,
            after,
            strategies[0],
            limits[0] if limits else None,
            margins=allowed,
            model=options.model,
            progress=options.progress,
        )


def _parse_margin(text: str) -> tuple[str, str]:
    name, sign, amount = (part.strip() for part in text.partition("="))
    if not (name and sign and amount):
        raise SpecError(f"--margin: expected NAME=MARGIN, such as tokens_mean=10%, got {text!r}")
    return name, amount


def _write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
