"""Semantic Kernel's history reducers, run by the package before each request."""

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
from ctxlab.strategies.upstream.base import PeerSettings
from ctxlab.strategies.upstream.message_blocks import (
    Block,
    ModelCaller,
    TranslatedHistory,
    run_coroutine,
    tool_name,
)


class _ReducerAdapter:
    """A conversation in a reducer, which holds the history too."""

    def __init__(self, reducer: ChatHistoryReducer) -> None:
        self._reducer, self._translated = (
            reducer,
            TranslatedHistory(separate_prompt=False, group_results=False),
        )

    def prepare(self, history: Sequence[Message], /) -> Sequence[Message]:
        for position, block in self._translated.new_blocks(history):
            made = self._translated.link(_to_chat_message(self._translated, position, block), block)
            run_coroutine(self._reducer.add_message_async(made))
        run_coroutine(self._reducer.reduce())
        return self._translated.to_messages(self._reducer.messages, _to_message)


def truncation(
    settings: PeerSettings, target_count: int = 40, threshold_count: int = 0
) -> _ReducerAdapter:
    """Return an adapter for ``ChatHistoryTruncationReducer``.

    Parameters
    ----------
    settings : PeerSettings
        Not used.
    target_count : int, default 40
        Number of messages that remain.
    threshold_count : int, default 0
        Number of messages above ``target_count`` at which messages are dropped.

    Returns
    -------
    PeerAdapter
        The adapter of one conversation.
    """
    return _ReducerAdapter(
        ChatHistoryTruncationReducer(target_count=target_count, threshold_count=threshold_count)
    )


def summarization(
    settings: PeerSettings,
    target_count: int = 40,
    threshold_count: int = 0,
    include_function_content_in_summary: bool = False,
    tokens: int = 400,
    model: str | None = None,
) -> _ReducerAdapter:
    """Return an adapter for ``ChatHistorySummarizationReducer``.

    Parameters
    ----------
    settings : PeerSettings
        The client that is called.
    target_count : int, default 40
        Number of messages that remain.
    threshold_count : int, default 0
        Number of messages above ``target_count`` at which messages are summarised.
    include_function_content_in_summary : bool, default False
        Summarise calls and results too.
    tokens : int, default 400
        Maximum tokens of the summary.
    model : str, optional
        Model that writes the summary; required.

    Returns
    -------
    PeerAdapter
        The adapter of one conversation.
    """
    return _ReducerAdapter(
        ChatHistorySummarizationReducer(
            service=_ClientService(
                ai_model_id=model or "none", caller=ModelCaller(settings, model, tokens)
            ),
            target_count=target_count,
            threshold_count=threshold_count,
            include_function_content_in_summary=include_function_content_in_summary,
        )
    )


class _ClientService(ChatCompletionClientBase):
    """The package's chat service, answered by ctxlab's client."""

    caller: Any

    async def _inner_get_chat_message_contents(
        self, chat_history: ChatHistory, settings: PromptExecutionSettings
    ) -> list[ChatMessageContent]:
        said = self.caller(f"{message.role.value}: {message}" for message in chat_history.messages)
        return [ChatMessageContent(role=AuthorRole.ASSISTANT, content=said)]


def _to_chat_message(
    translated: TranslatedHistory, position: int, block: Block
) -> ChatMessageContent:
    (message,) = block
    role = AuthorRole(message.role)
    if message.role == "tool":
        result = FunctionResultContent(
            id=message.tool_call_id,
            function_name=tool_name(translated.calls.get(position), message),
            result=message.text,
        )
        return ChatMessageContent(role=role, items=[result])
    items: list[Any] = [TextContent(text=message.text)] if message.content is not None else []
    items += [
        FunctionCallContent(id=call.id, function_name=call.name, arguments=call.arguments)
        for call in message.tool_calls
    ]
    return ChatMessageContent(role=role, items=items)


def _to_message(made: ChatMessageContent) -> Message:
    return Message("assistant", made.content)
