"""Microsoft Agent Framework's compaction, run by the package on a list that keeps its marks."""

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


class _ListAdapter:
    """A conversation as the package's list of messages, in which excluded messages are marked."""

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
    """Return an adapter for ``ContextWindowCompactionStrategy``.

    Parameters
    ----------
    settings : PeerSettings
        Available tokens.
    max_context_window_tokens : int, optional
        Tokens of the window; None: the available tokens.
    **options
        Other parameters of the package's class.

    Returns
    -------
    PeerAdapter
        The adapter of one conversation.
    """
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
    """Return an adapter for ``TruncationStrategy``.

    Parameters
    ----------
    settings : PeerSettings
        Not used.
    max_n : int, default 40
        Number of messages above which groups are dropped.
    compact_to : int, default 20
        Number of messages that remain.
    **options
        Other parameters of the package's class.

    Returns
    -------
    PeerAdapter
        The adapter of one conversation.
    """
    return _ListAdapter(TruncationStrategy(max_n=max_n, compact_to=compact_to, **options))


def sliding_window(
    settings: PeerSettings, keep_last_groups: int = 20, **options: Any
) -> _ListAdapter:
    """Return an adapter for ``SlidingWindowStrategy``.

    Parameters
    ----------
    settings : PeerSettings
        Not used.
    keep_last_groups : int, default 20
        Groups to keep.
    **options
        Other parameters of the package's class.

    Returns
    -------
    PeerAdapter
        The adapter of one conversation.
    """
    return _ListAdapter(SlidingWindowStrategy(keep_last_groups=keep_last_groups, **options))


def selective_tool_calls(settings: PeerSettings, **options: Any) -> _ListAdapter:
    """Return an adapter for ``SelectiveToolCallCompactionStrategy``.

    Parameters
    ----------
    settings : PeerSettings
        Not used.
    **options
        Parameters of the package's class.

    Returns
    -------
    PeerAdapter
        The adapter of one conversation.
    """
    return _ListAdapter(SelectiveToolCallCompactionStrategy(**options))


def tool_results(settings: PeerSettings, **options: Any) -> _ListAdapter:
    """Return an adapter for ``ToolResultCompactionStrategy``.

    Parameters
    ----------
    settings : PeerSettings
        Not used.
    **options
        Parameters of the package's class.

    Returns
    -------
    PeerAdapter
        The adapter of one conversation.
    """
    return _ListAdapter(ToolResultCompactionStrategy(**options))


def summarization(
    settings: PeerSettings, tokens: int = 400, model: str | None = None, **options: Any
) -> _ListAdapter:
    """Return an adapter for ``SummarizationStrategy``.

    Parameters
    ----------
    settings : PeerSettings
        The client that is called.
    tokens : int, default 400
        Maximum tokens of the summary.
    model : str, optional
        Model that writes the summary; required.
    **options
        Other parameters of the package's class.

    Returns
    -------
    PeerAdapter
        The adapter of one conversation.
    """
    client: Any = _ChatClient(ModelCaller(settings, model, tokens))
    return _ListAdapter(SummarizationStrategy(client=client, **options))


class _ChatClient:
    """The package's chat client, answered by ctxlab's client."""

    def __init__(self, caller: ModelCaller) -> None:
        self._caller = caller

    async def get_response(self, messages: Sequence[Theirs], **_: Any) -> ChatResponse[None]:
        """Return the reply of the model."""
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
