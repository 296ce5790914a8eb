"""Adapter for the summarizing condenser of the OpenHands SDK, and access to those of V0.

The condenser runs on a view, the list of events that a live agent would send to its model.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

# Without this, the SDK prints a banner on import.
os.environ.setdefault("OPENHANDS_SUPPRESS_BANNER", "1")

from openhands.sdk import event as events
from openhands.sdk.context.condenser import LLMSummarizingCondenser
from openhands.sdk.context.condenser.base import NoCondensationAvailableException
from openhands.sdk.context.view import View
from openhands.sdk.event.condenser import CondensationSummaryEvent
from openhands.sdk.llm import LLM, LLMResponse, MessageToolCall, TextContent
from openhands.sdk.llm import Message as HandsMessage
from pydantic import PrivateAttr

from ctxlab.messages.types import Message
from ctxlab.strategies.upstream.base import Block, PeerAdapter, PeerSettings, Writer

_MAX_TRIES = 5


class _CountedText(TextContent):
    """Text content that stores the token count of its message, to count the message only once."""

    tokens: int = 0


class _ClientLLM(LLM):
    """LLM for the condenser. It writes summaries with ctxlab's client."""

    _writer: Writer | None = PrivateAttr(default=None)

    def generate(self, messages: list[HandsMessage], *_: Any, **__: Any) -> LLMResponse:
        assert self._writer is not None
        text = self._writer(Message(m.role, _join_text(m)) for m in messages)
        answer = HandsMessage(role="assistant", content=[TextContent(text=text)])
        raw = SimpleNamespace(id="reply")
        return LLMResponse.model_construct(message=answer, metrics=None, raw_response=raw)


class _AgentLLM:
    """LLM of the agent, reduced to what the condenser uses: context window and token counts."""

    def __init__(self, settings: PeerSettings) -> None:
        self.effective_max_input_tokens = settings.available
        self._count = settings.counter.count_message

    def get_token_count(self, messages: Sequence[HandsMessage], **_: Any) -> int:
        parts = [part for message in messages for part in message.content]
        return sum(map(self._part_tokens, parts))

    def _part_tokens(self, part: Any) -> int:
        if isinstance(part, _CountedText):
            return part.tokens
        return self._count(Message("user", getattr(part, "text", "")))


class _CondenserAdapter(PeerAdapter):
    """Adapter that stores one conversation as a view, and condenses the view before each request.

    A view is the list of events that an agent of the SDK sends to its model.
    """

    separate_prompt = False

    def __init__(self, settings: PeerSettings, model: str | None = None, **options: Any) -> None:
        super().__init__(settings)
        llm = _ClientLLM(model="gpt-4o", usage_id="condenser", api_key="none")
        llm._writer = settings.make_writer(model)
        options = {"max_size": 80, "keep_first": 4, **options}
        self._condenser = LLMSummarizingCondenser(llm=llm, **options)
        self._llm: Any = _AgentLLM(settings)
        self._view = View()
        self._messages_by_event: dict[str, Message] = {}
        "message by the id of its first event; a message with several tool calls has several events"

    def add(self, position: int, block: Block) -> None:
        (message,) = block
        made = self._to_events(message, position)
        self._messages_by_event[made[0].id] = message
        for event in made:
            self._view.append_event(event)

    def select(self) -> Iterator[Message]:
        """Condense the view until it no longer gets smaller, and yield its messages."""
        for _ in range(_MAX_TRIES):
            before = self._measure()
            try:
                made = self._condenser.condense(self._view, self._llm)
            except NoCondensationAvailableException:
                break
            if not isinstance(made, events.Condensation):
                break
            self._view.append_event(made)
            if self._measure() >= before:
                break
        for event in self._view.events:
            if isinstance(event, CondensationSummaryEvent):
                yield Message("user", event.summary)
            elif event.id in self._messages_by_event:
                yield self._messages_by_event[event.id]

    def _measure(self) -> tuple[int, int]:
        messages = events.LLMConvertibleEvent.events_to_messages(list(self._view.events))
        return self._llm.get_token_count(messages), len(self._view)

    def _to_events(self, message: Message, position: int) -> list[events.LLMConvertibleEvent]:
        tokens = self.settings.counter.count_message(message)
        text = _CountedText(text=message.text, tokens=tokens)
        if message.tool_calls:
            return [
                events.ActionEvent(
                    thought=[] if number else [text],
                    tool_name=call.name,
                    tool_call_id=call.id,
                    tool_call=MessageToolCall(
                        id=call.id, name=call.name, arguments=call.arguments, origin="completion"
                    ),
                    llm_response_id=f"response {position}",
                )
                for number, call in enumerate(message.tool_calls)
            ]
        if message.role == "tool":
            name, call_id = message.name or "tool", message.tool_call_id or ""
            event = _ToolResultEvent(tool_name=name, tool_call_id=call_id, error=message.text)
            event._content_text = text
            return [event]
        if message.role == "system" and position == 0:
            return [events.SystemPromptEvent(system_prompt=text, tools=[])]
        source = "agent" if message.role == "assistant" else "user"
        said = HandsMessage(role=message.role, content=[text])
        return [events.MessageEvent(source=source, llm_message=said)]


class _ToolResultEvent(events.AgentErrorEvent):
    """Event with a result of any tool.

    The SDK's own observation events cannot be used, because they require the class of the tool.
    """

    _content_text: _CountedText | None = PrivateAttr(default=None)

    def to_llm_message(self) -> HandsMessage:
        plain = super().to_llm_message()
        return plain.model_copy(update={"content": [self._content_text]})


def _join_text(message: HandsMessage) -> str:
    return "\n".join(part.text for part in message.content if isinstance(part, TextContent))


def _make_masking(settings: PeerSettings, **options: Any) -> PeerAdapter:
    from ctxlab.strategies.upstream.openhands_v0 import make_masking  # a package of its own

    return make_masking(settings, **options)


def _make_amortized(settings: PeerSettings, **options: Any) -> PeerAdapter:
    from ctxlab.strategies.upstream.openhands_v0 import make_amortized

    return make_amortized(settings, **options)


FACTORIES = {
    "default": _CondenserAdapter,
    "masking": _make_masking,
    "amortized": _make_amortized,
}
