"""``ctxlab convert``: write recordings in another format, and list the data that is lost."""

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
        "A file, a folder or - (standard output). A file receives all recordings, and is "
        "compressed if its name ends with .gz, .bz2, .xz or .zst. A folder receives one file per "
        "recording; write / at the end of its name if it does not exist.",
        default=...,
    ),
    to: str = WRITABLE_FORMAT,
    force: bool = FORCE,
) -> None:
    """Write recordings in another format, and list the data that this format cannot store.

    Examples
    --------
    ctxlab convert ~/.claude/projects all.jsonl         one native file
    ctxlab convert logs/ chats.jsonl --to openai        a conversation per line
    ctxlab convert logs/*.json trajectories/ --to atif  one file per recording
    ctxlab convert a.jsonl - --to anthropic             print to standard output

    If an error occurs, no output file is written. A recording cannot be converted in place: an output
    file never replaces an input file, even with --force.
    """
    from ctxlab._utils.progress import track
    from ctxlab.formats import write
    from ctxlab.formats.write import writable_format

    writable_format(to)  # report an unknown format before reading the recordings
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
