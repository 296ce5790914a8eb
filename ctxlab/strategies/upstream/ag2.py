"""AG2's assembly policies, run by the package over the events of its stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ag2.events import (
    BaseEvent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextInput,
    ToolCallEvent,
    ToolCallsEvent,
    ToolResult,
    ToolResultEvent,
    ToolResultsEvent,
)
from ag2.events.input_events import ImageInput
from ag2.policies import SlidingWindowPolicy, TokenBudgetPolicy

from ctxlab.messages.types import Message
from ctxlab.strategies.upstream.base import PeerSettings
from ctxlab.strategies.upstream.message_blocks import (
    Block,
    TranslatedHistory,
    run_coroutine,
    tool_name,
)


class _StreamAdapter:
    """A conversation as a stream of events, and the policy that selects events."""

    def __init__(self, policy: Any) -> None:
        self._policy, self._translated = policy, TranslatedHistory()
        self._events: list[BaseEvent] = []

    def prepare(self, history: Sequence[Message], /) -> Sequence[Message]:
        for position, block in self._translated.new_blocks(history):
            self._events += self._to_events(position, block)
        _, kept = run_coroutine(self._policy.apply([], self._events, None))
        # Events of single calls and results are for observers; the provider gets their lists.
        return self._translated.to_messages(
            [event for event in kept if self._translated.original_block(event)], _reject_new_event
        )

    def _to_events(self, position: int, block: Block) -> list[BaseEvent]:
        known, message = self._translated, block[0]
        if message.role == "tool":
            results = [
                ToolResultEvent(
                    parent_id=m.tool_call_id or "",
                    name=tool_name(known.calls.get(position + i), m),
                    result=ToolResult(*_to_inputs(m)),
                )
                for i, m in enumerate(block)
            ]
            return [*results, known.link(ToolResultsEvent(results), block)]
        if message.role != "assistant":
            return [known.link(ModelRequest(_to_inputs(message)), block)]
        calls = [ToolCallEvent(c.name, id=c.id, arguments=c.arguments) for c in message.tool_calls]
        listed = ToolCallsEvent(calls)
        said = None if message.content is None else ModelMessage(message.text)
        response = known.link(ModelResponse(said, tool_calls=listed), block)
        return [response, listed, *calls] if calls else [response]


def sliding_window(settings: PeerSettings, max_events: int = 40) -> _StreamAdapter:
    """Return an adapter for ``SlidingWindowPolicy``.

    Parameters
    ----------
    settings : PeerSettings
        Not used.
    max_events : int, default 40
        Events to keep.

    Returns
    -------
    PeerAdapter
        The adapter of one conversation.
    """
    return _StreamAdapter(SlidingWindowPolicy(max_events))


def token_budget(
    settings: PeerSettings, max_tokens: int | None = None, chars_per_token: int = 4
) -> _StreamAdapter:
    """Return an adapter for ``TokenBudgetPolicy``.

    Parameters
    ----------
    settings : PeerSettings
        Counter and available tokens.
    max_tokens : int, optional
        Tokens of the events; None: the available tokens.
    chars_per_token : int, default 4
        Characters that count as one token.

    Returns
    -------
    PeerAdapter
        The adapter of one conversation.
    """
    tokens = settings.available if max_tokens is None else max_tokens
    return _StreamAdapter(TokenBudgetPolicy(tokens, chars_per_token))


def _to_inputs(message: Message) -> list[Any]:
    if not isinstance(message.content, tuple):
        return [TextInput(message.text)]
    return [
        ImageInput(url=str(part.get("image_url", {}).get("url", "")))
        if part.get("type") == "image_url"
        else TextInput(str(part.get("text") or ""))
        for part in message.content
    ]


def _reject_new_event(event: BaseEvent) -> Message:
    raise AssertionError(f"the policy returned an event that is not in the conversation: {event}")
