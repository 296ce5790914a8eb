"""Semantic Kernel's history reducers, run by the package: the history is reduced before each request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from semantic_kernel.connectors.ai.chat_completion_client_base import ChatCompletionClientBase
from semantic_kernel.connectors.ai.prompt_execution_settings import PromptExecutionSettings
from semantic_kernel.contents import (
    AuthorRole,
    ChatHistory,
    ChatHistorySummarizationReducer,
    ChatHistoryTruncationReducer,
    ChatMessageContent,
    FunctionCallContent,
    FunctionResultContent,
    TextContent,
)
from semantic_kernel.contents.history_reducer.chat_history_reducer import ChatHistoryReducer

from ctxlab.messages.types import Message
from ctxlab.strategies.upstream.base import Setting
from ctxlab.strategies.upstream.message_blocks import (
    Asked,
    Block,
    Translated,
    finish,
    tool_name,
)

__all__ = ["summarization", "truncation"]


class _History:
    """A conversation in a reducer, which is the history as well."""

    def __init__(self, reducer: ChatHistoryReducer) -> None:
        self._reducer, self._known = reducer, Translated(apart=False, whole=False)

    def prepare(self, history: Sequence[Message], /) -> Sequence[Message]:
        for position, block in self._known.new(history):
            made = self._known.stands(_made(self._known, position, block), block)
            finish(self._reducer.add_message_async(made))
        finish(self._reducer.reduce())
        return self._known.sent(self._reducer.messages, _summary)


def truncation(setting: Setting, target_count: int = 40, threshold_count: int = 0) -> _History:
    """The oldest messages go."""
    return _History(
        ChatHistoryTruncationReducer(target_count=target_count, threshold_count=threshold_count)
    )


def summarization(
    setting: Setting,
    target_count: int = 40,
    threshold_count: int = 0,
    include_function_content_in_summary: bool = False,
    tokens: int = 400,
    model: str | None = None,
) -> _History:
    """The oldest messages become a summary."""
    return _History(
        ChatHistorySummarizationReducer(
            service=_Service(ai_model_id=model or "none", asked=Asked(setting, model, tokens)),
            target_count=target_count,
            threshold_count=threshold_count,
            include_function_content_in_summary=include_function_content_in_summary,
        )
    )


class _Service(ChatCompletionClientBase):
    """The package's chat service, answered by our client."""

    asked: Any

    async def _inner_get_chat_message_contents(
        self, chat_history: ChatHistory, settings: PromptExecutionSettings
    ) -> list[ChatMessageContent]:
        said = self.asked(f"{message.role.value}: {message}" for message in chat_history.messages)
        return [ChatMessageContent(role=AuthorRole.ASSISTANT, content=said)]


def _made(known: Translated, position: int, block: Block) -> ChatMessageContent:
    (message,) = block
    role = AuthorRole(message.role)
    if message.role == "tool":
        result = FunctionResultContent(
            id=message.tool_call_id,
            function_name=tool_name(known.calls.get(position), message),
            result=message.text,
        )
        return ChatMessageContent(role=role, items=[result])
    items: list[Any] = [TextContent(text=message.text)] if message.content is not None else []
    items += [
        FunctionCallContent(id=call.id, function_name=call.name, arguments=call.arguments)
        for call in message.tool_calls
    ]
    return ChatMessageContent(role=role, items=items)


def _summary(made: ChatMessageContent) -> Message:
    return Message("assistant", made.content)
