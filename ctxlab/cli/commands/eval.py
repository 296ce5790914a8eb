"""``ctxlab eval`` replays recordings through strategies and says which one to take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ctxlab.cli.notices import (
    say_of_which_model,
    say_what_is_doubtful,
    say_what_is_missing,
    say_what_is_unlogged,
    say_what_was_asked,
    say_whether_same,
    say_who_is_asked,
)
from ctxlab.cli.options import (
    AsJson,
    Calls,
    FormatName,
    Limits,
    ModelName,
    NoProgress,
    OnErrorPolicy,
    Reserve,
    Sample,
    Seed,
    Where,
    experiment,
    given,
    hint_at_skipping,
    reserved,
)
from ctxlab.cli.output import (
    left_out,
    say,
)
from ctxlab.cli.saving import (
    a_folder,
    check_out,
    saving,
)

__all__ = ["command"]


def command(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SPEC.toml|RUN|PATH",
            help="An experiment file or a saved run, or recordings: files, folders, globs, addresses "
            "(s3://…, zip://*::logs.zip), bundled:NAME, dataset:NAME. Recordings beside an "
            "experiment take the place of its own. "
            "Nothing: the bundled experiment.",
            show_default=False,
        ),
    ] = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            "--strategy",
            "-s",
            metavar="S",
            help="Such as 'tool_stubs(keep=3) | panic'; lineup "
            "stands for the default ones, baselines for what products do by default. May be repeated, "
            "as all that follow with one value each. ctxlab strategies lists them.",
        ),
    ] = None,
    limit: Limits = None,
    model: ModelName = None,
    reserve: Reserve = None,
    floor: Annotated[
        float | None,
        typer.Option(metavar="X", help="Far recall to keep, as a share of full history's [0.95]."),
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="What to measure. May be repeated.")
    ] = None,
    calls: Calls = None,
    where: Where = None,
    sample: Sample = None,
    seed: Seed = None,
    format: FormatName = None,
    on_error: OnErrorPolicy = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=a_folder,
            help="Save the run: parquet and a manifest. Replaces only a run over the same recordings "
            "and model.",
        ),
    ] = None,
    json: AsJson = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print it as Markdown, a table for each limit.")
    ] = False,
    no_progress: NoProgress = False,
) -> None:
    """Replay recordings through context strategies and measure every request.

    \b
    Examples:
      ctxlab eval                                      the bundled experiment
      ctxlab eval ~/.claude/projects --limit 50%       your own logs, every strategy
      ctxlab eval logs/ -s full -s 'tool_stubs | panic' -l 16k -l 32k --out runs/a
      ctxlab eval runs/a                               a saved run once more

    Options take the place of what the experiment says.
    """
    from ctxlab.cli.render.leaderboard import (
        board_json,
        board_markdown,
        board_text,
    )
    from ctxlab.evaluation.spec import run

    changes = given(
        strategies=strategy,
        limits=limit,
        model=model,
        reserve=reserved(reserve),
        floor=floor,
        metrics=metric,
        calls=calls,
        where=where,
        sample=sample,
        seed=seed,
        format=format,
        on_error=on_error,
    )
    spec, saved = experiment(paths or [], changes)
    with hint_at_skipping(spec.on_error):
        check_out(out, spec.recordings, spec.models)
    if spec.asked:
        say_who_is_asked(spec)
    with hint_at_skipping(spec.on_error), left_out() as (on_skip, rows):
        results = run(spec, progress=False if no_progress else None, on_skip=on_skip)
        for recording in results.manifest["recordings"]:
            rows.update(recording["skipped"])
    say_what_was_asked(results.manifest)
    say_what_is_missing(spec, results)
    say_of_which_model(results.manifest["recordings"], spec.model)
    say_what_is_doubtful(results.manifest["recordings"])
    say_what_is_unlogged(results.manifest["recordings"], spec.reserve)
    if saved is not None:
        say_whether_same(saved, results.manifest["recordings"])
    with saving(out, results.save, f"saved to {out}; ctxlab eval {out} repeats it"):
        if json:
            say(board_json(results))
        else:
            say(board_markdown(results) if markdown else board_text(results, spec.floor))
