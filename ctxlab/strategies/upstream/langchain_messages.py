"""Conversations go into LangChain's messages and come back as they were, where it left them alone.

Its messages carry less than ours (an empty content for a missing one, arguments as an object), so each
has the position of its original as its id, and only what the package changed is taken from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from ctxlab.errors import SpecError
from ctxlab.llm.base import Client, Request
from ctxlab.messages.types import Message, Role, ToolCall
from ctxlab.strategies.upstream.base import PeerSettings

__all__ = ["ClientChatModel", "MessageConverter", "make_chat_model"]

_ROLES: dict[str, Role] = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}


class MessageConverter:
    """One conversation in LangChain's classes, counted by ctxlab."""

    def __init__(self, settings: PeerSettings) -> None:
        self._counter = settings.counter
        self._originals: dict[str, tuple[Message, BaseMessage, int]] = {}

    def to_langchain(self, history: Sequence[Message], start: int = 0) -> list[BaseMessage]:
        """The messages from ``start`` on, each with its position as its id."""
        return [self._to_langchain_message(history[i], i) for i in range(start, len(history))]

    def to_system_message(self, messages: Sequence[Message]) -> SystemMessage | None:
        """The one system message that an agent has; it counts as those that it stands for."""
        if not messages:
            return None
        said = Message("system", "\n\n".join(message.text for message in messages))
        made = SystemMessage(content=said.text, id="prompt")
        self._originals["prompt"] = said, made, sum(map(self._counter.count_message, messages))
        return made

    def from_langchain(self, messages: Iterable[BaseMessage]) -> list[Message]:
        """Ours again: the original, with what was changed."""
        return [self._from_langchain_message(message) for message in messages]

    def count_tokens(self, messages: Any) -> int:
        """A token counter as LangChain takes it."""
        return sum(self._message_tokens(message) for message in messages)

    def _to_langchain_message(self, message: Message, position: int) -> BaseMessage:
        key = str(position)
        if key not in self._originals:
            made = _build_message(message, key)
            self._originals[key] = message, made, self._counter.count_message(message)
        return self._originals[key][1].model_copy()

    def _message_tokens(self, message: BaseMessage) -> int:
        known = self._originals.get(message.id or "")
        if known and _is_unchanged(message, known[1]):
            return known[2]
        return self._counter.count_message(self._from_langchain_message(message))

    def _from_langchain_message(self, message: BaseMessage) -> Message:
        content: Any = message.content
        content = tuple(content) if isinstance(content, list) else content
        known = self._originals.get(message.id or "")
        if known is None:
            return Message(_ROLES[message.type], content)
        original, loaded, _ = known
        if _is_unchanged(message, loaded):
            return original
        changes: dict[str, Any] = {}
        if message.content != loaded.content:
            changes["content"] = content
        if isinstance(message, AIMessage) and isinstance(loaded, AIMessage):
            pairs = iter(zip(message.tool_calls, loaded.tool_calls, strict=True))
            calls = []
            for call in original.tool_calls:
                if _parse_arguments(call) is not None:
                    now, was = next(pairs)
                    call = (
                        call if now["args"] == was["args"] else _with_arguments(call, now["args"])
                    )
                calls.append(call)
            changes["tool_calls"] = tuple(calls)
        return original.replace(**changes)


class ClientChatModel(BaseChatModel):
    """A chat model that hands every question to ctxlab's client."""

    client: Any
    requested_model: str
    from_langchain: Any

    @property
    def _llm_type(self) -> str:
        return "ctxlab"

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any
    ) -> ChatResult:
        reply = self.client.complete(
            Request(self.requested_model, tuple(self.from_langchain(messages)))
        )
        return ChatResult(generations=[ChatGeneration(message=AIMessage(content=reply.text))])


def make_chat_model(
    settings: PeerSettings, model: str | None, converter: MessageConverter
) -> ClientChatModel:
    """The chat model of a peer; its window is what the budget leaves for messages.

    Raises ``SpecError`` where there is nobody to ask.
    """
    client: Client | None = settings.client
    if client is None or model is None:
        raise SpecError("this peer asks a model for its summaries: give a client and model='…'")
    window: Any = {"max_input_tokens": settings.available}
    return ClientChatModel(
        client=client,
        requested_model=model,
        from_langchain=converter.from_langchain,
        profile=window,
    )


def _build_message(message: Message, key: str) -> BaseMessage:
    content: Any = message.content
    content = list(content) if isinstance(content, tuple) else content or ""
    common: dict[str, Any] = {"content": content, "id": key, "name": message.name}
    if message.role == "assistant":
        calls: list[Any] = []
        broken: list[Any] = []
        for call in message.tool_calls:
            arguments = _parse_arguments(call)
            if arguments is not None:
                calls.append({"id": call.id, "name": call.name, "args": arguments})
            else:
                broken.append(
                    {"id": call.id, "name": call.name, "args": call.arguments, "error": "no object"}
                )
        return AIMessage(**common, tool_calls=calls, invalid_tool_calls=broken)
    if message.role == "tool":
        return ToolMessage(**common, tool_call_id=message.tool_call_id or "")
    return SystemMessage(**common) if message.role == "system" else HumanMessage(**common)


def _parse_arguments(call: ToolCall) -> dict[str, Any] | None:
    """None where they are no object: LangChain keeps such calls apart."""
    try:
        value = json.loads(call.arguments or "{}")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _is_unchanged(message: BaseMessage, loaded: BaseMessage) -> bool:
    if message.content != loaded.content:
        return False
    if isinstance(message, AIMessage) and isinstance(loaded, AIMessage):
        return message.tool_calls == loaded.tool_calls
    return True


def _with_arguments(call: ToolCall, arguments: dict[str, Any]) -> ToolCall:
    """The call with other arguments, written as LangChain's models write them."""
    return ToolCall(call.id, call.name, json.dumps(arguments, ensure_ascii=False))
