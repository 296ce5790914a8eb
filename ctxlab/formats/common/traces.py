"""Conversations from the model calls of traces.

A tracing system assigns each call to a thread: a session named by the application, or else the
trace. It exports calls in any order, such as newest first or child before parent. The readers of
LangSmith, Langfuse and OpenTelemetry build a ``TracedCall`` from each call.

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

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from ctxlab._utils.jsonio import dump_json
from ctxlab.formats.base import SkipCallback, Source
from ctxlab.formats.common.api_content import is_block_list
from ctxlab.formats.common.api_messages import (
    SKIPPED_KEY,
    is_message,
    is_role_text_pair,
    parse_messages,
)
from ctxlab.formats.common.stitch import LoggedRequest, intern_messages, stitch_requests
from ctxlab.formats.fields import get_text, parse_if_json
from ctxlab.messages.types import Message, Recording, Usage

_SYSTEM_KEYS = ("instructions", "system")
_INPUT_KEYS = ("messages", "input", "prompts", "prompt")
_OUTPUT_KEYS = ("choices", "generations", "messages", "message", "output", "completion", "text")
_MAX_DEPTH = 6


class ThreadKey(NamedTuple):
    """The thread that calls belong to."""

    kind: str
    "the name of the key in the log: ``session_id``, ``trace_id``, …"
    id: str
    "the value of the key"


class TracedCall(NamedTuple):
    """One model call of a trace."""

    thread: ThreadKey
    "the thread of the call"
    start: float | None
    "seconds since 1970"
    request: LoggedRequest
    "the messages, answer, tools and model"


def build_traced_call(
    thread: ThreadKey,
    inputs: Any,
    outputs: Any,
    skip: SkipCallback,
    *,
    start: float | None,
    end: float | None,
    usage: Usage | None,
    tools: tuple[dict[str, Any], ...],
    model: str | None,
) -> TracedCall:
    """Build a call from its logged inputs and outputs.

    Messages that the call produced before its last answer are added to the messages sent.

    Parameters
    ----------
    thread : ThreadKey
        The thread of the call.
    inputs, outputs : Any
        The logged request and response.
    skip : Callable
        Called with a description of each item that is left out.
    start, end : float or None
        Seconds since 1970. ``end`` becomes the time of the answer.
    usage : Usage or None
        The billed usage, used if the answer itself has none.
    tools : tuple of dict
        Tool definitions in OpenAI's shape.
    model : str or None
        The model.

    Returns
    -------
    TracedCall
        The call.
    """
    messages = parse_request_messages(inputs, skip)
    received_messages = parse_response_messages(outputs, skip)
    answer: Message | None = None
    if received_messages and received_messages[-1].role == "assistant":
        answer = received_messages.pop()
        time = start if end is None else end
        answer = answer.replace(usage=answer.usage or usage, time=time)
    request = LoggedRequest((*messages, *received_messages), answer, tools, model)
    return TracedCall(thread, start, request)


def find_thread(metadata: Any, keys: Iterable[str], trace_id: str) -> ThreadKey:
    """Return the thread of a call.

    Parameters
    ----------
    metadata : Any
        The object that may name a thread.
    keys : iterable of str
        Keys to look for, in order.
    trace_id : str
        The trace, used if no key is set.

    Returns
    -------
    ThreadKey
        The thread.

    Examples
    --------
    >>> find_thread({"session_id": "s"}, ("thread_id", "session_id"), trace_id="t")
    ThreadKey(kind='session_id', id='s')
    """
    for name in keys:
        if id := get_text(metadata, name):
            return ThreadKey(name, id)
    return ThreadKey("trace_id", trace_id)


def group_calls(calls: Iterable[TracedCall], source: Source) -> Iterator[Recording]:
    """Group calls by thread, sort them by time and stitch them into recordings.

    Threads are ordered by their first call. A call without a time comes first in its thread.

    Parameters
    ----------
    calls : iterable of TracedCall
        The calls in any order.
    source : Source
        The file. What is left out of it is counted there.

    Yields
    ------
    Recording
        A conversation.
    """
    seen: dict[Any, Message] = {}
    held = [each._replace(request=intern_messages(each.request, seen)) for each in calls]
    threads: dict[ThreadKey, list[LoggedRequest]] = {}
    for each in sorted(held, key=lambda each: each.start or 0.0):
        threads.setdefault(each.thread, []).append(each.request)
    for thread, requests in threads.items():
        for recording in stitch_requests(requests, f"{source.name}/{thread.id}", source.skip):
            messages = tuple(_report_skipped(each, source.skip) for each in recording.messages)
            meta = {thread.kind: thread.id}
            yield msgspec.structs.replace(recording, messages=messages, meta=meta)


def _report_skipped(message: Message, skip: SkipCallback) -> Message:
    """Report what was left out of a message, and remove the list from its ``extra``."""
    if SKIPPED_KEY not in message.extra:
        return message
    for reason in message.extra[SKIPPED_KEY]:
        skip(reason)
    extra = {key: value for key, value in message.extra.items() if key != SKIPPED_KEY}
    return message.replace(extra=extra)


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
