"""``ctxlab describe``: summarize recordings before they are replayed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ctxlab._utils.humanize import pluralize
from ctxlab.cli.options import READING, Options, flag, with_options
from ctxlab.cli.output import print_note, print_result

_MAX_NAMED_FILES = 3


@with_options(
    "data model" + READING + " json no_progress",
    model="Model whose tokenizer counts the tokens of all recordings. Default: the model that each "
    "recording names.",
    json="Print a JSON array with one object per recording.",
)
def command(
    options: Options,
    all: bool = flag("--all", "Print a line for each recording and each skipped file."),
) -> None:
    """Summarize recordings: length, tool results, billed usage, and problems that affect evaluations.

    Examples
    --------
    ctxlab describe ~/.claude/projects
    ctxlab describe logs/*.jsonl --all --model claude-sonnet-4-5
    ctxlab describe s3://bucket/runs --where 'messages>=50' --sample 100
    """
    from ctxlab.cli.render import format as show
    from ctxlab.cli.render.describe import description_text
    from ctxlab.evaluation.describe import iter_descriptions

    spec = options.spec(on_error="skip")
    left_out: list[tuple[Path | str, str]] = []
    recordings = spec.recordings(lambda path, reason: left_out.append((path, reason)))
    try:
        facts = iter_descriptions(recordings, spec.model, project=Path(), progress=options.progress)
        found = list(facts)
    finally:
        _note_skipped_files(left_out, all)
    print_result(show.to_json_array(found) if options.json else description_text(found, all))


def _note_skipped_files(skipped: Sequence[tuple[Path | str, str]], show_all: bool) -> None:
    """Print the skipped files: one line for each reason, or one for each file if ``show_all``."""
    if show_all:
        for path, reason in skipped:
            print_note(f"skipped {path}: {reason}")
        return
    files: dict[str, list[str]] = {}
    for path, reason in skipped:
        files.setdefault(reason, []).append(os.path.basename(str(path)))
    for reason, names in files.items():
        named = ", ".join(names[:_MAX_NAMED_FILES])
        if (more := len(names) - _MAX_NAMED_FILES) > 0:
            named += f" and {more:,} more (--all)"
        print_note(f"skipped {pluralize(len(names), 'file')} ({reason}): {named}")
