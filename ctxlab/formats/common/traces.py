"""Conversations from the model calls of traces.

A tracing system assigns each call to a thread: a session named by the application, or else the
trace. It exports calls in any order, such as newest first or child before parent. The readers of
LangSmith, Langfuse and OpenTelemetry build a ``TracedCall`` from each call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from ctxlab.formats.base import SkipCallback, Source
from ctxlab.formats.common.api_calls import parse_request_messages, parse_response_messages
from ctxlab.formats.common.api_messages import SKIPPED_KEY
from ctxlab.formats.common.stitch import LoggedRequest, intern_messages, stitch_requests
from ctxlab.formats.fields import get_text
from ctxlab.messages.types import Message, Recording, Usage


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
    return TracedCall(
        thread, start, LoggedRequest((*messages, *received_messages), answer, tools, model)
    )


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


def recordings_from_calls(calls: Iterable[TracedCall], source: Source) -> Iterator[Recording]:
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
            yield msgspec.structs.replace(
                recording,
                messages=tuple(
                    _report_skipped(message, source.skip) for message in recording.messages
                ),
                meta={thread.kind: thread.id},
            )


def _report_skipped(message: Message, skip: SkipCallback) -> Message:
    """Report what was left out of a message, and remove the list from its ``extra``."""
    if SKIPPED_KEY not in message.extra:
        return message
    for reason in message.extra[SKIPPED_KEY]:
        skip(reason)
    extra = {key: value for key, value in message.extra.items() if key != SKIPPED_KEY}
    return message.replace(extra=extra)
