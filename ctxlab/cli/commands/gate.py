"""``ctxlab gate`` says whether budgets hold, and leaves with 1 where one does not."""

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

__all__ = ["command"]

_SUMMARY_ENV_VAR = "GITHUB_STEP_SUMMARY"


def command(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="The budgets; experiments and baseline are found beside it."
        ),
    ] = Path("evals/budgets.toml"),
    update: Annotated[
        bool, typer.Option("--update", help="Write the baseline anew and say what changed.")
    ] = False,
    experiment: Annotated[
        list[str] | None,
        typer.Option(
            "--experiment", "-e", metavar="NAME", help="Only this experiment. May be repeated."
        ),
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the table as Markdown too. Without it, in GitHub Actions, it is added to the "
            "summary of the step.",
        ),
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write JUnit XML too, for CI's reports.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    no_progress: NoProgress = False,
) -> None:
    """Check that strategies keep within their budgets and have become no worse.

    \b
    Examples:
      ctxlab gate                          evals/budgets.toml
      ctxlab gate --update                 what is found becomes the baseline: commit it
      ctxlab gate budgets.toml -e logs --junit gate.xml

    \b
    A file of budgets:
      [logs]                               # the experiment logs.toml beside it
      max = { overflow_rate = 0 }          # for each of its budgets
      [logs.masking]
      strategy = "observation_mask(keep=10) | sliding_window | panic"
      min = { recall_far = 0.6 }
      margin = { tokens_mean = "2 %" }     # how much worse than the baseline it may become

    Exit code: 0 where all hold, 1 where one is broken, 2 where that cannot be said.
    """
    from ctxlab.cli.render.gate import findings_json, findings_text, update_text
    from ctxlab.cli.render.gate import findings_junit_xml as as_junit
    from ctxlab.cli.render.gate import findings_markdown as as_markdown
    from ctxlab.evaluation.gate.check import run_gate, update_baseline
    from ctxlab.evaluation.gate.config import read_gate_config

    if update and (markdown or junit or json):
        raise SpecError("--update writes the baseline, and no --markdown, --junit or --json")
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
        print_note("the table is added to the summary of this step")
    if junit is not None:
        _write_text(junit, as_junit(gate))
    print_result(findings_json(gate) if json else findings_text(gate))
    if not gate.passed:
        raise typer.Exit(1)


def _write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
