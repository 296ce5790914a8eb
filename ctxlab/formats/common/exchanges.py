r"""Find the model calls in recorded HTTP traffic and in the logs of proxies.

Such files wrap the bodies of requests and responses in other objects. This module unwraps them, so
that the readers of request logs (``request_log``) can read each call as ``{request, response}``.

- VCR cassettes as JSON: ``{"interactions": [{"request": {"body": …}, "response": {"body": …}}]}``,
  and the same with ``http_interactions`` (VCR for Ruby, Betamax). A body is an object, a JSON string,
  or an object with the string under ``string`` or ``base64_string``.
- HAR archives: ``{"log": {"entries": […]}}`` with ``request.postData.text`` and
  ``response.content.text``.
- Flows of mitmproxy, as its example script ``jsondump.py`` writes them: one line per flow, with
  ``request.content`` and ``response.content``. The script writes bytes as Python's escape sequences
  or as Base64.
- Single exchanges ``{"request": {"body": …}, "response": {"body": …}}``, as JSONL or as a list.
- Spend logs of LiteLLM: ``messages`` and ``response`` are objects or strings with JSON. Newer
  versions store the request in ``proxy_server_request`` and leave ``messages`` empty. A page of the
  API ``{"data": […]}`` has the newest request first, and is sorted by ``startTime``.
- Batch inference of Bedrock: ``{"recordId", "modelInput", "modelOutput"}``.

A streamed response is assembled from its events (``event_stream``). A body may be compressed with
gzip, but not with Brotli or Zstandard. Exchanges whose request has no ``messages``, such as those of
other services, are left out and counted. LiteLLM shortens long texts; they are read as they are.

References
----------
github.com/kevin1024/vcrpy, ``vcr/serializers/jsonserializer.py``; docs.rs/vcr-cassette;
betamax, "Cassettes"; HTTP Archive format 1.2; github.com/mitmproxy/mitmproxy,
``examples/contrib/jsondump.py``; github.com/BerriAI/litellm, ``schema.prisma``
(``LiteLLM_SpendLogs``) and ``proxy/spend_tracking/spend_tracking_utils.py`` of 2025; AWS, "Format
and upload your batch inference data". The shapes are taken from these sources, not from real files.
"""

from __future__ import annotations

import binascii
import re
import zlib
from base64 import b64decode
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeAlias

from ctxlab.formats.common.event_stream import parse_event_stream
from ctxlab.formats.fields import get_count, get_in, get_text, parse_if_json, parse_json_or_none

_Json: TypeAlias = dict[str, Any]

OTHER_EXCHANGE: Final = object()
"""Stands for an exchange that is not a model call with messages."""

_LIST_PATHS = (("interactions",), ("http_interactions",), ("log", "entries"))
_SPEND_KEYS = frozenset({"request_id", "call_type", "spend"})
_URL_START = re.compile(r"https?://[^/]*")
_HOLDER_KEYS = ("string", "text", "base64_string")
_CHAT_KEYS = frozenset({"messages", "choices", "content", "error", "role"})
_BODY_KEYS = ("body", "postData", "content")
_TIME_PATHS = (
    *(("recorded_at",), ("startedDateTime",), ("startTime",), ("timestamp",), ("created_at",)),
    ("request", "timestamp_start"),
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|(.)|$)", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_GZIP_MAGIC = b"\x1f\x8b"
_MAX_BODY_BYTES = 1 << 28


def iter_exchanges(value: Any) -> Iterator[Any]:
    """Yield the model calls in a value as rows of a request log.

    Parameters
    ----------
    value : Any
        A JSON value of the file.

    Yields
    ------
    Any
        For each recorded model call, an object with ``request``, ``response`` and, if known,
        ``timestamp`` and ``usage``. ``OTHER_EXCHANGE`` for each other exchange. If the value does
        not contain recorded exchanges, the value itself.

    Examples
    --------
    >>> body = {"messages": [{"role": "user", "content": "hi"}]}
    >>> list(iter_exchanges({"request": {"body": body}, "response": {"body": "{}"}}))
    [{'request': {'messages': [{'role': 'user', 'content': 'hi'}]}, 'response': {}}]
    >>> list(iter_exchanges(body)) == [body]
    True
    """
    listed = _find_list(value)
    if listed is None:
        yield _unwrap(value)
        return
    for each in listed:
        unwrapped = _unwrap(each)
        yield OTHER_EXCHANGE if unwrapped is each else unwrapped


def find_endpoints(value: Any) -> Iterator[str]:
    """Yield the paths of the endpoints that the recorded exchanges in a value were sent to.

    They show which API was used if a body is so long that the beginning of the file does not contain
    it.

    Parameters
    ----------
    value : Any
        A JSON value at the beginning of the file.

    Yields
    ------
    str
        The path of a URL. ``"/chat/completions"`` for a row of LiteLLM's spend log.

    Examples
    --------
    >>> list(find_endpoints({"request": {"uri": "https://example.com/v1/messages?beta=true"}}))
    ['/v1/messages']
    """
    listed = _find_list(value)
    for row in [value] if listed is None else listed:
        urls = [get_text(row, "request", key) for key in ("uri", "url", "path")]
        if url := next(filter(None, urls), None):
            yield _URL_START.sub("", url).partition("?")[0]
        elif _is_spend_row(row):
            yield "/chat/completions"


