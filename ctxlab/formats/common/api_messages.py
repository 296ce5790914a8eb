"""The rows of a logged list of messages become messages, whichever API each is written for.

A row is one of OpenAI's (Chat Completions, or an item of Responses), Anthropic's, LangChain's, one of
OpenTelemetry's with ``parts``, one of Goose's, Kimi's or the Vercel AI SDK's, a pair of role and text,
or a text alone. Results that stand in a user's message become messages of their own, before it; those
in an assistant's, which its provider ran, behind it. A call that ``tool_calls`` and the content both
hold is one call; the second is counted. The items of one answer (reasoning, text,
calls) become one message, and so does what is logged as a message of its own with the role
``thinking``. Traces hold such lists (``api_calls``).

What is left out of a message (``extra["left_out"]``, a list of reasons) is said by the message, since
it is logged again with every later call, and is to be counted once (``traces``).

Source: platform.openai.com and docs.anthropic.com, as of 2026; ``langchain_messages``; ``otel/reader``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ctxlab._utils.jsonio import parse_json
from ctxlab.formats.base import SkipCallback
from ctxlab.formats.common.api_content import (
    is_block_list,
    is_tool_result,
    parse_tool_call,
    parse_tool_result,
    read_blocks,
)
from ctxlab.formats.common.langchain_messages import is_langchain_message, message_from_langchain
from ctxlab.formats.common.request_log import find_timestamp
from ctxlab.formats.common.usage import detect_usage
from ctxlab.formats.common.vercel_messages import is_ui_message, split_ui_message
from ctxlab.formats.fields import list_or_empty, parse_iso_time, require_object, text_or_none
from ctxlab.messages.content_parts import CALL_TYPES, part_type
from ctxlab.messages.types import Message, ToolCall

__all__ = [
    "SKIPPED_KEY",
    "is_control_row",
    "is_message",
    "is_role_text_pair",
    "parse_if_json",
    "parse_message",
    "parse_messages",
]

SKIPPED_KEY = "left_out"
"""Under which key of ``extra`` a message says what was left out of it."""

# Items of the Responses API that are the assistant's.
_ITEM_TYPES = ("message", "reasoning", "function_call", "custom_tool_call")
_GOOSE_SESSION_KEYS = ("description", "message_count", "schedule_id")
_THINKING_ROLES = ("thinking", "reasoning")


def parse_messages(rows: Iterable[Any], skip: SkipCallback) -> list[Message]:
    """The messages of rows; ``ValueError`` names a broken one.

    >>> call = {"type": "function_call", "call_id": "c", "name": "ls", "arguments": "{}"}
    >>> result = {"type": "function_call_output", "call_id": "c", "output": "a.txt"}
    >>> [m.role for m in parse_messages(["What is here?", call, result], print)]
    ['user', 'assistant', 'tool']
    """
    messages: list[Message] = []
    goes_on = None  # what the next row may be a part of: an answer's items, or its thinking
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
            messages[-1] = _merge_messages(messages[-1], new[0])
        else:
            messages += new
        _record_skipped(skipped, messages, skip)
        goes_on = "items" if item and new[-1].role == "assistant" else None
        if role in _THINKING_ROLES or kind == "reasoning":
            goes_on = "thinking"
    return messages


def parse_message(row: Any, skip: SkipCallback) -> list[Message]:
    """Return the messages of one row; what is left out of them is told at once.

    Parameters
    ----------
    row : Any
        A message of any API that ``parse_messages`` reads.
    skip : SkipCallback
        Told of each block that becomes nothing, and of each call that the row says twice.

    Returns
    -------
    list[Message]
        The message, and beside it the results that stand in it; none where the row holds nothing.

    Raises
    ------
    ValueError
        Where the row is no message; the text says why.
    """
    messages = []
    for message in _parse_row(row, skip):
        empty = not (message.content or message.tool_calls or message.reasoning)
        if not empty or message.role == "tool" or not _row_blocks(row):
            messages.append(message)
    return _with_time_and_usage(messages, row) if isinstance(row, dict) else messages


def _with_time_and_usage(messages: list[Message], row: dict[str, Any]) -> list[Message]:
    """The messages with the time of their row, and its usage on the assistant's."""
    time = find_timestamp(row) or parse_iso_time(row.get("createdAt"))
    usage = detect_usage(row.get("usage"))
    return [
        message.replace(
            time=time if message.time is None else message.time,
            usage=message.usage or (usage if message.role == "assistant" else None),
        )
        for message in messages
    ]


