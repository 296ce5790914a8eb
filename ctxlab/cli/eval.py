"""``ctxlab eval`` replays recordings through strategies and says which one to take."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ctxlab.cli.options import (
    FormatName,
    NoProgress,
    OnErrorPolicy,
    Sample,
    Seed,
    Where,
    a_folder,
    hint_at_skipping,
)
from ctxlab.cli.remarks import (
    say_of_which_model,
    say_what_is_unlogged,
    say_what_was_asked,
    say_whether_same,
    say_who_is_asked,
)
from ctxlab.cli.speak import note, say, say_left_out
from ctxlab.errors import CtxlabError, SpecError
from ctxlab.quantity import quantity

if TYPE_CHECKING:
    from ctxlab.spec import Spec

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
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            "-l",
            metavar="N",
            help="Context window: tokens (16000, 16k) or a share of "
            "each recording's own length (0.25, 25%). May be repeated.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="M", help="Whose tokenizer, prices and cache apply."),
    ] = None,
    reserve: Annotated[
        str | None,
        typer.Option(
            metavar="N", help="Tokens of the limit kept free, for the reply say (8000, 8k)."
        ),
    ] = None,
    floor: Annotated[
        float | None,
        typer.Option(metavar="X", help="Far recall to keep, as a share of full history's [0.95]."),
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="What to measure. May be repeated.")
    ] = None,
    calls: Annotated[
        str | None,
        typer.Option(
            metavar="auto|replay|record",
            help="Where answers come from that strategies ask of a model: auto takes those kept in "
            ".ctxlab/calls and asks for the rest, replay asks nothing, record asks anew [auto].",
        ),
    ] = None,
    where: Where = None,
    sample: Sample = None,
    seed: Seed = None,
    format: FormatName = None,
    on_error: OnErrorPolicy = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", parser=a_folder, help="Save the run: parquet and a manifest."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the leaderboard as JSON.")] = False,
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
    from ctxlab.cli.board import board_json, board_text
    from ctxlab.spec import run

    changes = {
        "strategies": strategy,
        "limits": limit,
        "model": model,
        "reserve": None if reserve is None else _tokens(reserve),
        "floor": floor,
        "metrics": metric,
        "calls": calls,
        "where": where,
        "sample": sample,
        "seed": seed,
        "format": format,
        "on_error": on_error,
    }
    spec, saved = _spec(
        paths or [],
        {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in changes.items()
            if value not in (None, [])
        },
    )
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)  # a place that cannot be had fails now, not later
    if spec.asked:
        say_who_is_asked(spec)
    left_out: Counter[str] = Counter()
    try:
        with hint_at_skipping(spec.on_error):
            results = run(
                spec,
                progress=False if no_progress else None,
                on_skip=lambda path, reason: left_out.update([reason]),
            )
    except CtxlabError:
        say_left_out(left_out, Counter())
        raise
    rows: Counter[str] = Counter()
    for recording in results.manifest["recordings"]:
        rows.update(recording["skipped"])
    say_left_out(left_out, rows)
    say_what_was_asked(results.manifest)
    if model is None:
        say_of_which_model(results.manifest["recordings"], spec.model)
    say_what_is_unlogged(results.manifest["recordings"], spec.reserve)
    if saved is not None:
        say_whether_same(saved, results.manifest["recordings"])
    if out is not None:
        results.save(out)
        note(f"saved to {out}; ctxlab eval {out} repeats it")
    say(board_json(results) if json else board_text(results, spec.floor))


def _spec(paths: list[str], changes: dict[str, Any]) -> tuple[Spec, Path | None]:
    """The experiment that was asked for, and the saved run whose data it reads once more."""
    from msgspec.structs import replace

    from ctxlab.catalog import bundled
    from ctxlab.spec import Spec, is_spec, read_spec

    experiments = [path for path in paths if is_spec(path)]
    data = tuple(path for path in paths if path not in experiments)
    if len(experiments) > 1:
        raise SpecError(f"one experiment at a time, not {' and '.join(experiments)}")
    if data:
        changes |= {"data": data, "folder": ""}
    if data and not experiments:
        return Spec(**changes), None
    path = Path(experiments[0]) if experiments else bundled("evals/quickstart.toml")
    spec = replace(read_spec(path), **changes)
    return spec, None if data or path.suffix == ".toml" else path


def _tokens(text: str) -> int:
    """A number of tokens as people write it."""
    found = quantity(text)
    if found is None or found[1] or found[0] != int(found[0]):
        raise SpecError(f"reserve: {text!r} is not 0 or more tokens; write 8000 or 8k")
    return int(found[0])
