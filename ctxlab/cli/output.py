"""What is said goes to standard output whole; what is said about it goes to standard error.

A reader that closes the pipe early, such as ``head``, is no failure.
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

__all__ = ["note_skipped", "one_line", "print_note", "print_result", "report_skipped"]


def print_result(text: str) -> None:
    """Writes a command's answer to standard output; ends the command where nobody reads on."""
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more at exit, which would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None


def print_note(text: str) -> None:
    """One sentence on standard error, behind the program's name."""
    print(f"ctxlab: {one_line(text)}", file=sys.stderr)


def note_skipped(files: Counter[str], rows: Counter[str]) -> None:
    """One note on what was not read, by reason: nothing is left out in silence."""
    parts = []
    for kind, found in (("file", files), ("row", rows)):
        if count := found.total():
            reasons = [reason for reason, _ in found.most_common(3)]
            more = f" and {len(found) - 3} more" if len(found) > 3 else ""
            parts.append(f"{pluralize(count, kind)} ({'; '.join(reasons)}{more})")
    if parts:
        print_note(f"left out: {', '.join(parts)}; ctxlab describe --all lists them")


@contextmanager
def report_skipped() -> Iterator[tuple[Callable[[object, str], None], Counter[str]]]:
    """Says at the end what was not read, or the files of it where that ends in an error.

    Gives what is told of each file, with the reason, and the counter of rows that were left out.
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
    """A text on one line, without what would steer a terminal.

    >>> one_line("a\\n b\\x1b[2Jc")
    'a b�[2Jc'
    """
    return "".join(c if c.isprintable() else "�" for c in " ".join(text.split()))
