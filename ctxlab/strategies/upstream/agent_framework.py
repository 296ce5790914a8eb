"""Microsoft Agent Framework's compaction, run by the package on one list that keeps its marks."""

from __future__ import annotations

from collections.abc import Sequence
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
from ctxlab.strategies.upstream.base import PeerSettings
from ctxlab.strategies.upstream.message_blocks import ModelCaller, TranslatedHistory, run_coroutine

__all__ = [
    "context_window",
    "selective_tool_calls",
    "sliding_window",
    "summarization",
    "tool_results",
    "truncation",
]


class _ListAdapter:
    """A conversation as the package's list of messages, the excluded ones marked."""

    def __init__(self, strategy: Any) -> None:
        self._strategy, self._translated = strategy, TranslatedHistory(separate_prompt=False)
        self._messages: list[Theirs] = []

    def prepare(self, history: Sequence[Message], /) -> Sequence[Message]:
        for position, block in self._translated.new_blocks(history):
            made = Theirs(
                block[0].role,
                [content for message in block for content in _to_contents(message)],
                message_id=f"msg_{position}",
            )
            self._messages.append(self._translated.link(made, block))
        sent = run_coroutine(apply_compaction(self._messages, strategy=self._strategy))
        return self._translated.to_messages(sent, _to_message)


def context_window(
    settings: PeerSettings, max_context_window_tokens: int | None = None, **options: Any
) -> _ListAdapter:
    """Folds at half of the window, truncates at 0.8."""
    window = max_context_window_tokens
    options.setdefault("max_output_tokens", 0)
    return _ListAdapter(
        ContextWindowCompactionStrategy(
            max_context_window_tokens=settings.available if window is None else window, **options
        )
    )


def truncation(
    settings: PeerSettings, max_n: int = 40, compact_to: int = 20, **options: Any
) -> _ListAdapter:
    """The oldest groups go."""
    return _ListAdapter(TruncationStrategy(max_n=max_n, compact_to=compact_to, **options))


def sliding_window(
    settings: PeerSettings, keep_last_groups: int = 20, **options: Any
) -> _ListAdapter:
    """The newest groups."""
    return _ListAdapter(SlidingWindowStrategy(keep_last_groups=keep_last_groups, **options))


def selective_tool_calls(settings: PeerSettings, **options: Any) -> _ListAdapter:
    """Older calls go."""
    return _ListAdapter(SelectiveToolCallCompactionStrategy(**options))


def tool_results(settings: PeerSettings, **options: Any) -> _ListAdapter:
    """Older calls are folded."""
    return _ListAdapter(ToolResultCompactionStrategy(**options))


def summarization(
    settings: PeerSettings, tokens: int = 400, model: str | None = None, **options: Any
) -> _ListAdapter:
    """The older groups become a summary."""
    client: Any = _ChatClient(ModelCaller(settings, model, tokens))
    return _ListAdapter(SummarizationStrategy(client=client, **options))


class _ChatClient:
    """The package's chat client, answered by ours."""

    def __init__(self, caller: ModelCaller) -> None:
        self._caller = caller

    async def get_response(self, messages: Sequence[Theirs], **_: Any) -> ChatResponse[None]:
        """The answer."""
        said = self._caller(f"{message.role}: {message.text}" for message in messages)
        return ChatResponse(messages=[Theirs("assistant", [said])])


def _to_contents(message: Message) -> list[Content]:
    if message.role == "tool":
        return [Content.from_function_result(message.tool_call_id or "", result=message.text)]
    parts = message.content
    if not isinstance(parts, tuple):
        parts = () if parts is None else ({"type": "text", "text": parts},)
    made: list[Content] = []
    for part in parts:
        if part.get("type") == "image_url":
            url = str(part.get("image_url", {}).get("url", ""))
            kind, _, data = url.removeprefix("data:").partition(";base64,")
            made.append(Content.from_uri(url, media_type=kind if data else "image/png"))
        else:
            made.append(Content.from_text(str(part.get("text") or "")))
    made += [
        Content.from_function_call(call.id, call.name, arguments=call.arguments)
        for call in message.tool_calls
    ]
    return made


def _to_message(made: Theirs) -> Message:
    return Message("assistant", made.text)
