"""Adapters for the compaction of Inspect AI, which uses ctxlab's token counter and client."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from inspect_ai import model as api
from inspect_ai.tool import ToolCall as InspectCall

from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.baselines.common.parts import parse_arguments, split_parts
from ctxlab.strategies.upstream.base import Block, PeerAdapter, PeerSettings, Writer

_POSITION_KEY = "position"
_CLASSES: dict[str, type[api.ChatMessage]] = {
    "system": api.ChatMessageSystem,
    "user": api.ChatMessageUser,
    "assistant": api.ChatMessageAssistant,
    "tool": api.ChatMessageTool,
}


class _UnusedAPI(api.ModelAPI):
    """Model provider that Inspect AI requires but never calls."""

    async def generate(self, *_: Any, **__: Any) -> api.ModelOutput:
        raise NotImplementedError


class _ClientModel(api.Model):
    """Model for Inspect AI that uses ctxlab's token counter and client."""

    def __init__(self, adapter: _CompactionAdapter, writer: Writer | None) -> None:
        super().__init__(_UnusedAPI("ctxlab"), api.GenerateConfig())
        self._adapter, self._writer = adapter, writer

    def __str__(self) -> str:
        return "ctxlab/scripted"  # inspect_ai finds no context window for this name

    async def count_tokens(
        self, input: str | list[api.ChatMessage], config: api.GenerateConfig | None = None
    ) -> int:
        counter = self._adapter.settings.counter
        if isinstance(input, str):
            return counter.count_text(input)
        return sum(counter.count_message(self._adapter.to_message(message)) for message in input)

    async def count_tool_tokens(self, tools: Sequence[Any]) -> int:
        return 0  # the tokens of tools are already subtracted from ``available``

    async def generate(self, input: Any, *_: Any, **__: Any) -> api.ModelOutput:
        assert self._writer is not None
        text = self._writer(map(self._adapter.to_message, input))
        return api.ModelOutput.from_content("ctxlab", text)


class _CompactionAdapter(PeerAdapter):
    """Adapter that passes one conversation to a compaction handler, like an agent of inspect_ai."""

    separate_prompt = False

    def __init__(
        self, make: Any, settings: PeerSettings, writer: Any = None, **options: Any
    ) -> None:
        super().__init__(settings)
        # Compute the threshold in tokens; inspect_ai would look up the window by the model's name.
        threshold = options.pop("threshold", 0.9)
        whole = isinstance(threshold, int) or threshold > 1
        tokens = int(threshold if whole else threshold * settings.available)
        self._strategy = make(threshold=tokens, **options)
        self._model = _ClientModel(self, writer)
        self._compact: Any = None
        self._chat_messages: list[api.ChatMessage] = []
        self._full_history: list[api.ChatMessage] = []
        self._compacted: list[api.ChatMessage] = []
        self._since_compaction: list[api.ChatMessage] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> _CompactionAdapter:
        """Raise ``TypeError``, because the state in the compaction handler cannot be copied.

        For this reason, ctxlab cannot preview a request with an additional question.
        """
        raise TypeError("cannot copy the conversation, because inspect_ai keeps it in a closure")

    def add(self, position: int, block: Block) -> None:
        made = _to_chat_message(block[0], position)
        for messages in (self._chat_messages, self._full_history, self._since_compaction):
            messages.append(made)

    def select(self) -> list[Message]:
        """Return the messages that the compaction handler would send.

        If compaction does not reduce the messages enough, the handler raises an error. The method
        then returns the messages without a new compaction.
        """
        if self._compact is None:
            roles = [message.role for message in self._chat_messages]
            task = roles.index("user") + 1 if "user" in roles else len(roles)
            head = self._chat_messages[:task]
            self._compact = api.compaction(self._strategy, head, None, self._model)
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
        return list(map(self.to_message, kept))

    def to_message(self, message: api.ChatMessage) -> Message:
        """Return the original of a message of inspect_ai, with the changes that inspect_ai made."""
        position = (message.metadata or {}).get(_POSITION_KEY)
        if position is None:
            return Message(message.role, message.text)
        original, loaded = self.history[position], self._chat_messages[position]
        if message is loaded:
            return original
        changes: dict[str, Any] = {}
        if message.content != loaded.content:
            changes["content"] = message.text
        assistant = api.ChatMessageAssistant
        if isinstance(message, assistant) and isinstance(loaded, assistant):
            kept = {id(call) for call in message.tool_calls or ()}
            pairs = zip(original.tool_calls, loaded.tool_calls or (), strict=True)
            changes["tool_calls"] = tuple(ours for ours, theirs in pairs if id(theirs) in kept)
        return original.replace(**changes)


def _to_chat_message(message: Message, position: int) -> api.ChatMessage:
    made: dict[str, Any] = {"content": message.content or "", "metadata": {_POSITION_KEY: position}}
    if isinstance(message.content, tuple):
        made["content"] = [
            api.ContentImage(image=value) if is_image else api.ContentText(text=value)
            for is_image, value in split_parts(message)
        ]
    if message.role == "tool":
        made |= {"tool_call_id": message.tool_call_id, "function": message.name or None}
    if message.tool_calls:
        made["tool_calls"] = [_to_tool_call(call) for call in message.tool_calls]
    return _CLASSES[message.role](**made)


def _to_tool_call(call: ToolCall) -> InspectCall:
    value = parse_arguments(call)
    arguments = value if isinstance(value, dict) else {"arguments": value}
    return InspectCall(id=call.id, function=call.name, arguments=arguments)


def _edit(settings: PeerSettings, exclude_tools: Sequence[str] = (), **options: Any) -> PeerAdapter:
    options["exclude_tools"] = list(exclude_tools)
    return _CompactionAdapter(api.CompactionEdit, settings, **options)


def _summary(settings: PeerSettings, model: str | None = None, **options: Any) -> PeerAdapter:
    writer = settings.make_writer(model)
    return _CompactionAdapter(api.CompactionSummary, settings, writer=writer, **options)


_trim = partial(_CompactionAdapter, api.CompactionTrim)

FACTORIES = {"edit": _edit, "summary": _summary, "trim": _trim}
