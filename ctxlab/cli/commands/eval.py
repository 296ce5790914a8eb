"""``ctxlab eval``: replay recordings through strategies and recommend one."""

from __future__ import annotations

import re

import typer

from ctxlab.cli.experiment import load_experiment, replay_spec
from ctxlab.cli.notices import (
    note_changed_recordings,
    note_missing_metrics,
    note_strategy_models,
    note_unlogged_tokens,
)
from ctxlab.cli.options import READING, TABLE, Options, argument, flag, option, with_options
from ctxlab.cli.output import print_note, print_result
from ctxlab.cli.saving import check_output_folder, save_then_print
from ctxlab.errors import RunIncomplete, SpecError


@with_options(
    "strategies limits model reserve min_recall cache_ttl fixed fixed_in_limit reasoning metrics "
    "closed_loop max_refetches repeatable latency calls"
    + READING
    + " on_error out"
    + TABLE
    + " json no_cache no_progress",
    strategies="Strategy to evaluate, such as 'tool_stubs(keep=3) | panic'. lineup evaluates the "
    "default lineup, baselines the newest default strategies of products, and metric_controls the "
    "controls of the metric. May be repeated. ctxlab strategies lists all names. Default: lineup, "
    "unless an experiment file sets strategies.",
    out="Save the run to this folder, as Parquet files and a manifest. If the run stops, the same "
    "command goes on where it stopped. A run in the folder with the same recordings and model is "
    "continued: only what is missing or changed is computed. Recordings that fail are listed, and the "
    "exit code is 3.",
)
def command(
    options: Options,
    paths: list[str] | None = argument(
        "SPEC.toml|RUN|PATH",
        "PATH: recordings (files, folders, globs, URLs such as s3://… and zip://*::logs.zip, "
        "bundled:NAME, dataset:NAME). SPEC.toml: an experiment file. RUN: the folder of a saved "
        "run. Recordings that are named together with an experiment replace its recordings. "
        "Default: the built-in example experiment.",
        show_default=False,
    ),
    markdown: bool = flag("--markdown", "Print Markdown, with one table per limit."),
    retry_failed: bool = flag(
        "--retry-failed", "With --out: evaluate again the recordings that failed before."
    ),
    scheduler: str | None = option(
        "--scheduler ADDRESS",
        "With --out: compute on the Dask cluster of this scheduler, or on a cluster of this machine "
        "(local). All machines must see the folder. Needs ctxlab[dask].",
    ),
    part: str | None = option(
        "--part N/M",
        "With --out: compute only the Nth of M shares of the run, for the jobs of an array. The job "
        "that finishes last prints the results.",
    ),
) -> None:
    """Replay recordings through context strategies, measure every request and recommend a strategy.

    Examples
    --------
    ctxlab eval                                 run the built-in example
    ctxlab eval ~/.claude/projects -l 50%       your own logs
    ctxlab eval logs/ -s full -s 'tool_stubs | panic' -l 16k --out runs/a
    ctxlab eval logs/ -l 100k --closed-loop     add the cost of fetching again
    ctxlab eval logs/ --sort cost_usd --top 5   the five cheapest strategies
    ctxlab eval logs/ --csv --columns cost_usd,recall > costs.csv
    ctxlab eval logs/ -s codex --out runs/a     add to a run
    ctxlab eval logs/ --out runs/a --part 3/16  the third of sixteen jobs
    ctxlab eval runs/a                          repeat a saved run

    The result is a table with the tokens, cost and recall of each strategy under each limit. Recall is
    measured on the paths, ids and other values that the next tool call uses: it is the share of these
    values that the request still contains. Far recall counts only values that were last mentioned more
    than 4,000 tokens earlier.

    Options replace the settings of an experiment file or of a saved run.
    """
    from ctxlab.cli.render import leaderboard as render
    from ctxlab.evaluation.columns import leaderboard_names
    from ctxlab.evaluation.description_table import suspect_warnings

    view = options.view
    spec, saved = load_experiment(paths or [], options.changes)
    scores = [score for metric in spec.chosen_metrics for score in metric.scores]
    view.check(leaderboard_names(scores))
    check_output_folder(options.out, spec)
    note_strategy_models(spec)
    if options.out is None and (retry_failed or scheduler or part):
        raise SpecError(
            "--retry-failed, --scheduler and --part: expected --out DIR, got none; add it"
        )
    stored = {"retry_failed": retry_failed, "scheduler": scheduler, "share": _parse_share(part)}
    try:
        results = replay_spec(spec, options.progress, options.out, **stored)
    except RunIncomplete as incomplete:
        print_note(str(incomplete))
        return
    recordings = results.recordings
    note_missing_metrics(spec, results)
    for warning in suspect_warnings(recordings):
        print_note(warning)
    note_unlogged_tokens(recordings, spec.reserve)
    if saved is not None:
        note_changed_recordings(saved, recordings)
    out = options.out
    with save_then_print(out, results.save, f"saved to {out}; repeat it with: ctxlab eval {out}"):
        if options.json or options.csv:
            print_result(render.leaderboard_data(results, view, as_csv=options.csv))
        elif markdown:
            print_result(render.leaderboard_markdown(results, view))
        else:
            print_result(render.leaderboard_text(results, spec.min_recall, view))
    if results.manifest.get("failed"):
        raise typer.Exit(3)


def _parse_share(text: str | None) -> tuple[int, int]:
    """Convert the value of ``--part``, such as ``3/16``."""
    if text is None:
        return 1, 1
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise SpecError(f"--part: expected N/M with N from 1 to M, got {text!r}")
    return int(match[1]), int(match[2])
