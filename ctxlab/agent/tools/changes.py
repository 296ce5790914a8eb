"""Changes to text files: computed before anything is written, so that a user can see them first."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass

from ctxlab.agent.tools.safe_paths import PathNotAllowed, SafeRoot

MAX_EDIT_BYTES = 10_000_000
"""Maximum size of a file that can be edited, in bytes."""

_MAX_SHOWN_LINES = 5
_NO_LINE_END = "\n\\"  # marks a last line without a line feed; no line contains one


@dataclass(frozen=True)
class FileChange:
    r"""A change of a file that has not been written yet.

    Examples
    --------
    >>> print(FileChange("a.txt", "one\ntwo\n", "one\n2\n").diff())
    --- a.txt
    +++ a.txt
    @@ -1,2 +1,2 @@
     one
    -two
    +2
    """

    path: str
    "path of the file in the workspace"
    before: str | None
    "text of the file; None if it does not exist, or is not text"
    after: str
    "new text of the file"
    replaced: int = 0
    "number of places that an edit changes; 0 if the whole file is written"
    hidden: str = ""
    "why ``before`` is None although the file exists, such as that it is not text; otherwise empty"

    def diff(self) -> str:
        """Return the change as a unified diff.

        Returns
        -------
        str
            Lines of the diff, separated by line feeds; empty if the text stays the same. Carriage
            returns and other control characters of the text are kept.
        """
        old, new = _lines(self.before or ""), _lines(self.after)
        label = "/dev/null" if self.before is None and not self.hidden else self.path
        made: list[str] = []
        for line in difflib.unified_diff(old, new, label, self.path, lineterm=""):
            if line.startswith(("---", "+++")) and len(made) < 2:
                made.append(line.replace("\n", "\\n"))
            elif line.endswith(_NO_LINE_END):
                made += [line.removesuffix(_NO_LINE_END), r"\ No newline at end of file"]
            else:
                made.append(line)
        return "\n".join(made)

    @property
    def line_counts(self) -> tuple[int, int]:
        """Number of lines that are added, and number of lines that are removed."""
        lines = self.diff().split("\n")[2:]
        return (
            sum(line.startswith("+") for line in lines),
            sum(line.startswith("-") for line in lines),
        )


def plan_write(root: SafeRoot, path: str, content: str) -> FileChange:
    """Compute the change that writing a whole file makes.

    Parameters
    ----------
    root : SafeRoot
        Root folder of the workspace.
    path : str
        Path of the file in the workspace.
    content : str
        New text of the file.

    Returns
    -------
    FileChange
        The change, which is not written.

    Raises
    ------
    OSError
        If the path leads out of the workspace or is a folder.
    """
    try:
        return FileChange(path, _read_text(root, path), content)
    except FileNotFoundError:
        return FileChange(path, None, content)
    except ValueError as error:
        return FileChange(path, None, content, hidden=str(error).partition(";")[0])
    except PermissionError as error:
        if isinstance(error, PathNotAllowed):
            raise
        return FileChange(path, None, content, hidden=f"{path} cannot be read")


def plan_edit(root: SafeRoot, path: str, old: str, new: str, everywhere: bool) -> FileChange:
    r"""Compute the change that replacing a text in a file makes.

    Parameters
    ----------
    root : SafeRoot
        Root folder of the workspace.
    path : str
        Path of the file in the workspace.
    old : str
        Text to replace. In a file with Windows line ends, its line ends may be ``\n``.
    new : str
        Text that replaces it.
    everywhere : bool
        True to replace all occurrences; otherwise the text must occur once.

    Returns
    -------
    FileChange
        The change, which is not written.

    Raises
    ------
    ValueError
        If the text does not occur, or occurs several times, or if the file is not text.
    OSError
        If there is no such file in the workspace.
    """
    if not old:
        raise ValueError("Expected old to be a text that the file contains, got an empty string")
    if old == new:
        raise ValueError("Expected new to differ from old, got the same text")
    before = _read_text(root, path)
    if "\r\n" in before and "\r\n" not in old:
        old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
    count = before.count(old)
    if count == 0:
        raise ValueError(
            f"old does not occur in {path}; read the file and copy the text exactly, with its spaces"
        )
    if count > 1 and not everywhere:
        raise ValueError(
            f"old occurs {count} times in {path} (lines {_places(before, old, count)}); add lines "
            "around it so that it occurs once, or set everywhere"
        )
    return FileChange(path, before, before.replace(old, new), count)


def _lines(text: str) -> list[str]:
    """Split a text at its line feeds, so that no other character can hide in a diff."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else [*lines[:-1], lines[-1] + _NO_LINE_END]


def _places(text: str, old: str, count: int) -> str:
    lines: list[str] = []
    start = 0
    while (start := text.find(old, start)) >= 0 and len(lines) < _MAX_SHOWN_LINES:
        lines.append(str(text.count("\n", 0, start) + 1))
        start += len(old)
    return ", ".join(lines) + (", …" if count > len(lines) else "")


def _read_text(root: SafeRoot, path: str) -> str:
    """Return the text of a file; raise ValueError if it is not UTF-8 text or too large."""
    with root.open_file(path) as number:
        if (size := os.fstat(number).st_size) > MAX_EDIT_BYTES:
            raise ValueError(
                f"{path} has {size:,} bytes; files above {MAX_EDIT_BYTES:,} are not edited"
            )
        with open(os.dup(number), "rb") as file:
            blob = file.read(MAX_EDIT_BYTES)
    try:
        text = blob.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text; write it with a command") from None
    if "\0" in text:
        raise ValueError(f"{path} is binary; write it with a command")
    return text
