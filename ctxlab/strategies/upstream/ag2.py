"""Adapters for AG2's assembly policies, which select the events of a conversation to send."""

from __future__ import annotations

from typing import Any

from ag2 import events
from ag2.events.input_events import ImageInput
from ag2.policies import SlidingWindowPolicy, TokenBudgetPolicy

from ctxlab.messages.types import Message
from ctxlab.strategies.baselines.common.parts import Part, split_parts
from ctxlab.strategies.upstream.base import Block, PeerAdapter, PeerSettings, run_coroutine


class _StreamAdapter(PeerAdapter):
    """Adapter that stores one conversation as AG2 events. A policy selects the events to send."""

    group_results = True

    def __init__(self, settings: PeerSettings, policy: Any) -> None:
        super().__init__(settings)
        self._policy = policy
        self._events: list[events.BaseEvent] = []

    def add(self, position: int, block: Block) -> None:
        message = block[0]
        if message.role == "tool":
            results = []
            for i, each in enumerate(block, position):
                made: dict[str, Any] = {"result": events.ToolResult(*_to_inputs(each))}
                made |= {"parent_id": each.tool_call_id or "", "name": self.tool_name(i)}
                results.append(events.ToolResultEvent(**made))
            self._events += [*results, self.link(events.ToolResultsEvent(results), block)]
        elif message.role == "assistant":
            asked = message.tool_calls
            calls = [events.ToolCallEvent(c.name, id=c.id, arguments=c.arguments) for c in asked]
            listed = events.ToolCallsEvent(calls)
            said = None if message.content is None else events.ModelMessage(message.text)
            response = self.link(events.ModelResponse(said, tool_calls=listed), block)
            self._events += [response, listed, *calls] if calls else [response]
        else:
            self._events.append(self.link(events.ModelRequest(_to_inputs(message)), block))

    def select(self) -> list[Message]:
        _, kept = run_coroutine(self._policy.apply([], self._events, None))
        # Events of individual calls and results are dropped; the lists contain the same calls and
        # results, and only the lists are sent to the provider.
        return [message for event in kept for message in self.original_block(event) or ()]


def _to_inputs(message: Message) -> list[Any]:
    parts = split_parts(message) or [Part(False, "")]
    return [ImageInput(url=p.value) if p.is_image else events.TextInput(p.value) for p in parts]


def _sliding_window(settings: PeerSettings, max_events: int = 40) -> PeerAdapter:
    return _StreamAdapter(settings, SlidingWindowPolicy(max_events))


def _token_budget(settings: PeerSettings, **options: Any) -> PeerAdapter:
    return _StreamAdapter(settings, TokenBudgetPolicy(**settings.with_room(options)))


FACTORIES: dict[str, Any] = {"sliding_window": _sliding_window, "token_budget": _token_budget}
