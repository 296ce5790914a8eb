"""Read request bodies and request logs, for the readers of chat APIs.

A request body is an object with ``messages``, or a list of messages. A file contains bodies as
JSONL or as a JSON list, or is a single body. If the first row of a file contains a request and its
response (``{"request": …, "response": …}``, or an object with ``messages`` and ``response`` or
``choices``), the file is a request log. Each request of a log repeats the earlier messages of its
conversation, so the requests are joined into conversations. If there are no responses, each body
becomes a separate conversation, because successive requests cannot be distinguished from similar
training examples. Recorders of HTTP traffic and proxies wrap requests and responses in other
objects, which ``exchanges`` removes. Files of batch APIs are read by ``batches``. The readers for
OpenAI's and Anthropic's APIs differ only in their ``ApiDialect``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, NamedTuple

from ctxlab.errors import ReadError
from ctxlab.formats.base import Location, SkipCallback, Source
from ctxlab.formats.common.exchanges import OTHER_EXCHANGE, find_endpoints, iter_exchanges
from ctxlab.formats.common.stitch import LoggedRequest, stitch_requests
from ctxlab.formats.fields import get_number, get_text, get_time, is_short_value
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.types import Message, Recording, Usage

TIME_KEYS = ("timestamp", "created_at", "created")
"""Keys of the time in logged objects, in order of precedence."""

_MAX_SNIFFED_BODIES = 50
_MIN_MILLISECONDS = 1e11  # in seconds this would be the year 5138
_RESPONSE_KEYS = frozenset({"request", "response", "choices"})
_BODY_KEYS = ("messages", "system", "tools", "functions", "model")
_NON_META_KEYS = frozenset([*_BODY_KEYS, "response", "choices", "usage"])


class RequestBody(NamedTuple):
    """A request body, its response, and the logged row that contains both."""

    fields: dict[str, Any]
    "the fields of the body; ``messages`` is a list"
    response: Any
    "the logged response, or None"
    row: dict[str, Any]
    "the row of the file that contains the body; empty if the body is a list of messages"

    @property
    def is_logged(self) -> bool:
        """True if the row belongs to a request log.

        Such a row has the key ``request``, ``response`` or ``choices``, possibly with an empty value.
        """
        return not _RESPONSE_KEYS.isdisjoint(self.row)


@dataclass(frozen=True)
class ApiDialect:
    """Functions that parse the parts of a request body for one API.

    They raise ``ValueError`` if a value is malformed.
    """

    parse_system: Callable[[dict[str, Any], SkipCallback], list[Message]]
    "returns the system prompt of a request body as messages"
    parse_message: Callable[[Any, SkipCallback], list[Message]]
    "parses one element of ``messages``; may return tool results as additional messages"
    parse_response: Callable[[Any, SkipCallback], Message | None]
    "returns the message of a logged response, or None if it has none"
    parse_usage: Callable[[Any], Usage | None]
    "parses the token usage of a row or response"
    parse_tools: Callable[[dict[str, Any]], tuple[dict[str, Any], ...]]
    "returns the tool definitions of a request body in OpenAI's format"
    is_control: Callable[[Any], bool] = lambda value: False
    "returns True for a row that contains information about the log; such rows are skipped and counted"
    unwrap: Callable[[Any], Any] = lambda value: value
    "removes an object that a product wraps around a message or request body"


def request_bodies(head: FileHead) -> Iterator[RequestBody]:
    """Yield the request bodies at the beginning of a file.

    Rows that are single messages are not request bodies and are ignored.

    Parameters
    ----------
    head : FileHead
        The beginning of the file, parsed as JSON.

    Yields
    ------
    RequestBody
        A request body, with its response if one was logged.
    """
    for row in head.rows:
        if isinstance(row, list) and row and not _is_message(row[0]):
            rows = row[:_MAX_SNIFFED_BODIES]
        else:
            rows = [row]
        listed = islice(chain.from_iterable(map(iter_exchanges, rows)), _MAX_SNIFFED_BODIES)
        yield from (body for each in listed if (body := parse_body(each)))


def has_endpoint(head: FileHead, ending: str) -> bool:
    """Check whether recorded exchanges whose bodies are cut off were sent to an endpoint.

    Parameters
    ----------
    head : FileHead
        The beginning of the file.
    ending : str
        End of the path of the endpoint, such as ``"/v1/messages"``.

    Returns
    -------
    bool
        True if the head contains such an exchange, and no complete request body.
    """
    if head.is_complete or next(request_bodies(head), None) is not None:
        return False
    return any(path.endswith(ending) for row in head.rows for path in find_endpoints(row))


def read_request_log(source: Source, dialect: ApiDialect) -> Iterator[Recording]:
    """Read the conversations of a file with request bodies or of a request log.

    Parameters
    ----------
    source : Source
        The file to read. Content that is skipped is counted by its ``skip`` method.
    dialect : ApiDialect
        The parsers for the API of the file.

    Yields
    ------
    Recording
        A conversation of the file.

    Raises
    ------
    ReadError
        If a message is malformed and ``on_error`` is ``"raise"``, or if the file is a single JSON
        object without messages.
    """
    found: Iterator[tuple[RequestBody, LoggedRequest]] = _read_requests(source, dialect)
    first = next(found, None)
    if first is None:
        return
    found = chain([first], found)
    if first[0].is_logged:
        yield from stitch_requests((request for _, request in found), source.name, source.skip)
    else:
        yield from (build_recording(source.name, *each) for each in found)


def short_metadata(fields: dict[str, Any]) -> dict[str, Any]:
    """Select the short values of a row, such as an id or a score, for ``Recording.meta``.

    Parameters
    ----------
    fields : dict
        The object that contains the conversation.

    Returns
    -------
    dict
        The short strings, numbers and bools of the object. Keys that other fields of ``Recording``
        store, such as ``model``, are not included.

    Examples
    --------
    >>> short_metadata({"messages": [], "id": "a7", "score": 0.5, "more": {"x": 1}})
    {'id': 'a7', 'score': 0.5}
    """
    short = {key: value for key, value in fields.items() if is_short_value(value)}
    return {key: short[key] for key in short if key not in _NON_META_KEYS}


def find_timestamp(fields: dict[str, Any]) -> float | None:
    """Return the time of a logged message or response.

    Parameters
    ----------
    fields : dict
        The logged object.

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
    """Yield each request body with its parsed request.

    Messages on separate lines are joined into one body, which is yielded last.
    """
    alone: list[Message] = []
    session_meta: dict[str, Any] = {}
    for where, value in _read_values(source):
        if value is OTHER_EXCHANGE:
            source.skip("exchange without chat messages")
            continue
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
        body = parse_body(value)
        if body is None:
            _report_no_messages(source, where)
            continue
        request = parse_request(body, source, where, api)
        if request.messages or request.answer:
            yield body, request
        else:
            source.skip("conversation without messages", where and where[0])
    if alone:
        yield RequestBody({}, None, session_meta), LoggedRequest(tuple(alone))


