"""The OpenHands SDK's summarizing condenser, on a view of events as a live agent keeps it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

# The SDK prints a banner when it is imported, unless it was told not to.
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
from ctxlab.strategies.upstream.base import Setting

__all__ = ["default"]

_TRIES = 5


def default(
    setting: Setting,
    max_size: int = 80,
    max_tokens: int | None = None,
    keep_first: int = 4,
    minimum_progress: float = 0.1,
    model: str | None = None,
) -> _Agent:
    """``default_condenser``: its ``LLMSummarizingCondenser``, which asks the setting's client."""
    return _Agent(
        setting,
        LLMSummarizingCondenser(
            llm=_Writer.of(setting, model),
            max_size=max_size,
            max_tokens=max_tokens,
            keep_first=keep_first,
            minimum_progress=minimum_progress,
        ),
    )


class _Counted(TextContent):
    """A text that knows what the message it stands for costs: the SDK asks for nothing else."""

    tokens: int = 0


class _Writer(LLM):
    """The model that writes summaries: our client."""

    _setting: Setting | None = PrivateAttr(default=None)
    _asked: str | None = PrivateAttr(default=None)

    @classmethod
    def of(cls, setting: Setting, model: str | None) -> _Writer:
        writer = cls(model="gpt-4o", usage_id="condenser", api_key="none")
        writer._setting, writer._asked = setting, model
        return writer

    def generate(self, messages: list[HandsMessage], *_: Any, **__: Any) -> LLMResponse:
        client = self._setting.client if self._setting else None
        if client is None or self._asked is None:
            raise SpecError("peer:openhands.default asks a model: name one, and give a client")
        asked = tuple(Message(m.role, _text(m)) for m in messages)
        text = client.complete(Request(self._asked, asked)).text
        answer = HandsMessage(role="assistant", content=[TextContent(text=text)])
        return LLMResponse.model_construct(message=answer, metrics=None, raw_response=_Raw())


class _Raw:
    id = "reply"


class _Window:
    """The agent's model, as far as the condenser looks at it: its window, and what a request costs."""

    def __init__(self, setting: Setting) -> None:
        self.effective_max_input_tokens = setting.available
        self._count = setting.counter.message

    def get_token_count(self, messages: Sequence[HandsMessage], **_: Any) -> int:
        parts = [part for message in messages for part in message.content]
        return sum(
            part.tokens
            if isinstance(part, _Counted)
            else self._count(Message("user", getattr(part, "text", "")))
            for part in parts
        )


class _Agent:
    """One conversation: before each request it condenses until the condenser gives a view."""

    def __init__(self, setting: Setting, condenser: LLMSummarizingCondenser) -> None:
        self._setting, self._condenser = setting, condenser
        self._window: Any = _Window(setting)
        self._view = View()
        self._given: dict[str, Message] = {}
        "the message that an event is the first of, by the event's id"
        self._seen = 0

    def prepare(self, history: Sequence[Message], /) -> Sequence[Message]:
        """What its view holds once it is condensed, or once condensing changes nothing."""
        for position in range(self._seen, len(history)):
            for event in self._events(history[position], position):
                self._view.append_event(event)
        self._seen = len(history)
        for _ in range(_TRIES):
            before = self._cost()
            try:
                made = self._condenser.condense(self._view, self._window)
            except NoCondensationAvailableException:
                break
            if not isinstance(made, Condensation):
                break
            self._view.append_event(made)
            if self._cost() >= before:
                break
        return [message for event in self._view.events for message in self._message(event)]

    def _cost(self) -> tuple[int, int]:
        messages = LLMConvertibleEvent.events_to_messages(list(self._view.events))
        return self._window.get_token_count(messages), len(self._view)

    def _message(self, event: LLMConvertibleEvent) -> Iterator[Message]:
        if isinstance(event, CondensationSummaryEvent):
            yield Message("user", event.summary)
        elif event.id in self._given:
            yield self._given[event.id]

    def _events(self, message: Message, position: int) -> Iterator[LLMConvertibleEvent]:
        text = _Counted(text=message.text, tokens=self._setting.counter.message(message))
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
                    self._given[event.id] = message
                yield event
            return
        if message.role == "tool":
            event = _Result(
                tool_name=message.name or "tool",
                tool_call_id=message.tool_call_id or "",
                error=message.text,
            )
            event._said = text
        elif message.role == "system" and position == 0:
            event = SystemPromptEvent(system_prompt=text, tools=[])
        else:
            event = MessageEvent(
                source="agent" if message.role == "assistant" else "user",
                llm_message=HandsMessage(role=message.role, content=[text]),
            )
        self._given[event.id] = message
        yield event


class _Result(AgentErrorEvent):
    """A tool result of any tool: the SDK's own want the tool's classes."""

    _said: _Counted | None = PrivateAttr(default=None)

    def to_llm_message(self) -> HandsMessage:
        plain = super().to_llm_message()
        return plain.model_copy(update={"content": [self._said]}) if self._said else plain


def _text(message: HandsMessage) -> str:
    return "\n".join(part.text for part in message.content if isinstance(part, TextContent))
