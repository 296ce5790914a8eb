"""Print results to standard output and notes to standard error.

A reader that closes the pipe early, such as ``head``, is not a failure.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from ctxlab._utils.humanize import pluralize
from ctxlab.errors import CtxlabError


def print_result(text: str) -> None:
    """Write the result of a command to standard output.

    Parameters
    ----------
    text : str
        The result.

    Raises
    ------
    typer.Exit
        If the reader closed the pipe.
    """
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes standard output again at exit, which would raise the error once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None


def print_note(text: str) -> None:
    """Print one sentence to standard error, after the program's name.

    Parameters
    ----------
    text : str
        The sentence.
    """
    print(f"ctxlab: {one_line(text)}", file=sys.stderr)


def note_skipped(files: Counter[str], rows: Counter[str]) -> None:
    """Note how many files and rows were not read, with the most frequent reasons.

    Parameters
    ----------
    files : Counter of str
        Files that were not read, by reason.
    rows : Counter of str
        Rows that were not read, by reason.
    """
    parts = []
    for kind, found in (("file", files), ("row", rows)):
        if count := found.total():
            reasons = [reason for reason, _ in found.most_common(3)]
            more = f" and {len(found) - 3} more" if len(found) > 3 else ""
            parts.append(f"{pluralize(count, kind)} ({'; '.join(reasons)}{more})")
    if parts:
        print_note(f"skipped {', '.join(parts)}; ctxlab describe --all lists them")


@contextmanager
def report_skipped() -> Iterator[tuple[Callable[[object, str], None], Counter[str]]]:
    """Note at the end what was not read; after an error only the files, since rows are not complete.

    Yields
    ------
    callable
        To call with each file that is skipped and the reason.
    Counter of str
        To fill with the rows that are skipped, by reason.
    """
    files: Counter[str] = Counter()
    rows: Counter[str] = Counter()
    try:
        yield (lambda _, reason: files.update([reason])), rows
    except CtxlabError:
        note_skipped(files, Counter())
        raise
    note_skipped(files, rows)


def one_line(text: str) -> str:
    r"""Return a text on one line, without control characters.

    Parameters
    ----------
    text : str
        Any text.

    Returns
    -------
    str
        The text, with white space joined and unprintable characters replaced.

    Examples
    --------
    >>> one_line("a\n b\x1b[2Jc")
    'a b�[2Jc'
    """
    return "".join(c if c.isprintable() else "�" for c in " ".join(text.split()))
