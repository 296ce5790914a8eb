"""Parsers for the request and the response of a traced model call, however they are wrapped.

A request is a text, a list of messages, a list of such lists, or an object that contains one. A
response is one of these or the object around it: ``choices``, ``generations``, ``message``,
``output``. The first of several choices is read, and the others are reported to ``skip``. JSON of
any other shape is taken as the text of the model, because tracers parse answers that are JSON.
``api_messages`` parses the messages.

References
----------
docs.langchain.com/langsmith/log-llm-trace (2026), langsmith 0.15.0 ``wrappers``, langfuse
5.0.4 ``openai`` and ``langchain``, github.com/langfuse/langfuse ``utils/chatml``.
"""

from __future__ import annotations

from typing import Any

from ctxlab._utils.jsonio import dump_json
from ctxlab.formats.base import SkipCallback
from ctxlab.formats.common.api_content import is_block_list
from ctxlab.formats.common.api_messages import (
    is_message,
    is_role_text_pair,
    parse_if_json,
    parse_messages,
)
from ctxlab.messages.types import Message

_SYSTEM_KEYS = ("instructions", "system")
_INPUT_KEYS = ("messages", "input", "prompts", "prompt")
_OUTPUT_KEYS = ("choices", "generations", "messages", "message", "output", "completion", "text")
_MAX_DEPTH = 6


def parse_request_messages(value: Any, skip: SkipCallback) -> list[Message]:
    """Parse the messages that were sent to a model.

    Parameters
    ----------
    value : Any
        The logged request.
    skip : Callable
        Called with a description of each item that is left out.

    Returns
    -------
    list of Message
        The messages. Empty if the request has an unknown shape.

    Raises
    ------
    ValueError
        If a message is broken.

    Examples
    --------
    >>> [m.text for m in parse_request_messages({"instructions": "s", "input": "hi"}, print)]
    ['s', 'hi']
    """
    logged, value = value, parse_if_json(value)
    opening: list[Message] = []
    for _ in range(_MAX_DEPTH):
        if isinstance(value, dict) and not is_message(value):
            for key in _SYSTEM_KEYS:
                if said := value.get(key):
                    opening += parse_messages([{"role": "system", "content": said}], skip)
            value = parse_if_json(next((value[key] for key in _INPUT_KEYS if value.get(key)), None))
        elif isinstance(value, list) and value and all(map(_is_batch, value)):
            value = _take_first(value, skip, "further prompt of a batch")
    rows = value if isinstance(value, list) else [value] if value else []
    if not all(isinstance(row, str) or is_role_text_pair(row) or is_message(row) for row in rows):
        rows = [logged] if isinstance(logged, str) else []
    return opening + parse_messages(rows, skip)


def parse_response_messages(value: Any, skip: SkipCallback) -> list[Message]:
    """Parse the messages that a model call returned.

    Parameters
    ----------
    value : Any
        The logged response.
    skip : Callable
        Called with a description of each item that is left out.

    Returns
    -------
    list of Message
        Usually one message; none if the call failed. Several if the call included tool use:
        answers, tool results and the last answer.

    Raises
    ------
    ValueError
        If a message is broken.

    Examples
    --------
    >>> response = {"choices": [{"message": {"role": "assistant", "content": "ho"}}]}
    >>> parse_response_messages(response, print)[0].text
    'ho'
    """
    value = parse_if_json(value)
    for _ in range(_MAX_DEPTH):
        if not isinstance(value, dict) or is_message(value):
            break
        if "content" in value or "tool_calls" in value:
            value = value | {"role": "assistant"}
            break
        places = [key for key in _OUTPUT_KEYS if key in value]
        key = next((key for key in places if value[key]), None)
        if key is None:
            value = None if places else value
            break
        value = parse_if_json(value[key])
        while key in ("choices", "generations") and isinstance(value, list):
            value = _take_first(value, skip)  # LangChain nests choices by prompt
    if value is None or value in ("", [], {}):
        return []
    rows = value if isinstance(value, list) else [value]
    if is_block_list(rows) and not all(map(is_message, rows)):
        rows = [{"role": "assistant", "content": rows}]
    elif is_role_text_pair(rows) and rows[0] == "assistant":
        rows = [{"role": "assistant", "content": rows[1]}]
    if not all(map(is_message, rows)):
        return [Message("assistant", value if isinstance(value, str) else dump_json(value))]
    answers = parse_messages((_default_to_assistant(row) for row in rows), skip)
    if all(answer.role == "assistant" for answer in answers):
        return [_take_first(answers, skip)] if answers else []
    return answers


def _take_first(choices: list[Any], skip: SkipCallback, reason: str = "further choice") -> Any:
    for _ in choices[1:]:
        skip(reason)
    return choices[0] if choices else None


def _is_batch(value: Any) -> bool:
    return isinstance(value, list) and not is_role_text_pair(value)


def _default_to_assistant(row: dict[str, Any]) -> dict[str, Any]:
    """Set the role of an answer that was logged without one."""
    unsaid = row.get("role") is None and row.get("type") in (None, "message")
    return row | {"role": "assistant"} if unsaid else row
