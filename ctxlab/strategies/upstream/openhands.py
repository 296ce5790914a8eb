"""The OpenHands SDK's summarizing condenser, run over a view of events like that of a live agent."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

# Without this, the SDK prints a banner on import.
os.environ.setdefault("OPENHANDS_SUPPRESS_BANNER", "1")

from openhands.sdk.context.condenser import LLMSummarizingCondenser
from openhands.sdk.context.condenser.base import NoCondensationAvailableException
from openhands.sdk.context.view import View
from openhands.sdk.event import (
    ActionEvent,
    AgentErrorEvent,
    Condensation,
    LLMConvertibleEvent,
    MessageEvent,
    SystemPromptEvent,
)
from openhands.sdk.event.condenser import CondensationSummaryEvent
from openhands.sdk.llm import LLM, LLMResponse, MessageToolCall, TextContent
from openhands.sdk.llm import Message as HandsMessage
from pydantic import PrivateAttr

from ctxlab.errors import SpecError
from ctxlab.llm.base import Request
from ctxlab.messages.types import Message
from ctxlab.strategies.upstream.base import PeerSettings

_MAX_TRIES = 5


def default(
    settings: PeerSettings,
    max_size: int = 80,
    max_tokens: int | None = None,
    keep_first: int = 4,
    minimum_progress: float = 0.1,
    model: str | None = None,
) -> _CondenserAdapter:
    """Return an adapter for the ``LLMSummarizingCondenser`` of ``default_condenser``.

    Parameters
    ----------
    settings : PeerSettings
        Counter, available tokens and client.
    max_size : int, default 80
        Number of events above which it condenses.
    max_tokens : int, optional
        Tokens above which it condenses, if less than the available tokens.
    keep_first : int, default 4
        First events to keep.
    minimum_progress : float, default 0.1
        Share of the events that a condensation must remove.
    model : str, optional
        Model that writes the summary; required.

    Returns
    -------
    PeerAdapter
        The adapter of one conversation.
    """
    return _CondenserAdapter(
        settings,
        LLMSummarizingCondenser(
            llm=_ClientLLM.from_settings(settings, model),
            max_size=max_size,
            max_tokens=max_tokens,
            keep_first=keep_first,
            minimum_progress=minimum_progress,
        ),
    )


class _CountedText(TextContent):
    """A text with the token count of its message, which is all that the SDK needs."""

    tokens: int = 0


class _ClientLLM(LLM):
    """The model that writes summaries, answered by ctxlab's client."""

    _settings: PeerSettings | None = PrivateAttr(default=None)
    _requested_model: str | None = PrivateAttr(default=None)

    @classmethod
    def from_settings(cls, settings: PeerSettings, model: str | None) -> _ClientLLM:
        writer = cls(model="gpt-4o", usage_id="condenser", api_key="none")
        writer._settings, writer._requested_model = settings, model
        return writer

    def generate(self, messages: list[HandsMessage], *_: Any, **__: Any) -> LLMResponse:
        client = self._settings.client if self._settings else None
        if client is None or self._requested_model is None:
            raise SpecError("peer:openhands.default calls a model; pass model='…' and a client")
        asked = tuple(Message(m.role, _join_text(m)) for m in messages)
        text = client.complete(Request(self._requested_model, asked)).text
        answer = HandsMessage(role="assistant", content=[TextContent(text=text)])
        return LLMResponse.model_construct(
            message=answer, metrics=None, raw_response=_RawResponse()
        )


class _RawResponse:
    id = "reply"


class _AgentLLM:
    """The agent's model as the condenser uses it: its window and its token counts."""

    def __init__(self, settings: PeerSettings) -> None:
        self.effective_max_input_tokens = settings.available
        self._count = settings.counter.count_message

    def get_token_count(self, messages: Sequence[HandsMessage], **_: Any) -> int:
        parts = [part for message in messages for part in message.content]
        return sum(
            part.tokens
            if isinstance(part, _CountedText)
            else self._count(Message("user", getattr(part, "text", "")))
            for part in parts
        )


class _CondenserAdapter:
    """One conversation, which is condensed before each request until the condenser returns a view."""

    def __init__(self, settings: PeerSettings, condenser: LLMSummarizingCondenser) -> None:
        self._settings, self._condenser = settings, condenser
        self._llm: Any = _AgentLLM(settings)
        self._view = View()
        self._messages_by_event: dict[str, Message] = {}
        "message of each event that is the first of a message, by the id of the event"
        self._seen = 0

    def prepare(self, history: Sequence[Message], /) -> Sequence[Message]:
        """Return the messages of the view once condensing is done or changes nothing."""
        for position in range(self._seen, len(history)):
            for event in self._to_events(history[position], position):
                self._view.append_event(event)
        self._seen = len(history)
        for _ in range(_MAX_TRIES):
            before = self._measure()
            try:
                made = self._condenser.condense(self._view, self._llm)
            except NoCondensationAvailableException:
                break
            if not isinstance(made, Condensation):
                break
            self._view.append_event(made)
            if self._measure() >= before:
                break
        return [message for event in self._view.events for message in self._event_messages(event)]

    def _measure(self) -> tuple[int, int]:
        messages = LLMConvertibleEvent.events_to_messages(list(self._view.events))
        return self._llm.get_token_count(messages), len(self._view)

    def _event_messages(self, event: LLMConvertibleEvent) -> Iterator[Message]:
        if isinstance(event, CondensationSummaryEvent):
            yield Message("user", event.summary)
        elif event.id in self._messages_by_event:
            yield self._messages_by_event[event.id]

    def _to_events(self, message: Message, position: int) -> Iterator[LLMConvertibleEvent]:
        text = _CountedText(text=message.text, tokens=self._settings.counter.count_message(message))
        event: LLMConvertibleEvent
        if message.tool_calls:
            for number, call in enumerate(message.tool_calls):
                event = ActionEvent(
                    thought=[] if number else [text],
                    tool_name=call.name,
                    tool_call_id=call.id,
                    tool_call=MessageToolCall(
                        id=call.id, name=call.name, arguments=call.arguments, origin="completion"
                    ),
                    llm_response_id=f"response {position}",
                )
                if not number:
                    self._messages_by_event[event.id] = message
                yield event
            return
        if message.role == "tool":
            event = _ToolResultEvent(
                tool_name=message.name or "tool",
                tool_call_id=message.tool_call_id or "",
                error=message.text,
            )
            event._content_text = text
        elif message.role == "system" and position == 0:
            event = SystemPromptEvent(system_prompt=text, tools=[])
        else:
            event = MessageEvent(
                source="agent" if message.role == "assistant" else "user",
                llm_message=HandsMessage(role=message.role, content=[text]),
            )
        self._messages_by_event[event.id] = message
        yield event


class _ToolResultEvent(AgentErrorEvent):
    """A result of any tool; the SDK's own events require the class of the tool."""

    _content_text: _CountedText | None = PrivateAttr(default=None)

    def to_llm_message(self) -> HandsMessage:
        plain = super().to_llm_message()
        return (
            plain.model_copy(update={"content": [self._content_text]})
            if self._content_text
            else plain
        )


def _join_text(message: HandsMessage) -> str:
    return "\n".join(part.text for part in message.content if isinstance(part, TextContent))
