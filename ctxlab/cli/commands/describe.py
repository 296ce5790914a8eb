"""``ctxlab describe``: summarize recordings before they are replayed."""

from __future__ import annotations

import sys
from pathlib import Path

from ctxlab.cli.options import READING, Options, flag, with_options
from ctxlab.cli.output import print_note, print_result


@with_options(
    "data model" + READING + " json no_cache no_progress",
    model="Model whose tokenizer counts the tokens of all recordings. Default: the model that each "
    "recording names.",
    json="Print a JSON object: recordings has one object per recording, and files has one object per "
    "file, with its format, or with its kind if it was not read.",
)
def command(
    options: Options,
    all: bool = flag("--all", "Print a line for each recording and each file that was not read."),
) -> None:
    """Summarize recordings: length, tool results, billed usage, and problems that affect evaluations.

    Files that contain no recordings are counted by kind, with an example of each kind.

    Examples
    --------
    ctxlab describe ~/.claude/projects
    ctxlab describe logs/*.jsonl --all --model claude-sonnet-4-5
    ctxlab describe s3://bucket/runs --where 'messages>=50' --sample 100
    """
    from ctxlab._utils.progress import show_count
    from ctxlab.cli.render import format as show
    from ctxlab.cli.render.describe import description_text
    from ctxlab.cli.render.files import file_row, unread_text
    from ctxlab.errors import CtxlabError
    from ctxlab.evaluation.describe import iter_descriptions
    from ctxlab.formats import LoadReport

    spec = options.spec(on_error="skip")
    with show_count("files read", options.progress) as update:
        report = LoadReport(lambda report: update(len(report.files), report.found))
        try:
            recordings = spec.recordings(report=report)
            facts = iter_descriptions(recordings, spec.model, project=Path(), progress=False)
            found = list(facts)
        except CtxlabError:
            if unread := unread_text(report, all):
                print(unread, file=sys.stderr)
            raise
    for path, reason in report.remarks:
        print_note(f"{path}: {reason}")
    if options.json:
        print_result(show.to_json_object(recordings=found, files=map(file_row, report.files)))
        return
    text = description_text(found, report, all)
    print_result("\n\n".join(filter(None, [text, unread_text(report, all)])))
