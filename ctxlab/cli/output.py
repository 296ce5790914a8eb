"""Print results to standard output and notes to standard error.

A reader that closes the pipe early, such as ``head``, is not a failure.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

import typer

from ctxlab._utils.humanize import pluralize
from ctxlab.errors import CtxlabError, ReadError

if TYPE_CHECKING:
    from ctxlab.messages.types import Recording


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


def stdout_or(path: str) -> str | TextIO:
    """Return where to write recordings: standard output, in UTF-8, for ``-``, else the path.

    Parameters
    ----------
    path : str
        A path, or ``-``.

    Returns
    -------
    str or file
        The path or standard output.
    """
    if path != "-":
        return path
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    return sys.stdout


def losses_text(lost: Counter[str]) -> str:
    """Return the end of a sentence that says what a format could not represent.

    Parameters
    ----------
    lost : Counter of str
        What was lost, and how often.

    Returns
    -------
    str
        Text that begins with a semicolon; empty if nothing was lost.
    """
    from ctxlab.formats.write import format_count

    losses = ", ".join(format_count(name, count) for name, count in lost.most_common())
    return f"; lost: {losses}" if losses else ""


class Skipped:
    """Counts files and rows that were not read, by reason; loaders call it with each file."""

    def __init__(self) -> None:
        self.files: Counter[str] = Counter()
        self.rows: Counter[str] = Counter()

    def __call__(self, path: object, reason: str) -> None:
        """Count a file.

        Parameters
        ----------
        path : object
            The file.
        reason : str
            Why it was not read.
        """
        self.files[reason] += 1

    def counting(self, recordings: Iterable[Recording]) -> Iterator[Recording]:
        """Yield recordings and count their rows that were not read.

        Parameters
        ----------
        recordings : iterable of Recording
            The recordings.

        Yields
        ------
        Recording
            Each of them.
        """
        for recording in recordings:
            self.rows.update(recording.skipped)
            yield recording

    def note(self) -> None:
        """Note how many files and rows were not read, with the most frequent reasons."""
        parts = []
        for kind, found in (("file", self.files), ("row", self.rows)):
            if count := found.total():
                reasons = [reason for reason, _ in found.most_common(3)]
                more = f" and {len(found) - 3} more" if len(found) > 3 else ""
                parts.append(f"{pluralize(count, kind)} ({'; '.join(reasons)}{more})")
        if parts:
            print_note(f"skipped {', '.join(parts)}; ctxlab describe --all lists them")


@contextmanager
def report_skipped(on_error: str = "skip") -> Iterator[Skipped]:
    """Note at the end what was not read; after an error only the files, since rows are not complete.

    Parameters
    ----------
    on_error : str
        With ``"raise"``, errors about a broken line get a hint at ``--on-error skip``.

    Yields
    ------
    Skipped
        To fill while reading.
    """
    skipped = Skipped()
    try:
        yield skipped
    except CtxlabError as error:
        skipped.rows.clear()
        skipped.note()
        if isinstance(error, ReadError) and error.line is not None and on_error != "skip":
            hint = f"{error.reason}; --on-error skip skips the line"
            raise ReadError(error.path, error.line, hint) from None
        raise
    skipped.note()


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