def _find_list(value: Any) -> list[Any] | None:
    """Return the recorded exchanges in a value, or None if it is not a list of exchanges."""
    for path in _LIST_PATHS:
        listed = get_in(value, *path)
        if isinstance(listed, list) and any(get_in(each, "request") for each in listed):
            return listed
    listed = get_in(value, "data")
    if isinstance(listed, list) and any(map(_is_spend_row, listed)):
        return sorted(listed, key=lambda row: get_text(row, "startTime") or "")
    return None


def _is_spend_row(row: Any) -> bool:
    return isinstance(row, dict) and row.keys() >= _SPEND_KEYS


def _unwrap(row: Any) -> Any:
    if not isinstance(row, dict):
        return row
    request = row.get("request")
    if isinstance(request, dict) and "messages" not in request:
        key = next((key for key in _BODY_KEYS if key in request), None)
        if key is not None or "method" in request:
            is_flow = key == "content"
            response = row.get("response")
            answered = next((each for k in _BODY_KEYS if (each := get_in(response, k))), None)
            sent = _parse_body(request.get(key or ""), is_flow)
            return _make_row(row, sent, _parse_body(answered, is_flow))
    if "modelInput" in row:
        return _make_row(row, row["modelInput"], row.get("modelOutput"))
    if "response" in row and ("proxy_server_request" in row or get_text(row, "messages")):
        return _make_row(row, _find_spend_request(row), parse_if_json(row["response"]))
    return row


def _make_row(row: _Json, request: Any, response: Any) -> Any:
    if not isinstance(get_in(request, "messages"), list):
        return OTHER_EXCHANGE
    made = {"request": request, "response": response}
    times = (_normalize_time(get_in(row, *path)) for path in _TIME_PATHS)
    if (time := next((each for each in times if each), None)) is not None:
        made["timestamp"] = time
    if get_count(row, "prompt_tokens"):
        keys = ("prompt_tokens", "completion_tokens")
        made["usage"] = {key: get_count(row, key) for key in keys}
    return made


def _find_spend_request(row: _Json) -> Any:
    """Return the request of a row of LiteLLM's spend log."""
    request = parse_if_json(row.get("proxy_server_request"))
    body = parse_if_json(get_in(request, "body"))
    for each in (body, request):
        if isinstance(get_in(each, "messages"), list):
            return each
    return {"messages": parse_if_json(row.get("messages")), "model": row.get("model")}


def _normalize_time(value: Any) -> Any:
    """Convert the time of an HTTP header to ISO 8601. Other values are returned unchanged."""
    if not isinstance(value, str) or "," not in value:
        return value
    try:
        return parsedate_to_datetime(value).isoformat()
    except (ValueError, TypeError, OverflowError):
        return None


def _parse_body(value: Any, is_flow: bool = False) -> Any:
    """Parse the recorded body of a request or response.

    ``is_flow`` is True if mitmproxy may have written the bytes as escape sequences. Returns None if
    the body is not JSON and not an event stream.
    """
    if isinstance(value, dict) and _CHAT_KEYS.isdisjoint(value):
        key = next((key for key in _HOLDER_KEYS if isinstance(value.get(key), str)), None)
        if key is None:
            return value
        encoded = key == "base64_string" or value.get("encoding") == "base64"
        return _parse_encoded(value[key]) if encoded else _parse_text(value[key])
    if not isinstance(value, str):
        return value
    parsed = _parse_escaped(value) if is_flow and "\\" in value else None
    if parsed is None:
        parsed = _parse_text(value)
    return _parse_encoded(value) if parsed is None else parsed


def _parse_text(text: str) -> Any:
    body = text.strip()
    if body[:1] in ("{", "["):
        return parse_json_or_none(body)
    return parse_event_stream(text)


def _parse_escaped(text: str) -> Any:
    r"""Parse text in which bytes are written as in Python's ``repr``: ``\n`` is a line break."""
    try:
        return _parse_bytes(_ESCAPE.sub(_unescape, text).encode("latin-1"))
    except (KeyError, UnicodeError):
        return None


def _unescape(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else _ESCAPED[match[2] or ""]


def _parse_encoded(text: str) -> Any:
    try:
        return _parse_bytes(b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        return None


def _parse_bytes(content: bytes) -> Any:
    try:
        if content.startswith(_GZIP_MAGIC):
            unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
            content = unpacker.decompress(content, _MAX_BODY_BYTES)
        return _parse_text(content.decode("utf-8"))
    except (UnicodeDecodeError, zlib.error):
        return None
