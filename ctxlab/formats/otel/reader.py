"""Read model calls from OpenTelemetry spans.

The kind of a span is in its attribute ``gen_ai.operation.name``, ``openinference.span.kind`` or
``llm.request.type``. Spans of the kinds ``chat``, ``text_completion``, ``generate_content`` and
``LLM`` are model calls. A span without such an attribute is a model call if it contains messages.
All other spans (tools, agents, embeddings, retrieval) are skipped and counted by kind. The module
``otel/conventions`` reads the messages of a span. Each call repeats the conversation so far, so the
calls are joined into conversations.

- Calls are grouped by ``gen_ai.conversation.id``. If it is missing, they are grouped by the session
  id (``session.id`` and others), or by the trace id if there is no session id.
- ``gen_ai.usage.input_tokens`` includes cached tokens, as the conventions require. If a span has
  more cached tokens than input tokens, ctxlab assumes that cached tokens were counted separately.
- Log records (``resourceLogs``) are not read.
- If the recording of content was off, a span has token counts but no messages. Such a call is skipped,
  and the reason names the setting to change.

References
----------
opentelemetry.io, ``opentelemetry-util-genai`` 0.2b0; traceloop.com/docs (``privacy/traces``);
OpenInference specification (``configuration/trace-config``), for the settings;
OpenTelemetry semantic conventions 1.25 to 1.41, then ``semantic-conventions-genai`` (2026);
OpenLLMetry (``opentelemetry-semantic-conventions-ai`` 0.5.1);
OpenInference (``openinference-semantic-conventions`` 0.1.42).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from ctxlab.formats.base import Format, Source
from ctxlab.formats.common.traces import TracedCall, build_traced_call, find_thread, group_calls
from ctxlab.formats.fields import first_text, get_count, get_in, get_object, get_text
from ctxlab.formats.io.head import FileHead
from ctxlab.formats.otel import conventions
from ctxlab.formats.otel.otlp import Span, first_spans, is_span, parse_span, read_spans
from ctxlab.messages.types import Recording, Usage

_ATTRIBUTE_PREFIXES = ("gen_ai.", "llm.", "openinference.", "traceloop.")
_CHAT_OPERATIONS = ("chat", "text_completion", "generate_content", "completion")
_TRACELOOP_SESSION = "traceloop.association.properties.session_id"
_THREAD_KEYS = ("gen_ai.conversation.id", "session.id", _TRACELOOP_SESSION, "langfuse.session.id")
_LLM_MODEL_KEYS = ("llm.request.model_name", "llm.model_name", "llm.response.model_name")
_MODEL_KEYS = ("gen_ai.request.model", "gen_ai.response.model", *_LLM_MODEL_KEYS)

# Setting that makes the instrumentation of a convention record messages, by a prefix of attributes.
_CONTENT_SETTINGS = {
    "openinference.": "unset OPENINFERENCE_HIDE_INPUTS and OPENINFERENCE_HIDE_INPUT_MESSAGES",
    "traceloop.": "set TRACELOOP_TRACE_CONTENT=true",
    "llm.": "set TRACELOOP_TRACE_CONTENT=true",
    "": (
        "set OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental and "
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY"
    ),
}


def sniff(head: FileHead) -> bool:
    """Check whether a file starts with spans.

    Spans without model calls are recognised too. If a file contains no model call at all, the error
    message can then say so.

    Parameters
    ----------
    head : FileHead
        The beginning of the file.

    Returns
    -------
    bool
        True if a span has an attribute or event of a convention for model calls, such as
        ``gen_ai.system``, or is a span with ids, a name and a start time.
    """
    return any(_is_genai_span(span) or _is_plain_span(span) for span in first_spans(head))


def read(source: Source) -> Iterator[Recording]:
    """Read the conversations from the model calls in a file.

    Parameters
    ----------
    source : Source
        The file to read.

    Returns
    -------
    iterator of Recording
        The conversations. Only calls with the same conversation, session or trace id are joined.
    """
    return group_calls(_read_calls(source), source)


FORMAT = Format(
    "otel-genai",
    "OpenTelemetry GenAI spans, OpenLLMetry, OpenInference",
    sniff,
    read,
    versions=(
        "from specifications: GenAI conventions 1.25 to 1.41, OpenLLMetry 0.5.1, "
        "OpenInference 0.1.42"
    ),
    not_read=(
        "not in most traces by default: messages; left out: log records, spans of tools and "
        "agents, input.value of OpenInference, audio, output of the JavaScript console "
        "exporter"
    ),
)


def _is_genai_span(value: Any) -> bool:
    if not is_span(value):
        return False
    span = parse_span(value)
    keys = (*span.attributes, *(event.name for event in span.events))
    return any(key.startswith(_ATTRIBUTE_PREFIXES) for key in keys)


def _is_plain_span(value: Any) -> bool:
    started = get_in(value, "startTimeUnixNano") or get_in(value, "start_time")
    wire, printed = get_object(value).keys(), get_object(value, "context").keys()
    has_ids = wire >= {"traceId", "spanId"} or printed >= {"trace_id", "span_id"}
    return has_ids and bool(started) and get_text(value, "name") is not None


def _read_calls(source: Source) -> Iterator[TracedCall]:
    """Yield the model calls of a file. Spans of other kinds are counted.

    If no recording is read, ctxlab reports the first counts. Therefore, calls without messages are
    counted before the spans of other kinds.
    """
    others: Counter[str] = Counter()
    called = False
    for where, value in read_spans(source):
        with source.handle_errors(*where):
            span = parse_span(value)
            if (kind := _span_kind(span)) != "chat":
                others[kind] += 1
                continue
            called = True
            call = _parse_call(span, source)
            if call.request.messages or call.request.answer:
                yield call
            else:
                source.skip(f"model call without messages; to record them, {_find_setting(span)}")
    if others and not called:
        source.skip("trace without a model call")
    for kind, count in others.items():
        source.skip(f"span of {kind}", count=count)


def _find_setting(span: Span) -> str:
    """Return the setting that makes the instrumentation of a span record messages."""
    prefixes = (
        prefix for prefix in _CONTENT_SETTINGS for key in span.attributes if key.startswith(prefix)
    )
    return _CONTENT_SETTINGS[next(prefixes, "")]


def _span_kind(span: Span) -> str:
    """Return ``"chat"`` if a span is a model call, and the kind of the span otherwise."""
    said = span.attributes.get
    if operation := get_text(said("gen_ai.operation.name")):
        return "chat" if operation.partition(".")[0] in _CHAT_OPERATIONS else operation
    kind = get_text(said("openinference.span.kind"))
    if kind is None and (request := get_text(said("llm.request.type"))):
        kind = "LLM" if request in _CHAT_OPERATIONS else request
    if kind is None:
        kind = get_text(said("traceloop.span.kind"))
    if kind is None:
        return "chat" if conventions.input_messages(span) is not None else "another kind"
    return "chat" if kind == "LLM" else kind


def _parse_call(span: Span, source: Source) -> TracedCall:
    return build_traced_call(
        find_thread(span.attributes, _THREAD_KEYS, span.trace_id),
        conventions.input_messages(span),
        conventions.output_messages(span),
        source.skip,
        start=span.start,
        end=span.end,
        usage=_parse_usage(span.attributes),
        tools=conventions.tool_definitions(span, source.skip),
        model=first_text(map(span.attributes.get, _MODEL_KEYS)),
    )


def _parse_usage(attributes: dict[str, Any]) -> Usage | None:
    def count(*names: str) -> int:
        return next(filter(None, (get_count(attributes, name) for name in names)), 0)

    usage, details = "gen_ai.usage.", "llm.token_count.prompt_details."
    sent = count(f"{usage}input_tokens", f"{usage}prompt_tokens", "llm.token_count.prompt")
    got = count(f"{usage}output_tokens", f"{usage}completion_tokens", "llm.token_count.completion")
    read = count(
        f"{usage}cache_read.input_tokens",
        f"{usage}cache_read_input_tokens",
        f"{details}cache_read",
        f"{details}cache_input",
    )
    written = count(
        f"{usage}cache_creation.input_tokens",
        f"{usage}cache_write.input_tokens",
        f"{usage}cache_creation_input_tokens",
        f"{usage}cache_write_input_tokens",
        f"{details}cache_write",
    )
    if not any((sent, got, read, written)):
        return None
    thought = count(
        f"{usage}reasoning.output_tokens",
        f"{usage}reasoning_tokens",
        f"{usage}details.reasoning_tokens",
        "llm.usage.reasoning_tokens",
        "llm.token_count.completion_details.reasoning",
    )
    outside = sent - read - written if read + written <= sent else sent
    return Usage(outside, cache_read=read, cache_write=written, output=got, reasoning=thought)
