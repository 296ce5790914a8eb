"""Spans are read from OpenTelemetry's JSON, whether a collector wrote it or an SDK.

A collector's file exporter writes ``{"resourceSpans": [{"scopeSpans": [{"spans"}]}]}`` in lines, and
the HTTP endpoint takes one such object; there an attribute is ``{"key", "value": {"stringValue"}}``
and a time a number of nanoseconds, as text. Python's SDK prints ``span.to_json()``, an indented object a
span one behind the other, with plain ``attributes``, ISO times and its ids under ``context``; such
objects in lines or in a list are read too. What the attributes mean is left to ``otel_genai``.

Source: opentelemetry.io/docs/specs/otel/protocol/file-exporter, opentelemetry-proto 1.x
(``common.proto``, ``trace.proto``), opentelemetry-sdk 1.x ``ReadableSpan.to_json``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ctxlab._utils.jsonio import parse_json
from ctxlab.formats.base import Source
from ctxlab.formats.common.json_files import (
    Where,
    values,
)
from ctxlab.formats.io.files import (
    BOM,
    opened,
)
from ctxlab.formats.io.head import Head
from ctxlab.formats.optional_fields import (
    iso_time,
    listed,
    objects_in,
    text,
    within,
)
from ctxlab.formats.required_fields import an_object

__all__ = ["Event", "Span", "is_span", "plain", "span_of", "spans", "spans_in"]

_NANOSECONDS = 1e9


class Event(NamedTuple):
    """Something that happened within a span."""

    name: str
    attributes: dict[str, Any]


class Span(NamedTuple):
    """What is read of a span."""

    name: str
    trace: str
    start: float | None
    "seconds since 1970"
    end: float | None
    attributes: dict[str, Any]
    events: list[Event]


def spans(source: Source) -> Iterator[tuple[Where, Any]]:
    """Every span of a file as it is written, with its place."""
    for where, value in _values(source):
        for number, each in enumerate(spans_in(value)):
            yield where or (number, "span"), each


def spans_in(value: Any) -> Iterator[Any]:
    """The spans of one JSON value: what a collector sent, a list of spans, or a span."""
    groups = within(value, "resourceSpans")
    if not isinstance(groups, list):
        yield from value if isinstance(value, list) else [value]
        return
    for group in groups:
        # Before version 1.0 of the protocol, a scope was called an instrumentation library.
        for key in ("scopeSpans", "instrumentationLibrarySpans"):
            for scope in listed(within(group, key)):
                yield from listed(within(scope, "spans"))


def is_span(value: Any) -> bool:
    """Whether a value is a span in one of the two forms."""
    here = within(value, "traceId") or within(value, "context", "trace_id")
    return text(here) is not None and isinstance(within(value, "attributes"), (dict, list))


def span_of(value: Any) -> Span:
    """A span with plain attributes; ``ValueError`` where it is none."""
    value = an_object(value, "a span")
    trace = text(value.get("traceId")) or text(within(value, "context", "trace_id"))
    return Span(
        name=text(value.get("name")) or "",
        trace=(trace or "trace").removeprefix("0x"),
        start=_time(value.get("startTimeUnixNano"), value.get("start_time")),
        end=_time(value.get("endTimeUnixNano"), value.get("end_time")),
        attributes=_attributes(value.get("attributes")),
        events=[
            Event(text(each.get("name")) or "", _attributes(each.get("attributes")))
            for each in objects_in(value.get("events"))
        ],
    )


def plain(value: Any) -> Any:
    """An attribute's value without the types around it; one that has none stays.

    >>> plain({"arrayValue": {"values": [{"intValue": "3"}, {"kvlistValue": {"values": [
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
        each_of = within(typed, "arrayValue", "values")
        pairs = within(typed, "kvlistValue", "values")
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
            into[key] = _scalar(typed)
    return root[0]


def _scalar(typed: dict[str, Any]) -> Any:
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


def _attributes(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    return {str(pair.get("key")): plain(pair.get("value")) for pair in objects_in(value)}


def _time(nanoseconds: Any, iso: Any) -> float | None:
    try:
        return int(nanoseconds) / _NANOSECONDS
    except (TypeError, ValueError, OverflowError):
        return iso_time(iso)


def _values(source: Source) -> Iterator[tuple[Where | None, Any]]:
    """The JSON values of a file; objects that are indented may stand one behind the other."""
    first = Head.of(source.path).start.partition(b"\n")[0]
    yield from _indented(source) if first.strip() == b"{" else values(source)


def _indented(source: Source) -> Iterator[tuple[Where, Any]]:
    """Each object ends with the line that is its bracket: within it, all lines are indented."""
    with opened(source.path) as file:
        lines: list[bytes] = []
        begun = 1
        for number, line in enumerate(file, start=1):
            lines.append(line)
            if line.rstrip() == b"}":
                yield from _parsed(lines, begun, source)
                lines, begun = [], number + 1
        yield from _parsed(lines, begun, source)


def _parsed(lines: list[bytes], line: int, source: Source) -> Iterator[tuple[Where, Any]]:
    if not (content := b"".join(lines)).strip():
        return
    try:
        value = parse_json(content.removeprefix(BOM))
    except ValueError:
        source.broken("not JSON", line)
        return
    yield (line, "line"), value
