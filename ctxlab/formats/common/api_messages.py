"""Parse logged messages of many APIs.

A row of a log is a message of OpenAI (Chat Completions, or an item of the Responses API),
Anthropic, LangChain, OpenTelemetry (with ``parts``), Goose, Kimi or the Vercel AI SDK. It may also
be a pair such as ``["user", "hi"]``, or a string, which is read as a user message.

- Tool results in a user message become separate messages before it. Tool results in an assistant
  message, which are from tools that the provider ran, become separate messages after it.
- A call that is in both ``tool_calls`` and the content is read once. The repetition is counted.
- The Responses API splits an answer into items for reasoning, text and calls. The items of an
  answer are joined into one message. A message with the role ``thinking`` is joined with the answer
  after it.

``parse_messages`` does not report skipped items of a message directly. It stores their descriptions
as a list in ``extra["left_out"]`` of the message. A message is logged again with every later model
call, and ``traces`` uses this list to count its skipped items only once.

References
----------
platform.openai.com and docs.anthropic.com, as of 2026; ``langchain_messages``; ``otel/reader``.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

from ctxlab.formats.base import SkipCallback
from ctxlab.formats.common.api_content import (
    is_block_list,
    is_tool_result,
    parse_tool_call,
    parse_tool_result,
    read_blocks,
)
from ctxlab.formats.common.chat_format import text_part
from ctxlab.formats.common.langchain_messages import is_langchain_message, message_from_langchain
from ctxlab.formats.common.request_log import find_timestamp
from ctxlab.formats.common.usage import detect_usage
from ctxlab.formats.common.vercel_messages import is_ui_message, split_ui_message
from ctxlab.formats.fields import get_list, get_text, get_time, parse_if_json, require_object
from ctxlab.messages.content_parts import CALL_TYPES, part_type
from ctxlab.messages.types import Message, ToolCall

SKIPPED_KEY = "left_out"
"""Key of ``Message.extra`` that lists the descriptions of skipped items of a message."""

# Items of the Responses API that belong to the assistant.
_ITEM_TYPES = ("message", "reasoning", "function_call", "custom_tool_call")
_GOOSE_SESSION_KEYS = ("description", "message_count", "schedule_id")
_THINKING_ROLES = ("thinking", "reasoning")


def parse_messages(rows: Iterable[Any], skip: SkipCallback) -> list[Message]:
    """Parse a list of logged messages.

    Descriptions of items that are skipped within a message are stored in ``extra["left_out"]`` of
    the message.

    Parameters
    ----------
    rows : iterable of Any
        The logged messages, in the format of any supported API.
    skip : Callable
        Called with a description of each item that is skipped before the first parsed message.

    Returns
    -------
    list of Message
        The parsed messages, in the same order.

    Raises
    ------
    ValueError
        If a row is malformed. The error message contains the index of the row.

    Examples
    --------
    >>> call = {"type": "function_call", "call_id": "c", "name": "ls", "arguments": "{}"}
    >>> result = {"type": "function_call_output", "call_id": "c", "output": "a.txt"}
    >>> [m.role for m in parse_messages(["What is here?", call, result], print)]
    ['user', 'assistant', 'tool']
    """
    messages: list[Message] = []
    goes_on = None  # "items" or "thinking" if the next row may be a part of the same answer
    for number, row in enumerate(rows):
        skipped: list[str] = []
        try:
            new = _parse_row(row, skipped.append)
        except ValueError as error:
            raise ValueError(f"message {number}: {error}") from None
        if not new:
            _record_skipped(skipped, messages, skip)
            continue
        kind, role = (row.get("type"), row.get("role")) if isinstance(row, dict) else (None, None)
        item = kind in _ITEM_TYPES
        if new[0].role == "assistant" and (goes_on == "thinking" or (goes_on and item)):
            messages[-1] = merge_messages(messages[-1], new[0])
        else:
            messages += new
        _record_skipped(skipped, messages, skip)
        goes_on = "items" if item and new[-1].role == "assistant" else None
        if role in _THINKING_ROLES or kind == "reasoning":
            goes_on = "thinking"
    return messages


def parse_message(row: Any, skip: SkipCallback) -> list[Message]:
    """Parse one logged message.

    Parameters
    ----------
    row : Any
        A message in the format of any API that ``parse_messages`` supports.
    skip : Callable
        Called with a description of each skipped block and of each repeated call.

    Returns
    -------
    list of Message
        The message, and the tool results that it contains as separate messages. Empty if all its
        content was skipped.

    Raises
    ------
    ValueError
        If the row is not a valid message.
    """
    messages = []
    for message in _parse_row(row, skip):
        empty = not (message.content or message.tool_calls or message.reasoning)
        if not empty or message.role == "tool" or not _row_blocks(row):
            messages.append(message)
    return _with_time_and_usage(messages, row) if isinstance(row, dict) else messages


def _with_time_and_usage(messages: list[Message], row: dict[str, Any]) -> list[Message]:
    """Copy the time of a row to its messages, and the usage of the row to its assistant messages."""
    time = find_timestamp(row) or get_time(row, "createdAt")
    usage = detect_usage(row.get("usage"))
    timed = (each if each.time is not None else each.replace(time=time) for each in messages)
    return [e.replace(usage=e.usage or usage) if e.role == "assistant" else e for e in timed]


def merge_messages(one: Message, other: Message) -> Message:
    """Join two parts of one answer.

    Parameters
    ----------
    one, other : Message
        The parts, in order. The role, time and name are taken from the second one.

    Returns
    -------
    Message
        A message with the texts, reasoning and tool calls of both parts.
    """
    said = [each.content for each in (one, other) if each.content]
    thoughts = [each.reasoning for each in (one, other) if each.reasoning]
    plain = [each for each in said if isinstance(each, str)]
    parts = [each if isinstance(each, tuple) else (text_part(each),) for each in said]
    joined = "\n".join(plain) if len(plain) == len(said) else tuple(chain.from_iterable(parts))
    skipped = [reason for each in (one, other) for reason in each.extra.get(SKIPPED_KEY, ())]
    return other.replace(
        content=joined or None,
        tool_calls=one.tool_calls + other.tool_calls,
        reasoning="\n".join(thoughts) or None,
        usage=other.usage or one.usage,
        extra=one.extra | other.extra | ({SKIPPED_KEY: skipped} if skipped else {}),
    )


def is_control_row(row: Any) -> bool:
    """Check whether a row of a log describes the log or the session, and is not a message.

    Kimi writes several such control rows. Goose writes one, which describes the session.

    Parameters
    ----------
    row : Any
        A row of a message log.

    Returns
    -------
    bool
        True if the row has a role that starts with ``_`` or the keys of a Goose session.

    Examples
    --------
    >>> is_control_row({"role": "_checkpoint", "id": 0}), is_control_row({"role": "user"})
    (True, False)
    """
    if not isinstance(row, dict):
        return False
    role = row.get("role")
    if isinstance(role, str):
        return role.startswith("_")
    return "working_dir" in row and not row.keys().isdisjoint(_GOOSE_SESSION_KEYS)


def is_message(value: Any) -> bool:
    """Check whether a value is a message of any supported API, or an item of the Responses API.

    Parameters
    ----------
    value : Any
        A JSON value.

    Returns
    -------
    bool
        True if the value is an object with a role, or with the type of a message or item.
    """
    if not isinstance(value, dict):
        return False
    kind = value.get("type")
    item = isinstance(kind, str) and kind.endswith(("_call", "_call_output"))
    return "role" in value or item or kind in _ITEM_TYPES or is_langchain_message(value)


def is_role_text_pair(value: Any) -> bool:
    """Check whether a value is a list of role and text, such as ``["user", "hi"]``.

    LangChain accepts messages in this form.

    Parameters
    ----------
    value : Any
        A JSON value.

    Returns
    -------
    bool
        True if the value is a list of two strings.
    """
    return isinstance(value, list) and len(value) == 2 and all(isinstance(v, str) for v in value)


def _record_skipped(skipped: list[str], messages: list[Message], skip: SkipCallback) -> None:
    """Store descriptions of skipped items in ``extra`` of the last message.

    If there is no message yet, they are passed to ``skip``.
    """
    if skipped and messages:
        extra = messages[-1].extra
        skipped = [*extra.get(SKIPPED_KEY, ()), *skipped]
        messages[-1] = messages[-1].replace(extra={**extra, SKIPPED_KEY: skipped})
        return
    for reason in skipped:
        skip(reason)


def _parse_row(row: Any, skip: SkipCallback) -> list[Message]:
    """Parse one row into its message and a separate message for each tool result in it."""
    if isinstance(row, str):
        return [Message("user", row)]
    if is_role_text_pair(row):
        row = {"role": row[0], "content": row[1]}
    row = require_object(row, "a message")
    if is_langchain_message(row):
        return [message_from_langchain(row, skip)]
    if is_ui_message(row):
        rows = split_ui_message(row, skip)
        return [message for each in rows for message in _parse_row(each, skip)]
    role, kind = row.get("role"), row.get("type")
    if role is None and isinstance(kind, str):
        return _parse_response_item(row, kind, skip)
    content = row["parts"] if isinstance(row.get("parts"), list) else row.get("content")
    if isinstance(content, str) and is_block_list(blocks := parse_if_json(content)):
        content = blocks
    if role in _THINKING_ROLES:
        return [Message("assistant", None, reasoning=get_text(content))]
    results: list[Message] = []
    calls = row.get("tool_calls") or row.get("toolCalls")
    if isinstance(content, list):
        results = [parse_tool_result(each, skip) for each in content if is_tool_result(each)]
        content = [each for each in content if not is_tool_result(each)]
        if isinstance(calls, list) and calls:
            calls, content = _drop_repeated_calls(calls, content, skip)
    id = row.get("tool_call_id") or row.get("toolCallId")
    if len(results) == 1 and results[0].tool_call_id is None and get_text(id):
        results = [results[0].replace(tool_call_id=id)]
    plain = {key: value for key, value in row.items() if key not in ("lc", "data")}
    said = {"type": role, "content": content, "tool_calls": calls, "tool_call_id": id}
    message = message_from_langchain(plain | said, skip)
    if results and not (message.content or message.tool_calls or message.reasoning):
        return results
    return [message, *results] if message.role == "assistant" else [*results, message]


def _drop_repeated_calls(
    calls: list[Any], content: list[Any], skip: SkipCallback
) -> tuple[list[Any], list[Any]]:
    """Move the tool calls in the content of a row to ``calls``, except for repeated calls.

    Return all calls and the remaining content. Two calls are the same if they have the same id. If
    one of them has no id, their names and arguments are compared.
    """
    parsed_calls = [parse_tool_call(each) for each in calls]
    kept: list[Any] = []
    for block in content:
        if not isinstance(block, dict) or part_type(block) not in CALL_TYPES:
            kept.append(block)
            continue
        again = parse_tool_call(block)
        if any(_is_same_call(again, each) for each in parsed_calls):
            skip("tool call in the content that tool_calls holds too")
        else:
            calls = [*calls, block]
            parsed_calls.append(again)
    return calls, kept


def _is_same_call(one: ToolCall, other: ToolCall) -> bool:
    if one.id and other.id:
        return one.id == other.id
    return one.name == other.name and parse_if_json(one.arguments) == parse_if_json(other.arguments)


def _row_blocks(row: Any) -> list[Any]:
    row = row if isinstance(row, dict) else {}
    return get_list(row, "parts") or get_list(row, "content")


def _parse_response_item(row: dict[str, Any], kind: str, skip: SkipCallback) -> list[Message]:
    """Parse an item of OpenAI's Responses API that has no role, such as a call or its output."""
    if is_tool_result(row):
        return [parse_tool_result(row, skip)]
    if kind == "reasoning":
        thoughts = read_blocks([row], skip).reasoning
        return [Message("assistant", None, reasoning="\n".join(thoughts) or None)]
    if get_text(row, "name") and kind in (*_ITEM_TYPES, "tool_call"):
        return [Message("assistant", None, tool_calls=(parse_tool_call(row),))]
    skip(f"item of type {kind}")
    return []
