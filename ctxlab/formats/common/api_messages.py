"""The rows of a logged list of messages become messages, whichever API each is written for.

A row is one of OpenAI's (Chat Completions, or an item of Responses), Anthropic's, LangChain's, one of
OpenTelemetry's with ``parts``, one of Goose's, Kimi's or the Vercel AI SDK's, a pair of role and text,
or a text alone. Results that stand in a user's message become messages of their own, before it; those
in an assistant's, which its provider ran, behind it. A call that ``tool_calls`` and the content both
hold is one call; the second is counted. The items of one answer (reasoning, text,
calls) become one message, and so does what is logged as a message of its own with the role
``thinking``. Traces hold such lists (``any_call``).

What is left out of a message (``extra["left_out"]``, a list of reasons) is said by the message, since
it is logged again with every later call, and is to be counted once (``traced_calls``).

Source: platform.openai.com and docs.anthropic.com, as of 2026; ``langchain_message``; ``otel_genai``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ctxlab._utils.jsonio import parse_json
from ctxlab.formats.base import LeaveOut
from ctxlab.formats.common.api_content import (
    are_blocks,
    call,
    is_result,
    read_blocks,
    result,
)
from ctxlab.formats.common.langchain_messages import (
    is_langchain_message,
    message_from_langchain,
)
from ctxlab.formats.common.request_log import moment
from ctxlab.formats.common.usage import any_usage
from ctxlab.formats.common.vercel_messages import (
    is_ui_message,
    model_rows,
)
from ctxlab.formats.optional_fields import (
    iso_time,
    listed,
    text,
)
from ctxlab.formats.required_fields import an_object
from ctxlab.messages.content_parts import (
    CALLS,
    part_type,
)
from ctxlab.messages.types import (
    Message,
    ToolCall,
)

__all__ = ["LEFT_OUT", "is_control", "is_message", "is_pair", "read_row", "read_rows", "unpacked"]

LEFT_OUT = "left_out"
"""Under which key of ``extra`` a message says what was left out of it."""

# Items of the Responses API that are the assistant's.
_ITEMS = ("message", "reasoning", "function_call", "custom_tool_call")
_GOOSE_SESSION = ("description", "message_count", "schedule_id")
_THINKING = ("thinking", "reasoning")


def read_rows(rows: Iterable[Any], leave_out: LeaveOut) -> list[Message]:
    """The messages of rows; ``ValueError`` names a broken one.

    >>> call = {"type": "function_call", "call_id": "c", "name": "ls", "arguments": "{}"}
    >>> result = {"type": "function_call_output", "call_id": "c", "output": "a.txt"}
    >>> [m.role for m in read_rows(["What is here?", call, result], print)]
    ['user', 'assistant', 'tool']
    """
    messages: list[Message] = []
    goes_on = None  # what the next row may be a part of: an answer's items, or its thinking
    for number, row in enumerate(rows):
        lost: list[str] = []
        try:
            new = _message(row, lost.append)
        except ValueError as error:
            raise ValueError(f"message {number}: {error}") from None
        if not new:
            _tell(lost, messages, leave_out)
            continue
        kind, role = (row.get("type"), row.get("role")) if isinstance(row, dict) else (None, None)
        item = kind in _ITEMS
        if new[0].role == "assistant" and (goes_on == "thinking" or (goes_on and item)):
            messages[-1] = _joined(messages[-1], new[0])
        else:
            messages += new
        _tell(lost, messages, leave_out)
        goes_on = "items" if item and new[-1].role == "assistant" else None
        if role in _THINKING or kind == "reasoning":
            goes_on = "thinking"
    return messages


def read_row(row: Any, leave_out: LeaveOut) -> list[Message]:
    """Return the messages of one row; what is left out of them is told at once.

    Parameters
    ----------
    row : Any
        A message of any API that ``read_rows`` reads.
    leave_out : LeaveOut
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
    for message in _message(row, leave_out):
        empty = not (message.content or message.tool_calls or message.reasoning)
        if not empty or message.role == "tool" or not _blocks_of(row):
            messages.append(message)
    return _dated(messages, row) if isinstance(row, dict) else messages


def _dated(messages: list[Message], row: dict[str, Any]) -> list[Message]:
    """The messages with the time of their row, and its usage on the assistant's."""
    time = moment(row) or iso_time(row.get("createdAt"))
    usage = any_usage(row.get("usage"))
    return [
        message.replace(
            time=time if message.time is None else message.time,
            usage=message.usage or (usage if message.role == "assistant" else None),
        )
        for message in messages
    ]


def is_control(row: Any) -> bool:
    """Whether a row of a message log holds no message: Kimi's marks, Goose's line on the session.

    >>> is_control({"role": "_checkpoint", "id": 0}), is_control({"role": "user"})
    (True, False)
    """
    if not isinstance(row, dict):
        return False
    role = row.get("role")
    if isinstance(role, str):
        return role.startswith("_")
    return "working_dir" in row and not row.keys().isdisjoint(_GOOSE_SESSION)


