"""Render which files ``ctxlab describe`` did not read: their number by kind, an example and advice."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Mapping

from rich.text import Text

from ctxlab._utils.numbers import to_sentence
from ctxlab.cli.output import one_line
from ctxlab.cli.render import format as show
from ctxlab.cli.render.table import Table
from ctxlab.evaluation.columns import Column
from ctxlab.formats import FileReport, LoadReport
from ctxlab.formats.io.files import PathOrUrl

_ARTICLE = re.compile(r"^(an?|the) ")
_INDENT = " " * 6
_MAX_EXAMPLE_SHARE = 0.45
"maximum width of an example, as a share of the width of the output"


def unread_text(report: LoadReport, show_all: bool) -> str:
    """Return a table of the files that were not read, with one row per kind.

    Kinds with advice are listed first, because these files may be logs.

    Parameters
    ----------
    report : LoadReport
        What ``load`` did with each file.
    show_all : bool
        List each file on a line of its own instead.

    Returns
    -------
    str
        Text to print; empty if all files were read.
    """
    unread = report.unread
    if not unread:
        return ""
    title = f"Not read: {len(unread):,} of {len(report.files):,} files"
    if show_all:
        lines = (one_line(f"{each.path}: {each.kind}{each.detail}") for each in unread)
        return "\n".join([f"{title}.", *lines])
    groups: dict[str, list[FileReport]] = {}
    for each in unread:
        groups.setdefault(each.kind, []).append(each)
    ordered = sorted(groups.values(), key=lambda files: (not files[0].advice, -len(files)))
    examples = [files[0] for files in ordered]
    width = show.output_width()
    above = _common_folder([each.path for each in report.files])
    kinds = [one_line(_ARTICLE.sub("", each.kind)) for each in examples]
    paths = [_shorten_path(each.path, above, width) for each in examples]
    columns = [
        Column("files", [f"{len(files):,}" for files in ordered]),
        Column("kind", kinds, left=True),
        Column("example", paths, left=True),
    ]
    rows: list[tuple[int | str, str]] = []
    for number, each in enumerate(examples):
        advice = to_sentence(each.advice) if each.advice else ""
        wrapped = textwrap.wrap(advice, width, initial_indent=_INDENT, subsequent_indent=_INDENT)
        rows += [(number, ""), *((line, "dim") for line in wrapped)]
    table = Table(columns, rows, wrap=1, prose=True)
    return show.render_to_text(Text(f"{title}; --all lists them.\n"), table.text)


def file_row(report: FileReport) -> Mapping[str, str | None]:
    """Return the values of a file for JSON.

    Parameters
    ----------
    report : FileReport
        What ``load`` did with the file.

    Returns
    -------
    mapping of str to (str or None)
        The fields of the report; the path has the key ``file``. Empty texts become None.
    """
    path, *values = report
    names = FileReport._fields[1:]
    return {"file": str(path)} | {
        name: value or None for name, value in zip(names, values, strict=True)
    }


def _common_folder(paths: list[PathOrUrl]) -> str:
    folders = {os.path.dirname(str(path)) for path in paths}
    try:
        return os.path.join(os.path.commonpath(folders), "")
    except ValueError:  # a mix of absolute and relative paths
        return ""


def _shorten_path(path: PathOrUrl, above: str, width: int) -> str:
    """Return a path below the folder ``above``; without its first folders if it is too long."""
    text = one_line(str(path).removeprefix(above))
    most = int(width * _MAX_EXAMPLE_SHARE)
    if len(text) <= most:
        return text
    parts = text.split("/")
    while len(parts) > 1 and len("/".join(parts)) > most - 2:
        del parts[0]
    short = "…/" + "/".join(parts)
    return short if len(short) <= most else f"{short[: most - 1]}…"
