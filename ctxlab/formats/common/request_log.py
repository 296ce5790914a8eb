"""Bodies of requests are read alike in lines, in a list or alone, with the answer beside them or not.

A body is an object with ``messages``; a list of messages alone is one too. Where the first of a file
stands with its answer (``{"request": …, "response": …}``, or ``messages`` beside ``response`` or
``choices``), the file is a log: each of its requests says again what was said before, and they are
stitched into conversations. Otherwise every body is a conversation of its own, for nothing tells
requests that were made one after the other from examples that are alike. The readers of OpenAI's and
Anthropic's APIs differ in their ``Dialect`` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from ctxlab.errors import ReadError
from ctxlab.formats.base import (
    LeaveOut,
    Source,
)
from ctxlab.formats.common.json_files import (
    Where,
    values,
)
from ctxlab.formats.common.stitch import (
    Request,
    stitch,
)
from ctxlab.formats.io.head import Head
from ctxlab.formats.optional_fields import (
    is_small,
    iso_time,
    number,
    text,
)
from ctxlab.messages.types import (
    Message,
    Recording,
    Usage,
)

__all__ = [
    "MOMENTS",
    "Body",
    "Dialect",
    "bodies",
    "moment",
    "read_bodies",
    "small",
]

MOMENTS = ("timestamp", "created_at", "created")
"""Under which keys loggers write a time."""

_FIRST = 50
_MILLISECONDS = 1e11  # as seconds, the year 5138
_LOGGED = frozenset({"request", "response", "choices"})
_TAKEN = frozenset(
    {"messages", "system", "response", "choices", "usage", "tools", "functions", "model"}
)


class Body(NamedTuple):
    """A request body and what stands beside it."""

    fields: dict[str, Any]
    "its keys; ``messages`` is a list"
    response: Any
    row: dict[str, Any]
    "the object that holds both; the body itself where nothing is around it, empty for a list"

    @property
    def logged(self) -> bool:
        """Whether the answer has a place beside it, be it empty."""
        return not _LOGGED.isdisjoint(self.row)


@dataclass(frozen=True)
class Dialect:
    """How one provider writes what a body holds; what raises in here is a broken message."""

    opening: Callable[[dict[str, Any], LeaveOut], list[Message]]
    "what stands before the messages, given the body"
    message: Callable[[Any, LeaveOut], list[Message]]
    "one of ``messages``"
    answer: Callable[[Any, LeaveOut], Message | None]
    "the message in a response"
    usage: Callable[[Any], Usage | None]
    tools: Callable[[dict[str, Any]], tuple[dict[str, Any], ...]]
    "definitions in OpenAI's shape, given the body"
    control: Callable[[Any], bool] = lambda value: False
    "whether a row holds no message but something about the log; it is counted"
    unwrap: Callable[[Any], Any] = lambda value: value
    "a row without what its product wraps a message or a body in"


def bodies(head: Head) -> Iterator[Body]:
    """The bodies that a file begins with; a message on a line of its own is none."""
    for row in head.rows:
        if isinstance(row, list) and row and not _is_message(row[0]):
            yield from (body for each in row[:_FIRST] if (body := _body(each)))
        elif body := _body(row):
            yield body


def read_bodies(source: Source, dialect: Dialect) -> Iterator[Recording]:
    """The conversations of a file: each body is one, or those that a log tells."""
    found = _conversations(source, dialect)
    first = next(found, None)
    if first is None:
        return
    if not first[0].logged:
        yield _recording(source, *first)
        for each in found:
            yield _recording(source, *each)
        return
    requests = (request for _, request in chain([first], found))
    yield from stitch(requests, source.name, source.skip)


def small(fields: dict[str, Any]) -> dict[str, Any]:
    """What is said of a conversation in a word or a number, for ``Recording.meta``.

    >>> small({"messages": [], "id": "a7", "score": 0.5, "more": {"x": 1}})
    {'id': 'a7', 'score': 0.5}
    """
    return {key: value for key, value in fields.items() if key not in _TAKEN and is_small(value)}


def moment(fields: dict[str, Any]) -> float | None:
    """When something was logged, in seconds since 1970.

    >>> moment({"created": 1700000000}), moment({"timestamp": "1970-01-01T00:01:00Z"}), moment({})
    (1700000000.0, 60.0, None)
    """
    for key in MOMENTS:
        time = number(fields.get(key)) or iso_time(fields.get(key))
        if time is not None:
            return time / 1000 if time > _MILLISECONDS else time
    return None


def _conversations(source: Source, dialect: Dialect) -> Iterator[tuple[Body, Request]]:
    """Each body with what it holds; messages that stand alone are one body, at the end."""
    alone: list[Message] = []
    beside: dict[str, Any] = {}
    for where, value in values(source):
        if dialect.control(value):
            role = text(value.get("role"))
            source.skip(f"row of role {role}" if role else "row about the session", _line(where))
            beside |= {} if role else small(value)
            continue
        value = dialect.unwrap(value)
        if _is_message(value):
            with source.guard(*(where or (1, "message"))):
                alone += dialect.message(value, source.skip)
            continue
        body = _body(value)
        if body is None:
            _refuse(source, where)
            continue
        request = _request(body, source, where, dialect)
        if request.messages or request.answer:
            yield body, request
        else:
            source.skip("conversation without messages", _line(where))
    if alone:
        yield Body({}, None, beside), Request(tuple(alone))


def _line(where: Where | None) -> int | None:
    return where[0] if where else None


def _request(body: Body, source: Source, where: Where | None, dialect: Dialect) -> Request:
    messages: list[Message] = []
    tools: tuple[dict[str, Any], ...] = ()
    answer: Message | None = None
    with source.guard(*(where or (1, "request"))):
        tools = dialect.tools(body.fields)
        messages += dialect.opening(body.fields, source.skip)
    for position, each in enumerate(body.fields["messages"]):
        with source.guard(*(where or (position, "message"))):
            try:
                messages += dialect.message(each, source.skip)
            except ValueError as error:
                raise ValueError(f"message {position}: {error}" if where else str(error)) from None
    with source.guard(*(where or (1, "response"))):
        if body.response is not None:
            answer = dialect.answer(body.response, source.skip)
    usage = dialect.usage(body.row.get("usage"))
    if answer is not None:
        answer = answer.replace(usage=answer.usage or usage, time=answer.time or moment(body.row))
    elif usage and messages and messages[-1].role == "assistant":
        messages[-1] = messages[-1].replace(usage=messages[-1].usage or usage)
    return Request(tuple(messages), answer, tools, text(body.fields.get("model")))


def _recording(source: Source, body: Body, request: Request) -> Recording:
    answer = () if request.answer is None else (request.answer,)
    return Recording(
        source.name,
        (*request.messages, *answer),
        tools=request.tools,
        model=request.model,
        meta=small(body.row),
    )


def _body(value: Any) -> Body | None:
    if isinstance(value, list):
        return Body({"messages": value}, None, {}) if value and _is_message(value[0]) else None
    if not isinstance(value, dict):
        return None
    request = value.get("request")
    fields = request if isinstance(request, dict) else value
    if not isinstance(fields.get("messages"), list):
        return None
    return Body(fields, value if "choices" in value else value.get("response"), value)


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and "role" in value and "messages" not in value


def _refuse(source: Source, where: Where | None) -> None:
    reason = "no messages, nor a list of them"
    if where is None:
        raise ReadError(source.path, None, reason)
    source.broken(reason, *where)
