"""Build the messages that an OpenHands agent saw from the events of its run.

Observations follow the call that they answer, so that calls and results stay together whatever
comes in between. The call is found by the model's response and the call id in
``tool_call_metadata``, or else by ``cause``. Actions of one response form one message. ``events``
reads the files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ctxlab.formats.base import SkipCallback
from ctxlab.formats.fields import (
    get_in,
    get_objects,
    get_text,
    get_time,
    require_object,
    require_text,
)
from ctxlab.formats.openhands.text import (
    action_text,
    build_answer,
    observation_text,
    recall_text,
    truncate_middle,
    with_images,
)
from ctxlab.messages.types import Compaction, Message

_ACTION_TYPES = (
    *("run", "run_ipython", "browse", "browse_interactive", "read", "write", "edit", "delegate"),
    *("think", "call_tool_mcp", "task_tracking", "finish"),
)
_HIDDEN_OBSERVATIONS = (
    "null",
    "agent_state_changed",
    "success",
    "loop_detection",
    "condense",
    "recall",
)


@dataclass
class _Unit:
    """A message with the results of its calls, and the ids of its events."""

    messages: list[Message]
    events: set[int]
    is_finish: bool = False
    calls: frozenset[str] = frozenset()
    started_calls: set[str] = field(default_factory=set)
    "calls whose action was read"
    answered_calls: set[str] = field(default_factory=set)
    "calls whose result was read"


@dataclass
class _Condensation:
    """Events that a condenser forgot: single ids, and a range from ``first`` to ``last``."""

    ids: frozenset[int]
    first: int
    last: int
    summary: str | None

    def keeps(self, unit: _Unit) -> bool:
        """Return whether all events of a unit are kept; a call is never sent without its result."""
        return not any(e in self.ids or self.first <= e <= self.last for e in unit.events)


@dataclass
class EventHistory:
    """Builder of the messages of one run."""

    skip: SkipCallback
    "called with a reason for each event that becomes no message"
    function_calling: bool = True
    "whether the agent used function calling; otherwise its actions are text"
    shows_recalls: bool = False
    "whether recalled knowledge was shown to the model"
    max_observation_chars: int = 0
    "maximum length of an observation in characters; 0: unlimited"
    tools: tuple[dict[str, Any], ...] = ()
    "tool definitions of the run"
    model: str | None = None
    "model of the first answer"
    _items: list[_Unit | _Condensation] = field(default_factory=list, init=False)
    _units_by_response: dict[str, _Unit] = field(default_factory=dict, init=False)
    _calls_by_event: dict[int, tuple[_Unit, str]] = field(default_factory=dict, init=False)

    def add(self, event: Any) -> None:
        """Add one event.

        Parameters
        ----------
        event : Any
            JSON value of the next event.

        Raises
        ------
        ValueError
            If the event is invalid.
        """
        event = require_object(event, "an event")
        if get_text(event, "action"):
            self._add_action(event, event["action"], require_object(event.get("args"), "args"))
        elif get_text(event, "observation"):
            self._add_observation(event, event["observation"])
        else:
            raise ValueError("expected an action or an observation, got an event with neither")

    def build_messages(self) -> tuple[tuple[Message, ...], tuple[Compaction, ...]]:
        """Return the conversation.

        Returns
        -------
        messages : tuple of Message
            The messages.
        compactions : tuple of Compaction
            The condensations of the history.
        """
        messages: list[Message] = []
        compactions: list[Compaction] = []
        kept: list[tuple[int, _Unit]] = []
        last = next((i for i in reversed(self._items) if isinstance(i, _Unit)), None)
        for item in self._items:
            if isinstance(item, _Condensation):
                kept = [(place, unit) for place, unit in kept if item.keeps(unit)]
                places = (p for place, u in kept for p in range(place, place + len(u.messages)))
                compactions.append(
                    Compaction(len(messages), summary=item.summary, kept=tuple(places))
                )
                continue
            if item.is_finish and item is not last:
                item.messages[0] = _finish_as_text(item)
            kept.append((len(messages), item))
            messages += item.messages
        return tuple(messages), tuple(compactions)

    def _add_action(self, event: dict[str, Any], kind: str, args: dict[str, Any]) -> None:
        by_user = event.get("source") == "user"
        metadata = event.get("tool_call_metadata")
        if kind == "system":
            self.tools = self.tools or get_objects(args, "tools")
            self._add_message(event, Message("system", get_text(args, "content")))
        elif kind == "condensation":
            self._add_condensation(args)
        elif kind == "message":
            images = args.get("image_urls") or args.get("images_urls")
            said = with_images(get_text(args, "content") or "", images)
            self._add_message(event, Message("user" if by_user else "assistant", said))
        elif kind == "run" and by_user:
            command = get_text(args, "command") or ""
            self._add_message(event, Message("user", f"User executed the command:\n{command}"))
        elif isinstance(metadata, dict) and kind != "condensation_request":
            self._add_call(event, kind, args, metadata)
        elif by_user or kind not in _ACTION_TYPES:
            self.skip(f"action of type {kind}")
        elif self.function_calling and kind != "finish":
            self.skip(f"action of type {kind} without its call")
        else:
            self._add_message(event, Message("assistant", action_text(kind, args)))

    def _add_message(self, event: dict[str, Any], message: Message) -> None:
        if not message.content:
            self.skip(f"empty {event['action']}")
            return
        self._items.append(_Unit([message.replace(time=_event_time(event))], _event_ids(event)))

    def _add_call(
        self, event: dict[str, Any], kind: str, args: dict[str, Any], metadata: dict[str, Any]
    ) -> None:
        response = get_text(metadata, "model_response", "id") or ""
        id = get_text(metadata, "tool_call_id") or ""
        unit = self._units_by_response.get(response)
        if unit is None or id in unit.started_calls or id not in unit.calls:
            message = build_answer(args, metadata, id).replace(time=_event_time(event))
            unit = _Unit([message], set(), calls=frozenset(c.id for c in message.tool_calls))
            self._items.append(unit)
            self._units_by_response[response] = unit
            self.model = self.model or get_text(metadata, "model_response", "model")
        unit.started_calls.add(id)
        unit.events |= _event_ids(event)
        unit.is_finish = unit.is_finish or kind == "finish"
        self._calls_by_event |= dict.fromkeys(_event_ids(event), (unit, id))

    def _add_observation(self, event: dict[str, Any], kind: str) -> None:
        content, extras = event.get("content"), event.get("extras")
        if content is not None:
            content = require_text(content, "content")
        if kind in _HIDDEN_OBSERVATIONS:
            recalled = recall_text(extras) if kind == "recall" and self.shows_recalls else ""
            if recalled:
                told = Message("user", recalled, time=_event_time(event), extra={"recall": True})
                self._items.append(_Unit([told], _event_ids(event)))
            else:
                self.skip(f"observation of type {kind}")
            return
        unit, id = self._find_caller(event)
        if unit is not None and id in unit.answered_calls:
            self.skip("second result of a call")
            return
        if unit is None and id:
            self.skip("result without its call")
            return
        seen = observation_text(kind, content or "", extras, function_calling=self.function_calling)
        if unit is None and kind == "run" and self.function_calling:
            seen = f"\nObserved result of command executed by user:\n{seen}"
        shown = seen if kind == "read" else truncate_middle(seen, self.max_observation_chars)
        if shown is not seen:
            self.skip("middle of a long observation")
        said = with_images(shown, get_in(extras, "image_urls"))
        if unit is None:
            self._items.append(
                _Unit([Message("user", said, time=_event_time(event))], _event_ids(event))
            )
            return
        name = get_text(event, "tool_call_metadata", "function_name")
        result = Message("tool", said, tool_call_id=id, name=name, time=_event_time(event))
        unit.messages.append(result)
        unit.answered_calls.add(id)
        unit.events |= _event_ids(event)

    def _find_caller(self, event: dict[str, Any]) -> tuple[_Unit | None, str]:
        """Return the unit whose call an observation answers, and the id of the call."""
        metadata = event.get("tool_call_metadata")
        id = get_text(metadata, "tool_call_id") or ""
        unit = self._units_by_response.get(get_text(metadata, "model_response", "id") or "")
        if unit is not None and id in unit.calls:
            return unit, id
        cause = event.get("cause")
        return self._calls_by_event.get(cause, (None, id)) if isinstance(cause, int) else (None, id)

    def _add_condensation(self, args: dict[str, Any]) -> None:
        listed = args.get("forgotten_event_ids")
        ids = frozenset(i for i in listed or () if isinstance(i, int))
        first, last = args.get("forgotten_events_start_id"), args.get("forgotten_events_end_id")
        if not isinstance(first, int) or not isinstance(last, int):
            first, last = 0, -1
        if ids or first <= last:
            self._items.append(_Condensation(ids, first, last, get_text(args, "summary")))
        else:
            self.skip("condensation that forgets nothing")


def _finish_as_text(unit: _Unit) -> Message:
    """Return the message of a ``finish`` as text, if the user continued after it."""
    message = unit.messages[0]
    calls = tuple(call for call in message.tool_calls if call.id in unit.answered_calls)
    ends = (call for call in message.tool_calls if call.id not in unit.answered_calls)
    words = (value for call in ends for path, value in call.argument_leaves() if path == "message")
    return message.replace(tool_calls=calls, content=message.content or get_text(next(words, None)))


def _event_ids(event: dict[str, Any]) -> set[int]:
    id = event.get("id")
    return {id} if isinstance(id, int) and not isinstance(id, bool) else set()


def _event_time(event: dict[str, Any]) -> float | None:
    return get_time(event, "timestamp")
