"""A strategy as LangChain's middleware: ``create_agent(…, middleware=[ContextMiddleware("…")])``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    SystemMessage,
    convert_to_messages,
    convert_to_openai_messages,
)
from langchain_core.utils.function_calling import convert_to_openai_tool

from ctxlab.adapters.base import Conversations
from ctxlab.conversation import Message

__all__ = ["ContextMiddleware"]


class ContextMiddleware(AgentMiddleware[Any, Any]):
    """Sends the model what the strategy makes of the agent's messages; the agent's state is not touched.

    Arguments are those of ``Conversations``. The system prompt and the tools count towards the budget.
    Source: LangChain's documentation of middleware (``wrap_model_call``).
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__()
        self._conversations = Conversations[AnyMessage](*arguments, **options)

    def wrap_model_call(
        self, request: ModelRequest, handler: Callable[[ModelRequest], ModelResponse]
    ) -> ModelResponse | AIMessage:
        """See the class."""
        return handler(self._managed(request))

    async def awrap_model_call(
        self, request: ModelRequest, handler: Callable[[ModelRequest], Awaitable[ModelResponse]]
    ) -> ModelResponse | AIMessage:
        """See the class; the strategy runs in a thread, since it may ask a model itself."""
        return await handler(await asyncio.to_thread(self._managed, request))

    def _managed(self, request: ModelRequest) -> ModelRequest:
        system = [request.system_message] if request.system_message else []
        given = [(_ours(message), message) for message in (*system, *request.messages)]
        tools = [convert_to_openai_tool(tool) for tool in request.tools or ()]
        sent = self._conversations.prepare(given, tools)
        messages = [theirs or _theirs(message) for message, theirs in sent]
        if system and messages and isinstance(messages[0], SystemMessage):
            return request.override(system_message=messages[0], messages=messages[1:])
        return request.override(messages=messages)


def _ours(message: AnyMessage) -> Message:
    return Message.from_dict(convert_to_openai_messages(message))


def _theirs(message: Message) -> AnyMessage:
    return convert_to_messages([message.to_dict()])[0]
