"""Tests of OTLP: files of a collector and of an SDK give the same spans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ctxlab.errors import ReadError
from ctxlab.formats.base import Source
from ctxlab.formats.otel.otlp import Span, SpanEvent, parse_span, read_spans, unwrap_value

SPAN = Span("chat", "ab", 1.0, 1.5, {"n": 3, "l": ["x"]}, [SpanEvent("e", {"k": "v"})])
TYPED = {
    "traceId": "ab",
    "name": "chat",
    "startTimeUnixNano": "1000000000",
    "endTimeUnixNano": 1500000000,
    "attributes": [
        {"key": "n", "value": {"intValue": "3"}},
        {"key": "l", "value": {"arrayValue": {"values": [{"stringValue": "x"}]}}},
    ],
    "events": [{"name": "e", "attributes": [{"key": "k", "value": {"stringValue": "v"}}]}],
}
FLAT = {
    "name": "chat",
    "context": {"trace_id": "0xab", "span_id": "0x1"},
    "start_time": "1970-01-01T00:00:01.000000Z",
    "end_time": "1970-01-01T00:00:01.500000Z",
    "attributes": {"n": 3, "l": ["x"]},
    "events": [{"name": "e", "attributes": {"k": "v"}}],
}


def wrapped(*spans: Any, scope: str = "scopeSpans") -> dict[str, Any]:
    return {"resourceSpans": [{"resource": {}, scope: [{"scope": {}, "spans": list(spans)}]}]}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(wrapped(TYPED, TYPED)),
        json.dumps(wrapped(TYPED, TYPED), indent=2),
        json.dumps(wrapped(TYPED)) + "\n" + json.dumps(wrapped(TYPED)) + "\n",
        json.dumps(wrapped(TYPED, TYPED, scope="instrumentationLibrarySpans")),
        json.dumps([FLAT, FLAT]),
        json.dumps(FLAT) + "\n" + json.dumps(FLAT) + "\n",
        json.dumps(FLAT, indent=4) + "\n" + json.dumps(FLAT, indent=4) + "\n",
    ],
)
def test_spans_are_the_same_in_every_file(text: str, tmp_path: Path) -> None:
    path = tmp_path / "spans"
    path.write_text(text)
    assert [parse_span(each) for _, each in read_spans(Source(path, "spans"))] == [SPAN, SPAN]


def test_of_objects_that_are_indented_a_broken_one_costs_itself(tmp_path: Path) -> None:
    path = tmp_path / "console.log"
    whole = json.dumps(FLAT, indent=4)
    path.write_text("\n".join((whole, whole.replace('"name"', "name"), whole, "{")))
    with pytest.raises(ReadError, match="not JSON") as caught:
        list(read_spans(Source(path, "spans")))
    assert caught.value.line == whole.count("\n") + 2
    source = Source(path, "spans", on_error="skip")
    assert len(list(read_spans(source))) == 2
    assert sum(source.pop_skipped().values()) == 2


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ({"stringValue": "a"}, "a"),
        ({"intValue": "7"}, 7),
        ({"intValue": 7}, 7),
        ({"intValue": "x"}, None),
        ({"doubleValue": 0.5}, 0.5),
        ({"boolValue": False}, False),
        ({"arrayValue": {}}, []),
        ({"kvlistValue": {"values": [{"key": "a", "value": {"intValue": "1"}}]}}, {"a": 1}),
        ({}, None),
        ("bare", "bare"),
    ],
)
def test_a_value_loses_the_types_around_it(typed: Any, value: Any) -> None:
    assert unwrap_value(typed) == value


@pytest.mark.properties
def test_values_may_be_nested_deeper_than_python_calls() -> None:
    value: Any = {"stringValue": "x"}
    for _ in range(20_000):
        value = {"arrayValue": {"values": [value]}}
    found = unwrap_value(value)
    while isinstance(found, list):
        (found,) = found
    assert found == "x"
