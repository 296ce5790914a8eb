"""Find the rows of a Claude Code session that belong to abandoned turns.

In Claude Code, the user can go back to an earlier prompt and edit it. The abandoned turns stay in the
file. Every row names its parent row (``parentUuid``). The edited prompt has the same parent as the
original prompt, and the rows below the original prompt are no longer sent to the model. Parallel tool
calls also create several rows with the same parent. These rows are not abandoned.

References
----------
Session files that Claude Code 2.1 wrote. The effect of its rewind command is taken from other
open-source programs that read these files.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from ctxlab.formats.claude_code.queued_input import content_text
from ctxlab.formats.fields import get_in, get_objects, get_text

_Row: TypeAlias = dict[str, Any]
_Rows: TypeAlias = dict[str, _Row]
"""uuid → row."""
_Roots: TypeAlias = dict[str, str | None]
"""uuid of a row → uuid of the abandoned prompt to which the row belongs, or None."""
_MESSAGE_TYPES = ("user", "assistant")
_CLIENT_PREFIXES = ("[Request interrupted", "<local-command-", "<bash-std", "<task-notification")


def find_abandoned_rows(rows: list[_Row]) -> set[int]:
    """Find the rows of turns that the user abandoned by editing an earlier prompt.

    A prompt is abandoned if all of these conditions hold:

    - A later prompt has the same parent.
    - The later prompt is an ancestor of the last message of the conversation, or is this message.
    - After the later prompt, no message was added below the earlier prompt.

    The rows below an abandoned prompt are also abandoned.

    Parameters
    ----------
    rows : list of dict
        The rows of one main conversation.

    Returns
    -------
    set of int
        Indices of the abandoned rows in ``rows``.

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
    "uuid of a parent → index of its child that is a prompt on the active path"
    for place, row in enumerate(rows):
        parent = get_text(row, "parentUuid")
        if parent in known and get_text(row, "uuid") in path and _is_prompt(row):
            later[parent] = place
    if not later:
        return set()
    roots: dict[str, int] = {}
    "uuid of an abandoned prompt → index of the prompt that replaced it"
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
    """Return the uuid of the abandoned prompt to which a row belongs, or None.

    ``at`` is the uuid of the row. The row belongs to an abandoned prompt if it is this prompt or has
    it among its ancestors. Results are cached in ``root_of``, so each row is visited only once.
    """
    trail: list[str] = []
    while at in known and at not in root_of:
        trail.append(at)
        root_of[at] = at if at in roots else None
        at = None if at in roots else _parent_uuid(known[at])
    root = trail[-1] if trail and trail[-1] in roots else root_of.get(at or "")
    root_of |= dict.fromkeys(trail, root)
    return root


def _active_path(rows: list[_Row], known: _Rows) -> set[str]:
    """Return the uuids of the last message and of all its ancestors, up to the root."""
    last = next((row for row in reversed(rows) if row.get("type") in _MESSAGE_TYPES), {})
    at, path = get_text(last, "uuid"), set[str]()
    while at in known and at not in path:
        path.add(at)
        at = _parent_uuid(known[at])
    return path


def _parent_uuid(row: _Row) -> str | None:
    """Return the uuid of the parent of a row.

    After a compaction, ``parentUuid`` is null and the uuid is stored in ``logicalParentUuid``.
    """
    return get_text(row, "parentUuid") or get_text(row, "logicalParentUuid")


def _is_prompt(row: _Row) -> bool:
    """Check whether a row is a prompt typed by the user, and not a tool result or a client message."""
    if row.get("type") != "user" or row.get("isMeta") or row.get("isCompactSummary"):
        return False
    content = get_in(row, "message", "content")
    if any(block.get("type") == "tool_result" for block in get_objects(content)):
        return False
    return not content_text(content).startswith(_CLIENT_PREFIXES)
