"""Build conversations from the model calls in traces.

A tracing system groups calls into threads. A thread is a session that the application named, or the
trace if there is no session. Calls are exported in any order, such as latest first or child before
parent. The readers for LangSmith, Langfuse and OpenTelemetry build a ``TracedCall`` from each call.

A logged request is a string, a list of messages, a list of lists of messages, or an object that
contains one of these. It may also be a string with the Python code of messages (``python_reprs``).
A logged response has one of these forms, or is an object with ``choices``, ``generations``,
``message`` or ``output``. If a model answers with JSON, tracers log the parsed value. A response of
any other form is therefore converted back to JSON and becomes the text of the answer.

The first of several choices is read, and the others are reported to the callback ``skip``. Some
tracers log parallel tool calls as several assistant messages. If these messages are not marked as
choices and their calls have different ids, they are joined into one answer. Such messages in a
request are joined if the results of all calls follow. A separate message with text before the calls
stays separate, because later requests contain it in this form.

``api_messages`` parses the messages.

References
----------
docs.langchain.com/langsmith/log-llm-trace (2026), langsmith 0.15.0 ``wrappers``, langfuse
5.0.4 ``openai`` and ``langchain``, github.com/langfuse/langfuse ``utils/chatml``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Any, NamedTuple

import msgspec

from ctxlab._utils.jsonio import dump_json
from ctxlab.formats.base import SkipCallback, Source
from ctxlab.formats.common.api_content import is_block_list
from ctxlab.formats.common.api_messages import (
    SKIPPED_KEY,
    is_message,
    is_role_text_pair,
    merge_messages,
    parse_messages,
)
from ctxlab.formats.common.python_reprs import parse_if_repr
from ctxlab.formats.common.stitch import LoggedRequest, intern_messages, stitch_requests
from ctxlab.formats.fields import get_text, parse_if_json
from ctxlab.messages.types import Message, Recording, Usage

_SYSTEM_KEYS = ("instructions", "system")
_INPUT_KEYS = ("messages", "input", "prompts", "prompt")
_OUTPUT_KEYS = ("choices", "generations", "messages", "message", "output", "completion", "text")
_MAX_DEPTH = 6


class ThreadKey(NamedTuple):
    """Identifier of a thread, which is a session or trace to which calls belong."""

    kind: str
    "key in the log, such as ``session_id`` or ``trace_id``"
    id: str
    "id of the session or trace"


class TracedCall(NamedTuple):
    """One model call of a trace."""

    thread: ThreadKey
    "thread to which the call belongs"
    start: float | None
    "start time in seconds since 1970, if known"
    request: LoggedRequest
    "the messages, answer, tool definitions and model of the call"


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
    """Build a traced call from its logged inputs and outputs.

    If tools were run within the call, the output contains several messages. The last of them becomes
    the answer, and the others are added to the request.

    Parameters
    ----------
    thread : ThreadKey
        The thread to which the call belongs.
    inputs, outputs : Any
        The logged request and the logged response.
    skip : Callable
        Called with a description of each skipped item.
    start, end : float or None
        Start and end of the call, in seconds since 1970. The time of the answer is ``end`` or, if
        it is unknown, ``start``.
    usage : Usage or None
        The billed token usage of the call. It is ignored if the answer contains its own usage.
    tools : tuple of dict
        The tool definitions of the request, in OpenAI's format.
    model : str or None
        Name of the model, if known.

    Returns
    -------
    TracedCall
        The call with its parsed messages.
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
    """Find the thread to which a call belongs.

    Parameters
    ----------
    metadata : Any
        Metadata of the call, which may contain the id of a session or thread.
    keys : iterable of str
        Keys of such ids. The first key with a value is used.
    trace_id : str
        Id of the trace, which is used if none of the keys has a value.

    Returns
    -------
    ThreadKey
        The key and id of the thread.

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
    """Group calls by thread, sort them by time, and join the calls of each thread.

    The recordings are ordered by the first call of their thread. Calls without a time come first.

    Parameters
    ----------
    calls : iterable of TracedCall
        The calls of a file, in any order.
    source : Source
        The file from which the calls were read. Content that is skipped is counted by its ``skip``
        method.

    Yields
    ------
    Recording
        A conversation of a thread.
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
    """Report the skipped items that ``parse_messages`` listed in ``extra`` of a message.

    Return the message without this list.
    """
    if SKIPPED_KEY not in message.extra:
        return message
    for reason in message.extra[SKIPPED_KEY]:
        skip(reason)
    extra = {key: value for key, value in message.extra.items() if key != SKIPPED_KEY}
    return message.replace(extra=extra)


