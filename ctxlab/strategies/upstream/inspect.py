"""Inspect AI's compaction handler: its own strategies, with our counter and our client in its model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    CompactionEdit,
    CompactionStrategy,
    CompactionSummary,
    CompactionTrim,
    ContentImage,
    ContentText,
    GenerateConfig,
    Model,
    ModelAPI,
    ModelOutput,
    compaction,
)
from inspect_ai.tool import ToolCall as InspectCall

from ctxlab._utils.jsonio import parse_json
from ctxlab.errors import SpecError
from ctxlab.llm.base import Request
from ctxlab.messages.types import Message
from ctxlab.strategies.upstream.base import Setting

__all__ = ["edit", "summary", "trim"]

_POSITION = "position"


def edit(
    setting: Setting,
    threshold: float = 0.9,
    keep_tool_uses: int = 3,
    exclude_tools: Sequence[str] = (),
) -> _Handler:
    """``CompactionEdit``."""
    strategy = CompactionEdit(
        threshold=_tokens(setting, threshold),
        keep_tool_uses=keep_tool_uses,
        exclude_tools=list(exclude_tools),
    )
    return _Handler(setting, strategy)


def trim(setting: Setting, threshold: float = 0.9, preserve: float = 0.8) -> _Handler:
    """``CompactionTrim``."""
    strategy = CompactionTrim(threshold=_tokens(setting, threshold), preserve=preserve)
    return _Handler(setting, strategy)


def summary(setting: Setting, threshold: float = 0.9, model: str | None = None) -> _Handler:
    """``CompactionSummary``; the model is asked through the setting's client."""
    strategy = CompactionSummary(threshold=_tokens(setting, threshold))
    return _Handler(setting, strategy, model)


def _tokens(setting: Setting, threshold: float) -> int:
    """It takes a share of a window that it looks up by the model's name; ours is the setting's."""
    whole = isinstance(threshold, int) or threshold > 1
    return int(threshold) if whole else int(threshold * setting.available)


class _Api(ModelAPI):
    """A provider that is never asked."""

    async def generate(self, *_: Any, **__: Any) -> ModelOutput:
        raise NotImplementedError


class _Model(Model):
    """Its model, which counts as we do and answers what our client answers."""

    def __init__(self, handler: _Handler, model: str | None) -> None:
        super().__init__(_Api("ctxlab"), GenerateConfig())
        self._handler, self._asked = handler, model

    def __str__(self) -> str:
        return "ctxlab/scripted"  # what it looks windows up by; it knows none of this name

    async def count_tokens(
        self, input: str | list[ChatMessage], config: GenerateConfig | None = None
    ) -> int:
        if isinstance(input, str):
            return self._handler.setting.counter.text(input)
        return sum(map(self._handler.count, input))

    async def count_tool_tokens(self, tools: Sequence[Any]) -> int:
        return 0  # the setting's tokens are those of the messages alone

    async def generate(self, input: Any, *_: Any, **__: Any) -> ModelOutput:
        client = self._handler.setting.client
        if client is None or self._asked is None:
            raise SpecError("peer:inspect.summary asks a model: name one, and give a client")
        messages = tuple(map(self._handler.back, input))
        reply = client.complete(Request(self._asked, messages))
        return ModelOutput.from_content(self._asked, reply.text)


class _Handler:
    """One conversation, as an agent of inspect_ai hands it to the compaction handler."""

    def __init__(
        self, setting: Setting, strategy: CompactionStrategy, model: str | None = None
    ) -> None:
        self.setting = setting
        self._strategy, self._model = strategy, _Model(self, model)
        self._compact: Any = None
        self._history: list[Message] = []
        self._given: list[ChatMessage] = []
        self._full: list[ChatMessage] = []
        self._kept: list[ChatMessage] = []
        self._since: list[ChatMessage] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> _Handler:
        """None can be made, so nothing can be asked aside."""
        raise TypeError("inspect_ai keeps the conversation in a closure, of which there is no copy")

    def prepare(self, history: Sequence[Message], /) -> Sequence[Message]:
        """What its handler gives for the model; after its error, the conversation as it stood."""
        new = [
            _chat(message, position)
            for position, message in enumerate(history[len(self._history) :], len(self._history))
        ]
        self._history = list(history)
        self._given += new
        self._full += new
        self._since += new
        if self._compact is None:
            roles = [message.role for message in self._given]
            task = roles.index("user") + 1 if "user" in roles else len(roles)
            self._compact = compaction(self._strategy, self._given[:task], None, self._model)
        try:
            kept, extra = asyncio.run(self._compact.compact_input(list(self._full)))
        except RuntimeError as error:
            if "Compaction insufficient" not in str(error):
                raise
            kept = [*self._kept, *self._since]
        else:
            self._kept, self._since = kept, []
            if extra is not None:
                self._full.append(extra)
        return [self.back(message) for message in kept]

    def count(self, message: ChatMessage) -> int:
        """Its tokens, as we count them."""
        return self.setting.counter.message(self.back(message))

    def back(self, message: ChatMessage) -> Message:
        """The message that was given, with what inspect_ai changed in it."""
        position = (message.metadata or {}).get(_POSITION)
        if position is None:
            return Message(message.role, message.text)
        original, given = self._history[position], self._given[position]
        if message is given:
            return original
        changes: dict[str, Any] = {}
        if message.content != given.content:
            changes["content"] = message.text
        if isinstance(message, ChatMessageAssistant) and isinstance(given, ChatMessageAssistant):
            kept = {id(call) for call in message.tool_calls or ()}
            pairs = zip(original.tool_calls, given.tool_calls or (), strict=True)
            changes["tool_calls"] = tuple(ours for ours, theirs in pairs if id(theirs) in kept)
        return original.replace(**changes)


def _chat(message: Message, position: int) -> ChatMessage:
    shared: dict[str, Any] = {"content": _content(message), "metadata": {_POSITION: position}}
    if message.role == "system":
        return ChatMessageSystem(**shared)
    if message.role == "user":
        return ChatMessageUser(**shared)
    if message.role == "tool":
        return ChatMessageTool(
            **shared, tool_call_id=message.tool_call_id, function=message.name or None
        )
    calls = [
        InspectCall(id=call.id, function=call.name, arguments=_arguments(call.arguments))
        for call in message.tool_calls
    ]
    return ChatMessageAssistant(**shared, tool_calls=calls or None)


def _content(message: Message) -> str | list[Any]:
    if not isinstance(message.content, tuple):
        return message.content or ""
    parts: list[Any] = []
    for part in message.content:
        if part.get("type") == "image_url":
            parts.append(ContentImage(image=part["image_url"]["url"]))
        else:
            parts.append(ContentText(text=str(part.get("text") or "")))
    return parts


def _arguments(text: str) -> dict[str, Any]:
    try:
        value = parse_json(text) if text else {}
    except ValueError:
        value = text
    return value if isinstance(value, dict) else {"arguments": value}
