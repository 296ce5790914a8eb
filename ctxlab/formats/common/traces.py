"""The model calls of a trace become conversations, once they stand in the order of time.

A tracing system says of each call to which thread it belongs (a session that the application named,
else the trace), and exports the calls in any order, the last one first or child before parent. The
readers of LangSmith, Langfuse and OpenTelemetry make a ``Call`` of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from ctxlab.formats.base import (
    LeaveOut,
    Source,
)
from ctxlab.formats.common.api_calls import (
    answers_of,
    messages_of,
)
from ctxlab.formats.common.api_messages import LEFT_OUT
from ctxlab.formats.common.stitch import (
    Request,
    shared,
    stitch,
)
from ctxlab.formats.optional_fields import (
    text,
    within,
)
from ctxlab.messages.types import (
    Message,
    Recording,
    Usage,
)

__all__ = ["Call", "Thread", "call", "conversations", "thread_of"]


class Thread(NamedTuple):
    """What calls belong together by."""

    kind: str
    "what the log calls it: ``session_id``, ``trace_id``, …"
    id: str


class Call(NamedTuple):
    """One model call of a trace."""

    thread: Thread
    start: float | None
    "seconds since 1970"
    request: Request


def call(
    thread: Thread,
    sent: Any,
    received: Any,
    leave_out: LeaveOut,
    *,
    start: float | None,
    end: float | None,
    usage: Usage | None,
    tools: tuple[dict[str, Any], ...],
    model: str | None,
) -> Call:
    """A call from what was logged of it; ``usage`` and the time of its end belong to the answer.

    What happened within the call before the last answer stands among what was sent.
    """
    messages = messages_of(sent, leave_out)
    inside = answers_of(received, leave_out)
    answer: Message | None = None
    if inside and inside[-1].role == "assistant":
        answer = inside.pop()
        time = start if end is None else end
        answer = answer.replace(usage=answer.usage or usage, time=time)
    return Call(thread, start, Request((*messages, *inside), answer, tools, model))


def thread_of(said: Any, names: Iterable[str], trace: str) -> Thread:
    """The first thread that something names under one of ``names``, else its trace.

    >>> thread_of({"session_id": "s"}, ("thread_id", "session_id"), trace="t")
    Thread(kind='session_id', id='s')
    """
    for name in names:
        if id := text(within(said, name)):
            return Thread(name, id)
    return Thread("trace_id", trace)


def conversations(calls: Iterable[Call], source: Source) -> Iterator[Recording]:
    """The recordings of calls in any order, thread by thread and each in the order of time.

    Threads come in the order in which they began; a call without a time comes first in its own.
    """
    seen: dict[Any, Message] = {}
    held = [each._replace(request=shared(each.request, seen)) for each in calls]
    threads: dict[Thread, list[Request]] = {}
    for each in sorted(held, key=lambda each: each.start or 0.0):
        threads.setdefault(each.thread, []).append(each.request)
    for thread, requests in threads.items():
        for recording in stitch(requests, f"{source.name}/{thread.id}", source.skip):
            yield msgspec.structs.replace(
                recording,
                messages=tuple(_told(message, source.skip) for message in recording.messages),
                meta={thread.kind: thread.id},
            )


def _told(message: Message, leave_out: LeaveOut) -> Message:
    """A message whose losses are counted, now that it stands in its conversation once."""
    if LEFT_OUT not in message.extra:
        return message
    for reason in message.extra[LEFT_OUT]:
        leave_out(reason)
    extra = {key: value for key, value in message.extra.items() if key != LEFT_OUT}
    return message.replace(extra=extra)
