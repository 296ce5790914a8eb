"""``ctxlab describe`` says what recordings are like before anything is replayed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ctxlab._utils.humanize import many
from ctxlab.cli.options import (
    FormatName,
    NoProgress,
    Paths,
    Sample,
    Seed,
    Where,
    chosen,
)
from ctxlab.cli.output import (
    note,
    say,
)
from ctxlab.errors import CtxlabError

__all__ = ["command"]

_NAMED = 3


def command(
    paths: Paths,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", metavar="M", help="Whose tokenizer counts [that of each recording]."
        ),
    ] = None,
    where: Where = None,
    sample: Sample = None,
    seed: Seed = None,
    format: FormatName = None,
    all: Annotated[
        bool, typer.Option("--all", help="A line a recording and a file left out, however many.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False,
    no_progress: NoProgress = False,
) -> None:
    """Say what recordings hold: how long they are, what is in them, what was billed, what will bite.

    \b
    Examples:
      ctxlab describe ~/.claude/projects
      ctxlab describe logs/*.jsonl --all --model claude-sonnet-4-5
      ctxlab describe s3://bucket/runs --where 'messages>=50' --sample 100
    """
    from ctxlab.cli.render import format as show
    from ctxlab.cli.render.describe import report
    from ctxlab.evaluation.describe import survey

    spec = chosen(paths, where=where, sample=sample, seed=seed, format=format, on_error="skip")
    left_out: list[tuple[Path | str, str]] = []
    recordings = spec.recordings(lambda path, reason: left_out.append((path, reason)))
    show_bar = False if no_progress else None
    try:
        found = list(survey(recordings, model, project=Path(), progress=show_bar))
    except CtxlabError:
        _say_left_out(left_out, all)
        raise
    _say_left_out(left_out, all)
    say(show.as_json(found) if json else report(found, all))


def _say_left_out(left_out: Sequence[tuple[Path | str, str]], every: bool) -> None:
    """A note a reason, with some of its files; ``every``: a note a file."""
    if every:
        for path, reason in left_out:
            note(f"left out: {path}: {reason}")
        return
    files: dict[str, list[str]] = {}
    for path, reason in left_out:
        files.setdefault(reason, []).append(os.path.basename(str(path)))
    for reason, names in files.items():
        more = f" and {len(names) - _NAMED:,} more (--all)" if len(names) > _NAMED else ""
        note(f"left out: {many(len(names), 'file')}: {reason}: {', '.join(names[:_NAMED])}{more}")
