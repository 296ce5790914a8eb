"""``ctxlab convert``: write recordings in another format and report what it cannot represent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ctxlab._utils.humanize import pluralize
from ctxlab.cli.options import FORCE, READING, WRITABLE_FORMAT, Options, argument, with_options
from ctxlab.cli.output import losses_text, print_note, report_skipped, stdout_or

if TYPE_CHECKING:
    from ctxlab.messages.types import Recording


@with_options("data" + READING + " on_error no_progress")
def command(
    options: Options,
    out: str = argument(
        "OUT",
        "A file for all recordings, compressed if it ends with .gz, .bz2, .xz or .zst; a "
        "folder for one file each, with / at its end if it is new; or - for standard output.",
        default=...,
    ),
    to: str = WRITABLE_FORMAT,
    force: bool = FORCE,
) -> None:
    """Write recordings in another format, and report what that format cannot represent.

    Examples
    --------
    ctxlab convert ~/.claude/projects all.jsonl              one file, nothing lost
    ctxlab convert logs/ chats.jsonl --to openai             one conversation per line
    ctxlab convert logs/*.json trajectories/ --to atif       one file per recording
    ctxlab convert run.jsonl - --to anthropic | jq .system   to standard output

    If anything fails, nothing is written. Files that are read are never replaced.
    """
    from ctxlab._utils.progress import track
    from ctxlab.formats import write
    from ctxlab.formats.write import writable_format

    writable_format(to)  # fail on a wrong name before anything is read
    spec = options.spec()
    formats: Counter[str] = Counter()
    with report_skipped(spec.on_error) as skipped:
        recordings = skipped.counting(spec.recordings(skipped))
        shown = track(recordings, "converting", None, options.progress)
        lost = write(_count_formats(shown, formats), stdout_or(out), to, force=force)
        count = pluralize(formats.total(), "recording")
        print_note(f"{count} converted from {' and '.join(formats)} to {to}{losses_text(lost)}")


def _count_formats(recordings: Iterable[Recording], formats: Counter[str]) -> Iterator[Recording]:
    for recording in recordings:
        formats[recording.format or "native"] += 1
        yield recording