def is_control_row(row: Any) -> bool:
    """Whether a row of a message log holds no message: Kimi's marks, Goose's line on the session.

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
    """Whether a value is a message of any kind, or an item of one."""
    if not isinstance(value, dict):
        return False
    kind = value.get("type")
    item = isinstance(kind, str) and (
        kind in _ITEM_TYPES or kind.endswith(("_call", "_call_output"))
    )
    return "role" in value or item or is_langchain_message(value)


def is_role_text_pair(value: Any) -> bool:
    """Whether a value is one of LangChain's messages as role and text."""
    return isinstance(value, list) and len(value) == 2 and all(isinstance(v, str) for v in value)


def parse_if_json(value: Any) -> Any:
    """What a text that is a JSON object or list holds; everything else as it is.

    >>> parse_if_json('{"a": 1}'), parse_if_json("[sic]"), parse_if_json(None)
    ({'a': 1}, '[sic]', None)
    """
    if not isinstance(value, str) or value[:1] not in ("{", "["):
        return value
    try:
        return parse_json(value)
    except ValueError:
        return value


def _record_skipped(skipped: list[str], messages: list[Message], skip: SkipCallback) -> None:
    """What a row lost is put on the message that it became, or that stands before it."""
    if skipped and messages:
        extra = messages[-1].extra
        skipped = [*extra.get(SKIPPED_KEY, ()), *skipped]
        messages[-1] = messages[-1].replace(extra={**extra, SKIPPED_KEY: skipped})
        return
    for reason in skipped:
        skip(reason)


def _merge_messages(one: Message, other: Message) -> Message:
    said = [each.content for each in (one, other) if each.content]
    thoughts = [each.reasoning for each in (one, other) if each.reasoning]
    plain = all(isinstance(each, str) for each in said)
    return other.replace(
        content="\n".join(map(str, said)) if plain and said else said[-1] if said else None,
        tool_calls=one.tool_calls + other.tool_calls,
        reasoning="\n".join(thoughts) or None,
        usage=other.usage or one.usage,
        extra=one.extra | other.extra,
    )


def _parse_row(row: Any, skip: SkipCallback) -> list[Message]:
    """One logged message, and before it the results that stand in it."""
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
        return [Message("assistant", None, reasoning=text_or_none(content))]
    results: list[Message] = []
    calls = row.get("tool_calls") or row.get("toolCalls")
    if isinstance(content, list):
        results = [parse_tool_result(each, skip) for each in content if is_tool_result(each)]
        content = [each for each in content if not is_tool_result(each)]
        if isinstance(calls, list) and calls:
            calls, content = _drop_repeated_calls(calls, content, skip)
    id = row.get("tool_call_id") or row.get("toolCallId")
    if len(results) == 1 and results[0].tool_call_id is None and text_or_none(id):
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
    """The calls of a row, each once, and its content without them.

    Two are one call where they have the same id, or where one has none, the same name and arguments.
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
    return list_or_empty(row.get("parts")) or list_or_empty(row.get("content"))


def _parse_response_item(row: dict[str, Any], kind: str, skip: SkipCallback) -> list[Message]:
    """An item of OpenAI's Responses API that has no role."""
    if is_tool_result(row):
        return [parse_tool_result(row, skip)]
    if kind == "reasoning":
        thoughts = read_blocks([row], skip).reasoning
        return [Message("assistant", None, reasoning="\n".join(thoughts) or None)]
    if text_or_none(row.get("name")) and kind in (*_ITEM_TYPES, "tool_call"):
        return [Message("assistant", None, tool_calls=(parse_tool_call(row),))]
    skip(f"item of type {kind}")
    return []
