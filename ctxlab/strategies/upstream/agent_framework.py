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
from ctxlab.strategies.upstream.base import Setting
from ctxlab.strategies.upstream.message_blocks import (
    Asked,
    Translated,
    finish,
)

__all__ = [
    "context_window",
    "selective_tool_calls",
    "sliding_window",
    "summarization",
    "tool_results",
    "truncation",
]


class _List:
    """A conversation as the package's list of messages, the excluded ones marked."""

    def __init__(self, strategy: Any) -> None:
        self._strategy, self._known = strategy, Translated(apart=False)
        self._messages: list[Theirs] = []

    def prepare(self, history: Sequence[Message], /) -> Sequence[Message]:
        for position, block in self._known.new(history):
            made = Theirs(
                block[0].role,
                [content for message in block for content in _contents(message)],
                message_id=f"msg_{position}",
            )
            self._messages.append(self._known.stands(made, block))
        sent = finish(apply_compaction(self._messages, strategy=self._strategy))
        return self._known.sent(sent, _summary)


def context_window(
    setting: Setting, max_context_window_tokens: int | None = None, **options: Any
) -> _List:
    """Folds at half of the window, truncates at 0.8."""
    window = max_context_window_tokens
    options.setdefault("max_output_tokens", 0)
    return _List(
        ContextWindowCompactionStrategy(
            max_context_window_tokens=setting.available if window is None else window, **options
        )
    )


def truncation(setting: Setting, max_n: int = 40, compact_to: int = 20, **options: Any) -> _List:
    """The oldest groups go."""
    return _List(TruncationStrategy(max_n=max_n, compact_to=compact_to, **options))


def sliding_window(setting: Setting, keep_last_groups: int = 20, **options: Any) -> _List:
    """The newest groups."""
    return _List(SlidingWindowStrategy(keep_last_groups=keep_last_groups, **options))


def selective_tool_calls(setting: Setting, **options: Any) -> _List:
    """Older calls go."""
    return _List(SelectiveToolCallCompactionStrategy(**options))


def tool_results(setting: Setting, **options: Any) -> _List:
    """Older calls are folded."""
    return _List(ToolResultCompactionStrategy(**options))


def summarization(
    setting: Setting, tokens: int = 400, model: str | None = None, **options: Any
) -> _List:
    """The older groups become a summary."""
    client: Any = _Client(Asked(setting, model, tokens))
    return _List(SummarizationStrategy(client=client, **options))


class _Client:
    """The package's chat client, answered by ours."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked

    async def get_response(self, messages: Sequence[Theirs], **_: Any) -> ChatResponse[None]:
        """The answer."""
        said = self._asked(f"{message.role}: {message.text}" for message in messages)
        return ChatResponse(messages=[Theirs("assistant", [said])])


def _contents(message: Message) -> list[Content]:
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


def _summary(made: Theirs) -> Message:
    return Message("assistant", made.text)
