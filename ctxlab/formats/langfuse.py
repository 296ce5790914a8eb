"""Langfuse exports observations, of which the generations say the whole conversation again and again.

A file is JSONL or a JSON list of observations (the interface's export, the blob storage's
``observations`` and ``observations_v2``), the API's page ``{"data": [...], "meta"}``, or traces with
their ``observations`` inside. The API writes ``traceId``, the blob storage ``trace_id``. Only
observations of type ``GENERATION`` are read; the others are counted by their type.

- ``input`` and ``output`` are what an integration logged, or JSON text of it (``any_call``). An
  answer that is JSON was parsed by Langfuse and is JSON text again.
- LangChain's integration logs the definitions of tools as messages with the role ``tool``; others
  put them beside the messages, and Langfuse itself into ``tool_definitions``.
- Generations belong together by session where the export says it, else by trace.
- ``usageDetails`` counts kinds of tokens that do not overlap: ``input`` is outside the cache,
  ``output`` without what was hidden. Every name that holds ``input`` or ``output`` adds up. The older
  ``usage`` has the sums only.

CSV and Parquet are not read.

Source: langfuse.com/docs/api-and-data-platform (``blob-storage-export-fields``, 2026); langfuse 5.0.4
``api.commons``, ``openai``, ``langchain``; github.com/langfuse/langfuse ``observation-stream.ts``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ctxlab.formats.base import (
    Format,
    LeaveOut,
    Source,
)
from ctxlab.formats.common.api_messages import unpacked
from ctxlab.formats.common.api_tools import tools_of
from ctxlab.formats.common.json_files import values
from ctxlab.formats.common.traces import (
    Call,
    call,
    conversations,
    thread_of,
)
from ctxlab.formats.common.usage import openai_usage
from ctxlab.formats.io.head import Head
from ctxlab.formats.optional_fields import (
    first_text,
    iso_time,
    text,
    whole_number,
    within,
)
from ctxlab.formats.required_fields import an_object
from ctxlab.messages.types import (
    Recording,
    Usage,
)

__all__ = ["FORMAT", "read", "sniff"]

_TYPES = (
    "GENERATION",
    "SPAN",
    "EVENT",
    "AGENT",
    "TOOL",
    "CHAIN",
    "RETRIEVER",
    "EVALUATOR",
    "EMBEDDING",
    "GUARDRAIL",
)


class _Observation(NamedTuple):
    """An observation, and the session of the trace that it was found in."""

    fields: Any
    session: str | None


def sniff(head: Head) -> bool:
    """Whether a file begins with an observation: a type that Langfuse knows, and its trace."""
    return any(_is_observation(each.fields) for row in head.rows for each in _observations(row))


def read(source: Source) -> Iterator[Recording]:
    """The conversations of each session, or else of each trace."""
    return conversations(_calls(source), source)


FORMAT = Format("langfuse", "Langfuse observations, exported as JSON or JSONL", sniff, read)


def _is_observation(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.get("type") in _TYPES
        and text(_either(value, "traceId", "trace_id")) is not None
    )


def _calls(source: Source) -> Iterator[Call]:
    for where, value in values(source):
        for number, each in enumerate(_observations(value)):
            with source.guard(*(where or (number, "observation"))):
                kind = an_object(each.fields, "an observation").get("type")
                if kind == "GENERATION":
                    yield _call(each, source)
                else:
                    source.skip(f"observation of type {kind}")


def _observations(value: Any) -> Iterator[_Observation]:
    """The observations of a list, of a page of the API, or of traces."""
    page = within(value, "data")
    rows = page if isinstance(page, list) else value if isinstance(value, list) else [value]
    for row in rows:
        inner = within(row, "observations")
        if isinstance(inner, list):
            trace = row["trace"] if isinstance(row.get("trace"), dict) else row
            session = text(_either(trace, "sessionId", "session_id"))
            yield from (_Observation(each, session) for each in inner)
        else:
            yield _Observation(row, None)


def _call(observation: _Observation, source: Source) -> Call:
    row = observation.fields
    sent, tools = _sent(row, source.skip)
    named = {"session_id": observation.session or _either(row, "sessionId", "session_id")}
    trace = first_text([_either(row, "traceId", "trace_id"), row.get("id")]) or "trace"
    return call(
        thread_of(named, ("session_id",), trace),
        sent,
        row.get("output"),
        source.skip,
        start=iso_time(_either(row, "startTime", "start_time")),
        end=iso_time(_either(row, "endTime", "end_time")),
        usage=_usage(row),
        tools=tools,
        model=first_text(map(row.get, ("model", "provided_model_name", "providedModelName"))),
    )


def _sent(row: dict[str, Any], leave_out: LeaveOut) -> tuple[Any, tuple[dict[str, Any], ...]]:
    """The messages, and the definitions of tools from where they are said first."""
    sent = unpacked(row.get("input"))
    rows = unpacked(within(sent, "messages")) if isinstance(sent, dict) else sent
    among = []
    if isinstance(rows, list):
        among = [each["content"] for each in rows if _is_definition(each)]
        rows = [each for each in rows if not _is_definition(each)]
        sent = sent | {"messages": rows} if isinstance(sent, dict) else rows
    beside = (within(sent, key) for key in ("tools", "functions"))
    listed = next((each for each in beside if each), None) or among
    if not listed:
        kept = unpacked(_either(row, "toolDefinitions", "tool_definitions"))
        named = kept.items() if isinstance(kept, dict) else ()
        bodies = ((name, unpacked(body)) for name, body in named)
        listed = [{"name": name} | body for name, body in bodies if isinstance(body, dict)]
    return sent, tools_of(listed, leave_out)


def _is_definition(row: Any) -> bool:
    content = within(row, "content")
    return (
        isinstance(content, dict)
        and row.get("role") == "tool"
        and not row.get("tool_call_id")
        and ("function" in content or "input_schema" in content)
    )


def _usage(row: dict[str, Any]) -> Usage | None:
    details = unpacked(_either(row, "usageDetails", "usage_details"))
    counts = details if isinstance(details, dict) else {}
    if "prompt_tokens" in counts:
        return openai_usage(counts)
    if any("put" in name for name in counts):
        return _sum(counts)
    older = row.get("usage")
    sums = older if isinstance(older, dict) else {}
    sent = whole_number(_either(sums, "input", "promptTokens") or row.get("promptTokens"))
    got = whole_number(_either(sums, "output", "completionTokens") or row.get("completionTokens"))
    return Usage(input=sent, output=got) if sent or got else None


def _sum(counts: dict[str, Any]) -> Usage:
    """Kinds of tokens that do not overlap, except that the parts of what was written may be told."""
    told = {name: whole_number(count) for name, count in counts.items()}
    cached = {name: count for name, count in told.items() if "cache" in name}
    written = {k: v for k, v in cached.items() if "creation" in k or "write" in k}
    parts = {k: v for k, v in written.items() if "ephemeral" in k or k.endswith(("5m", "1h"))}
    wholes = sum(v for k, v in written.items() if k not in parts)
    return Usage(
        input=sum(v for k, v in told.items() if "input" in k and k not in cached),
        cache_read=sum(v for k, v in cached.items() if k not in written),
        cache_write=wholes or sum(parts.values()),
        output=sum(v for k, v in told.items() if "output" in k and k not in cached),
        reasoning=sum(v for k, v in told.items() if "reasoning" in k and "output" in k),
    )


def _either(value: dict[str, Any], *names: str) -> Any:
    return next((value[name] for name in names if value.get(name)), None)
