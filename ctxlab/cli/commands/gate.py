"""``ctxlab gate``: check strategies against budgets and a baseline, for CI."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from ctxlab.cli.notices import note_strategy_models
from ctxlab.cli.options import NoProgress
from ctxlab.cli.output import note_skipped, print_note, print_result
from ctxlab.errors import SpecError

_SUMMARY_ENV_VAR = "GITHUB_STEP_SUMMARY"


def command(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="File of budgets. Experiment files and the baseline are in the same folder.",
        ),
    ] = Path("evals/budgets.toml"),
    update: Annotated[
        bool, typer.Option("--update", help="Rewrite the baseline and print what changed.")
    ] = False,
    experiment: Annotated[
        list[str] | None,
        typer.Option(
            "--experiment",
            "-e",
            metavar="NAME",
            help="Check only this experiment. May be repeated.",
        ),
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write the table as Markdown. In GitHub Actions, without this option, the table "
            "is added to the step summary.",
        ),
    ] = None,
    junit: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write JUnit XML, for test reports of CI systems."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    no_progress: NoProgress = False,
) -> None:
    """Check that strategies meet their budgets and are no worse than the baseline.

    \b
    Examples:
      ctxlab gate                          check evals/budgets.toml
      ctxlab gate --update                 store the current results as the baseline; commit it
      ctxlab gate budgets.toml -e logs --junit gate.xml

    \b
    A file of budgets:
      [logs]                               # the experiment logs.toml in the same folder
      max = { overflow_rate = 0 }          # applies to all budgets of the experiment
      [logs.masking]
      strategy = "observation_mask(keep=10) | sliding_window | panic"
      min = { recall_far = 0.6 }
      margin = { tokens_mean = "2 %" }     # how much worse than the baseline it may become

    Exit code: 0 if all bounds hold, 1 if one is broken, 2 if the check could not be made.
    """
    from ctxlab.cli.render.gate import findings_json, findings_text, update_text
    from ctxlab.cli.render.gate import findings_junit_xml as as_junit
    from ctxlab.cli.render.gate import findings_markdown as as_markdown
    from ctxlab.evaluation.gate.check import run_gate, update_baseline
    from ctxlab.evaluation.gate.config import read_gate_config

    if update and (markdown or junit or json):
        raise SpecError("--update cannot be combined with --markdown, --junit or --json")
    budgets = read_gate_config(file)
    chosen = budgets.select(experiment or ())
    for each in chosen:
        if each.spec.strategy_models:
            note_strategy_models(each.spec)
    names = [each.name for each in chosen]
    progress = False if no_progress else None
    left_out: Counter[str] = Counter()

    def skipped(path: Path | str, reason: str) -> None:
        left_out.update([reason])

    if update:
        written = update_baseline(budgets, names, progress=progress, on_skip=skipped)
        note_skipped(left_out, Counter())
        print_result(update_text(written))
        return
    gate = run_gate(budgets, names, progress=progress, on_skip=skipped)
    note_skipped(left_out, Counter())
    if markdown is not None:
        _write_text(markdown, as_markdown(gate))
    elif summary := os.environ.get(_SUMMARY_ENV_VAR):
        with open(summary, "a", encoding="utf-8") as added:
            added.write(as_markdown(gate))
        print_note("the table was added to the step summary")
    if junit is not None:
        _write_text(junit, as_junit(gate))
    print_result(findings_json(gate) if json else findings_text(gate))
    if not gate.passed:
        raise typer.Exit(1)


def _write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
