"""OpenTelemetry's spans of model calls say the whole conversation again and again.

A span is one of a model call by ``gen_ai.operation.name`` (``chat``, ``text_completion``,
``generate_content``), by ``openinference.span.kind`` (``LLM``), by ``llm.request.type``, or, where it
has none of them, by holding messages. All others (tools, agents, embeddings, retrieval) are counted
by what they are. The messages are read in the conventions of every generation (``otel_messages``).

- Calls belong together by ``gen_ai.conversation.id``, else ``session.id``, else by their trace.
- ``gen_ai.usage.input_tokens`` holds the cached tokens, as the conventions say; where they are more
  than it, the instrumentation counted them beside it.
- What is logged as log records (``resourceLogs``) and not in spans is not read.

Source: OpenTelemetry semantic conventions 1.25 to 1.41, then ``semantic-conventions-genai`` (2026);
OpenLLMetry (``opentelemetry-semantic-conventions-ai`` 0.5.1); OpenInference
(``openinference-semantic-conventions`` 0.1.42).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ctxlab.formats.base import (
    Format,
    Source,
)
from ctxlab.formats.common.traces import (
    Call,
    call,
    conversations,
    thread_of,
)
from ctxlab.formats.io.head import Head
from ctxlab.formats.optional_fields import (
    first_text,
    text,
    whole_number,
)
from ctxlab.formats.otel import conventions as otel_messages
from ctxlab.formats.otel.otlp import (
    Span,
    is_span,
    span_of,
    spans,
    spans_in,
)
from ctxlab.messages.types import (
    Recording,
    Usage,
)

__all__ = ["FORMAT", "read", "sniff"]

_OURS = ("gen_ai.", "llm.", "openinference.", "traceloop.")
_OPERATIONS = ("chat", "text_completion", "generate_content", "completion")
_THREADS = (
    "gen_ai.conversation.id",
    "session.id",
    "traceloop.association.properties.session_id",
    "langfuse.session.id",
)
_MODELS = (
    "gen_ai.request.model",
    "gen_ai.response.model",
    "llm.request.model_name",
    "llm.model_name",
    "llm.response.model_name",
)


def sniff(head: Head) -> bool:
    """Whether a file begins with spans of which one has an attribute of these conventions."""
    return any(_is_ours(span) for row in head.rows for span in spans_in(row))


def read(source: Source) -> Iterator[Recording]:
    """The conversations of each thread that the spans name, or else of each trace."""
    return conversations(_calls(source), source)


FORMAT = Format("otel-genai", "OpenTelemetry GenAI spans, OpenLLMetry, OpenInference", sniff, read)


def _is_ours(value: Any) -> bool:
    if not is_span(value):
        return False
    span = span_of(value)
    keys = (*span.attributes, *(event.name for event in span.events))
    return any(key.startswith(_OURS) for key in keys)


def _calls(source: Source) -> Iterator[Call]:
    for where, value in spans(source):
        with source.guard(*where):
            span = span_of(value)
            kind = _kind(span)
            if kind == "chat":
                yield _call(span, source)
            else:
                source.skip(f"span of {kind}")


def _kind(span: Span) -> str:
    """``chat`` for a call of a model, else what the span says that it is."""
    said = span.attributes.get
    if operation := text(said("gen_ai.operation.name")):
        return "chat" if operation.partition(".")[0] in _OPERATIONS else operation
    kind = text(said("openinference.span.kind"))
    if kind is None and (request := text(said("llm.request.type"))):
        kind = "LLM" if request in _OPERATIONS else request
    if kind is None:
        kind = text(said("traceloop.span.kind"))
    if kind is None:
        return "chat" if otel_messages.sent(span) is not None else "another kind"
    return "chat" if kind == "LLM" else kind


def _call(span: Span, source: Source) -> Call:
    return call(
        thread_of(span.attributes, _THREADS, span.trace),
        otel_messages.sent(span),
        otel_messages.received(span),
        source.skip,
        start=span.start,
        end=span.end,
        usage=_usage(span.attributes),
        tools=otel_messages.tools(span, source.skip),
        model=first_text(map(span.attributes.get, _MODELS)),
    )


def _usage(attributes: dict[str, Any]) -> Usage | None:
    def count(*names: str) -> int:
        return next(filter(None, (whole_number(attributes.get(name)) for name in names)), 0)

    given = "gen_ai.usage."
    details = "llm.token_count.prompt_details."
    sent = count(f"{given}input_tokens", f"{given}prompt_tokens", "llm.token_count.prompt")
    got = count(f"{given}output_tokens", f"{given}completion_tokens", "llm.token_count.completion")
    read = count(
        f"{given}cache_read.input_tokens",
        f"{given}cache_read_input_tokens",
        f"{details}cache_read",
        f"{details}cache_input",
    )
    written = count(
        f"{given}cache_creation.input_tokens",
        f"{given}cache_write.input_tokens",
        f"{given}cache_creation_input_tokens",
        f"{given}cache_write_input_tokens",
        f"{details}cache_write",
    )
    if not any((sent, got, read, written)):
        return None
    thought = count(
        f"{given}reasoning.output_tokens",
        f"{given}reasoning_tokens",
        f"{given}details.reasoning_tokens",
        "llm.usage.reasoning_tokens",
        "llm.token_count.completion_details.reasoning",
    )
    outside = sent - read - written if read + written <= sent else sent
    return Usage(outside, cache_read=read, cache_write=written, output=got, reasoning=thought)
