"""Adapters for the compaction strategies of Microsoft Agent Framework."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import agent_framework as af

from ctxlab.messages.types import Message
from ctxlab.strategies.baselines.common.parts import split_parts
from ctxlab.strategies.upstream.base import Block, PeerAdapter, PeerSettings, Writer, run_coroutine


class _ListAdapter(PeerAdapter):
    """Adapter that stores one conversation as a list of Agent Framework's messages.

    A compaction strategy marks messages as excluded. The list keeps these marks between requests.
    """

    separate_prompt = False
    group_results = True

    def __init__(self, strategy: Any, settings: PeerSettings, **options: Any) -> None:
        super().__init__(settings)
        self._strategy = strategy(**options)
        self._messages: list[af.Message] = []

    def add(self, position: int, block: Block) -> None:
        contents = [content for message in block for content in _to_contents(message)]
        made = af.Message(block[0].role, contents, message_id=f"msg_{position}")
        self._messages.append(self.link(made, block))

    def select(self) -> list[Message]:
        sent = run_coroutine(af.apply_compaction(self._messages, strategy=self._strategy))
        return self.to_messages(sent, lambda made: Message("assistant", made.text))


class _ChatClient:
    """Chat client for Agent Framework that sends its calls to ctxlab's client."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def get_response(self, messages: Sequence[af.Message], **_: Any) -> af.ChatResponse[None]:
        said = self._writer("\n".join(f"{message.role}: {message.text}" for message in messages))
        return af.ChatResponse(messages=[af.Message("assistant", [said])])


def _to_contents(message: Message) -> list[af.Content]:
    if message.role == "tool":
        return [af.Content.from_function_result(message.tool_call_id or "", result=message.text)]
    made: list[af.Content] = []
    for part in split_parts(message):
        if part.is_image:
            kind, _, data = part.value.removeprefix("data:").partition(";base64,")
            made.append(af.Content.from_uri(part.value, media_type=kind if data else "image/png"))
        else:
            made.append(af.Content.from_text(part.value))
    build, calls = af.Content.from_function_call, message.tool_calls
    return made + [build(call.id, call.name, arguments=call.arguments) for call in calls]


def _context_window(settings: PeerSettings, **options: Any) -> PeerAdapter:
    options = {"max_output_tokens": 0, **options}
    options = settings.with_room(options, "max_context_window_tokens")
    return _ListAdapter(af.ContextWindowCompactionStrategy, settings, **options)


def _summarization(settings: PeerSettings, model: str | None = None, **options: Any) -> PeerAdapter:
    client = _ChatClient(settings.make_writer(model, options.pop("tokens", 400)))
    return _ListAdapter(af.SummarizationStrategy, settings, client=client, **options)


FACTORIES = {
    "context_window": _context_window,
    "selective_tool_calls": partial(_ListAdapter, af.SelectiveToolCallCompactionStrategy),
    "sliding_window": partial(_ListAdapter, af.SlidingWindowStrategy, keep_last_groups=20),
    "summarization": _summarization,
    "tool_results": partial(_ListAdapter, af.ToolResultCompactionStrategy),
    "truncation": partial(_ListAdapter, af.TruncationStrategy, max_n=40, compact_to=20),
}
