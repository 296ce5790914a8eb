"""Microsoft Agent Framework's compaction, run by the package on a list that keeps its marks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from agent_framework import (
    ChatResponse,
    Content,
    ContextWindowCompactionStrategy,
    SelectiveToolCallCompactionStrategy,
    SlidingWindowStrategy,
    SummarizationStrategy,
    ToolResultCompactionStrategy,
    TruncationStrategy,
    apply_compaction,
)
from agent_framework import Message as Theirs

from ctxlab.messages.types import Message
from ctxlab.strategies.baselines.common.parts import split_parts
from ctxlab.strategies.upstream.base import (
    Block,
    PeerAdapter,
    PeerSettings,
    Writer,
    run_coroutine,
)


class _ListAdapter(PeerAdapter):
    """A conversation as the package's list of messages, in which excluded messages are marked."""

    separate_prompt = False
    group_results = True

    def __init__(self, strategy: Any, settings: PeerSettings, **options: Any) -> None:
        super().__init__(settings)
        self._strategy = strategy(**options)
        self._messages: list[Theirs] = []

    def add(self, position: int, block: Block) -> None:
        contents = [content for message in block for content in _to_contents(message)]
        made = Theirs(block[0].role, contents, message_id=f"msg_{position}")
        self._messages.append(self.link(made, block))

    def select(self) -> list[Message]:
        sent = run_coroutine(apply_compaction(self._messages, strategy=self._strategy))
        return self.to_messages(sent, lambda made: Message("assistant", made.text))


class _ChatClient:
    """The package's chat client, answered by ctxlab's client."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def get_response(self, messages: Sequence[Theirs], **_: Any) -> ChatResponse[None]:
        said = self._writer("\n".join(f"{message.role}: {message.text}" for message in messages))
        return ChatResponse(messages=[Theirs("assistant", [said])])


def _to_contents(message: Message) -> list[Content]:
    if message.role == "tool":
        return [Content.from_function_result(message.tool_call_id or "", result=message.text)]
    made: list[Content] = []
    for part in split_parts(message):
        if part.is_image:
            kind, _, data = part.value.removeprefix("data:").partition(";base64,")
            made.append(Content.from_uri(part.value, media_type=kind if data else "image/png"))
        else:
            made.append(Content.from_text(part.value))
    return made + [
        Content.from_function_call(call.id, call.name, arguments=call.arguments)
        for call in message.tool_calls
    ]


def _context_window(
    settings: PeerSettings,
    max_context_window_tokens: int | None = None,
    max_output_tokens: int = 0,
    **options: Any,
) -> PeerAdapter:
    window = max_context_window_tokens
    return _ListAdapter(
        ContextWindowCompactionStrategy,
        settings,
        max_context_window_tokens=settings.available if window is None else window,
        max_output_tokens=max_output_tokens,
        **options,
    )


def _summarization(
    settings: PeerSettings, tokens: int = 400, model: str | None = None, **options: Any
) -> PeerAdapter:
    client = _ChatClient(settings.make_writer(model, tokens))
    return _ListAdapter(SummarizationStrategy, settings, client=client, **options)


FACTORIES = {
    "context_window": _context_window,
    "selective_tool_calls": partial(_ListAdapter, SelectiveToolCallCompactionStrategy),
    "sliding_window": partial(_ListAdapter, SlidingWindowStrategy, keep_last_groups=20),
    "summarization": _summarization,
    "tool_results": partial(_ListAdapter, ToolResultCompactionStrategy),
    "truncation": partial(_ListAdapter, TruncationStrategy, max_n=40, compact_to=20),
}
