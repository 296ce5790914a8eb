"""Spans are read from OpenTelemetry's JSON, whether a collector wrote it or an SDK.

A collector's file exporter writes ``{"resourceSpans": [{"scopeSpans": [{"spans"}]}]}`` in
lines, and the HTTP endpoint takes one such object; there an attribute is ``{"key", "value":
{"stringValue"}}`` and a time a number of nanoseconds, as text. Python's SDK prints
``span.to_json()``, an indented object a span one behind the other, with plain ``attributes``, ISO
times and its ids under ``context``; such objects in lines or in a list are read too. What the
attributes mean is left to ``otel/reader``.

Source: opentelemetry.io/docs/specs/otel/protocol/file-exporter, opentelemetry-proto 1.x
(``common.proto``, ``trace.proto``), opentelemetry-sdk 1.x ``ReadableSpan.to_json``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ctxlab._utils.jsonio import parse_json
from ctxlab.formats.base import Source
from ctxlab.formats.common.json_files import Location, read_json_values
from ctxlab.formats.fields import (
    get_nested,
    list_or_empty,
    objects_in,
    parse_iso_time,
    require_object,
    text_or_none,
)
from ctxlab.formats.io.files import BOM, open_file
from ctxlab.formats.io.head import FileHead

__all__ = ["Span", "SpanEvent", "is_span", "iter_spans", "parse_span", "read_spans", "unwrap_value"]

_NANOSECONDS = 1e9


class SpanEvent(NamedTuple):
    """Something that happened within a span."""

    name: str
    attributes: dict[str, Any]


class Span(NamedTuple):
    """What is read of a span."""

    name: str
    trace_id: str
    start: float | None
    "seconds since 1970"
    end: float | None
    attributes: dict[str, Any]
    events: list[SpanEvent]


def read_spans(source: Source) -> Iterator[tuple[Location, Any]]:
    """Every span of a file as it is written, with its place."""
    for where, value in _read_values(source):
        for number, each in enumerate(iter_spans(value)):
            yield where or (number, "span"), each


def iter_spans(value: Any) -> Iterator[Any]:
    """The spans of one JSON value: what a collector sent, a list of spans, or a span."""
    groups = get_nested(value, "resourceSpans")
    if not isinstance(groups, list):
        yield from value if isinstance(value, list) else [value]
        return
    for group in groups:
        # Before version 1.0 of the protocol, a scope was called an instrumentation library.
        for key in ("scopeSpans", "instrumentationLibrarySpans"):
            for scope in list_or_empty(get_nested(group, key)):
                yield from list_or_empty(get_nested(scope, "spans"))


def is_span(value: Any) -> bool:
    """Whether a value is a span in one of the two forms."""
    here = get_nested(value, "traceId") or get_nested(value, "context", "trace_id")
    return text_or_none(here) is not None and isinstance(
        get_nested(value, "attributes"), (dict, list)
    )


def parse_span(value: Any) -> Span:
    """A span with plain attributes; ``ValueError`` where it is none."""
    value = require_object(value, "a span")
    trace = text_or_none(value.get("traceId")) or text_or_none(
        get_nested(value, "context", "trace_id")
    )
    return Span(
        name=text_or_none(value.get("name")) or "",
        trace_id=(trace or "trace").removeprefix("0x"),
        start=_parse_time(value.get("startTimeUnixNano"), value.get("start_time")),
        end=_parse_time(value.get("endTimeUnixNano"), value.get("end_time")),
        attributes=_parse_attributes(value.get("attributes")),
        events=[
            SpanEvent(
                text_or_none(each.get("name")) or "", _parse_attributes(each.get("attributes"))
            )
            for each in objects_in(value.get("events"))
        ],
    )


def unwrap_value(value: Any) -> Any:
    """An attribute's value without the types around it; one that has none stays.

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
        each_of = get_nested(typed, "arrayValue", "values")
        pairs = get_nested(typed, "kvlistValue", "values")
        if isinstance(each_of, list):
            into[key] = [None] * len(each_of)
            waiting += ((into[key], index, each) for index, each in enumerate(each_of))
        elif isinstance(pairs, list):
            into[key] = {}
            waiting += (
                (into[key], str(pair.get("key")), pair.get("value"))
                for pair in reversed(objects_in(pairs))
            )
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
    return {str(pair.get("key")): unwrap_value(pair.get("value")) for pair in objects_in(value)}


def _parse_time(nanoseconds: Any, iso: Any) -> float | None:
    try:
        return int(nanoseconds) / _NANOSECONDS
    except (TypeError, ValueError, OverflowError):
        return parse_iso_time(iso)


def _read_values(source: Source) -> Iterator[tuple[Location | None, Any]]:
    """The JSON values of a file; objects that are indented may stand one behind the other."""
    first = FileHead.from_file(source.path).first_bytes.partition(b"\n")[0]
    yield from _read_indented(source) if first.strip() == b"{" else read_json_values(source)


def _read_indented(source: Source) -> Iterator[tuple[Location, Any]]:
    """Each object ends with the line that is its bracket: within it, all lines are indented."""
    with open_file(source.path) as file:
        lines: list[bytes] = []
        begun = 1
        for number, line in enumerate(file, start=1):
            lines.append(line)
            if line.rstrip() == b"}":
                yield from _parse_lines(lines, begun, source)
                lines, begun = [], number + 1
        yield from _parse_lines(lines, begun, source)


def _parse_lines(lines: list[bytes], line: int, source: Source) -> Iterator[tuple[Location, Any]]:
    if not (content := b"".join(lines)).strip():
        return
    try:
        value = parse_json(content.removeprefix(BOM))
    except ValueError:
        source.report_error("not JSON", line)
        return
    yield (line, "line"), value
