"""Render the table of ``ctxlab describe`` and the notes below it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ctxlab._utils.humanize import pluralize
from ctxlab.cli.render.table import Table
from ctxlab.evaluation.describe import RecordingDescription
from ctxlab.evaluation.description_table import (
    MAX_ROWS,
    description_columns,
    description_notes,
    group_by_format,
    rows_by_format,
    rows_by_recording,
)
from ctxlab.formats import LoadReport


def description_text(
    all_facts: Sequence[RecordingDescription], report: LoadReport, show_all: bool
) -> str:
    """Return the table of ``ctxlab describe``, followed by its legend and notes.

    Parameters
    ----------
    all_facts : sequence of RecordingDescription
        One description per recording.
    report : LoadReport
        Files in which the recordings were found.
    show_all : bool
        Show one row per recording. If False, more than 30 recordings are grouped by format, or by
        cluster, folder or file if all have the same format.

    Returns
    -------
    str
        Text to print.
    """
    if not all_facts:
        return "No recordings."
    files, formats = report.count_files(), {str(facts["format"]) for facts in all_facts}
    by_format = not show_all and len(all_facts) > MAX_ROWS and len(formats) > 1
    if by_format:
        lines, rows = rows_by_format(all_facts, files)
    else:
        lines, rows = rows_by_recording(all_facts, show_all, " (--all)")
    table = Table(description_columns(lines, len(formats)), rows)
    return table.render(
        table.legend,
        "" if by_format else _format_sentence(all_facts, files),
        *description_notes(all_facts),
    )


def _format_sentence(all_facts: Sequence[RecordingDescription], files: Counter[str]) -> str:
    """Return a sentence that lists the formats. If there are several files, it counts their content."""
    groups = group_by_format(all_facts)
    counted = []
    for name, some in sorted(groups.items()):
        messages = sum(facts["messages"] for facts in some)
        sizes = ((files[name], "file"), (len(some), "recording"), (messages, "message"))
        said = f" ({', '.join(pluralize(*size) for size in sizes)})"
        counted.append(name + (said if files.total() > 1 else ""))
    return f"Format{'' if len(groups) == 1 else 's'}: {', '.join(counted)}."
