"""``ctxlab eval``: replay recordings through strategies and recommend one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ctxlab.cli.notices import (
    note_changed_recordings,
    note_counting_model,
    note_missing_metrics,
    note_strategy_calls,
    note_strategy_models,
    note_suspect_recordings,
    note_unlogged_tokens,
)
from ctxlab.cli.options import (
    AsJson,
    CacheModeOption,
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
    load_experiment,
    parse_reserve,
    suggest_on_error_skip,
)
from ctxlab.cli.output import print_result, report_skipped
from ctxlab.cli.saving import check_output_folder, parse_out_folder, save_then_print


def command(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SPEC.toml|RUN|PATH",
            help="An experiment file or a saved run; or recordings: files, folders, globs, URLs "
            "(s3://…, zip://*::logs.zip), bundled:NAME, dataset:NAME. Recordings given together with "
            "an experiment replace its own. Without any argument, the bundled experiment runs.",
            show_default=False,
        ),
    ] = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            "--strategy",
            "-s",
            metavar="STRATEGY",
            help="Strategy to evaluate, such as 'tool_stubs(keep=3) | panic'. lineup means the default "
            "strategies, baselines the defaults of products. May be repeated. ctxlab strategies lists "
            "all of them.",
        ),
    ] = None,
    limit: Limits = None,
    model: ModelName = None,
    reserve: Reserve = None,
    min_recall: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Far recall that a recommended strategy must keep, as a share of full history's "
            "[0.95].",
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Metric to measure, as listed by ctxlab metrics [all]. May be repeated.",
        ),
    ] = None,
    cache_mode: CacheModeOption = None,
    where: Where = None,
    sample: Sample = None,
    seed: Seed = None,
    format: FormatName = None,
    on_error: OnErrorPolicy = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=parse_out_folder,
            help="Save the run to this folder as parquet files and a manifest. An existing run is "
            "replaced only if it has the same recordings and model.",
        ),
    ] = None,
    json: AsJson = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print Markdown, with one table per limit.")
    ] = False,
    no_progress: NoProgress = False,
) -> None:
    """Replay recordings through context strategies, measure every request and recommend a strategy.

    \b
    Examples:
      ctxlab eval                                      run the bundled experiment
      ctxlab eval ~/.claude/projects --limit 50%       your own logs, default strategies
      ctxlab eval logs/ -s full -s 'tool_stubs | panic' -l 16k -l 32k --out runs/a
      ctxlab eval runs/a                               repeat a saved run

    Options replace the settings of an experiment file or saved run.
    """
    from ctxlab.cli.render.leaderboard import (
        leaderboard_json,
        leaderboard_markdown,
        leaderboard_text,
    )
    from ctxlab.evaluation.spec import run_experiment

    changes = drop_unset(
        strategies=strategy,
        limits=limit,
        model=model,
        reserve=parse_reserve(reserve),
        min_recall=min_recall,
        metrics=metric,
        calls=cache_mode,
        where=where,
        sample=sample,
        seed=seed,
        format=format,
        on_error=on_error,
    )
    spec, saved = load_experiment(paths or [], changes)
    with suggest_on_error_skip(spec.on_error):
        check_output_folder(out, spec.recordings, spec.model_choice)
    if spec.strategy_models:
        note_strategy_models(spec)
    with suggest_on_error_skip(spec.on_error), report_skipped() as (on_skip, rows):
        results = run_experiment(spec, progress=False if no_progress else None, on_skip=on_skip)
        for recording in results.manifest["recordings"]:
            rows.update(recording["skipped"])
    note_strategy_calls(results.manifest)
    note_missing_metrics(spec, results)
    note_counting_model(results.manifest["recordings"], spec.model)
    note_suspect_recordings(results.manifest["recordings"])
    note_unlogged_tokens(results.manifest["recordings"], spec.reserve)
    if saved is not None:
        note_changed_recordings(saved, results.manifest["recordings"])
    with save_then_print(out, results.save, f"saved to {out}; repeat it with: ctxlab eval {out}"):
        if json:
            print_result(leaderboard_json(results))
        else:
            print_result(
                leaderboard_markdown(results)
                if markdown
                else leaderboard_text(results, spec.min_recall)
            )
