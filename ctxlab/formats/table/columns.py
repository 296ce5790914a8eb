"""Decide which columns of a table contain the messages, the ids and the clusters.

The columns are recognised by their names. The user can name them instead, as text such as
``messages=history,id=instance_id`` or as a dictionary.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from ctxlab.errors import SpecError, UnknownName
from ctxlab.formats.fields import first_or_none

ColumnNames: TypeAlias = str | Mapping[str, str]
"""Columns by field: ``"messages=history,id=key"`` or ``{"messages": "history", "id": "key"}``."""

_CONVERSATION_IDS = (
    "trajectory_id",
    "traj_id",
    "conversation_id",
    "conversation_hash",
    "session_id",
    "thread_id",
    "chat_id",
    "dialogue_id",
    "dialog_id",
)
_TASK_IDS = ("instance_id", "task_id", "problem_id", "question_id")
_IDS = (*_CONVERSATION_IDS, "uuid", "uid", "id", *_TASK_IDS)

# Field → names under which its column is recognised, in order of precedence.
_NAMES: dict[str, tuple[str, ...]] = {
    "messages": (
        "messages",
        "conversations",
        "conversation",
        "trajectory",
        "traj",
        "history",
        "turns",
        "chat",
    ),
    "id": _IDS,
    "cluster": ("cluster", *_TASK_IDS),
    "model": ("model", "model_name", "model_name_or_path", "model_id"),
    "tools": ("tools", "functions"),
    "system": ("system", "system_prompt"),
    "role": ("role", "speaker", "sender", "from"),
    "content": ("content", "text", "message", "value"),
    "order": (
        "order",
        "position",
        "message_index",
        "message_idx",
        "turn_index",
        "turn",
        "step",
        "index",
        "idx",
    ),
    "time": ("time", "timestamp", "created_at", "created"),
    "tool_calls": ("tool_calls",),
    "tool_call_id": ("tool_call_id",),
    "name": ("name",),
    "reasoning": ("reasoning", "reasoning_content"),
    "usage": ("usage",),
}

_CALL_FIELDS = ("tool_calls", "tool_call_id", "name")
MESSAGE_FIELDS = ("role", "content", "order", "time", *_CALL_FIELDS, "reasoning", "usage")
"""Fields that a column can contain if each row of the table is a message."""

_LIST_START = re.compile(r"\s*(\[\s*\{|\{\s*\")")


def parse_columns(columns: ColumnNames | None) -> dict[str, str]:
    """Return the columns that the user named, by field.

    Parameters
    ----------
    columns : str or mapping, optional
        Text such as ``"messages=history,id=key"``, or a mapping of fields to columns.

    Returns
    -------
    dict of str to str
        Field → name of the column. Empty if ``columns`` is None.

    Raises
    ------
    SpecError
        If the text is malformed, a field is unknown, or ``messages`` and ``role`` are both named.

    Examples
    --------
    >>> parse_columns("messages=history, id=key")
    {'messages': 'history', 'id': 'key'}
    >>> parse_columns("mesages=history")
    Traceback (most recent call last):
    ctxlab.errors.UnknownName: unknown field of columns 'mesages'; did you mean messages or usage?
    """
    if columns is None:
        return {}
    if isinstance(columns, str):
        pairs = [each.partition("=") for each in columns.split(",")]
        named = {field.strip(): column.strip() for field, _, column in pairs}
    else:
        named = dict(columns)
    for field, column in named.items():
        if not field or not isinstance(column, str) or not column:
            raise SpecError(
                f"columns: expected pairs such as messages=history,id=key, got {columns!r}"
            )
        if field not in _NAMES:
            raise UnknownName("field of columns", field, _NAMES)
    if "messages" in named and not named.keys().isdisjoint(MESSAGE_FIELDS):
        of_rows = ", ".join(each for each in MESSAGE_FIELDS if each in named)
        raise SpecError(
            f"columns: messages is for tables with a conversation in each row, and {of_rows} is for "
            "tables with a message in each row; name only one kind"
        )
    return named


def match_columns(
    rows: Sequence[dict[str, Any]], named: Mapping[str, str]
) -> dict[str, str] | None:
    """Find the columns of a table.

    Parameters
    ----------
    rows : sequence of dict
        First rows of the table.
    named : mapping of str to str
        Columns that the user named, by field.

    Returns
    -------
    dict of str to str or None
        Field → column. It contains ``messages``, or ``role``, ``content`` and ``id``. None if the
        table has no such columns.

    Raises
    ------
    ValueError
        If the table does not have a column that the user named.

    Examples
    --------
    >>> row = {"instance_id": "a-1", "trajectory": '[{"role": "user", "content": "hi"}]'}
    >>> match_columns([row], {})
    {'messages': 'trajectory', 'id': 'instance_id', 'cluster': 'instance_id'}
    >>> match_columns([{"messages": 17, "tokens": 200}], {})
    """
    present = list(dict.fromkeys(column for row in rows for column in row))
    for field, column in named.items():
        if column not in present:
            raise ValueError(
                f"expected the column {column!r} ({field}), but the columns are {', '.join(present)}"
            )
    by_name = {column.lower(): column for column in reversed(present)}

    def find(field: str, names: Iterable[str]) -> dict[str, str]:
        """Return the column of a field: the one that the user named, or the first known one."""
        if field in named:
            return {field: named[field]}
        known = (by_name[name] for name in names if name in by_name)
        column = next((each for each in known if each not in named.values()), None)
        return {} if column is None else {field: column}

    shared = ("cluster", "model", "tools", "system")
    if named.keys().isdisjoint(MESSAGE_FIELDS):
        lists = (each for each in _NAMES["messages"] if _has_lists(rows, by_name.get(each)))
        if found := find("messages", lists):
            fields = ((field, _NAMES[field]) for field in ("id", *shared))
            return found | _without(found, (find(*each) for each in fields))
    found = find("role", _NAMES["role"]) | find("content", _NAMES["content"])
    found |= find("id", _CONVERSATION_IDS)
    if not {"role", "content", "id"} <= found.keys():
        return None
    others = ((field, _NAMES[field]) for field in (*shared, *MESSAGE_FIELDS[2:]))
    return found | _without(found, (find(*each) for each in others))


def _without(found: Mapping[str, str], others: Iterable[dict[str, str]]) -> dict[str, str]:
    """Join the columns of other fields. A column with messages has no second meaning."""
    taken = {column for field, column in found.items() if field != "id"}
    return {f: column for each in others for f, column in each.items() if column not in taken}


def _has_lists(rows: Sequence[dict[str, Any]], column: str | None) -> bool:
    """Check whether a column contains lists of objects, or text that begins like JSON of them."""
    values = [row[column] for row in rows if row.get(column)] if column is not None else []
    return bool(values) and all(
        bool(_LIST_START.match(value))
        if isinstance(value, str)
        else isinstance(value, dict) or isinstance(first_or_none(value), dict)
        for value in values
    )
