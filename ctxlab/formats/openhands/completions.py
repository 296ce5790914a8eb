"""OpenHands logs a file a model call; the calls of a folder are put together as one conversation.

A file is ``{messages, response, args, kwargs, timestamp, cost}``, and a folder holds the calls of one
instance, which its name says. They are put in the order of their ``timestamp`` and stitched: what a
call says again is taken once, what a condenser dropped or replaced is a ``Compaction``, and the calls
that a condenser made itself are conversations of their own in the same cluster. Where only the last
call was kept, it holds all of them. Its answer stands in ``response``, with its usage.

- A text in one part or more is one text: the parts are there for the marks of the prompt cache.
- For a model without function calling, OpenHands turns tools, calls and results into text. Then
  ``messages`` and ``response`` are what was sent and came back, and ``kwargs`` names no tools;
  ``fncall_messages`` and ``fncall_response`` say the same in calls and are not read.
- Some condensers leave out old messages at each request: each time is a ``Compaction``.

Source: github.com/All-Hands-AI/OpenHands, ``openhands/llm/llm.py`` (``log_completions``) and
``llm/fn_call_converter.py``, as of 2025; logs of version 0.15.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

from ctxlab.formats.base import (
    Format,
    Source,
)
from ctxlab.formats.common.chat_format import (
    first_choice,
    plain_content,
    sent,
)
from ctxlab.formats.common.stitch import (
    Request,
    shared,
    stitch,
)
from ctxlab.formats.common.usage import openai_usage
from ctxlab.formats.io.files import Place
from ctxlab.formats.io.head import Head
from ctxlab.formats.optional_fields import (
    listed,
    number,
    objects_in,
    text,
    within,
)
from ctxlab.messages.types import (
    Message,
    Recording,
)

__all__ = ["FORMAT", "read", "sniff"]

_CALL = frozenset({"messages", "response", "kwargs"})
_FIRST = frozenset({"messages", "response", "args"})


def sniff(head: Head) -> bool:
    """Whether a file is one logged call.

    Of a large one only ``messages`` is seen. OpenHands writes their content, in parts, before their
    role, and its prompt says its name.
    """
    call = head.value
    if not isinstance(call, dict) or not isinstance(call.get("messages"), list):
        return False
    if call.keys() >= _CALL:
        return "timestamp" in call or "cost" in call
    cut = not head.whole and len(head.rows) == 1 and b"\n" not in head.start
    return cut and call.keys() <= _FIRST and _is_openhands(call["messages"])


def read(source: Source) -> Iterator[Recording]:
    """The conversations of a folder, called after it; its main one comes first."""
    calls: list[tuple[float, Request]] = []
    seen: dict[Any, Message] = {}
    for place, call in source.values():
        calls.append((_moment(call), shared(_request(call, source, place), seen)))
    calls.sort(key=lambda call: call[0])
    name = source.name.rpartition("/")[0] or source.name
    requests = (request for _, request in calls)
    yield from stitch(requests, name, source.skip, cluster=_folder(source.path))


def _as_one(head: Head) -> str:
    """All calls of a folder have the same key."""
    return ""


FORMAT = Format(
    "openhands-completions",
    "OpenHands: logged model calls (llm_completions)",
    sniff,
    read,
    together=_as_one,
)


def _is_openhands(messages: list[Any]) -> bool:
    first = messages[0] if messages else None
    if not isinstance(first, dict):
        return False
    parts = list(first)[:2] == ["content", "role"] and isinstance(first["content"], list)
    return parts or "OpenHands" in str(within(first, "content"))


def _request(call: Any, source: Source, place: Place) -> Request:
    messages: list[Message] = []
    answer: Message | None = None
    where = f" (in {_name(place)})" if source.others else ""
    for position, row in enumerate(listed(within(call, "messages"))):
        with source.guard(position, "message"):
            messages.append(_message(row, where))
    with source.guard(len(messages), "message"):
        answer = _answer(call, where)
    if answer is None:
        source.skip("call without an answer")
    return Request(
        tuple(messages),
        answer,
        objects_in(within(call, "kwargs", "tools")),
        text(within(call, "kwargs", "model")) or text(within(call, "response", "model")),
    )


def _answer(call: Any, where: str) -> Message | None:
    said = first_choice(within(call, "response"))
    if said is None:
        return None
    cost = number(call.get("cost"))
    return _message(said, where).replace(
        usage=openai_usage(within(call, "response", "usage")),
        time=number(call.get("timestamp")),
        extra={} if cost is None else {"cost": cost},
    )


def _message(row: Any, where: str) -> Message:
    try:
        wire = sent(row)
        return Message.from_dict(wire | {"content": plain_content(wire.get("content"))})
    except ValueError as error:
        raise ValueError(f"{error}{where}") from None


def _moment(call: Any) -> float:
    moment = number(within(call, "timestamp"))
    return math.inf if moment is None else moment


def _folder(place: Place) -> str | None:
    """The name of the folder that a file lies in."""
    return _path(place).parent.name or None


def _name(place: Place) -> str:
    return _path(place).name


def _path(place: Place) -> PurePath:
    return place if isinstance(place, Path) else PurePosixPath(place.partition("::")[0])