def _read_values(source: Source) -> Iterator[tuple[Location | None, Any]]:
    """Yield the values of a file. Recorded exchanges are unwrapped."""
    for where, value in source.read_json_values():
        for index, each in enumerate(iter_exchanges(value)):
            yield where or (None if each is value else (index, "exchange")), each


def parse_request(
    body: RequestBody, source: Source, where: Location | None, dialect: ApiDialect
) -> LoggedRequest:
    """Parse a request body and its response.

    Parameters
    ----------
    body : RequestBody
        The request body.
    source : Source
        The file that contains the body. Malformed and skipped content is reported to it.
    where : tuple of (int, str), or None
        Position of the body in the file. None if the body is the whole file.
    dialect : ApiDialect
        The parsers for the API of the body.

    Returns
    -------
    LoggedRequest
        The messages, the answer, the tools and the model of the request.

    Raises
    ------
    ReadError
        If a part of the body is malformed and ``on_error`` is ``"raise"``.
    """
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


def build_recording(id: str, body: RequestBody, request: LoggedRequest) -> Recording:
    """Build the recording of a single request.

    Parameters
    ----------
    id : str
        Id of the recording.
    body : RequestBody
        The request body. The short values of its row become ``Recording.meta``.
    request : LoggedRequest
        The parsed request.

    Returns
    -------
    Recording
        The messages of the request and its answer.
    """
    messages = (*request.messages, *([request.answer] if request.answer else ()))
    meta = short_metadata(body.row)
    return Recording(id, messages, request.tools, request.model, meta=meta)


def parse_body(value: Any) -> RequestBody | None:
    """Find the request body in a row.

    Parameters
    ----------
    value : Any
        A request body, a list of messages, or a row with a request and its response.

    Returns
    -------
    RequestBody or None
        The body, or None if the value contains no list of messages.
    """
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
    reason = "expected a message or an object with a list under 'messages'"
    if where is None:
        raise ReadError(source.path, None, reason)
    source.report_error(reason, *where)
