"""AG2's assembly policies, run by the package over the events of its stream."""

from __future__ import annotations

from typing import Any

from ag2 import events
from ag2.events.input_events import ImageInput
from ag2.policies import SlidingWindowPolicy, TokenBudgetPolicy

from ctxlab.messages.types import Message
from ctxlab.strategies.baselines.common.parts import split_parts
from ctxlab.strategies.upstream.base import Block, PeerAdapter, PeerSettings, run_coroutine


class _StreamAdapter(PeerAdapter):
    """A conversation as a stream of events, and the policy that selects events."""

    group_results = True

    def __init__(self, settings: PeerSettings, policy: Any) -> None:
        super().__init__(settings)
        self._policy = policy
        self._events: list[events.BaseEvent] = []

    def add(self, position: int, block: Block) -> None:
        message = block[0]
        if message.role == "tool":
            results = [
                events.ToolResultEvent(
                    parent_id=m.tool_call_id or "",
                    name=self.tool_name(i),
                    result=events.ToolResult(*_to_inputs(m)),
                )
                for i, m in enumerate(block, position)
            ]
            self._events += [*results, self.link(events.ToolResultsEvent(results), block)]
        elif message.role == "assistant":
            calls = [
                events.ToolCallEvent(c.name, id=c.id, arguments=c.arguments)
                for c in message.tool_calls
            ]
            listed = events.ToolCallsEvent(calls)
            said = None if message.content is None else events.ModelMessage(message.text)
            response = self.link(events.ModelResponse(said, tool_calls=listed), block)
            self._events += [response, listed, *calls] if calls else [response]
        else:
            self._events.append(self.link(events.ModelRequest(_to_inputs(message)), block))

    def select(self) -> list[Message]:
        _, kept = run_coroutine(self._policy.apply([], self._events, None))
        # Events of single calls and results are for observers; the provider gets their lists.
        return [message for event in kept for message in self.original_block(event) or ()]


def _to_inputs(message: Message) -> list[Any]:
    inputs = [
        ImageInput(url=part.value) if part.is_image else events.TextInput(part.value)
        for part in split_parts(message)
    ]
    return inputs or [events.TextInput("")]


def _sliding_window(settings: PeerSettings, max_events: int = 40) -> PeerAdapter:
    return _StreamAdapter(settings, SlidingWindowPolicy(max_events))


def _token_budget(
    settings: PeerSettings, max_tokens: int | None = None, chars_per_token: int = 4
) -> PeerAdapter:
    tokens = settings.available if max_tokens is None else max_tokens
    return _StreamAdapter(settings, TokenBudgetPolicy(tokens, chars_per_token))


FACTORIES = {"sliding_window": _sliding_window, "token_budget": _token_budget}
