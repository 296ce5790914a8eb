"""Reader for Langfuse observations exported as JSON or JSONL.

A file is one of these:

- JSONL or a JSON list of observations, exported from the user interface or from blob storage
  (``observations`` and ``observations_v2``).
- A page of the API, ``{"data": [...], "meta"}``.
- A list of traces that contain their ``observations``.

Keys are in camel case (``traceId``) if exported by the API, and in snake case (``trace_id``) if
exported to blob storage. Only observations of type ``GENERATION``, which are model calls, are read.
Observations of other types are skipped and counted by type. Each generation repeats the whole
conversation so far, so the generations are joined into conversations.

- ``input`` and ``output`` contain the logged request and response, possibly as a string with JSON
  (``common/traces``). If the model answered with JSON, Langfuse has parsed the answer, and the
  reader converts it back to a string.
- The LangChain integration logs tool definitions as messages with the role ``tool``. Other
  integrations log them under ``tools`` or ``functions`` of the input. Langfuse also stores them
  under ``tool_definitions``.
- The LangChain integration for JavaScript logs a tool result with the name of the tool as its role,
  and without the id of the call. If a model called a tool of this name, the message is read as the
  result of the first call of this tool that has no result yet. A message without a role after such a
  call is the result of a tool without a name.
- A generation is grouped by its session, or by its trace if it has no session id.
- The token counts in ``usageDetails`` do not overlap: ``input`` excludes cached tokens, and
  ``output`` excludes hidden reasoning. The reader adds up all counts of input tokens that were not
  cached, and all counts of output tokens. The older field ``usage`` contains only the sums.

CSV and Parquet exports are not read.

References
----------
langfuse.com/docs/api-and-data-platform (``blob-storage-export-fields``, 2026); langfuse 5.0.4
``api.commons``, ``openai``, ``langchain``; github.com/langfuse/langfuse ``observation-stream.ts`` and
issue 11765 (roles of tool results); github.com/langfuse/langfuse-js pull request 859.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ctxlab.formats import fields
from ctxlab.formats.base import Format, SkipCallback, Source, ignore_skip
from ctxlab.formats.common.api_content import parse_tools
from ctxlab.formats.common.api_messages import parse_message
from ctxlab.formats.common.langchain_messages import is_role
from ctxlab.formats.common.traces import TracedCall, build_traced_call, find_thread, group_calls
from ctxlab.formats.common.usage import openai_usage
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.types import Recording, ToolCall, Usage

_MODEL_TYPES = ("GENERATION", "EMBEDDING")
_STEP_TYPES = ("SPAN", "EVENT", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR", "GUARDRAIL")


class _Observation(NamedTuple):
    """An observation, and the session id of the trace that contains it, if known."""

    row: Any
    session: str | None


def sniff(head: FileHead) -> bool:
    """Check whether a file starts with an observation, which has a Langfuse type and a trace id.

    Parameters
    ----------
    head : FileHead
        The beginning of the file, parsed as JSON.

    Returns
    -------
    bool
        True if one of the first objects is an observation.
    """
    found = (each for row in head.rows for each in _iter_observations(row))
    return any(_is_observation(each.row) for each in found)


def read(source: Source) -> Iterator[Recording]:
    """Read the conversations of a file.

    Each generation is grouped by its session, or by its trace if it has no session id.

    Parameters
    ----------
    source : Source
        The file to read. Content that is skipped is counted by its ``skip`` method.

    Returns
    -------
    Iterator of Recording
        One recording per conversation.
    """
    return group_calls(_read_calls(source), source)


FORMAT = Format(
    "langfuse",
    "Langfuse observations, exported as JSON or JSONL",
    sniff,
    read,
    versions="from source: langfuse 5.0.4; documentation of 2026; no real file",
    not_read=(
        "left out: spans, events, tools and scores, further choices, exports in CSV and Parquet"
    ),
)


def _is_observation(value: Any) -> bool:
    known = fields.get_in(value, "type") in _MODEL_TYPES + _STEP_TYPES
    return known and fields.get_text(_get_any(value, "traceId", "trace_id")) is not None


def _read_calls(source: Source) -> Iterator[TracedCall]:
    for where, value in source.read_json_values():
        for number, each in enumerate(_iter_observations(value)):
            with source.handle_errors(*(where or (number, "observation"))):
                kind = fields.require_object(each.row, "an observation").get("type")
                if kind == "GENERATION":
                    yield _parse_call(each, source)
                else:
                    source.skip(f"observation of type {kind}")


def _iter_observations(value: Any) -> Iterator[_Observation]:
    """Yield the observations of a list, of an API page, or of a list of traces."""
    page = fields.get_in(value, "data")
    rows = page if isinstance(page, list) else value if isinstance(value, list) else [value]
    for row in rows:
        inner = fields.get_in(row, "observations")
        if isinstance(inner, list):
            trace = row["trace"] if isinstance(row.get("trace"), dict) else row
            session = fields.get_text(_get_any(trace, "sessionId", "session_id"))
            yield from (_Observation(each, session) for each in inner)
        else:
            yield _Observation(row, None)


def _parse_call(observation: _Observation, source: Source) -> TracedCall:
    row = observation.row
    sent, tools = _parse_input(row, source.skip)
    named = {"session_id": observation.session or _get_any(row, "sessionId", "session_id")}
    trace = fields.first_text([_get_any(row, "traceId", "trace_id"), row.get("id")]) or "trace"
    return build_traced_call(
        find_thread(named, ("session_id",), trace),
        sent,
        row.get("output"),
        source.skip,
        start=fields.get_time(_get_any(row, "startTime", "start_time")),
        end=fields.get_time(_get_any(row, "endTime", "end_time")),
        usage=_parse_usage(row),
        tools=tools,
        model=fields.first_text(
            map(row.get, ("model", "provided_model_name", "providedModelName"))
        ),
    )


def _parse_input(row: dict[str, Any], skip: SkipCallback) -> tuple[Any, tuple[dict[str, Any], ...]]:
    """Return the messages and the tool definitions of a generation.

    Tool definitions are searched for in the input, then among the messages, then under
    ``tool_definitions``. The first of these places that has definitions is used.
    """
    sent = fields.parse_if_json(row.get("input"))
    rows = fields.parse_if_json(fields.get_in(sent, "messages")) if isinstance(sent, dict) else sent
    among = []
    if isinstance(rows, list):
        among = [each["content"] for each in rows if _is_tool_definition(each)]
        rows = _mark_tool_results([each for each in rows if not _is_tool_definition(each)])
        sent = sent | {"messages": rows} if isinstance(sent, dict) else rows
    beside = (fields.get_in(sent, key) for key in ("tools", "functions"))
    listed = next((each for each in beside if each), None) or among
    if not listed:
        defined = _get_any(row, "toolDefinitions", "tool_definitions")
        kept = fields.get_object(fields.parse_if_json(defined))
        bodies = ((name, fields.parse_if_json(body)) for name, body in kept.items())
        listed = [{"name": name} | body for name, body in bodies if isinstance(body, dict)]
    return sent, parse_tools(listed, skip)


def _mark_tool_results(rows: list[Any]) -> list[Any]:
    """Set the role and the id of tool results that were logged with the name of the tool as role."""
    waiting: list[ToolCall] = []
    marked = []
    for row in rows:
        role = fields.get_in(row, "role")
        if fields.get_text(row, "tool_call_id"):
            waiting = [call for call in waiting if call.id != row["tool_call_id"]]
        elif role in ("assistant", "ai"):
            waiting = [call for each in parse_message(row, ignore_skip) for call in each.tool_calls]
        elif _is_unmarked_result(row) and waiting:
            same = (call for call in waiting if role in (None, call.name))
            if (call := next(same, None)) is not None:
                waiting.remove(call)
                row = row | {"role": "tool", "name": role or call.name, "tool_call_id": call.id}
        marked.append(row)
    return marked


def _is_unmarked_result(row: Any) -> bool:
    if not isinstance(row, dict) or "content" not in row or row.get("type") is not None:
        return False
    return row.get("role") is None or not is_role(row["role"])


def _is_tool_definition(row: Any) -> bool:
    content = fields.get_object(row, "content")
    defines = "function" in content or "input_schema" in content
    return defines and row.get("role") == "tool" and not row.get("tool_call_id")


def _parse_usage(row: dict[str, Any]) -> Usage | None:
    counts = fields.get_object(fields.parse_if_json(_get_any(row, "usageDetails", "usage_details")))
    if "prompt_tokens" in counts:
        return openai_usage(counts)
    if any("put" in name for name in counts):
        return _sum_usage_details(counts)
    sums = fields.get_object(row, "usage")
    output = _get_any(sums, "output", "completionTokens")
    sent = fields.get_count(_get_any(sums, "input", "promptTokens") or row.get("promptTokens"))
    got = fields.get_count(output or row.get("completionTokens"))
    return Usage(input=sent, output=got) if sent or got else None


def _sum_usage_details(counts: dict[str, Any]) -> Usage:
    """Add up token counts by kind.

    Langfuse may list cache writes both as a total and split by cache lifetime. The split counts are
    used only if there is no total.
    """
    told = {name: fields.get_count(count) for name, count in counts.items()}
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
        cache_write_1h=sum(v for k, v in parts.items() if "1h" in k),
    )


def _get_any(value: dict[str, Any], *names: str) -> Any:
    return next((value[name] for name in names if value.get(name)), None)
