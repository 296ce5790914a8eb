"""``ctxlab gate``: check in CI that strategies meet their budgets and are no worse than a baseline."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from ctxlab.cli.notices import note_strategy_models
from ctxlab.cli.options import Options, argument, flag, option, with_options
from ctxlab.cli.output import print_note, print_result, report_skipped
from ctxlab.errors import SpecError

_SUMMARY_ENV_VAR = "GITHUB_STEP_SUMMARY"


@with_options("json no_progress", json="Print the result of each check as JSON.")
def command(
    options: Options,
    file: Path = argument(
        "FILE",
        "File with the budgets. Experiment files and the baseline must be in the same folder.",
        default=Path("evals/budgets.toml"),
    ),
    update: bool = flag(
        "--update", "Store the current results as the baseline, and print the changes."
    ),
    experiment: list[str] | None = option(
        "--experiment -e NAME", "Check only this experiment. May be repeated."
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
    """Check that strategies meet their budgets and are no worse than the baseline.

    A budget is a strategy with bounds for its scores. The baseline is a file with earlier scores.

    Examples
    --------
    ctxlab gate                          check evals/budgets.toml
    ctxlab gate --update                 store the current results as the baseline, to be committed
    ctxlab gate budgets.toml -e logs --junit gate.xml

    A file with budgets:
      [logs]                               # the experiment logs.toml in the same folder
      max = { overflow_rate = 0 }          # bound for all budgets of the experiment
      [logs.masking]                       # a budget with the name masking
      strategy = "observation_mask(keep=10) | sliding_window | panic"
      min = { recall_far = 0.6 }
      margin = { tokens_mean = "2 %" }     # maximum deterioration from the baseline

    Exit code: 0 if all bounds are met, 1 if a bound is not met, 2 if an error occurred.
    """
    from ctxlab.cli.render import gate as render
    from ctxlab.evaluation.gate.check import run_gate, update_baseline
    from ctxlab.evaluation.gate.config import read_gate_config

    if update and (markdown or junit or options.json):
        raise SpecError("--update writes no report; remove --markdown, --junit and --json")
    budgets = read_gate_config(file)
    chosen = budgets.select(experiment or ())
    for each in chosen:
        note_strategy_models(each.spec)
    names = [each.name for each in chosen]
    with report_skipped() as skipped:
        if update:
            written = update_baseline(budgets, names, progress=options.progress, on_skip=skipped)
        else:
            gate = run_gate(budgets, names, progress=options.progress, on_skip=skipped)
    if update:
        return print_result(render.update_text(written))
    if markdown is not None:
        _write_text(markdown, render.findings_markdown(gate))
    elif summary := os.environ.get(_SUMMARY_ENV_VAR):
        with open(summary, "a", encoding="utf-8") as added:
            added.write(render.findings_markdown(gate))
        print_note("the table was added to the step summary")
    if junit is not None:
        _write_text(junit, render.findings_junit_xml(gate))
    print_result(render.findings_json(gate) if options.json else render.findings_text(gate))
    if not gate.passed:
        raise typer.Exit(1)
    return None


def _write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
