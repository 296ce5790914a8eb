"""Conversion between ctxlab's messages and LangChain's messages.

The conversion loses information: LangChain has empty content instead of None, and parsed arguments
instead of JSON text. The id of each LangChain message is therefore the position of the original
message: conversion back starts from the original and applies only the changes made by the package.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from ctxlab.messages.types import Message, Role, ToolCall
from ctxlab.strategies.baselines.common.parts import object_arguments
from ctxlab.strategies.upstream.base import PeerAdapter, PeerSettings

_ROLES: dict[str, Role] = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}


class LangChainAdapter(PeerAdapter):
    """Base class of adapters for packages that use LangChain's messages.

    Parameters
    ----------
    settings : PeerSettings
        Data and services that ctxlab provides to the package.
    """

    def __init__(self, settings: PeerSettings) -> None:
        super().__init__(settings)
        self._loaded: dict[str, tuple[Message, BaseMessage, int]] = {}

    def load(self, position: int) -> BaseMessage:
        """Convert one message of the history to a LangChain message.

        Parameters
        ----------
        position : int
            Position of the message in ``history``.

        Returns
        -------
        BaseMessage
            New LangChain message, with the position as its id.
        """
        key, message = str(position), self.history[position]
        if key not in self._loaded:
            tokens = self.settings.counter.count_message(message)
            self._loaded[key] = message, _build_message(message, key), tokens
        return self._loaded[key][1].model_copy()

    def load_all(self) -> list[BaseMessage]:
        """Convert the messages of the history to LangChain messages, without leading system messages.

        Returns
        -------
        list of BaseMessage
            New LangChain messages, in order.
        """
        return list(map(self.load, range(len(self.prompt), len(self.history))))

    def to_system_message(self) -> SystemMessage | None:
        """Join the messages in ``prompt`` to one system message, as LangChain's agents expect it.

        Returns
        -------
        SystemMessage or None
            Joined message, which counts as many tokens as the original messages together. None if
            ``prompt`` is empty.
        """
        if not self.prompt:
            return None
        said = Message("system", "\n\n".join(message.text for message in self.prompt))
        made = SystemMessage(content=said.text, id="prompt")
        tokens = sum(map(self.settings.counter.count_message, self.prompt))
        self._loaded["prompt"] = said, made, tokens
        return made

    def from_langchain(self, messages: Iterable[BaseMessage]) -> list[Message]:
        """Convert LangChain messages back to ctxlab's messages.

        Parameters
        ----------
        messages : iterable of BaseMessage
            LangChain messages, loaded from the history or created by the package.

        Returns
        -------
        list of Message
            Original messages with the changes that the package made, and messages that it created.
        """
        return list(map(self._restore, messages))

    def count_tokens(self, messages: Any) -> int:
        """Count the tokens of messages with ctxlab's counter.

        The method can be passed to LangChain as a token counter.

        Parameters
        ----------
        messages : iterable of BaseMessage
            LangChain messages to count.

        Returns
        -------
        int
            Number of tokens of all messages.
        """
        return sum(map(self._message_tokens, messages))

    def make_chat_model(self, model: str | None) -> BaseChatModel:
        """Create a LangChain chat model that calls ctxlab's client.

        Parameters
        ----------
        model : str or None
            Name of the model to call. None raises ``SpecError``.

        Returns
        -------
        BaseChatModel
            Chat model with a context window of ``settings.available`` tokens.
        """
        writer = self.settings.make_writer(model)
        window: Any = {"max_input_tokens": self.settings.available}
        return _ClientChatModel(writer=writer, restore=self.from_langchain, profile=window)

    def _message_tokens(self, message: BaseMessage) -> int:
        known = self._loaded.get(message.id or "")
        if known is not None and _is_unchanged(message, known[1]):
            return known[2]
        return self.settings.counter.count_message(self._restore(message))

    def _restore(self, message: BaseMessage) -> Message:
        content: Any = message.content
        content = tuple(content) if isinstance(content, list) else content
        known = self._loaded.get(message.id or "")
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
                if object_arguments(call) is not None:
                    now, was = next(pairs)
                    if now["args"] != was["args"]:
                        call = _with_arguments(call, now["args"])
                calls.append(call)
            changes["tool_calls"] = tuple(calls)
        return original.replace(**changes)


class _ClientChatModel(BaseChatModel):
    """LangChain chat model that calls ctxlab's client."""

    writer: Any
    "function that takes ctxlab's messages and returns the text of the reply"
    restore: Any
    "function that converts LangChain messages to ctxlab's messages"

    @property
    def _llm_type(self) -> str:
        return "ctxlab"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        reply = AIMessage(content=self.writer(self.restore(messages)))
        return ChatResult(generations=[ChatGeneration(message=reply)])


def _build_message(message: Message, key: str) -> BaseMessage:
    content: Any = message.content
    content = list(content) if isinstance(content, tuple) else content or ""
    common: dict[str, Any] = {"content": content, "id": key, "name": message.name}
    if message.role == "assistant":
        calls: list[Any] = []
        broken: list[Any] = []  # calls whose arguments are not a JSON object
        for call in message.tool_calls:
            made, arguments = {"id": call.id, "name": call.name}, object_arguments(call)
            if arguments is None:
                broken.append({**made, "args": call.arguments, "error": "no object"})
            else:
                calls.append({**made, "args": arguments})
        return AIMessage(**common, tool_calls=calls, invalid_tool_calls=broken)
    if message.role == "tool":
        return ToolMessage(**common, tool_call_id=message.tool_call_id or "")
    return SystemMessage(**common) if message.role == "system" else HumanMessage(**common)


def _is_unchanged(message: BaseMessage, loaded: BaseMessage) -> bool:
    calls, before = (getattr(each, "tool_calls", None) for each in (message, loaded))
    return message.content == loaded.content and calls == before


def _with_arguments(call: ToolCall, arguments: dict[str, Any]) -> ToolCall:
    """Return a copy of a tool call with other arguments, as JSON in LangChain's format."""
    return ToolCall(call.id, call.name, json.dumps(arguments, ensure_ascii=False))
