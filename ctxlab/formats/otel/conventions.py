"""Read messages and tools of a model call from a span, in all generations of conventions.

Newer conventions are tried first:

- ``gen_ai.input.messages``, ``gen_ai.output.messages`` and ``gen_ai.system_instructions``: JSON, as
  attributes of the span or of its event ``gen_ai.client.inference.operation.details``.
- OpenLLMetry's ``gen_ai.prompt.0.role``, ``gen_ai.completion.0.tool_calls.0.name``, and
  ``llm.request.functions.0.name``.
- OpenInference's ``llm.input_messages.0.message.role``, ``llm.output_messages…``, ``llm.tools.0…``;
  ``llm.prompts`` and ``llm.choices`` for models that are not chat models.
- One event per message: ``gen_ai.user.message`` and so on, ``gen_ai.choice``. The message is JSON
  under ``gen_ai.event.content`` (Azure), or consists of the attributes of the event.
- ``gen_ai.content.prompt`` and ``gen_ai.content.completion``: events with OpenAI messages in JSON.

If a span uses several conventions, only one is read. The results have shapes that ``traces``
accepts. ``input.value`` of OpenInference, which has no fixed shape, is not read.

References
----------
As in ``otel/reader``. For events: github.com/strands-agents/sdk-python ``telemetry.tracer``,
github.com/Azure/azure-sdk-for-python ``azure-ai-inference``, docs.langchain.com/langsmith
(``trace-with-opentelemetry``), 2026.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ctxlab.formats.base import SkipCallback
from ctxlab.formats.common.api_content import parse_tools
from ctxlab.formats.fields import parse_if_json
from ctxlab.formats.otel.otlp import Span, SpanEvent
from ctxlab.messages.types import ROLES

_DETAILS_EVENT = "gen_ai.client.inference.operation.details"
_CHOICE_EVENT = "gen_ai.choice"
_MESSAGE_EVENTS = {f"gen_ai.{role}.message": role for role in ROLES}
_BODY_KEY = "gen_ai.event.content"


def input_messages(span: Span) -> Any:
    """Return the input messages of a span.

    Parameters
    ----------
    span : Span
        The span of a model call.

    Returns
    -------
    Any
        The messages as recorded, or None if the span holds none.
    """
    a, entries = span.attributes, partial(_numbered_entries, span.attributes)
    messages = parse_if_json(_span_or_event_attribute(span, "gen_ai.input.messages"))
    system = parse_if_json(_span_or_event_attribute(span, "gen_ai.system_instructions"))
    if messages or system:
        rows = messages if isinstance(messages, list) else [messages] if messages else []
        return [*([{"role": "system", "content": system}] if system else ()), *rows]
    return _first_found(
        lambda: [_parse_openllmetry_message(e, "user") for e in entries("gen_ai.prompt")],
        lambda: [*map(_parse_openinference_message, entries("llm.input_messages"))],
        lambda: [each.get("prompt.text") for each in entries("llm.prompts")],
        lambda: [_parse_message_event(e) for e in span.events if e.name in _MESSAGE_EVENTS],
        lambda: _parse_content_events(span, "gen_ai.content.prompt", "gen_ai.prompt"),
        lambda: parse_if_json(a.get("gen_ai.prompt")),
    )


def output_messages(span: Span) -> Any:
    """Return the output messages of a span.

    Parameters
    ----------
    span : Span
        The span of a model call.

    Returns
    -------
    Any
        The messages as recorded, or None if the span holds none.
    """
    a, entries = span.attributes, partial(_numbered_entries, span.attributes)
    return _first_found(
        lambda: parse_if_json(_span_or_event_attribute(span, "gen_ai.output.messages")),
        lambda: [_parse_openllmetry_message(e, "assistant") for e in entries("gen_ai.completion")],
        lambda: [*map(_parse_openinference_message, entries("llm.output_messages"))],
        lambda: [_answer(each.get("completion.text")) for each in entries("llm.choices")],
        lambda: [_parse_choice(e.attributes) for e in span.events if e.name == _CHOICE_EVENT],
        lambda: _parse_content_events(span, "gen_ai.content.completion", "gen_ai.completion"),
        lambda: parse_if_json(a.get("gen_ai.completion")),
    )


def tool_definitions(span: Span, skip: SkipCallback) -> tuple[dict[str, Any], ...]:
    """Return the tool definitions of a span.

    Parameters
    ----------
    span : Span
        The span of a model call.
    skip : callable
        Called with a reason for each part that is left out.

    Returns
    -------
    tuple of dict
        The definitions in OpenAI's format.
    """
    entries = partial(_numbered_entries, span.attributes)
    found = _first_found(
        lambda: parse_if_json(_span_or_event_attribute(span, "gen_ai.tool.definitions")),
        lambda: entries("llm.request.functions"),
        lambda: [*map(_parse_openinference_tool, entries("llm.tools"))],
    )
    return parse_tools(found, skip)


def _numbered_entries(attributes: dict[str, Any], prefix: str) -> list[dict[str, Any]]:
    """Return the entries of a list that is stored in numbered attributes.

    >>> _numbered_entries({"a.1.b": 2, "a.0.b": 1, "a.0.c.0.d": 3}, "a")
    [{'b': 1, 'c.0.d': 3}, {'b': 2}]
    """
    entries: dict[int, dict[str, Any]] = {}
    for key, value in attributes.items():
        if key.startswith(f"{prefix}."):
            number, _, rest = key[len(prefix) + 1 :].partition(".")
            if number.isascii() and number.isdigit() and len(number) < 6 and rest:
                entries.setdefault(int(number), {})[rest] = value
    return [entries[number] for number in sorted(entries)]


def _first_found(*ways: Callable[[], Any]) -> Any:
    return next((found for way in ways if (found := way())), None)


def _span_or_event_attribute(span: Span, name: str) -> Any:
    """Return an attribute of the span, or else of its details event."""
    held = (event.attributes for event in span.events if event.name == _DETAILS_EVENT)
    return next((each[name] for each in (span.attributes, *held) if each.get(name)), None)


def _without_prefix(entry: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {key.removeprefix(prefix): value for key, value in entry.items()}


def _parse_openllmetry_message(entry: dict[str, Any], role: str) -> dict[str, Any]:
    prompt = entry.get("user")  # models that are not chat models
    return {
        "role": entry.get("role") or entry.get("message.role") or role,
        "content": entry.get("content") or entry.get("message.content") or prompt,
        "tool_calls": _parse_tool_calls(entry, "tool_calls"),
        "tool_call_id": entry.get("tool_call_id"),
    }


def _parse_openinference_message(entry: dict[str, Any]) -> dict[str, Any]:
    said = _without_prefix(entry, "message.")
    blocks = [_parse_openinference_block(each) for each in _numbered_entries(said, "contents")]
    calls = _parse_tool_calls(said, "tool_calls")
    if not calls and (name := said.get("function_call_name")):
        calls = [{"name": name, "arguments": said.get("function_call_arguments_json")}]
    return {
        "role": said.get("role"),
        # A tool_use block only marks the position of a call among the texts.
        "content": [b for b in blocks if b["type"] != "tool_use"] or said.get("content"),
        "tool_calls": calls,
        "tool_call_id": said.get("tool_call_id"),
        "name": said.get("name"),
    }


def _parse_openinference_block(entry: dict[str, Any]) -> dict[str, Any]:
    said = _without_prefix(entry, "message_content.")
    shown = said.get("image.image.url")
    return {"type": said.get("type"), "text": said.get("text"), "image_url": shown}


def _parse_tool_calls(entry: dict[str, Any], key: str) -> Any:
    """Return the calls of a message from numbered attributes, or from JSON in one attribute."""
    calls = []
    for each in _numbered_entries(entry, key):
        said = _without_prefix(_without_prefix(each, "tool_call."), "function.")
        calls.append({name: said.get(name) for name in ("id", "name", "arguments")})
    return calls or parse_if_json(entry.get(key))


def _parse_openinference_tool(entry: dict[str, Any]) -> Any:
    """Return the definition, or build it from a name and a schema of the parameters."""
    schema, name = parse_if_json(entry.get("tool.json_schema")), entry.get("tool.name")
    whole = isinstance(schema, dict) and schema.keys() & {"name", "function", "toolSpec"}
    if whole or not name:
        return schema
    return {"name": name, "description": entry.get("tool.description"), "parameters": schema}


def _parse_message_event(event: SpanEvent) -> dict[str, Any]:
    body = parse_if_json(event.attributes.get(_BODY_KEY))
    said = body if isinstance(body, dict) else event.attributes
    role = _MESSAGE_EVENTS[event.name]
    id = said.get("tool_call_id") or said.get("id")
    return {
        "role": said.get("role") or role,
        "content": body if isinstance(body, str) else said.get("content"),
        "tool_calls": _parse_tool_calls(said, "tool_calls"),
        "tool_call_id": id if role == "tool" else None,
    }


def _answer(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def _parse_choice(attributes: dict[str, Any]) -> dict[str, Any]:
    body = parse_if_json(attributes.get(_BODY_KEY))
    said = body if isinstance(body, dict) else attributes
    message = parse_if_json(said.get("message"))
    if isinstance(message, dict):
        return {"content": None, **message, "role": "assistant"}
    content = message or said.get("message.content") or said.get("content")
    return _answer(content) | {"tool_calls": _parse_tool_calls(said, "tool_calls")}


def _parse_content_events(span: Span, name: str, key: str) -> Any:
    """Return messages from one event that holds all of them, or from one event each."""
    held = (event.attributes.get for event in span.events if event.name == name)
    found = [parse_if_json(get(key) or get(_BODY_KEY) or get("content")) for get in held]
    return found[0] if len(found) == 1 else found
