"""Inspect AI's compaction handler and strategies, with ctxlab's counter and client in its model."""

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
from ctxlab.strategies.upstream.base import PeerSettings

_POSITION_KEY = "position"


def edit(
    settings: PeerSettings,
    threshold: float = 0.9,
    keep_tool_uses: int = 3,
    exclude_tools: Sequence[str] = (),
) -> _CompactionAdapter:
    """Return an adapter for ``CompactionEdit``.

    Parameters
    ----------
    settings : PeerSettings
        Counter and available tokens.
    threshold : float, default 0.9
        Tokens above which compaction starts; a fraction is a share of the available tokens.
    keep_tool_uses : int, default 3
        Newest tool uses whose results stay.
    exclude_tools : sequence of str, default ()
        Tools whose results are never cleared.

    Returns
    -------
    PeerAdapter
        The adapter of one conversation.
    """
    strategy = CompactionEdit(
        threshold=_threshold_tokens(settings, threshold),
        keep_tool_uses=keep_tool_uses,
        exclude_tools=list(exclude_tools),
    )
    return _CompactionAdapter(settings, strategy)


def trim(
    settings: PeerSettings, threshold: float = 0.9, preserve: float = 0.8
) -> _CompactionAdapter:
    """Return an adapter for ``CompactionTrim``.

    Parameters
    ----------
    settings : PeerSettings
        Counter and available tokens.
    threshold : float, default 0.9
        Tokens above which compaction starts; a fraction is a share of the available tokens.
    preserve : float, default 0.8
        Share of the messages after the task that one pass keeps.

    Returns
    -------
    PeerAdapter
        The adapter of one conversation.
    """
    strategy = CompactionTrim(threshold=_threshold_tokens(settings, threshold), preserve=preserve)
    return _CompactionAdapter(settings, strategy)


def summary(
    settings: PeerSettings, threshold: float = 0.9, model: str | None = None
) -> _CompactionAdapter:
    """Return an adapter for ``CompactionSummary``.

    Parameters
    ----------
    settings : PeerSettings
        Counter, available tokens and client.
    threshold : float, default 0.9
        Tokens above which compaction starts; a fraction is a share of the available tokens.
    model : str, optional
        Model that writes the summary; required.

    Returns
    -------
    PeerAdapter
        The adapter of one conversation.
    """
    strategy = CompactionSummary(threshold=_threshold_tokens(settings, threshold))
    return _CompactionAdapter(settings, strategy, model)


def _threshold_tokens(settings: PeerSettings, threshold: float) -> int:
    """Return a threshold in tokens; inspect_ai would look up the window by the model's name."""
    whole = isinstance(threshold, int) or threshold > 1
    return int(threshold) if whole else int(threshold * settings.available)


class _UnusedAPI(ModelAPI):
    """A provider that is never called."""

    async def generate(self, *_: Any, **__: Any) -> ModelOutput:
        raise NotImplementedError


class _ClientModel(Model):
    """Inspect AI's model, with ctxlab's counter and client."""

    def __init__(self, adapter: _CompactionAdapter, model: str | None) -> None:
        super().__init__(_UnusedAPI("ctxlab"), GenerateConfig())
        self._adapter, self._requested_model = adapter, model

    def __str__(self) -> str:
        return (
            "ctxlab/scripted"  # name for the lookup of windows; inspect_ai knows none of this name
        )

    async def count_tokens(
        self, input: str | list[ChatMessage], config: GenerateConfig | None = None
    ) -> int:
        if isinstance(input, str):
            return self._adapter.settings.counter.count_text(input)
        return sum(map(self._adapter.count_tokens, input))

    async def count_tool_tokens(self, tools: Sequence[Any]) -> int:
        return 0  # the available tokens are those of the messages alone

    async def generate(self, input: Any, *_: Any, **__: Any) -> ModelOutput:
        client = self._adapter.settings.client
        if client is None or self._requested_model is None:
            raise SpecError("peer:inspect.summary calls a model; pass model='…' and a client")
        messages = tuple(map(self._adapter.to_message, input))
        reply = client.complete(Request(self._requested_model, messages))
        return ModelOutput.from_content(self._requested_model, reply.text)


