"""The model calls of a trace become conversations, once they stand in the order of time.

A tracing system says of each call to which thread it belongs (a session that the application named,
else the trace), and exports the calls in any order, the last one first or child before parent. The
readers of LangSmith, Langfuse and OpenTelemetry make a ``TracedCall`` of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from ctxlab.formats.base import SkipCallback, Source
from ctxlab.formats.common.api_calls import parse_request_messages, parse_response_messages
from ctxlab.formats.common.api_messages import SKIPPED_KEY
from ctxlab.formats.common.stitch import LoggedRequest, intern_messages, stitch_requests
from ctxlab.formats.fields import get_nested, text_or_none
from ctxlab.messages.types import Message, Recording, Usage

__all__ = ["ThreadKey", "TracedCall", "build_traced_call", "find_thread", "recordings_from_calls"]


class ThreadKey(NamedTuple):
    """What calls belong together by."""

    kind: str
    "what the log calls it: ``session_id``, ``trace_id``, …"
    id: str


class TracedCall(NamedTuple):
    """One model call of a trace."""

    thread: ThreadKey
    start: float | None
    "seconds since 1970"
    request: LoggedRequest


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
    """A call from what was logged of it; ``usage`` and the time of its end belong to the answer.

    What happened within the call before the last answer stands among what was sent.
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
    """The first thread that something names under one of ``keys``, else its trace.

    >>> find_thread({"session_id": "s"}, ("thread_id", "session_id"), trace_id="t")
    ThreadKey(kind='session_id', id='s')
    """
    for name in keys:
        if id := text_or_none(get_nested(metadata, name)):
            return ThreadKey(name, id)
    return ThreadKey("trace_id", trace_id)


def recordings_from_calls(calls: Iterable[TracedCall], source: Source) -> Iterator[Recording]:
    """The recordings of calls in any order, thread by thread and each in the order of time.

    Threads come in the order in which they began; a call without a time comes first in its own.
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
    """A message whose losses are counted, now that it stands in its conversation once."""
    if SKIPPED_KEY not in message.extra:
        return message
    for reason in message.extra[SKIPPED_KEY]:
        skip(reason)
    extra = {key: value for key, value in message.extra.items() if key != SKIPPED_KEY}
    return message.replace(extra=extra)
