"""Print results to standard output and notes to standard error.

If standard output is a pipe and its reader exits early, as ``head`` does, the program ends without an
error.
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
from ctxlab._utils.text import one_line as one_line
from ctxlab.errors import CtxlabError, ReadError, UnknownFormat

if TYPE_CHECKING:
    from ctxlab.messages.types import Recording

_MAX_NAMED_FILES = 3
"if more files are skipped, only their number and the reasons are printed"


def print_result(text: str) -> None:
    """Print the result of a command to standard output.

    Parameters
    ----------
    text : str
        Result to print; a line end is added.

    Raises
    ------
    typer.Exit
        If standard output is a pipe and its reader closed it. The exit code is 0.
    """
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes standard output again at exit, which would raise the error once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None


def print_note(text: str) -> None:
    """Print a note to standard error, as one line that starts with ``ctxlab:``.

    Parameters
    ----------
    text : str
        Note to print; its lines are joined.
    """
    print(f"ctxlab: {one_line(text)}", file=sys.stderr)


def stdout_or(path: str) -> str | TextIO:
    """Replace the path ``-`` by standard output.

    Parameters
    ----------
    path : str
        Path of an output file or folder, or ``-`` for standard output.

    Returns
    -------
    str or file
        Standard output with the encoding UTF-8 if ``path`` is ``-``, otherwise ``path``.
    """
    if path != "-":
        return path
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    return sys.stdout


def losses_text(lost: Counter[str]) -> str:
    """List the values that a format could not store, as the end of a sentence.

    Parameters
    ----------
    lost : Counter of str
        Number of lost values by name.

    Returns
    -------
    str
        Text such as ``"; lost: time of 7 messages"``; an empty string if no value was lost.
    """
    from ctxlab.formats.write import describe_loss

    losses = ", ".join(describe_loss(name, count) for name, count in lost.most_common())
    return f"; lost: {losses}" if losses else ""


class Skipped:
    """Counters of skipped files, and of skipped rows inside files, by reason.

    Loaders call this object for each skipped file.
    """

    def __init__(self) -> None:
        self.files: Counter[str] = Counter()
        self._names: list[tuple[str, str]] = []
        self.rows: Counter[str] = Counter()

    def __call__(self, path: object, reason: str) -> None:
        """Count a skipped file.

        Parameters
        ----------
        path : object
            Path of the file. The names of the first files are printed.
        reason : str
            Reason why the file was skipped.
        """
        self.files[reason] += 1
        if len(self._names) <= _MAX_NAMED_FILES:
            self._names.append((one_line(os.path.basename(str(path))), reason))

    def counting(self, recordings: Iterable[Recording]) -> Iterator[Recording]:
        """Yield recordings unchanged, and count the rows that were skipped when they were read.

        Parameters
        ----------
        recordings : iterable of Recording
            Recordings to yield.

        Yields
        ------
        Recording
            Next recording.
        """
        for recording in recordings:
            self.rows.update(recording.skipped)
            yield recording

    def note(self) -> None:
        """Print how many files and rows were skipped, with the most frequent reasons."""
        parts = []
        for kind, found in (("file", self.files), ("row", self.rows)):
            if count := found.total():
                reasons = [reason for reason, _ in found.most_common(3)]
                if kind == "file" and count <= _MAX_NAMED_FILES:
                    reasons = [f"{name}: {reason}" for name, reason in self._names]
                more = f" and {len(found) - 3} more" if len(found) > 3 else ""
                parts.append(f"{pluralize(count, kind)} ({'; '.join(reasons)}{more})")
        if parts:
            print_note(f"skipped {', '.join(parts)}; ctxlab describe --all lists them")


@contextmanager
def report_skipped(on_error: str = "skip") -> Iterator[Skipped]:
    """Print the number of skipped files and rows when the ``with`` block ends.

    If the block raises an error, only the number of files is printed, because not all rows were read.

    Parameters
    ----------
    on_error : str
        Value of the option ``--on-error``. If it is not ``"skip"``, errors about malformed lines and
        unknown formats recommend ``--on-error skip``.

    Yields
    ------
    Skipped
        Counters to fill while files are read.
    """
    skipped = Skipped()
    try:
        yield skipped
    except CtxlabError as error:
        skipped.rows.clear()
        skipped.note()
        if isinstance(error, ReadError) and on_error != "skip":
            if error.line is not None:
                hint = f"{error.reason}; to skip such lines, add --on-error skip"
                raise ReadError(error.path, error.line, hint) from None
            if isinstance(error, UnknownFormat):
                hint = f"{error.reason}. To skip such files beside others, add --on-error skip"
                raise UnknownFormat(error.path, None, hint) from None
        raise
    skipped.note()