class _CompactionAdapter:
    """One conversation as an agent of inspect_ai passes it to the compaction handler."""

    def __init__(
        self, settings: PeerSettings, strategy: CompactionStrategy, model: str | None = None
    ) -> None:
        self.settings = settings
        self._strategy, self._model = strategy, _ClientModel(self, model)
        self._compact: Any = None
        self._history: list[Message] = []
        self._chat_messages: list[ChatMessage] = []
        self._full_history: list[ChatMessage] = []
        self._compacted: list[ChatMessage] = []
        self._since_compaction: list[ChatMessage] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> _CompactionAdapter:
        """Raise ``TypeError``: the state cannot be copied, so no extra question can be previewed."""
        raise TypeError("inspect_ai keeps the conversation in a closure, which cannot be copied")

    def prepare(self, history: Sequence[Message], /) -> Sequence[Message]:
        """Return the handler's messages for the model; after its error, the unchanged conversation."""
        new = [
            _to_chat_message(message, position)
            for position, message in enumerate(history[len(self._history) :], len(self._history))
        ]
        self._history = list(history)
        self._chat_messages += new
        self._full_history += new
        self._since_compaction += new
        if self._compact is None:
            roles = [message.role for message in self._chat_messages]
            task = roles.index("user") + 1 if "user" in roles else len(roles)
            self._compact = compaction(
                self._strategy, self._chat_messages[:task], None, self._model
            )
        try:
            kept, extra = asyncio.run(self._compact.compact_input(list(self._full_history)))
        except RuntimeError as error:
            if "Compaction insufficient" not in str(error):
                raise
            kept = [*self._compacted, *self._since_compaction]
        else:
            self._compacted, self._since_compaction = kept, []
            if extra is not None:
                self._full_history.append(extra)
        return [self.to_message(message) for message in kept]

    def count_tokens(self, message: ChatMessage) -> int:
        """Return the tokens of a message, counted by ctxlab's counter."""
        return self.settings.counter.count_message(self.to_message(message))

    def to_message(self, message: ChatMessage) -> Message:
        """Return the original message with the changes that inspect_ai made."""
        position = (message.metadata or {}).get(_POSITION_KEY)
        if position is None:
            return Message(message.role, message.text)
        original, loaded = self._history[position], self._chat_messages[position]
        if message is loaded:
            return original
        changes: dict[str, Any] = {}
        if message.content != loaded.content:
            changes["content"] = message.text
        if isinstance(message, ChatMessageAssistant) and isinstance(loaded, ChatMessageAssistant):
            kept = {id(call) for call in message.tool_calls or ()}
            pairs = zip(original.tool_calls, loaded.tool_calls or (), strict=True)
            changes["tool_calls"] = tuple(ours for ours, theirs in pairs if id(theirs) in kept)
        return original.replace(**changes)


def _to_chat_message(message: Message, position: int) -> ChatMessage:
    shared: dict[str, Any] = {
        "content": _to_content(message),
        "metadata": {_POSITION_KEY: position},
    }
    if message.role == "system":
        return ChatMessageSystem(**shared)
    if message.role == "user":
        return ChatMessageUser(**shared)
    if message.role == "tool":
        return ChatMessageTool(
            **shared, tool_call_id=message.tool_call_id, function=message.name or None
        )
    calls = [
        InspectCall(id=call.id, function=call.name, arguments=_parse_arguments(call.arguments))
        for call in message.tool_calls
    ]
    return ChatMessageAssistant(**shared, tool_calls=calls or None)


def _to_content(message: Message) -> str | list[Any]:
    if not isinstance(message.content, tuple):
        return message.content or ""
    parts: list[Any] = []
    for part in message.content:
        if part.get("type") == "image_url":
            parts.append(ContentImage(image=part["image_url"]["url"]))
        else:
            parts.append(ContentText(text=str(part.get("text") or "")))
    return parts


def _parse_arguments(text: str) -> dict[str, Any]:
    try:
        value = parse_json(text) if text else {}
    except ValueError:
        value = text
    return value if isinstance(value, dict) else {"arguments": value}
