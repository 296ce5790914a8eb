"""Find rows of Claude Code turns that the user took back.

Such a turn stays in the file, next to the turn that replaced it. Every row names its parent row
(``parentUuid``). If the user goes back and edits a prompt, the new prompt has the same parent as
the old one, and the model no longer sees the rows below the old prompt. Parallel tool calls also
create branches, below rows of one response; these are kept.

References
----------
Sessions of Claude Code 2.1; its rewind as described by public readers of these files.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from ctxlab.formats.claude_code.queued_input import content_text
from ctxlab.formats.fields import get_in, get_objects, get_text

_Row: TypeAlias = dict[str, Any]
_Rows: TypeAlias = dict[str, _Row]
"""Rows by uuid."""
_Roots: TypeAlias = dict[str, str | None]
"""The uuid of a row → the abandoned prompt at or above it."""
_MESSAGE_TYPES = ("user", "assistant")
_CLIENT_PREFIXES = ("[Request interrupted", "<local-command-", "<bash-std", "<task-notification")


def find_abandoned_rows(rows: list[_Row]) -> set[int]:
    """Return the indices of rows that were certainly abandoned.

    A row is abandoned if it is below a prompt, a later prompt has the same parent, the last message
    is below the later prompt, and no message was added below the earlier prompt after that.

    Parameters
    ----------
    rows : list of dict
        The rows of one main conversation.

    Returns
    -------
    set of int
        Indices in ``rows``.

    Examples
    --------
    >>> rows = [{"type": "user", "uuid": id, "parentUuid": up, "message": {"content": id}}
    ...         for id, up in (("hi", None), ("ask", "hi"), ("so?", "ask"), ("edited", "hi"))]
    >>> sorted(find_abandoned_rows(rows))
    [1, 2]
    """
    known = {uuid: row for row in rows if (uuid := get_text(row, "uuid"))}
    path = _active_path(rows, known)
    if not path:
        return set()
    later: dict[str, int] = {}
    "parent → index of the prompt below it that was kept"
    for place, row in enumerate(rows):
        parent = get_text(row, "parentUuid")
        if parent in known and get_text(row, "uuid") in path and _is_prompt(row):
            later[parent] = place
    if not later:
        return set()
    roots: dict[str, int] = {}
    "abandoned prompt → index of the prompt that replaced it"
    for place, row in enumerate(rows):
        uuid, replaced = get_text(row, "uuid"), later.get(get_text(row, "parentUuid") or "", -1)
        if uuid and uuid not in path and place < replaced and _is_prompt(row):
            roots[uuid] = replaced
    return _rows_below(rows, known, roots)


def _rows_below(rows: list[_Row], known: _Rows, roots: dict[str, int]) -> set[int]:
    root_of: _Roots = {}
    rows_below_roots: list[tuple[int, str]] = []
    continued: set[str | None] = set()
    before = None
    for place, row in enumerate(rows):
        uuid = get_text(row, "uuid")
        root = _find_root(uuid, known, roots, root_of) if uuid else None
        if uuid:
            before = root
        elif row.get("type") == "queue-operation" and row.get("operation") == "remove":
            root = before
        if root is None:
            continue
        rows_below_roots.append((place, root))
        if uuid and row.get("type") in _MESSAGE_TYPES and place > roots[root]:
            continued.add(root)
    return {place for place, root in rows_below_roots if root not in continued}


def _find_root(at: str | None, known: _Rows, roots: dict[str, int], root_of: _Roots) -> str | None:
    """Return the abandoned prompt at or above a row; visits each row only once."""
    trail: list[str] = []
    while at in known and at not in root_of:
        trail.append(at)
        root_of[at] = at if at in roots else None
        at = None if at in roots else _parent_uuid(known[at])
    root = trail[-1] if trail and trail[-1] in roots else root_of.get(at or "")
    root_of |= dict.fromkeys(trail, root)
    return root


def _active_path(rows: list[_Row], known: _Rows) -> set[str]:
    """Return the ids of the last message and of all rows above it."""
    last = next((row for row in reversed(rows) if row.get("type") in _MESSAGE_TYPES), {})
    at, path = get_text(last, "uuid"), set[str]()
    while at in known and at not in path:
        path.add(at)
        at = _parent_uuid(known[at])
    return path


def _parent_uuid(row: _Row) -> str | None:
    """Return the id of the parent row; a compaction uses another key."""
    return get_text(row, "parentUuid") or get_text(row, "logicalParentUuid")


def _is_prompt(row: _Row) -> bool:
    """Return whether a row looks like a prompt that the user typed."""
    if row.get("type") != "user" or row.get("isMeta") or row.get("isCompactSummary"):
        return False
    content = get_in(row, "message", "content")
    if any(block.get("type") == "tool_result" for block in get_objects(content)):
        return False
    return not content_text(content).startswith(_CLIENT_PREFIXES)
