"""Reader for request bodies and request logs, shared by the readers of chat APIs.

A body is an object with ``messages``, or a list of messages, in lines, in a list or alone. If the
first body of a file stands with its answer (``{"request": …, "response": …}``, or ``messages``
beside ``response`` or ``choices``), the file is a log. Each request of a log repeats what was said
before, and the requests are stitched into conversations. Otherwise every body is a conversation of
its own, because consecutive requests cannot be distinguished from similar examples. The readers of
OpenAI's and Anthropic's APIs differ only in their ``ApiDialect``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from ctxlab.errors import ReadError
from ctxlab.formats.base import Location, SkipCallback, Source
from ctxlab.formats.common.stitch import LoggedRequest, stitch_requests
from ctxlab.formats.fields import get_number, get_text, get_time, is_short_value
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.types import Message, Recording, Usage

TIME_KEYS = ("timestamp", "created_at", "created")
"""Keys under which loggers write a time."""

_MAX_SNIFFED_BODIES = 50
_MIN_MILLISECONDS = 1e11  # in seconds this would be the year 5138
_RESPONSE_KEYS = frozenset({"request", "response", "choices"})
_BODY_KEYS = ("messages", "system", "tools", "functions", "model")
_NON_META_KEYS = frozenset([*_BODY_KEYS, "response", "choices", "usage"])


class RequestBody(NamedTuple):
    """A request body and what stands beside it."""

    fields: dict[str, Any]
    "the keys of the body; ``messages`` is a list"
    response: Any
    "the logged response, or None"
    row: dict[str, Any]
    "the object that holds both; the body itself if nothing is around it, empty for a list"

    @property
    def is_logged(self) -> bool:
        """True if there is a place for the answer beside the body, even if it is empty."""
        return not _RESPONSE_KEYS.isdisjoint(self.row)


@dataclass(frozen=True)
class ApiDialect:
    """Functions that parse the parts of a body for one provider.

    An exception in one of them marks the message as broken.
    """

    parse_system: Callable[[dict[str, Any], SkipCallback], list[Message]]
    "returns what stands before the messages, given the body"
    parse_message: Callable[[Any, SkipCallback], list[Message]]
    "parses one of ``messages``"
    parse_response: Callable[[Any, SkipCallback], Message | None]
    "returns the message of a response"
    parse_usage: Callable[[Any], Usage | None]
    "parses the usage"
    parse_tools: Callable[[dict[str, Any]], tuple[dict[str, Any], ...]]
    "returns the tool definitions in OpenAI's shape, given the body"
    is_control: Callable[[Any], bool] = lambda value: False
    "returns True for a row that holds no message but information about the log; such rows are counted"
    unwrap: Callable[[Any], Any] = lambda value: value
    "removes a product's wrapper from a message or body"


def request_bodies(head: FileHead) -> Iterator[RequestBody]:
    """Yield the bodies at the beginning of a file; single messages on lines are not bodies.

    Parameters
    ----------
    head : FileHead
        The beginning of the file.

    Yields
    ------
    RequestBody
        A body.
    """
    for row in head.rows:
        if isinstance(row, list) and row and not _is_message(row[0]):
            yield from (body for each in row[:_MAX_SNIFFED_BODIES] if (body := _parse_body(each)))
        elif body := _parse_body(row):
            yield body


def read_request_log(source: Source, dialect: ApiDialect) -> Iterator[Recording]:
    """Read the conversations of a file of request bodies or of a log.

    Parameters
    ----------
    source : Source
        The file. What is left out of it is counted there.
    dialect : ApiDialect
        The parsers of the provider.

    Yields
    ------
    Recording
        A conversation.

    Raises
    ------
    ReadError
        If the content is broken and ``on_error`` is ``"raise"``.
    """
    found: Iterator[tuple[RequestBody, LoggedRequest]] = _read_requests(source, dialect)
    first = next(found, None)
    if first is None:
        return
    found = chain([first], found)
    if first[0].is_logged:
        yield from stitch_requests((request for _, request in found), source.name, source.skip)
    else:
        yield from (_build_recording(source, *each) for each in found)


def short_metadata(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the short values beside a conversation, for ``Recording.meta``.

    Parameters
    ----------
    fields : dict
        The object that holds the conversation.

    Returns
    -------
    dict
        Its texts, numbers and bools, without those that have a place in a recording.

    Examples
    --------
    >>> short_metadata({"messages": [], "id": "a7", "score": 0.5, "more": {"x": 1}})
    {'id': 'a7', 'score': 0.5}
    """
    short = {key: value for key, value in fields.items() if is_short_value(value)}
    return {key: short[key] for key in short if key not in _NON_META_KEYS}


