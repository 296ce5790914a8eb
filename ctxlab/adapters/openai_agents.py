"""Adapter for OpenAI's Agents SDK: ``RunConfig(call_model_input_filter=context_filter("…"))``.

The SDK uses items of the Responses API. ``ctxlab.adapters.responses_format`` groups them into
messages.
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

    The SDK's session keeps all items. Instructions count towards the budget. A filter does not
    receive the tool definitions, so keep tokens for them with ``reserve``. Items that hold only an
    image, such as a screenshot of computer use, cannot be rewritten: they are sent unchanged or not
    at all. A filter may be shared between threads, event loops and agents.

    Parameters
    ----------
    *arguments : Any
        Positional arguments of ``ConversationPool``.
    **options : Any
        Keyword arguments of ``ConversationPool``. Without a ``model``, the model of the agent is
        used; pass it if the ``RunConfig`` names another one.

    Returns
    -------
    callable
        An asynchronous function for ``call_model_input_filter``.

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
        # A strategy may call a model itself, which would block all other runs.
        prepare = conversations.prepare_messages
        sent = await asyncio.to_thread(prepare, conversation, (), _model_name(data))
        items = [item for each in sent for item in each.to_framework(items_from_message)]
        return ModelInputData(input=items, instructions=instructions)

    return manage


def _model_name(data: CallModelData[Any]) -> str | None:
    model = getattr(getattr(data, "agent", None), "model", None)
    name = model if isinstance(model, str) else getattr(model, "model", None)
    return name if isinstance(name, str) and name else None
