"""Find out what the terminal of a chat can do."""

from __future__ import annotations

import os
from typing import TextIO

_DUMB = ("", "dumb", "unknown")


def moves_cursor(file: TextIO) -> bool:
    """Return True if a file is a terminal on which the cursor can be moved.

    Parameters
    ----------
    file : text file
        Standard input, output or error.

    Returns
    -------
    bool
        False for files and pipes, and if ``TERM`` is ``dumb`` or missing.
    """
    return file.isatty() and (os.name == "nt" or os.environ.get("TERM", "") not in _DUMB)


def has_colors(file: TextIO) -> bool:
    """Return True if a file is a terminal on which text may be styled.

    Parameters
    ----------
    file : text file
        Standard output or error.

    Returns
    -------
    bool
        False for files and pipes, and if ``NO_COLOR`` is set or ``TERM`` is ``dumb``.
    """
    return moves_cursor(file) and not os.environ.get("NO_COLOR")
