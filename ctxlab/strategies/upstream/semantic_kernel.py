"""Adapters for the chat history reducers of Semantic Kernel, which run before each request."""

from __future__ import annotations

from typing import Any

from semantic_kernel import contents as sk
from semantic_kernel.connectors.ai.chat_completion_client_base import ChatCompletionClientBase
from semantic_kernel.connectors.ai.prompt_execution_settings import PromptExecutionSettings

from ctxlab.messages.types import Message
from ctxlab.strategies.upstream.base import Block, PeerAdapter, PeerSettings, run_coroutine


class _ReducerAdapter(PeerAdapter):
    """Adapter that stores one conversation in a reducer, which is a subclass of ``ChatHistory``."""

    separate_prompt = False

    def __init__(self, settings: PeerSettings, reducer: Any) -> None:
        super().__init__(settings)
        self._reducer = reducer

    def add(self, position: int, block: Block) -> None:
        made = self.link(self._to_chat_message(position), block)
        run_coroutine(self._reducer.add_message_async(made))

    def select(self) -> list[Message]:
        run_coroutine(self._reducer.reduce())
        sent = self._reducer.messages
        return self.to_messages(sent, lambda made: Message("assistant", made.content))

    def _to_chat_message(self, position: int) -> sk.ChatMessageContent:
        message, items = self.history[position], list[Any]()
        if message.role == "tool":
            name, call_id = self.tool_name(position), message.tool_call_id
            items += [sk.FunctionResultContent(id=call_id, function_name=name, result=message.text)]
        elif message.content is not None:
            items += [sk.TextContent(text=message.text)]
        for call in message.tool_calls:
            asked = {"id": call.id, "function_name": call.name, "arguments": call.arguments}
            items.append(sk.FunctionCallContent(**asked))
        return sk.ChatMessageContent(role=sk.AuthorRole(message.role), items=items)


class _ClientService(ChatCompletionClientBase):
    """Chat completion service for Semantic Kernel that calls ctxlab's client."""

    writer: Any

    async def _inner_get_chat_message_contents(
        self, chat_history: sk.ChatHistory, settings: PromptExecutionSettings
    ) -> list[sk.ChatMessageContent]:
        lines = (f"{message.role.value}: {message}" for message in chat_history.messages)
        said = self.writer("\n".join(lines))
        return [sk.ChatMessageContent(role=sk.AuthorRole.ASSISTANT, content=said)]


def _truncation(settings: PeerSettings, **options: Any) -> PeerAdapter:
    options = {"target_count": 40, **options}
    return _ReducerAdapter(settings, sk.ChatHistoryTruncationReducer(**options))


def _summarization(settings: PeerSettings, model: str | None = None, **options: Any) -> PeerAdapter:
    writer = settings.make_writer(model, options.pop("tokens", 400))
    service = _ClientService(ai_model_id=model or "none", writer=writer)
    options = {"target_count": 40, "service": service, **options}
    return _ReducerAdapter(settings, sk.ChatHistorySummarizationReducer(**options))


FACTORIES = {"truncation": _truncation, "summarization": _summarization}