def parse_request_messages(value: Any, skip: SkipCallback) -> list[Message]:
    """Parse the messages of a logged request.

    Parameters
    ----------
    value : Any
        The logged request: a string, a list of messages, or an object that contains one of them.
    skip : Callable
        Called with a description of each skipped item.

    Returns
    -------
    list of Message
        The messages. Empty if the request has an unknown form.

    Raises
    ------
    ValueError
        If a message is malformed.

    Examples
    --------
    >>> [m.text for m in parse_request_messages({"instructions": "s", "input": "hi"}, print)]
    ['s', 'hi']
    """
    logged, value = value, _parse_text(value)
    opening: list[Message] = []
    for _ in range(_MAX_DEPTH):
        if isinstance(value, dict) and not is_message(value):
            for key in _SYSTEM_KEYS:
                if said := value.get(key):
                    opening += parse_messages([{"role": "system", "content": said}], skip)
            value = _parse_text(next((value[key] for key in _INPUT_KEYS if value.get(key)), None))
        elif isinstance(value, list) and value and all(map(_is_batch, value)):
            value = _take_first(value, skip, "further prompt of a batch")
    rows = value if isinstance(value, list) else [value] if value else []
    if not is_role_text_pair(rows):
        rows = [parse_if_repr(row) for row in rows]
    if not all(isinstance(row, str) or is_role_text_pair(row) or is_message(row) for row in rows):
        rows = [logged] if isinstance(logged, str) else []
    return opening + _join_answered_calls(parse_messages(rows, skip))


def parse_response_messages(value: Any, skip: SkipCallback) -> list[Message]:
    """Parse the messages of a logged response.

    Parameters
    ----------
    value : Any
        The logged response: a string, a message, a list of messages, or an object that contains one
        of them, such as ``{"choices": [...]}``.
    skip : Callable
        Called with a description of each skipped item.

    Returns
    -------
    list of Message
        Usually one message, or none if the call failed. If tools were run within the call, the list
        contains the first answer, the tool results and the last answer.

    Raises
    ------
    ValueError
        If a message is malformed.

    Examples
    --------
    >>> response = {"choices": [{"message": {"role": "assistant", "content": "ho"}}]}
    >>> parse_response_messages(response, print)[0].text
    'ho'
    """
    value = _parse_text(value)
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
        value = _parse_text(value[key])
        while key in ("choices", "generations") and isinstance(value, list):
            value = _take_first(value, skip)  # LangChain has a list of choices for each prompt
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
    if not all(answer.role == "assistant" for answer in answers):
        return _join_answered_calls(answers)
    if len(answers) > 1 and not any(map(_is_choice, rows)):
        opening = [] if answers[0].tool_calls else answers[:1]
        if _are_parallel(calling := answers[len(opening) :]):
            return [*opening, _join_messages(calling)]
    return [_take_first(answers, skip)] if answers else []


def _parse_text(value: Any) -> Any:
    """Parse a string that contains JSON or the Python code of messages."""
    return parse_if_repr(parse_if_json(value))


def _is_choice(row: dict[str, Any]) -> bool:
    """Check whether a message is marked as one of several choices of a model."""
    return row.get("index") is not None or row.get("finish_reason") is not None


def _are_parallel(messages: list[Message]) -> bool:
    """Check whether all messages have calls, and whether the ids of all calls differ."""
    ids = [call.id for message in messages for call in message.tool_calls]
    return all(m.tool_calls for m in messages) and all(ids) and len({*ids}) == len(ids)


def _join_answered_calls(messages: list[Message]) -> list[Message]:
    """Join adjacent assistant messages if the results of all their calls follow the last of them."""
    joined: list[Message] = []
    index = 0
    while index < len(messages):
        end = index
        while (
            end < len(messages) and messages[end].role == "assistant" and messages[end].tool_calls
        ):
            end += 1
        run = messages[index:end]
        results = takewhile(lambda message: message.role == "tool", messages[end:])
        answered = {message.tool_call_id for message in results}
        wanted = {call.id for message in run for call in message.tool_calls}
        if len(run) > 1 and wanted <= answered and _are_parallel(run):
            run = [_join_messages(run)]
        joined += run or messages[index : index + 1]
        index = max(end, index + 1)
    return joined


def _join_messages(messages: list[Message]) -> Message:
    """Join the parts of one answer. Texts are joined with newlines."""
    first, *others = messages
    for other in others:
        first = merge_messages(first, other)
    return first


def _take_first(choices: list[Any], skip: SkipCallback, reason: str = "further choice") -> Any:
    for _ in choices[1:]:
        skip(reason)
    return choices[0] if choices else None


def _is_batch(value: Any) -> bool:
    return isinstance(value, list) and not is_role_text_pair(value)


def _default_to_assistant(row: dict[str, Any]) -> dict[str, Any]:
    """Set the role of an answer to ``assistant`` if it was logged without a role."""
    unsaid = row.get("role") is None and row.get("type") in (None, "message")
    return row | {"role": "assistant"} if unsaid else row
