"""A strategy in OpenAI's Agents SDK: ``RunConfig(call_model_input_filter=context_filter("…"))``.

The SDK speaks the Responses API, whose items are smaller than messages:
``ctxlab.adapters.responses_format`` says which of them are one message here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from agents.run_config import CallModelData, ModelInputData

from ctxlab.adapters.base import ConversationPool
from ctxlab.adapters.responses_format import ResponseItems, items_from_message, messages_from_items
from ctxlab.messages.types import Message

__all__ = ["context_filter"]


def context_filter(
    *arguments: Any, **options: Any
) -> Callable[[CallModelData[Any]], Awaitable[ModelInputData]]:
    """A filter that sends the model what the strategy makes of the run's items; a session keeps all.

    Arguments are those of ``ConversationPool``; without a ``model`` it is the agent's own, so name
    it where a ``RunConfig`` names another. Instructions count towards the budget; the definitions
    of tools are not told to a filter, so keep room for them with ``reserve``. What only holds a
    picture, such as a screenshot of computer use, cannot be rewritten: it is sent as it was, or not
    at all. Threads, event loops and agents may share one. Source: the SDK's documentation of
    ``call_model_input_filter``.
    """
    conversations = ConversationPool[ResponseItems](*arguments, **options)

    async def manage(data: CallModelData[Any]) -> ModelInputData:
        instructions = data.model_data.instructions
        conversation = list(messages_from_items(data.model_data.input))
        if instructions:
            conversation.insert(0, (Message("system", instructions), ()))
        # A strategy may ask a model itself, which would hold up every other run.
        sent = await asyncio.to_thread(
            conversations.prepare_messages, conversation, (), _model_name(data)
        )
        items = [item for each in sent for item in each.to_framework(items_from_message)]
        return ModelInputData(input=items, instructions=instructions)

    return manage


def _model_name(data: CallModelData[Any]) -> str | None:
    model = getattr(getattr(data, "agent", None), "model", None)
    name = model if isinstance(model, str) else getattr(model, "model", None)
    return name if isinstance(name, str) and name else None