def is_message(value: Any) -> bool:
    """Whether a value is a message of any kind, or an item of one."""
    if not isinstance(value, dict):
        return False
    kind = value.get("type")
    item = isinstance(kind, str) and (kind in _ITEMS or kind.endswith(("_call", "_call_output")))
    return "role" in value or item or is_langchain_message(value)


def is_pair(value: Any) -> bool:
    """Whether a value is one of LangChain's messages as role and text."""
    return isinstance(value, list) and len(value) == 2 and all(isinstance(v, str) for v in value)


def unpacked(value: Any) -> Any:
    """What a text that is a JSON object or list holds; everything else as it is.

    >>> unpacked('{"a": 1}'), unpacked("[sic]"), unpacked(None)
    ({'a': 1}, '[sic]', None)
    """
    if not isinstance(value, str) or value[:1] not in ("{", "["):
        return value
    try:
        return parse_json(value)
    except ValueError:
        return value


def _tell(lost: list[str], messages: list[Message], leave_out: LeaveOut) -> None:
    """What a row lost is put on the message that it became, or that stands before it."""
    if lost and messages:
        extra = messages[-1].extra
        lost = [*extra.get(LEFT_OUT, ()), *lost]
        messages[-1] = messages[-1].replace(extra={**extra, LEFT_OUT: lost})
        return
    for reason in lost:
        leave_out(reason)


def _joined(one: Message, other: Message) -> Message:
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


def _message(row: Any, leave_out: LeaveOut) -> list[Message]:
    """One logged message, and before it the results that stand in it."""
    if isinstance(row, str):
        return [Message("user", row)]
    if is_pair(row):
        row = {"role": row[0], "content": row[1]}
    row = an_object(row, "a message")
    if is_langchain_message(row):
        return [message_from_langchain(row, leave_out)]
    if is_ui_message(row):
        rows = model_rows(row, leave_out)
        return [message for each in rows for message in _message(each, leave_out)]
    role, kind = row.get("role"), row.get("type")
    if role is None and isinstance(kind, str):
        return _item(row, kind, leave_out)
    content = row["parts"] if isinstance(row.get("parts"), list) else row.get("content")
    if isinstance(content, str) and are_blocks(blocks := unpacked(content)):
        content = blocks
    if role in _THINKING:
        return [Message("assistant", None, reasoning=text(content))]
    results: list[Message] = []
    calls = row.get("tool_calls") or row.get("toolCalls")
    if isinstance(content, list):
        results = [result(each, leave_out) for each in content if is_result(each)]
        content = [each for each in content if not is_result(each)]
        if isinstance(calls, list) and calls:
            calls, content = _once(calls, content, leave_out)
    id = row.get("tool_call_id") or row.get("toolCallId")
    if len(results) == 1 and results[0].tool_call_id is None and text(id):
        results = [results[0].replace(tool_call_id=id)]
    plain = {key: value for key, value in row.items() if key not in ("lc", "data")}
    said = {"type": role, "content": content, "tool_calls": calls, "tool_call_id": id}
    message = message_from_langchain(plain | said, leave_out)
    if results and not (message.content or message.tool_calls or message.reasoning):
        return results
    return [message, *results] if message.role == "assistant" else [*results, message]


def _once(calls: list[Any], content: list[Any], leave_out: LeaveOut) -> tuple[list[Any], list[Any]]:
    """The calls of a row, each once, and its content without them.

    Two are one call where they have the same id, or where one has none, the same name and arguments.
    """
    told = [call(each) for each in calls]
    kept: list[Any] = []
    for block in content:
        if not isinstance(block, dict) or part_type(block) not in CALLS:
            kept.append(block)
            continue
        again = call(block)
        if any(_is_same(again, each) for each in told):
            leave_out("tool call in the content that tool_calls holds too")
        else:
            calls = [*calls, block]
            told.append(again)
    return calls, kept


def _is_same(one: ToolCall, other: ToolCall) -> bool:
    if one.id and other.id:
        return one.id == other.id
    return one.name == other.name and unpacked(one.arguments) == unpacked(other.arguments)


def _blocks_of(row: Any) -> list[Any]:
    row = row if isinstance(row, dict) else {}
    return listed(row.get("parts")) or listed(row.get("content"))


def _item(row: dict[str, Any], kind: str, leave_out: LeaveOut) -> list[Message]:
    """An item of OpenAI's Responses API that has no role."""
    if is_result(row):
        return [result(row, leave_out)]
    if kind == "reasoning":
        thoughts = read_blocks([row], leave_out).thoughts
        return [Message("assistant", None, reasoning="\n".join(thoughts) or None)]
    if text(row.get("name")) and kind in (*_ITEMS, "tool_call"):
        return [Message("assistant", None, tool_calls=(call(row),))]
    leave_out(f"item of type {kind}")
    return []
