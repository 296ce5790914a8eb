"""``ctxlab describe``: summarize recordings before replaying them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ctxlab._utils.humanize import pluralize
from ctxlab.cli.options import FormatName, NoProgress, Paths, Sample, Seed, Where, make_spec
from ctxlab.cli.output import print_note, print_result
from ctxlab.errors import CtxlabError

_MAX_NAMED_FILES = 3


def command(
    paths: Paths,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            help="Model whose tokenizer counts all recordings [each recording's own].",
        ),
    ] = None,
    where: Where = None,
    sample: Sample = None,
    seed: Seed = None,
    format: FormatName = None,
    all: Annotated[
        bool, typer.Option("--all", help="Show one line per recording and per skipped file.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False,
    no_progress: NoProgress = False,
) -> None:
    """Summarize recordings: lengths, tool results, bills, and problems that affect an evaluation.

    \b
    Examples:
      ctxlab describe ~/.claude/projects
      ctxlab describe logs/*.jsonl --all --model claude-sonnet-4-5
      ctxlab describe s3://bucket/runs --where 'messages>=50' --sample 100
    """
    from ctxlab.cli.render import format as show
    from ctxlab.cli.render.describe import description_text
    from ctxlab.evaluation.describe import iter_descriptions

    spec = make_spec(paths, where=where, sample=sample, seed=seed, format=format, on_error="skip")
    left_out: list[tuple[Path | str, str]] = []
    recordings = spec.recordings(lambda path, reason: left_out.append((path, reason)))
    show_bar = False if no_progress else None
    try:
        found = list(iter_descriptions(recordings, model, project=Path(), progress=show_bar))
    except CtxlabError:
        _note_skipped_files(left_out, all)
        raise
    _note_skipped_files(left_out, all)
    print_result(show.to_json_array(found) if json else description_text(found, all))


def _note_skipped_files(skipped: Sequence[tuple[Path | str, str]], show_all: bool) -> None:
    """Note skipped files, one line per reason or, with ``show_all``, one line per file."""
    if show_all:
        for path, reason in skipped:
            print_note(f"skipped {path}: {reason}")
        return
    files: dict[str, list[str]] = {}
    for path, reason in skipped:
        files.setdefault(reason, []).append(os.path.basename(str(path)))
    for reason, names in files.items():
        more = (
            f" and {len(names) - _MAX_NAMED_FILES:,} more (--all)"
            if len(names) > _MAX_NAMED_FILES
            else ""
        )
        named = ", ".join(names[:_MAX_NAMED_FILES])
        print_note(f"skipped {pluralize(len(names), 'file')}: {reason}: {named}{more}")
