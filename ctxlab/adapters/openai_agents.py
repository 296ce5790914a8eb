"""Adapter for OpenAI's Agents SDK: ``RunConfig(call_model_input_filter=context_filter("…"))``.

The SDK passes items of OpenAI's Responses API. ``ctxlab.adapters.responses_format`` converts them
to messages and back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from agents.run_config import CallModelData, ModelInputData

from ctxlab.adapters.base import ConversationPool
from ctxlab.adapters.responses_format import ResponseItems, items_from_message, messages_from_items
from ctxlab.messages.types import Message


def context_filter(
    *arguments: Any, **options: Any
) -> Callable[[CallModelData[Any]], Awaitable[ModelInputData]]:
    """Return a filter that applies a strategy to the input items of each model call.

    The items stored in the SDK's session are not changed. The instructions of the agent count
    towards the budget. The SDK does not pass the tool definitions to a filter; increase ``reserve``
    by their number of tokens. A strategy can leave out an item that contains only an image, such as
    a screenshot, but cannot replace its content by text. A filter may be shared between threads,
    event loops and agents.

    Parameters
    ----------
    *arguments : Any
        Positional arguments of ``ConversationPool``.
    **options : Any
        Keyword arguments of ``ConversationPool``. If ``model`` is not passed, the model of the agent
        is used. Pass ``model`` if the ``RunConfig`` names another model.

    Returns
    -------
    callable
        Asynchronous function for the option ``call_model_input_filter`` of ``RunConfig``.

    References
    ----------
    The SDK's documentation of ``call_model_input_filter``.
    """
    conversations = ConversationPool[ResponseItems](*arguments, **options)

    async def manage(data: CallModelData[Any]) -> ModelInputData:
        instructions = data.model_data.instructions
        conversation = list(messages_from_items(data.model_data.input))
        if instructions:
            conversation.insert(0, (Message("system", instructions), ()))
        # A strategy may call a model itself, which would block the event loop.
        prepare = conversations.prepare_messages
        sent = await asyncio.to_thread(prepare, conversation, (), _model_name(data))
        items = [item for each in sent for item in each.to_framework(items_from_message)]
        return ModelInputData(input=items, instructions=instructions)

    return manage


def _model_name(data: CallModelData[Any]) -> str | None:
    model = getattr(getattr(data, "agent", None), "model", None)
    name = model if isinstance(model, str) else getattr(model, "model", None)
    return name if isinstance(name, str) and name else None
