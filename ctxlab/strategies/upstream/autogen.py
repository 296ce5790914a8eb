"""AutoGen's model contexts, run by the package: messages are added, then the request is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autogen_core import FunctionCall
from autogen_core.model_context import (
    BufferedChatCompletionContext,
    ChatCompletionContext,
    HeadAndTailChatCompletionContext,
    TokenLimitedChatCompletionContext,
)
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    SystemMessage,
    UserMessage,
)

from ctxlab.messages.types import Message
from ctxlab.strategies.upstream.base import PeerSettings
from ctxlab.strategies.upstream.message_blocks import (
    Block,
    TranslatedHistory,
    run_coroutine,
    tool_name,
)


class _ContextAdapter:
    """A conversation in one of AutoGen's contexts."""

    def __init__(self, context: ChatCompletionContext, translated: TranslatedHistory) -> None:
        self._context, self._translated = context, translated

    def prepare(self, history: Sequence[Message], /) -> Sequence[Message]:
        for position, block in self._translated.new_blocks(history):
            made = self._translated.link(_to_llm_message(self._translated, position, block), block)
            run_coroutine(self._context.add_message(made))
        return self._translated.to_messages(
            run_coroutine(self._context.get_messages()), _to_message
        )


def buffered(settings: PeerSettings, buffer_size: int = 40) -> _ContextAdapter:
    """Return an adapter for ``BufferedChatCompletionContext``.

    Parameters
    ----------
    settings : PeerSettings
        Not used.
    buffer_size : int, default 40
        Messages to keep.

    Returns
    -------
    PeerAdapter
        The adapter of one conversation.
    """
    return _ContextAdapter(BufferedChatCompletionContext(buffer_size), TranslatedHistory())


def head_and_tail(
    settings: PeerSettings, head_size: int = 10, tail_size: int = 30
) -> _ContextAdapter:
    """Return an adapter for ``HeadAndTailChatCompletionContext``.

    Parameters
    ----------
    settings : PeerSettings
        Not used.
    head_size : int, default 10
        Oldest messages to keep.
    tail_size : int, default 30
        Newest messages to keep.

    Returns
    -------
    PeerAdapter
        The adapter of one conversation.
    """
    return _ContextAdapter(
        HeadAndTailChatCompletionContext(head_size, tail_size), TranslatedHistory()
    )


def token_limited(settings: PeerSettings, token_limit: int | None = None) -> _ContextAdapter:
    """Return an adapter for ``TokenLimitedChatCompletionContext``.

    Parameters
    ----------
    settings : PeerSettings
        Counter and available tokens.
    token_limit : int, optional
        Tokens of the messages; None: the available tokens.

    Returns
    -------
    PeerAdapter
        The adapter of one conversation.
    """
    translated = TranslatedHistory()
    counting: Any = _CountingClient(settings, translated)
    return _ContextAdapter(
        TokenLimitedChatCompletionContext(counting, token_limit=token_limit), translated
    )


class _CountingClient:
    """The part of AutoGen's model client that counts tokens."""

    def __init__(self, settings: PeerSettings, translated: TranslatedHistory) -> None:
        self._settings, self._translated = settings, translated
        self._token_counts: dict[int, int] = {}

    def count_tokens(self, messages: Sequence[Any], *, tools: Sequence[Any] = ()) -> int:
        """Return the tokens of messages, counted by ctxlab's counter."""
        for made in messages:
            if id(made) not in self._token_counts:
                block = self._translated.original_block(made) or ()
                self._token_counts[id(made)] = sum(map(self._settings.counter.count_message, block))
        return sum([self._token_counts[id(made)] for made in messages])

    def remaining_tokens(self, messages: Sequence[Any], *, tools: Sequence[Any] = ()) -> int:
        """Return the available tokens that messages leave."""
        return self._settings.available - self.count_tokens(messages)


def _to_llm_message(translated: TranslatedHistory, position: int, block: Block) -> Any:
    message = block[0]
    if message.role == "system":
        return SystemMessage(content=message.text)
    if message.role == "user":
        return UserMessage(content=message.text, source="user")
    if message.role == "tool":
        return FunctionExecutionResultMessage(
            content=[
                FunctionExecutionResult(
                    content=result.text,
                    name=tool_name(translated.calls.get(position + i), result),
                    call_id=result.tool_call_id or "",
                )
                for i, result in enumerate(block)
            ]
        )
    if not message.tool_calls:
        return AssistantMessage(content=message.text, source="assistant")
    calls = [FunctionCall(call.id, call.arguments, call.name) for call in message.tool_calls]
    return AssistantMessage(content=calls, thought=message.text or None, source="assistant")


def _to_message(made: UserMessage) -> Message:
    return Message("user", str(made.content))
