"""Read OpenTelemetry spans from the JSON files of a collector or an SDK.

The file exporter of a collector writes one object ``{"resourceSpans": [{"scopeSpans":
[{"spans"}]}]}`` per line. The HTTP endpoint of a collector receives one such object. In these
objects, attributes have the form ``{"key", "value": {"stringValue"}}``, and times are strings with a
number of nanoseconds.

The console exporter of the Python SDK prints ``span.to_json()``, which is one indented object per
span. Its ``attributes`` are plain values, its times are in ISO 8601 format, and its ids are under
``context``. The output of the application may be in the same file. Lines outside of the objects are
skipped and counted. The objects can also be read from a JSONL file or a JSON list. ``otel/reader``
interprets the attributes.

The console exporter of the JavaScript SDK does not print JSON, and is not supported.

References
----------
opentelemetry.io/docs/specs/otel/protocol/file-exporter, opentelemetry-proto 1.x
(``common.proto``, ``trace.proto``), opentelemetry-sdk 1.x ``ReadableSpan.to_json``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ctxlab.formats.base import Location, Source
from ctxlab.formats.fields import (
    get_in,
    get_list,
    get_objects,
    get_text,
    get_time,
    parse_json_or_none,
    require_object,
)
from ctxlab.formats.io.files import BOM, open_file
from ctxlab.formats.io.head import FileHead

_NANOSECONDS = 1e9


class SpanEvent(NamedTuple):
    """An OpenTelemetry event of a span, such as a message that was logged during a model call."""

    name: str
    "name of the event"
    attributes: dict[str, Any]
    "attributes of the event, without type wrappers"


class Span(NamedTuple):
    """An OpenTelemetry span, with the fields that ctxlab uses."""

    name: str
    "name of the span"
    trace_id: str
    "id of the trace to which the span belongs"
    start: float | None
    "start time in seconds since 1970; None if unknown"
    end: float | None
    "end time in seconds since 1970; None if unknown"
    attributes: dict[str, Any]
    "attributes of the span, without type wrappers"
    events: list[SpanEvent]
    "events of the span, in order"


def read_spans(source: Source) -> Iterator[tuple[Location, Any]]:
    """Read the spans of a file as JSON values.

    Parameters
    ----------
    source : Source
        The file to read.

    Yields
    ------
    tuple of (int, str)
        Position of the span in the file, such as ``(3, "line")``.
    Any
        JSON value of the span, which ``parse_span`` parses.
    """
    for where, value in _read_values(source):
        for number, each in enumerate(iter_spans(value)):
            yield where or (number, "span"), each


def first_spans(head: FileHead) -> Iterator[Any]:
    """Yield the complete spans at the beginning of a file.

    Parameters
    ----------
    head : FileHead
        The beginning of the file.

    Yields
    ------
    Any
        JSON value of a span, or of another row of the file.
    """
    values: Iterable[Any] = head.rows
    if _is_indented(head):
        lines = head.first_bytes.splitlines(keepends=True)
        objects = (text for _, text in _split_indented(lines) if text.startswith(b"{"))
        parsed = [value for text in objects if (value := parse_json_or_none(text)) is not None]
        values = parsed or values
    for value in values:
        yield from iter_spans(value)


def iter_spans(value: Any) -> Iterator[Any]:
    """Yield the spans in one JSON value.

    Parameters
    ----------
    value : Any
        An object with ``resourceSpans``, a list of spans, or one span.

    Yields
    ------
    Any
        JSON value of a span, which ``parse_span`` parses.
    """
    groups = get_in(value, "resourceSpans")
    if not isinstance(groups, list):
        yield from value if isinstance(value, list) else [value]
        return
    for group in groups:
        # Before version 1.0 of the protocol, a scope was called an instrumentation library.
        for key in ("scopeSpans", "instrumentationLibrarySpans"):
            for scope in get_list(group, key):
                yield from get_list(scope, "spans")


def is_span(value: Any) -> bool:
    """Check whether a JSON value is a span written by a collector or an SDK.

    Parameters
    ----------
    value : Any
        The JSON value.

    Returns
    -------
    bool
        True if the value has a trace id and attributes.
    """
    here = get_in(value, "traceId") or get_in(value, "context", "trace_id")
    return get_text(here) is not None and isinstance(get_in(value, "attributes"), (dict, list))


def parse_span(value: Any) -> Span:
    """Parse a span written by a collector or an SDK.

    Parameters
    ----------
    value : Any
        JSON value of the span.

    Returns
    -------
    Span
        The parsed span. Missing fields are empty or None.

    Raises
    ------
    ValueError
        If ``value`` is not an object.
    """
    value = require_object(value, "a span")
    trace = get_text(value, "traceId") or get_text(value, "context", "trace_id")
    return Span(
        name=get_text(value, "name") or "",
        trace_id=(trace or "trace").removeprefix("0x"),
        start=_parse_time(value.get("startTimeUnixNano"), value.get("start_time")),
        end=_parse_time(value.get("endTimeUnixNano"), value.get("end_time")),
        attributes=_parse_attributes(value.get("attributes")),
        events=[
            SpanEvent(get_text(each, "name") or "", _parse_attributes(each.get("attributes")))
            for each in get_objects(value, "events")
        ],
    )


def unwrap_value(value: Any) -> Any:
    """Remove the type wrappers of the OpenTelemetry protocol from an attribute value.

    Parameters
    ----------
    value : Any
        The recorded value, such as ``{"intValue": "3"}``. A value without a wrapper is returned
        unchanged.

    Returns
    -------
    Any
        A string, number or bool, or a list or dict of such values.

    Examples
    --------
    >>> unwrap_value({"arrayValue": {"values": [{"intValue": "3"}, {"kvlistValue": {"values": [
    ...     {"key": "a", "value": {"stringValue": "b"}}]}}]}})
    [3, {'a': 'b'}]
    """
    root: list[Any] = [None]
    waiting: list[tuple[Any, Any, Any]] = [(root, 0, value)]
    while waiting:
        into, key, typed = waiting.pop()
        into[key] = typed
        if not isinstance(typed, dict):
            continue
        each_of = get_in(typed, "arrayValue", "values")
        pairs = get_in(typed, "kvlistValue", "values")
        if isinstance(each_of, list):
            into[key] = [None] * len(each_of)
            waiting += ((into[key], index, each) for index, each in enumerate(each_of))
        elif isinstance(pairs, list):
            into[key] = {}
            named = ((str(pair.get("key")), pair.get("value")) for pair in get_objects(pairs)[::-1])
            waiting += ((into[key], name, each) for name, each in named)
        elif len(typed) <= 1:
            into[key] = _unwrap_scalar(typed)
    return root[0]


def _unwrap_scalar(typed: dict[str, Any]) -> Any:
    for name, value in typed.items():
        if name == "intValue" and isinstance(value, str):
            try:
                return int(value)
            except ValueError:
                return None
        if name in ("stringValue", "intValue", "doubleValue", "boolValue", "bytesValue"):
            return value
        if name in ("arrayValue", "kvlistValue"):
            return [] if name == "arrayValue" else {}
    return typed or None


def _parse_attributes(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    return {str(pair.get("key")): unwrap_value(pair.get("value")) for pair in get_objects(value)}


def _parse_time(nanoseconds: Any, iso: Any) -> float | None:
    try:
        return int(nanoseconds) / _NANOSECONDS
    except (TypeError, ValueError, OverflowError):
        return get_time(iso)


def _read_values(source: Source) -> Iterator[tuple[Location | None, Any]]:
    """Yield the JSON values of a file, which may contain several indented objects."""
    indented = _is_indented(FileHead.from_file(source.path))
    yield from _read_indented(source) if indented else source.read_json_values()


def _is_indented(head: FileHead) -> bool:
    """Check whether a file contains indented objects, one after another.

    An indented JSON list is not such a file. Its first line contains only a bracket.
    """
    if head.is_complete and parse_json_or_none(head.first_bytes) is not None:
        return False
    lines = [line.rstrip() for line in head.first_bytes.splitlines() if line.strip()]
    return b"{" in lines and lines[0] != b"["


def _split_indented(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the indented objects among lines, and each line outside of the objects.

    An object starts at an unindented opening brace and ends at an unindented closing brace. JSON
    strings contain no line breaks, so such a line is never part of a string.

    >>> list(_split_indented([b"log", b"{", b" 1", b"}"]))
    [(1, b'log'), (2, b'{ 1}')]
    """
    held: list[bytes] = []
    begun = 0
    for number, line in enumerate(lines, start=1):
        text = line.rstrip()
        if text == b"{":
            if held:
                yield begun, b"".join(held)
            held, begun = [line], number
        elif held:
            held.append(line)
            if text == b"}":
                yield begun, b"".join(held)
                held = []
        elif text:
            yield number, text
    if held:
        yield begun, b"".join(held)


def _read_indented(source: Source) -> Iterator[tuple[Location, Any]]:
    with open_file(source.path) as file:
        if file.read(len(BOM)) != BOM:
            file.seek(0)
        for number, text in _split_indented(file):
            value = parse_json_or_none(text) if text.startswith(b"{") else None
            if value is not None:
                yield (number, "line"), value
            elif b"\n" in text or text == b"{":
                source.report_error("not JSON", number)
            else:
                source.skip("line outside of the spans")
