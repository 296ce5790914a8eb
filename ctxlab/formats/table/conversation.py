"""Convert the rows of a table to recordings.

The messages of a conversation may be in the formats of all chat APIs that ctxlab reads, in the format
of SWE-agent (``agent`` in each message) or turns of ShareGPT. They are a list, JSON text of a list, or
an object that contains the list. In data sets of nebius, a message has its content under ``text``, the
system prompt under ``system_prompt``, and the role ``ai``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ctxlab._utils.jsonio import parse_json
from ctxlab.formats.base import Location, SkipCallback, Source
from ctxlab.formats.common.api_content import is_block_list, parse_tools
from ctxlab.formats.common.api_messages import is_control_row, parse_message
from ctxlab.formats.common.chat_format import CHAT_ROLES, has_non_openai_parts
from ctxlab.formats.common.request_log import short_metadata
from ctxlab.formats.fields import (
    first_or_none,
    get_number,
    get_text,
    is_short_value,
    parse_if_json,
    require_object,
)
from ctxlab.formats.messages import PartCount
from ctxlab.formats.openai_chat import parse_openai_message
from ctxlab.formats.sharegpt import is_turn, parse_turns
from ctxlab.formats.swe_agent import parse_swe_agent_message
from ctxlab.formats.table.columns import MESSAGE_FIELDS
from ctxlab.messages.types import Message, Recording

_LIST_KEYS = ("messages", "conversations", "conversation", "history", "trajectory")
_CONTENT_KEYS = ("content", "parts", "tool_calls", "function_call")
_ROLES = {
    "human": "user",
    "prompter": "user",
    "ai": "assistant",
    "gpt": "assistant",
    "bot": "assistant",
    "chatbot": "assistant",
}
# Keys of messages, as the parsers name them, by field of the table.
_MESSAGE_KEYS = {"time": "timestamp", "reasoning": "reasoning_content"}


def build_conversation(
    row: Mapping[str, Any], columns: Mapping[str, str], source: Source, where: Location
) -> Recording | None:
    """Build the recording of a row that contains a conversation.

    Parameters
    ----------
    row : mapping
        Column → value.
    columns : mapping of str to str
        Field → column, as ``match_columns`` returns them.
    source : Source
        The file. Content that is skipped is counted by its ``skip`` method.
    where : tuple of (int, str)
        Position of the row in the file.

    Returns
    -------
    Recording or None
        The recording, or None if the row contains no messages.

    Raises
    ------
    ReadError
        If a message is malformed and ``on_error`` is ``"raise"``.
    ValueError
        If the row is malformed in another way.
    """
    body, listed = _find_messages(row.get(columns["messages"]), columns["messages"])
    held = {field: row.get(column) for field, column in columns.items()}
    messages = _parse_list(listed, source, where)
    return _build(row, columns, {**body, **_without_empty(held)}, messages, source, where)


def build_thread(
    rows: Iterable[tuple[int, Mapping[str, Any]]],
    columns: Mapping[str, str],
    source: Source,
    item: str,
) -> Recording | None:
    """Build the recording of a conversation whose messages are in separate rows.

    Short values that are the same in all rows become the ``meta`` of the recording. Other values are
    stored in the ``extra`` of the messages.

    Parameters
    ----------
    rows : iterable of tuple
        The rows with their numbers, in the order of the file.
    columns : mapping of str to str
        Field → column, as ``match_columns`` returns them.
    source : Source
        The file. Content that is skipped is counted by its ``skip`` method.
    item : str
        What the numbers count: ``"row"`` or ``"line"``.

    Returns
    -------
    Recording or None
        The recording, or None if no row contains a message.

    Raises
    ------
    ReadError
        If a row is malformed and ``on_error`` is ``"raise"``.
    ValueError
        If the tool definitions are malformed.
    """
    ordered: list[tuple[float, int, Mapping[str, Any]]] = []
    for number, row in rows:
        with source.handle_errors(number, item):
            ordered.append((_order(row, columns.get("order")), number, row))
    if not ordered:
        return None
    ordered.sort(key=lambda each: each[0])
    first_row = ordered[0][2]
    same = {
        column: value
        for column, value in first_row.items()
        if is_short_value(value) and all(row.get(column) == value for _, _, row in ordered)
    }
    messages: list[Message] = []
    for _, number, row in ordered:
        with source.handle_errors(number, item):
            messages += _parse_one(_message_of(row, columns, same), source.skip)
    held = {
        field: next(
            (row[column] for _, _, row in ordered if row.get(column) not in (None, "")), None
        )
        for field, column in columns.items()
        if field not in MESSAGE_FIELDS
    }
    where = (ordered[0][1], item)
    return _build(same, columns, _without_empty(held), messages, source, where)


def _build(
    row: Mapping[str, Any],
    columns: Mapping[str, str],
    held: Mapping[str, Any],
    messages: Iterable[Message],
    source: Source,
    where: Location,
) -> Recording | None:
    """Build a recording from its messages and the values of the other fields in ``held``."""
    said = tuple(messages)
    if not said:
        source.skip("conversation without messages", where[0])
        return None
    system = get_text(held, "system")
    if system and said[0].role != "system":
        said = (Message("system", system), *said)
    used = {column for field, column in columns.items() if field != "id"}
    others = {key: each for key, each in row.items() if key not in used and each not in (None, "")}
    id, cluster = held.get("id"), held.get("cluster")
    return Recording(
        source.name if not is_short_value(id) else f"{source.name}/{id}",
        said,
        tools=parse_tools(held.get("tools"), source.skip),
        model=get_text(held, "model"),
        cluster=str(cluster) if is_short_value(cluster) else None,
        meta=short_metadata(others),
    )


def _find_messages(value: Any, column: str) -> tuple[dict[str, Any], list[Any]]:
    """Return the object that contains the list of messages, if there is one, and the list."""
    if isinstance(value, str):
        try:
            value = parse_json(value)
        except ValueError:
            python = value.lstrip()[:3] in ("[{'", "{'m", "{'r")
            fix = "; it is the text of a Python list, so write it with json.dumps" if python else ""
            raise ValueError(f"column {column}: expected JSON with messages{fix}") from None
    if value is None:
        return {}, []
    if isinstance(value, list):
        return {}, value
    lists = (value[key] for key in _LIST_KEYS if isinstance(value, dict) and key in value)
    found = next((each for each in lists if isinstance(each, list)), None)
    if found is None:
        kind = type(value).__name__
        raise ValueError(f"column {column}: expected a list of messages, got {kind}")
    body = {key: value[key] for key in ("system", "tools", "model") if key in value}
    return body, found


def _parse_list(listed: list[Any], source: Source, where: Location) -> Iterable[Message]:
    rows = [parse_if_json(each) for each in listed]
    if is_turn(first_or_none(rows)):
        return parse_turns(((where, turn) for turn in rows), source)
    parts = PartCount()
    messages: list[Message] = []
    for position, row in enumerate(rows):
        if is_control_row(row):
            source.skip(f"row of role {get_text(row, 'role')}", where[0])
            continue
        parts.add(row)
        try:
            messages += _parse_one(row, source.skip)
        except ValueError as error:
            # A malformed message is skipped alone, not with its conversation.
            source.report_error(f"message {position}: {error}", *where)
    if reason := parts.refusal_reason():
        raise ValueError(reason)
    return messages


def _parse_one(row: Any, skip: SkipCallback) -> list[Message]:
    if isinstance(row, dict):
        row = _rename(row)
        if {"agent", "content"} <= row.keys() and isinstance(row.get("role"), str):
            return [parse_swe_agent_message(row)]
        plain = row.get("role") in CHAT_ROLES and "type" not in row
        if plain and not has_non_openai_parts(row):
            return parse_openai_message(row, skip)
    return parse_message(row, skip)


def _rename(row: dict[str, Any]) -> dict[str, Any]:
    """Return a message with the roles and keys of chat APIs."""
    role = row.get("role", row.get("from"))
    if not isinstance(role, str):
        return row
    named = {**row, "role": _ROLES.get(role.lower(), role)}
    named.pop("from", None)
    if not row.keys().isdisjoint(_CONTENT_KEYS):
        return named
    system = get_text(row, "system_prompt") if role == "system" else None
    for key in ("system_prompt", "text", "value"):
        content = named.pop(key, None)
        system = system if system is not None else content
    return named | {"content": system}


def _message_of(
    row: Mapping[str, Any], columns: Mapping[str, str], same: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the message of a row, with the other values that differ between rows."""
    used = set(columns.values())
    others = {k: v for k, v in row.items() if k not in used and k not in same}
    message: dict[str, Any] = {}
    for field in MESSAGE_FIELDS:
        value = row.get(columns[field]) if field in columns else None
        if field == "order" or value is None or (value == "" and field != "content"):
            continue
        if field in ("tool_calls", "usage") or is_block_list(parse_if_json(value)):
            value = parse_if_json(value)
        message[_MESSAGE_KEYS.get(field, field)] = value
    if isinstance(message.get("role"), str):
        message["role"] = message["role"].lower()
    return _without_empty(others) | require_object(message, "a message")


