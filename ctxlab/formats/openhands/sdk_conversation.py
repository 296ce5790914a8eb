"""Build the messages of an OpenHands Agent SDK conversation from its events.

All actions of one model response form one message. The results of its calls follow this message
directly, even if other events were logged between them. A result is found by the id of its action or,
if the log does not contain it, by the id of its call.

Results have the form in which the SDK sends them: a failed tool starts with a notice, and the output of
the terminal is followed by the working directory, the Python interpreter and the exit code. Limits on
the length of results differ between versions and are not applied. The SDK joins consecutive user
messages when it sends them; they stay separate here. ``openhands/sdk`` reads the files.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from ctxlab.formats.base import SkipCallback
from ctxlab.formats.common.api_content import parse_tool_call, parse_tools
from ctxlab.formats.common.chat_format import Content, image_part, join_parts, text_part
from ctxlab.formats.common.compactions import CompactionBuilder
from ctxlab.formats.common.usage import UsageShape
from ctxlab.formats.fields import (
    get_count,
    get_in,
    get_list,
    get_object,
    get_objects,
    get_text,
    get_time,
    require_object,
    require_text,
)
from ctxlab.formats.openhands.history import add_terminal_state
from ctxlab.messages.types import ROLES, Compaction, Message, Usage

_usage = UsageShape(
    input="prompt_tokens",
    output="completion_tokens",
    cache_read="cache_read_tokens",
    cache_write="cache_write_tokens",
    reasoning="reasoning_tokens",
)
_separate_usage = _usage._replace(includes_cache=False)
_RESULT_KINDS = ("ObservationEvent", "UserRejectObservation", "AgentErrorEvent")
_ERROR_NOTICE = "[An error occurred during execution.]"
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class BilledCall(NamedTuple):
    """Usage and model of one model response."""

    usage: Usage | None
    "billed tokens of the response; None if all counts are 0"
    model: str | None
    "name of the model"


def read_stats(stats: Any) -> dict[str, BilledCall]:
    """Read the usage of each model response from the statistics of a conversation.

    Parameters
    ----------
    stats : Any
        The object ``stats`` of a conversation state.

    Returns
    -------
    dict of str to BilledCall
        Id of the response → its usage. Responses without an id are left out.
    """
    metrics = get_object(stats, "usage_to_metrics").values()
    return read_usages(chain.from_iterable(get_objects(each, "token_usages") for each in metrics))


def read_usages(rows: Iterable[dict[str, Any]]) -> dict[str, BilledCall]:
    """Read a list of token usages.

    Parameters
    ----------
    rows : iterable of dict
        The usages, each with the id of its response.

    Returns
    -------
    dict of str to BilledCall
        Id of the response → its usage. Responses without an id are left out.
    """
    billed = ((get_text(row, "response_id"), row) for row in rows)
    return {
        id: BilledCall(_parse_usage(row), get_text(row, "model"))
        for id, row in billed
        if id is not None
    }


@dataclass(eq=False)
class _Unit:
    """A message with the results of its calls."""

    messages: list[Message]
    events: set[str]
    "ids of the events from which the messages were built"
    waiting: set[str] = field(default_factory=set)
    "ids of the calls that have no result yet"


class _Condensation(NamedTuple):
    forgotten: frozenset[str]
    summary: str | None
    trigger: str | None


@dataclass
class SdkConversation:
    """The conversation that is being built from its events."""

    skip: SkipCallback
    "called with a description of each event, or part of an event, that is skipped"
    billed: dict[str, BilledCall] = field(default_factory=dict)
    "id of a model response → its usage"
    tools: tuple[dict[str, Any], ...] = ()
    "tool definitions of the last system prompt, in OpenAI's format"
    models: Counter[str] = field(default_factory=Counter)
    "name of a model → number of its answers"
    _items: list[_Unit | _Condensation] = field(default_factory=list, init=False)
    _units_by_response: dict[str, _Unit] = field(default_factory=dict, init=False)
    _units_by_action: dict[str, _Unit] = field(default_factory=dict, init=False)
    _units_by_call: dict[str, _Unit] = field(default_factory=dict, init=False)
    _trigger: str | None = field(default=None, init=False)

    def add(self, event: Any) -> None:
        """Add the next event.

        Parameters
        ----------
        event : Any
            JSON value of the event.

        Raises
        ------
        ValueError
            If the event is malformed.
        """
        event = require_object(event, "an event")
        kind = require_text(event.get("kind"), "kind of an event")
        if kind == "SystemPromptEvent":
            self._add_system_prompt(event)
        elif kind == "MessageEvent":
            self._add_message(event)
        elif kind == "ActionEvent":
            self._add_action(event)
        elif kind in _RESULT_KINDS:
            self._add_result(event, kind)
        elif kind == "Condensation":
            self._add_condensation(event)
        elif kind == "CondensationRequest":
            self._trigger = get_text(event, "reason")
        else:
            self.skip(f"event of kind {kind}")

    def build_messages(self) -> tuple[list[Message], list[Compaction]]:
        """Return the conversation that was built from the events.

        Usages that belong to no message, such as those of a condenser, are counted as skipped.

        Returns
        -------
        messages : list of Message
            All messages, in order.
        compactions : list of Compaction
            One compaction for each condensation.
        """
        messages: list[Message] = []
        built = CompactionBuilder(messages)
        kept: list[tuple[int, _Unit]] = []
        for item in self._items:
            if isinstance(item, _Unit):
                kept.append((len(messages), item))
                messages += item.messages
                continue
            kept = [(at, unit) for at, unit in kept if unit.events.isdisjoint(item.forgotten)]
            spans = (range(at, at + len(unit.messages)) for at, unit in kept)
            built.add_summary(
                len(messages), item.summary, chain.from_iterable(spans), trigger=item.trigger
            )
        for _ in self.billed:
            self.skip("usage of a call without a message")
        return messages, built.compactions

    def _add_system_prompt(self, event: dict[str, Any]) -> None:
        definitions = get_list(event, "tools")
        self.tools = parse_tools(list(map(_name_tool, definitions)), self.skip) or self.tools
        blocks = [event.get("system_prompt"), event.get("dynamic_context")]
        content = self._parse_content([each for each in blocks if each is not None])
        self._add_unit(event, Message("system", content or ""))

    def _add_message(self, event: dict[str, Any]) -> None:
        said = require_object(event.get("llm_message"), "llm_message")
        role = said.get("role")
        if role not in ROLES:
            raise ValueError(f"expected the role of a message, got {role!r}")
        content = self._parse_content([said.get("content"), event.get("extended_content")])
        calls = tuple(map(parse_tool_call, get_objects(said, "tool_calls")))
        message = Message(
            role,
            content if content is not None or role == "assistant" else "",
            tool_calls=calls,
            tool_call_id=get_text(said, "tool_call_id"),
            reasoning=_parse_reasoning(said),
        )
        if role == "assistant":
            message = self._with_usage(message, event)
        if message.content or calls or message.reasoning:
            self._add_unit(event, message)
        else:
            self.skip("message without content")

    def _add_action(self, event: dict[str, Any]) -> None:
        logged = event.get("tool_call")
        if logged is None:  # an action that a message repeats
            logged = {"id": event.get("tool_call_id"), "name": event.get("tool_name")}
            arguments = get_object(event, "action").items()
            logged["arguments"] = {key: value for key, value in arguments if key != "kind"}
        call = parse_tool_call(logged)
        content = self._parse_content(event.get("thought"))
        part = Message("assistant", content, tool_calls=(call,), reasoning=_parse_reasoning(event))
        response = get_text(event, "llm_response_id")
        unit = self._units_by_response.get(response or "")
        if unit is None or any(call.id == each.id for each in unit.messages[0].tool_calls):
            unit = self._add_unit(event, self._with_usage(part, event))
            if response:
                self._units_by_response[response] = unit
        else:
            unit.messages[0] = _join_actions(unit.messages[0], part)
            unit.events |= _event_ids(event)
        unit.waiting.add(call.id)
        self._units_by_call[call.id] = unit
        self._units_by_action |= dict.fromkeys(_event_ids(event), unit)

    def _add_result(self, event: dict[str, Any], kind: str) -> None:
        id = get_text(event, "tool_call_id") or ""
        unit = self._units_by_action.get(get_text(event, "action_id") or "")
        unit = unit or self._units_by_call.get(id)
        if unit is None:
            self.skip("result without its call")
            return
        if id not in unit.waiting:
            self.skip("second result of a call")
            return
        extra = {"is_error": True}
        if kind == "UserRejectObservation":
            reason = get_text(event, "rejection_reason") or ""
            content: Content = f"Action rejected: {reason}"
        elif kind == "AgentErrorEvent":
            content = require_text(event.get("error"), "error")
        else:
            seen = require_object(event.get("observation"), "observation")
            content = self._parse_observation(seen, event.get("extended_content"))
            extra = extra if seen.get("is_error") is True else {}
        result = Message(
            "tool",
            content,
            tool_call_id=id,
            name=get_text(event, "tool_name"),
            time=get_time(event, "timestamp"),
            extra=extra,
        )
        unit.messages.append(result)
        unit.waiting.remove(id)
        unit.events |= _event_ids(event)

    def _parse_observation(self, seen: dict[str, Any], extended: Any) -> Content:
        content = self._parse_content([seen.get("content")])
        metadata = seen.get("metadata")
        if isinstance(metadata, dict) and not isinstance(content, tuple):
            content = add_terminal_state(content or "", metadata)
        notice = text_part(_ERROR_NOTICE) if seen.get("is_error") is True else None
        return self._parse_content([notice, content, extended]) or ""

    def _add_condensation(self, event: dict[str, Any]) -> None:
        ids = frozenset(filter(get_text, get_list(event, "forgotten_event_ids")))
        response = get_text(event, "llm_response_id") or ""
        if self.billed.pop(response, None) is not None:
            self.skip("usage of a condensation")
        if not ids:
            self.skip("condensation that forgets nothing")
            return
        summary, placed = get_text(event, "summary"), event.get("summary_offset") is not None
        if summary and not placed:
            self.skip("summary that was not sent to the model")
        shown = summary if placed else None
        self._items.append(_Condensation(ids, shown, self._trigger))
        self._trigger = None

    def _add_unit(self, event: dict[str, Any], message: Message) -> _Unit:
        unit = _Unit([message.replace(time=get_time(event, "timestamp"))], _event_ids(event))
        self._items.append(unit)
        return unit

    def _with_usage(self, answer: Message, event: dict[str, Any]) -> Message:
        billed = self.billed.pop(get_text(event, "llm_response_id") or "", None)
        if billed is None:
            return answer
        if billed.model:
            self.models[billed.model] += 1
        return answer.replace(usage=billed.usage)

    def _parse_content(self, value: Any) -> Content | None:
        """Parse a string, a block, or nested lists of them. An image block may have several URLs."""
        waiting, parts = [value], []
        while waiting:
            each = waiting.pop()
            if isinstance(each, (list, tuple)):
                waiting += reversed(each)
            elif isinstance(each, str):
                parts += [text_part(each)] if each else []
            elif isinstance(each, dict) and isinstance(each.get("text"), str):
                parts += [text_part(each["text"])] if each["text"] else []
            elif isinstance(each, dict) and each.get("type") == "image":
                parts += [image_part(url) for url in filter(get_text, get_list(each, "image_urls"))]
            elif isinstance(each, dict) and each.get("type") == "image_url":
                parts.append(each)
            elif each is not None:
                self.skip(f"block of type {get_text(each, 'type') or type(each).__name__}")
        return join_parts(parts)


def _parse_usage(row: dict[str, Any]) -> Usage | None:
    """Parse a usage. If it has more cached tokens than input tokens, they were counted separately."""
    separate = get_count(row, "cache_read_tokens") > get_count(row, "prompt_tokens")
    return (_separate_usage if separate else _usage).parse_billed(row)


def _name_tool(definition: Any) -> Any:
    """Return a tool definition with its name, which a stored definition has only as its kind.

    >>> _name_tool({"kind": "FileEditorTool", "description": "Edits."})
    {'name': 'file_editor', 'description': 'Edits.'}
    """
    if isinstance(inner := get_in(definition, "mcp_tool"), dict):
        return inner
    kind = get_text(definition, "kind")
    if kind is None:
        return definition
    name = _WORD_START.sub("_", kind.removesuffix("Tool")).lower()
    rest = {key: definition[key] for key in ("description", "parameters") if key in definition}
    return {"name": get_text(definition, "name") or name} | rest


def _parse_reasoning(value: dict[str, Any]) -> str | None:
    thoughts = (get_text(each, "thinking") for each in get_list(value, "thinking_blocks"))
    item = value.get("responses_reasoning_item")
    told = [*get_list(item, "content"), *get_list(item, "summary")]
    return (
        get_text(value, "reasoning_content")
        or "\n".join(filter(None, thoughts))
        or "\n".join(filter(get_text, told))
        or None
    )


def _join_actions(message: Message, other: Message) -> Message:
    """Add the call of another action of the same response to a message."""
    texts = [each.text for each in (message, other) if each.text]
    thoughts = [each.reasoning for each in (message, other) if each.reasoning]
    return message.replace(
        content="\n".join(texts) or None,
        tool_calls=message.tool_calls + other.tool_calls,
        reasoning="\n".join(dict.fromkeys(thoughts)) or None,
    )


def _event_ids(event: dict[str, Any]) -> set[str]:
    id = get_text(event, "id")
    return {id} if id else set()
