"""``ctxlab convert``: write recordings in another format and report what it cannot represent."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from ctxlab._utils.humanize import pluralize
from ctxlab.cli.options import (
    FormatName,
    NoProgress,
    OnErrorPolicy,
    Paths,
    Sample,
    Seed,
    Where,
    make_spec,
    suggest_on_error_skip,
)
from ctxlab.cli.output import note_skipped, print_note
from ctxlab.errors import CtxlabError

if TYPE_CHECKING:
    from ctxlab.messages.types import Recording


def command(
    paths: Paths,
    out: Annotated[
        str,
        typer.Argument(
            metavar="OUT",
            help="A file for all recordings, compressed if it ends with .gz, .bz2, .xz or .zst; a "
            "folder for one file each, with / at its end if it is new; or - for standard output.",
        ),
    ],
    to: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Format to write: native (lossless), openai, anthropic or atif.",
        ),
    ] = "native",
    where: Where = None,
    sample: Sample = None,
    seed: Seed = None,
    format: FormatName = None,
    on_error: OnErrorPolicy = None,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
    no_progress: NoProgress = False,
) -> None:
    """Write recordings in another format, and report what that format cannot represent.

    \b
    Examples:
      ctxlab convert ~/.claude/projects all.jsonl              one file, nothing lost
      ctxlab convert logs/ chats.jsonl --to openai             one conversation per line
      ctxlab convert logs/*.json trajectories/ --to atif       one file per recording
      ctxlab convert run.jsonl - --to anthropic | jq .system   to standard output

    If anything fails, nothing is written. Files that are read are never replaced.
    """
    from ctxlab._utils.progress import track
    from ctxlab.formats import write
    from ctxlab.formats.unsupported import format_count
    from ctxlab.formats.write import writable_format

    writable_format(to)  # fail on a wrong name before anything is read
    spec = make_spec(paths, where=where, sample=sample, seed=seed, format=format, on_error=on_error)
    files: Counter[str] = Counter()
    rows: Counter[str] = Counter()
    formats: Counter[str] = Counter()

    if out == "-" and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    target = sys.stdout if out == "-" else out
    try:
        with suggest_on_error_skip(spec.on_error):
            found = spec.recordings(lambda path, reason: files.update([reason]))
            shown = track(found, "converting", None, False if no_progress else None)
            lost = write(_count_recordings(shown, formats, rows), target, to, force=force)
    except CtxlabError:
        note_skipped(files, rows)
        raise
    losses = ", ".join(format_count(name, count) for name, count in lost.most_common())
    found_formats = " and ".join(formats)
    done = f"{pluralize(formats.total(), 'recording')} converted from {found_formats} to {to}"
    print_note(f"{done}; lost: {losses}" if losses else done)
    note_skipped(files, rows)


def _count_recordings(
    recordings: Iterable[Recording], formats: Counter[str], rows: Counter[str]
) -> Iterator[Recording]:
    """Yield recordings while counting their formats and skipped rows."""
    for recording in recordings:
        formats[recording.format or "native"] += 1
        rows.update(recording.skipped)
        yield recording
