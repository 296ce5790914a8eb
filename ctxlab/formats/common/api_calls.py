"""What a tracer logged of a model call is read whatever it wraps the messages in.

What was sent is a text, a list of messages, a list of such lists, or an object that holds one. What
came back is any of these, or the response around it: ``choices``, ``generations``, ``message``,
``output``. Of several choices the first is taken, and the others are told to ``leave_out``. JSON of
any other shape is taken for what the model wrote, since tracers parse an answer that is JSON. The
messages themselves are read by ``any_messages``.

Source: docs.langchain.com/langsmith/log-llm-trace (2026), langsmith 0.15.0 ``wrappers``, langfuse
5.0.4 ``openai`` and ``langchain``, github.com/langfuse/langfuse ``utils/chatml``.
"""

from __future__ import annotations

from typing import Any

from ctxlab._utils.jsonio import dump_json
from ctxlab.formats.base import LeaveOut
from ctxlab.formats.common.api_content import are_blocks
from ctxlab.formats.common.api_messages import (
    is_message,
    is_pair,
    read_rows,
    unpacked,
)
from ctxlab.messages.types import Message

__all__ = ["answers_of", "messages_of"]

_OPENING = ("instructions", "system")
_SENT = ("messages", "input", "prompts", "prompt")
_ANSWERED = ("choices", "generations", "messages", "message", "output", "completion", "text")
_DEPTH = 6


def messages_of(value: Any, leave_out: LeaveOut) -> list[Message]:
    """What was sent to a model; nothing where it is of no known shape.

    >>> [m.text for m in messages_of({"instructions": "s", "input": "hi"}, print)]
    ['s', 'hi']
    """
    logged, value = value, unpacked(value)
    opening: list[Message] = []
    for _ in range(_DEPTH):
        if isinstance(value, dict) and not is_message(value):
            for key in _OPENING:
                if said := value.get(key):
                    opening += read_rows([{"role": "system", "content": said}], leave_out)
            value = unpacked(next((value[key] for key in _SENT if value.get(key)), None))
        elif isinstance(value, list) and value and all(map(_is_batch, value)):
            value = _first_of(value, leave_out, "further prompt of a batch")
    rows = value if isinstance(value, list) else [value] if value else []
    if not all(isinstance(row, str) or is_pair(row) or is_message(row) for row in rows):
        rows = [logged] if isinstance(logged, str) else []
    return opening + read_rows(rows, leave_out)


def answers_of(value: Any, leave_out: LeaveOut) -> list[Message]:
    """What came back: most often one message, none where a call failed.

    Several are what happened within the call: answers, results, and the last answer.

    >>> answers_of({"choices": [{"message": {"role": "assistant", "content": "ho"}}]}, print)[0].text
    'ho'
    """
    value = unpacked(value)
    for _ in range(_DEPTH):
        if not isinstance(value, dict) or is_message(value):
            break
        if "content" in value or "tool_calls" in value:
            value = value | {"role": "assistant"}
            break
        places = [key for key in _ANSWERED if key in value]
        key = next((key for key in places if value[key]), None)
        if key is None:
            value = None if places else value
            break
        value = unpacked(value[key])
        while key in ("choices", "generations") and isinstance(value, list):
            value = _first_of(value, leave_out)  # LangChain has a list of choices for each prompt
    if value is None or value in ("", [], {}):
        return []
    rows = value if isinstance(value, list) else [value]
    if are_blocks(rows) and not all(map(is_message, rows)):
        rows = [{"role": "assistant", "content": rows}]
    elif is_pair(rows) and rows[0] == "assistant":
        rows = [{"role": "assistant", "content": rows[1]}]
    if not all(map(is_message, rows)):
        return [Message("assistant", value if isinstance(value, str) else dump_json(value))]
    answers = read_rows((_assistants(row) for row in rows), leave_out)
    if all(answer.role == "assistant" for answer in answers):
        return [_first_of(answers, leave_out)] if answers else []
    return answers


def _first_of(each: list[Any], leave_out: LeaveOut, others: str = "further choice") -> Any:
    for _ in each[1:]:
        leave_out(others)
    return each[0] if each else None


def _is_batch(value: Any) -> bool:
    return isinstance(value, list) and not is_pair(value)


def _assistants(row: dict[str, Any]) -> dict[str, Any]:
    """An answer whose role was not logged is the assistant's."""
    unsaid = row.get("role") is None and row.get("type") in (None, "message")
    return row | {"role": "assistant"} if unsaid else row
