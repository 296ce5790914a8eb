"""The events of one OpenHands run become the messages that its agent saw, in their order.

Observations join the call that they answer (by the model's response and the id of the call in
``tool_call_metadata``, else by ``cause``), so that calls and results stay paired whatever came in
between. The actions of one response of the model are one message. ``openhands_events`` reads the file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ctxlab.formats.base import LeaveOut
from ctxlab.formats.openhands.text import (
    action_text,
    answer,
    observation_text,
    recall_text,
    shortened,
    with_images,
)
from ctxlab.formats.optional_fields import (
    iso_time,
    objects_in,
    text,
    within,
)
from ctxlab.formats.required_fields import (
    a_text,
    an_object,
)
from ctxlab.messages.types import (
    Compaction,
    Message,
)

__all__ = ["History"]

_DONE = (
    *("run", "run_ipython", "browse", "browse_interactive", "read", "write", "edit", "delegate"),
    *("think", "call_tool_mcp", "task_tracking", "finish"),
)
_UNSEEN = ("null", "agent_state_changed", "success", "loop_detection", "condense", "recall")


@dataclass
class _Unit:
    """A message with the results of its calls, and the events that they come from."""

    messages: list[Message]
    events: set[int]
    finish: bool = False
    calls: frozenset[str] = frozenset()
    started: set[str] = field(default_factory=set)
    "of its calls, those whose action was seen"
    answered: set[str] = field(default_factory=set)
    "of its calls, those whose result was seen"


@dataclass
class _Condensation:
    """What a condenser forgot: events by id, or from one id to another."""

    ids: frozenset[int]
    first: int
    last: int
    summary: str | None

    def spares(self, unit: _Unit) -> bool:
        """Whether all of a unit stays; OpenHands sends no call without its result."""
        return not any(e in self.ids or self.first <= e <= self.last for e in unit.events)


@dataclass
class History:
    """A run while its events are read."""

    leave_out: LeaveOut
    "told of each event that becomes no message"
    called: bool = True
    "whether the agent called functions; else its actions are text"
    recalls: bool = False
    "whether what was recalled was shown to the model"
    longest: int = 0
    "characters of an observation that were shown at most; 0: all"
    tools: tuple[dict[str, Any], ...] = ()
    model: str | None = None
    "the model that answered first"
    _items: list[_Unit | _Condensation] = field(default_factory=list, init=False)
    _answers: dict[str, _Unit] = field(default_factory=dict, init=False)
    _causes: dict[int, tuple[_Unit, str]] = field(default_factory=dict, init=False)

    def add(self, event: Any) -> None:
        """Takes one event; ``ValueError`` says what is wrong with it."""
        event = an_object(event, "an event")
        if text(event.get("action")):
            self._action(event, event["action"], an_object(event.get("args"), "args"))
        elif text(event.get("observation")):
            self._observation(event, event["observation"])
        else:
            raise ValueError("neither action nor observation")

    def told(self) -> tuple[tuple[Message, ...], tuple[Compaction, ...]]:
        """The messages so far, and where the history was condensed."""
        messages: list[Message] = []
        compactions: list[Compaction] = []
        kept: list[tuple[int, _Unit]] = []
        last = next((i for i in reversed(self._items) if isinstance(i, _Unit)), None)
        for item in self._items:
            if isinstance(item, _Condensation):
                kept = [(place, unit) for place, unit in kept if item.spares(unit)]
                places = (p for place, u in kept for p in range(place, place + len(u.messages)))
                compactions.append(
                    Compaction(len(messages), summary=item.summary, kept=tuple(places))
                )
                continue
            if item.finish and item is not last:
                item.messages[0] = _said_in_words(item)
            kept.append((len(messages), item))
            messages += item.messages
        return tuple(messages), tuple(compactions)

    def _action(self, event: dict[str, Any], kind: str, args: dict[str, Any]) -> None:
        by_user = event.get("source") == "user"
        metadata = event.get("tool_call_metadata")
        if kind == "system":
            self.tools = self.tools or objects_in(args.get("tools"))
            self._say(event, Message("system", text(args.get("content"))))
        elif kind == "condensation":
            self._condense(args)
        elif kind == "message":
            images = args.get("image_urls") or args.get("images_urls")
            said = with_images(text(args.get("content")) or "", images)
            self._say(event, Message("user" if by_user else "assistant", said))
        elif kind == "run" and by_user:
            command = text(args.get("command")) or ""
            self._say(event, Message("user", f"User executed the command:\n{command}"))
        elif isinstance(metadata, dict) and kind != "condensation_request":
            self._call(event, kind, args, metadata)
        elif by_user or kind not in _DONE:
            self.leave_out(f"action of type {kind}")
        elif self.called and kind != "finish":
            self.leave_out(f"action of type {kind} without its call")
        else:
            self._say(event, Message("assistant", action_text(kind, args)))

    def _say(self, event: dict[str, Any], message: Message) -> None:
        if not message.content:
            self.leave_out(f"empty {event['action']}")
            return
        self._items.append(_Unit([message.replace(time=_time(event))], _ids(event)))

    def _call(
        self, event: dict[str, Any], kind: str, args: dict[str, Any], metadata: dict[str, Any]
    ) -> None:
        response = text(within(metadata, "model_response", "id")) or ""
        id = text(metadata.get("tool_call_id")) or ""
        unit = self._answers.get(response)
        if unit is None or id in unit.started or id not in unit.calls:
            message = answer(args, metadata, id).replace(time=_time(event))
            unit = _Unit([message], set(), calls=frozenset(c.id for c in message.tool_calls))
            self._items.append(unit)
            self._answers[response] = unit
            self.model = self.model or text(within(metadata, "model_response", "model"))
        unit.started.add(id)
        unit.events |= _ids(event)
        unit.finish = unit.finish or kind == "finish"
        self._causes |= dict.fromkeys(_ids(event), (unit, id))

    def _observation(self, event: dict[str, Any], kind: str) -> None:
        content, extras = event.get("content"), event.get("extras")
        if content is not None:
            content = a_text(content, "content")
        if kind in _UNSEEN:
            recalled = recall_text(extras) if kind == "recall" and self.recalls else ""
            if recalled:
                told = Message("user", recalled, time=_time(event), extra={"recall": True})
                self._items.append(_Unit([told], _ids(event)))
            else:
                self.leave_out(f"observation of type {kind}")
            return
        unit, id = self._caller(event)
        if unit is not None and id in unit.answered:
            self.leave_out("second result of a call")
            return
        if unit is None and id:
            self.leave_out("result without its call")
            return
        seen = observation_text(kind, content or "", extras, called=self.called)
        if unit is None and kind == "run" and self.called:
            seen = f"\nObserved result of command executed by user:\n{seen}"
        shown = seen if kind == "read" else shortened(seen, self.longest)
        if shown is not seen:
            self.leave_out("middle of a long observation")
        said = with_images(shown, within(extras, "image_urls"))
        if unit is None:
            self._items.append(_Unit([Message("user", said, time=_time(event))], _ids(event)))
            return
        name = text(within(event, "tool_call_metadata", "function_name"))
        result = Message("tool", said, tool_call_id=id, name=name, time=_time(event))
        unit.messages.append(result)
        unit.answered.add(id)
        unit.events |= _ids(event)

    def _caller(self, event: dict[str, Any]) -> tuple[_Unit | None, str]:
        """The message whose call an observation answers, and the id of the call."""
        metadata = event.get("tool_call_metadata")
        id = text(within(metadata, "tool_call_id")) or ""
        unit = self._answers.get(text(within(metadata, "model_response", "id")) or "")
        if unit is not None and id in unit.calls:
            return unit, id
        cause = event.get("cause")
        return self._causes.get(cause, (None, id)) if isinstance(cause, int) else (None, id)

    def _condense(self, args: dict[str, Any]) -> None:
        listed = args.get("forgotten_event_ids")
        ids = frozenset(i for i in listed or () if isinstance(i, int))
        first, last = args.get("forgotten_events_start_id"), args.get("forgotten_events_end_id")
        if not isinstance(first, int) or not isinstance(last, int):
            first, last = 0, -1
        if ids or first <= last:
            self._items.append(_Condensation(ids, first, last, text(args.get("summary"))))
        else:
            self.leave_out("condensation that forgets nothing")


def _said_in_words(unit: _Unit) -> Message:
    """A call of ``finish`` after which the user went on: OpenHands sends its words and no call."""
    message = unit.messages[0]
    calls = tuple(call for call in message.tool_calls if call.id in unit.answered)
    ends = (call for call in message.tool_calls if call.id not in unit.answered)
    words = (value for call in ends for path, value in call.leaves() if path == "message")
    return message.replace(tool_calls=calls, content=message.content or text(next(words, None)))


def _ids(event: dict[str, Any]) -> set[int]:
    id = event.get("id")
    return {id} if isinstance(id, int) and not isinstance(id, bool) else set()


def _time(event: dict[str, Any]) -> float | None:
    return iso_time(event.get("timestamp"))