def find_timestamp(fields: dict[str, Any]) -> float | None:
    """Return the time at which an item was logged.

    Parameters
    ----------
    fields : dict
        The logged item.

    Returns
    -------
    float or None
        Seconds since 1970, or None if no time was logged.

    Examples
    --------
    >>> find_timestamp({"created": 1700000000}), find_timestamp({})
    (1700000000.0, None)
    >>> find_timestamp({"timestamp": "1970-01-01T00:01:00Z"})
    60.0
    """
    for key in TIME_KEYS:
        time = get_number(fields, key) or get_time(fields, key)
        if time is not None:
            return time / 1000 if time > _MIN_MILLISECONDS else time
    return None


def _read_requests(source: Source, api: ApiDialect) -> Iterator[tuple[RequestBody, LoggedRequest]]:
    """Yield each body with its request; messages that stand alone form one body at the end."""
    alone: list[Message] = []
    session_meta: dict[str, Any] = {}
    for where, value in source.read_json_values():
        if api.is_control(value):
            role = get_text(value, "role")
            reason = f"row of role {role}" if role else "row about the session"
            source.skip(reason, where and where[0])
            session_meta |= {} if role else short_metadata(value)
            continue
        value = api.unwrap(value)
        if _is_message(value):
            with source.handle_errors(*(where or (1, "message"))):
                alone += api.parse_message(value, source.skip)
            continue
        body = _parse_body(value)
        if body is None:
            _report_no_messages(source, where)
            continue
        request = _parse_request(body, source, where, api)
        if request.messages or request.answer:
            yield body, request
        else:
            source.skip("conversation without messages", where and where[0])
    if alone:
        yield RequestBody({}, None, session_meta), LoggedRequest(tuple(alone))


def _parse_request(
    body: RequestBody, source: Source, where: Location | None, dialect: ApiDialect
) -> LoggedRequest:
    messages: list[Message] = []
    tools: tuple[dict[str, Any], ...] = ()
    answer: Message | None = None
    with source.handle_errors(*(where or (1, "request"))):
        tools = dialect.parse_tools(body.fields)
        messages += dialect.parse_system(body.fields, source.skip)
    for position, each in enumerate(body.fields["messages"]):
        with source.handle_errors(*(where or (position, "message"))):
            try:
                messages += dialect.parse_message(each, source.skip)
            except ValueError as error:
                raise ValueError(f"message {position}: {error}" if where else str(error)) from None
    with source.handle_errors(*(where or (1, "response"))):
        if body.response is not None:
            answer = dialect.parse_response(body.response, source.skip)
    usage = dialect.parse_usage(body.row.get("usage"))
    if answer is not None:
        time = answer.time or find_timestamp(body.row)
        answer = answer.replace(usage=answer.usage or usage, time=time)
    elif usage and messages and messages[-1].role == "assistant":
        messages[-1] = messages[-1].replace(usage=messages[-1].usage or usage)
    return LoggedRequest(tuple(messages), answer, tools, get_text(body.fields, "model"))


def _build_recording(source: Source, body: RequestBody, request: LoggedRequest) -> Recording:
    messages = (*request.messages, *([request.answer] if request.answer else ()))
    meta = short_metadata(body.row)
    return Recording(source.name, messages, request.tools, request.model, meta=meta)


def _parse_body(value: Any) -> RequestBody | None:
    if isinstance(value, list):
        listed = value and _is_message(value[0])
        return RequestBody({"messages": value}, None, {}) if listed else None
    if not isinstance(value, dict):
        return None
    request = value.get("request")
    fields = request if isinstance(request, dict) else value
    if not isinstance(fields.get("messages"), list):
        return None
    return RequestBody(fields, value if "choices" in value else value.get("response"), value)


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and "role" in value and "messages" not in value


def _report_no_messages(source: Source, where: Location | None) -> None:
    reason = "expected a message or an object with a list of messages"
    if where is None:
        raise ReadError(source.path, None, reason)
    source.report_error(reason, *where)
