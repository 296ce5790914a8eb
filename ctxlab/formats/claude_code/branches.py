"""A turn that the user took back stays in Claude Code's file beside the one that replaced it.

Every row names the row before it (``parentUuid``). Where the user goes back and edits a prompt, the
new one names the same row as the old one, and what hung below the old one is no part of what the
model reads from then on. Parallel calls fork the rows too, below rows of one answer, and are kept.

Source: sessions of Claude Code 2.1; its rewind as public readers of the files describe it.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from ctxlab.formats.claude_code.queued_input import content_text
from ctxlab.formats.fields import get_nested, objects_in, text_or_none

__all__ = ["find_abandoned_rows"]

_Row: TypeAlias = dict[str, Any]
_MESSAGE_TYPES = ("user", "assistant")
_CLIENT_PREFIXES = ("[Request interrupted", "<local-command-", "<bash-std", "<task-notification")


def find_abandoned_rows(rows: list[_Row]) -> set[int]:
    """Places of the rows that were certainly abandoned, in the rows of one main conversation.

    Certain means: the row hangs below a prompt, a later prompt names the same parent, the last
    message hangs below that one, and nothing more was said below the earlier one once it was there.

    >>> rows = [{"type": "user", "uuid": id, "parentUuid": up, "message": {"content": id}}
    ...         for id, up in (("hi", None), ("ask", "hi"), ("so?", "ask"), ("edited", "hi"))]
    >>> sorted(find_abandoned_rows(rows))
    [1, 2]
    """
    known = {uuid: row for row in rows if (uuid := text_or_none(row.get("uuid")))}
    path = _active_path(rows, known)
    if not path:
        return set()
    later: dict[str, int] = {}
    "parent → place of the prompt below it that stayed"
    for place, row in enumerate(rows):
        parent = text_or_none(row.get("parentUuid"))
        if parent in known and text_or_none(row.get("uuid")) in path and _is_prompt(row):
            later[parent] = place
    if not later:
        return set()
    roots: dict[str, int] = {}
    "prompt that was taken back → place of the one that replaced it"
    for place, row in enumerate(rows):
        uuid, replaced = (
            text_or_none(row.get("uuid")),
            later.get(text_or_none(row.get("parentUuid")) or "", -1),
        )
        if uuid and uuid not in path and place < replaced and _is_prompt(row):
            roots[uuid] = replaced
    return _rows_below(rows, known, roots)


def _rows_below(rows: list[_Row], known: dict[str, _Row], roots: dict[str, int]) -> set[int]:
    root_of: dict[str, str | None] = {}
    rows_below_roots: list[tuple[int, str]] = []
    continued: set[str | None] = set()
    before = None
    for place, row in enumerate(rows):
        uuid = text_or_none(row.get("uuid"))
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


def _find_root(
    uuid: str, known: dict[str, _Row], roots: dict[str, int], root_of: dict[str, str | None]
) -> str | None:
    """The prompt taken back that a row hangs below, or is; each row is climbed from only once."""
    trail: list[str] = []
    at: str | None = uuid
    while at in known and at not in root_of:
        trail.append(at)
        root_of[at] = at if at in roots else None
        at = None if at in roots else _parent_uuid(known[at])
    root = trail[-1] if trail and trail[-1] in roots else root_of.get(at or "")
    root_of |= dict.fromkeys(trail, root)
    return root


def _active_path(rows: list[_Row], known: dict[str, _Row]) -> set[str]:
    """The last message and all that it hangs below."""
    last = next((row for row in reversed(rows) if row.get("type") in _MESSAGE_TYPES), {})
    at, path = text_or_none(last.get("uuid")), set[str]()
    while at in known and at not in path:
        path.add(at)
        at = _parent_uuid(known[at])
    return path


def _parent_uuid(row: _Row) -> str | None:
    """The row before; a compaction names it apart."""
    return text_or_none(row.get("parentUuid")) or text_or_none(row.get("logicalParentUuid"))


def _is_prompt(row: _Row) -> bool:
    """Whether a user typed it, as far as the row says."""
    if row.get("type") != "user" or row.get("isMeta") or row.get("isCompactSummary"):
        return False
    content = get_nested(row, "message", "content")
    if any(block.get("type") == "tool_result" for block in objects_in(content)):
        return False
    return not content_text(content).startswith(_CLIENT_PREFIXES)
