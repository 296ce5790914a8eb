"""Read the messages and tool definitions of a model call from its span.

Several conventions define how a span stores messages. This module supports the following ones. It
tries them in this order and reads only the first convention that the span uses:

- The attributes ``gen_ai.input.messages``, ``gen_ai.output.messages`` and
  ``gen_ai.system_instructions``, which contain JSON. They belong to the span or to its event
  ``gen_ai.client.inference.operation.details``.
- The numbered attributes of OpenLLMetry, such as ``gen_ai.prompt.0.role``,
  ``gen_ai.completion.0.tool_calls.0.name`` and ``llm.request.functions.0.name``.
- The numbered attributes of OpenInference, such as ``llm.input_messages.0.message.role``,
  ``llm.output_messages…`` and ``llm.tools.0…``. For text completion models, the attributes are
  ``llm.prompts…`` and ``llm.choices…``.
- One event per message, such as ``gen_ai.user.message`` or ``gen_ai.choice``. The message is JSON
  in the attribute ``gen_ai.event.content`` (Azure), or its fields are attributes of the event.
- The events ``gen_ai.content.prompt`` and ``gen_ai.content.completion``, which contain messages in
  OpenAI's format as JSON.

The returned messages have one of the forms that ``common/traces`` parses. The attribute
``input.value`` of OpenInference is not read, because its form is not specified.

References
----------
See ``otel/reader``. For events: github.com/strands-agents/sdk-python ``telemetry.tracer``,
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
    """Return the messages of the request that are recorded in the span of a model call.

    Parameters
    ----------
    span : Span
        The span of a model call.

    Returns
    -------
    Any
        The messages in the form in which they were recorded. None if the span contains none.
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
    """Return the messages of the response that are recorded in the span of a model call.

    Parameters
    ----------
    span : Span
        The span of a model call.

    Returns
    -------
    Any
        The messages in the form in which they were recorded. None if the span contains none.
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
    """Return the tool definitions that are recorded in the span of a model call.

    Parameters
    ----------
    span : Span
        The span of a model call.
    skip : Callable
        Called with a description of each skipped value.

    Returns
    -------
    tuple of dict
        The definitions in OpenAI's format. Empty if the span contains none.
    """
    entries = partial(_numbered_entries, span.attributes)
    found = _first_found(
        lambda: parse_if_json(_span_or_event_attribute(span, "gen_ai.tool.definitions")),
        lambda: entries("llm.request.functions"),
        lambda: [*map(_parse_openinference_tool, entries("llm.tools"))],
    )
    return parse_tools(found, skip)


def _numbered_entries(attributes: dict[str, Any], prefix: str) -> list[dict[str, Any]]:
    """Return the objects of a list that is stored in numbered attributes, such as ``a.0.b``.

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
    """Return an attribute of the span or, if it is missing, of the event ``_DETAILS_EVENT``."""
    held = (event.attributes for event in span.events if event.name == _DETAILS_EVENT)
    return next((each[name] for each in (span.attributes, *held) if each.get(name)), None)


def _without_prefix(entry: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {key.removeprefix(prefix): value for key, value in entry.items()}


def _parse_openllmetry_message(entry: dict[str, Any], role: str) -> dict[str, Any]:
    prompt = entry.get("user")  # used for text completion models
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
        # A tool_use block only marks the position of a call between the text blocks.
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
    """Return the tool calls of a message, from numbered attributes or from a JSON attribute."""
    calls = []
    for each in _numbered_entries(entry, key):
        said = _without_prefix(_without_prefix(each, "tool_call."), "function.")
        calls.append({name: said.get(name) for name in ("id", "name", "arguments")})
    return calls or parse_if_json(entry.get(key))


def _parse_openinference_tool(entry: dict[str, Any]) -> Any:
    """Return a logged tool definition, or build it from the name and the schema of the parameters."""
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
    message, index = parse_if_json(said.get("message")), {"index": said.get("index")}
    if isinstance(message, dict):
        return {"content": None, **message, "role": "assistant"} | index
    content = message or said.get("message.content") or said.get("content")
    return _answer(content) | {"tool_calls": _parse_tool_calls(said, "tool_calls")} | index


def _parse_content_events(span: Span, name: str, key: str) -> Any:
    """Return the messages in the events called ``name``. A single event may contain all messages."""
    held = (event.attributes.get for event in span.events if event.name == name)
    found = [parse_if_json(get(key) or get(_BODY_KEY) or get("content")) for get in held]
    return found[0] if len(found) == 1 else found
