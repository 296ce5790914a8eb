"""Read the edits that Cline makes to messages before it sends them.

``context_history.json`` contains, for each edited message, its index in the history, the kind of the
edit, and the new texts of its blocks with their times:
``[[index, [kind, [[block, [[time, "text", [text], …], …]], …]]], …]``.

- Kind 2 replaces the result of ``read_file`` by a note, because the file was read again later.
- Kinds 3 and 4 replace file contents within a longer text. A recording cannot represent this, so
  these edits are counted.
- Kind 0 replaces the text of the first answer by a note that messages were removed. The first user
  message is replaced only if it is very long.

The time of an edit is the time of the request before it.

References
----------
github.com/cline/cline ``src/core/context/context-management/ContextManager.ts`` at 01cfde0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ctxlab.formats.base import Source
from ctxlab.formats.fields import first_or_none, get_list, get_number, get_text

_READ_FILE, _ALTERED_FILE, _FILE_MENTION = 2, 3, 4


class ContextEdits(NamedTuple):
    """The edits of a task."""

    cleared: tuple[tuple[float, int], ...] = ()
    "time in seconds since 1970, and index of the history message whose result was replaced"
    notice: str | None = None
    "text that replaces the first answer after messages were removed"


def is_context_edits(value: Any) -> bool:
    """Check whether a value is the beginning of ``context_history.json``.

    Parameters
    ----------
    value : Any
        A JSON value.

    Returns
    -------
    bool
        True if the value is a list, and its first element has the structure of an edit.
    """
    first = get_list(first_or_none(value))
    if len(first) != 2 or not isinstance(first[0], int) or len(get_list(first[1])) != 2:
        return False
    kind, blocks = first[1]
    change = first_or_none(_changes_of(first_or_none(blocks)))
    return isinstance(kind, int) and len(get_list(change)) >= 3 and get_list(change)[1] == "text"


def read_context_edits(file: Source) -> ContextEdits:
    """Read ``context_history.json``.

    Parameters
    ----------
    file : Source
        The file. Edits that a recording cannot represent are counted by its ``skip`` method.

    Returns
    -------
    ContextEdits
        The replaced results and the note about removed messages.

    Raises
    ------
    ReadError
        If the file is malformed and ``on_error`` is ``"raise"``.
    """
    cleared: list[tuple[float, int]] = []
    notice = None
    for number, value in file.read_json_array():
        with file.handle_errors(number, "element"):
            index, (kind, blocks) = value
            changes = [change for block in get_list(blocks) for change in _changes_of(block)]
            if kind == _READ_FILE and isinstance(index, int) and changes:
                time = get_number(first_or_none(changes[0]))
                cleared += [] if time is None else [(time / 1000, index)]
            elif kind in (_ALTERED_FILE, _FILE_MENTION):
                file.skip("file content replaced within a message")
            elif index == 1 and changes:
                notice = get_text(first_or_none(get_list(changes[-1])[2]))
            else:
                file.skip("text of a message replaced")
    return ContextEdits(tuple(cleared), notice)


def _changes_of(block: Any) -> list[Any]:
    """Return the changes of a block, which is a list of its index and its changes."""
    parts = get_list(block)
    return get_list(parts[1]) if len(parts) == 2 else []