def _order(row: Mapping[str, Any], column: str | None) -> float:
    if column is None:
        return 0.0
    value = row.get(column)
    try:
        return float(value) if isinstance(value, str) else _require_number(value)
    except ValueError:
        raise ValueError(f"column {column}: expected a number, got {value!r}") from None


def _require_number(value: Any) -> float:
    number = get_number(value)
    if number is None:
        raise ValueError
    return number


def _without_empty(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: each for key, each in values.items() if each not in (None, "")}


def iter_threads(
    rows: Iterable[tuple[int, Mapping[str, Any]]], column: str, sizes: Mapping[Any, int]
) -> Iterator[list[tuple[int, Mapping[str, Any]]]]:
    """Collect the rows of each conversation, and yield them as soon as they are complete.

    Only the conversations whose rows are not complete are in memory.

    Parameters
    ----------
    rows : iterable of tuple
        The rows with their numbers.
    column : str
        The column with the id of the conversation.
    sizes : mapping
        Id → number of rows.

    Yields
    ------
    list of tuple
        The rows of a conversation.

    Examples
    --------
    >>> rows = [(0, {"id": "a"}), (1, {"id": "b"}), (2, {"id": "a"})]
    >>> [[number for number, _ in each] for each in iter_threads(rows, "id", {"a": 2, "b": 1})]
    [[1], [0, 2]]
    """
    begun: dict[Any, list[tuple[int, Mapping[str, Any]]]] = {}
    for number, row in rows:
        id = row.get(column)
        begun.setdefault(id, []).append((number, row))
        if len(begun[id]) == sizes.get(id):
            yield begun.pop(id)
    yield from begun.values()
