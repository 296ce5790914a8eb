"""A strategy before every call that goes through litellm: its proxy, its router, or ``acompletion``."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

from litellm.integrations.custom_logger import CustomLogger

from ctxlab.adapters.base import ConversationPool
from ctxlab.messages.inputs import to_plain_data
from ctxlab.messages.openai_format import message_from_dict
from ctxlab.messages.types import Message

__all__ = ["ContextHook"]

# What a strategy may change or leave out; a ``developer`` stays one.
_STRATEGY_KEYS = frozenset({"content", "tool_calls", "name"})

_LOG = logging.getLogger("ctxlab.adapters")


class ContextHook(CustomLogger):
    """Manages the messages of every chat completion: ``litellm.callbacks = [ContextHook("…")]``.

    In a proxy's ``config.yaml`` name an instance of it under ``litellm_settings: callbacks``. Arguments
    are those of ``ConversationPool``; without a ``model`` it is the one that a call goes to, so that a
    router's fallback to a smaller model is managed for that one. ``acompletion`` shows it only what is
    given by keyword, and the synchronous ``completion`` has no such hook: use ``ctxlab.ContextManager``
    there. Threads and event loops may share one. Source: litellm's documentation of call hooks.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__()
        self._conversations = ConversationPool[Any](*arguments, **options)

    # The proxy calls its router and the router ``acompletion``, which calls this one, once a try. The
    # proxy's own hook would be a second one for the same request, on what the first had made of it.
    async def async_pre_call_deployment_hook(
        self, kwargs: dict[str, Any], call_type: Any
    ) -> dict[str, Any]:
        """See the class; the strategy runs in a thread, since it may ask a model itself."""
        if getattr(call_type, "value", call_type) not in ("completion", "acompletion"):
            return kwargs
        if not kwargs.get("messages"):
            _LOG.warning(
                "messages were not given by keyword, so litellm does not let them be managed"
            )
            return kwargs
        conversation = [(_to_message(message), message) for message in kwargs["messages"]]
        # A model that was not given by keyword is known to litellm's own record of the call alone.
        model = kwargs.get("model") or getattr(kwargs.get("litellm_logging_obj"), "model", None)
        tools = kwargs.get("tools") or ()
        sent = await asyncio.to_thread(
            self._conversations.prepare_messages, conversation, tools, model
        )
        return kwargs | {"messages": [each.to_framework(_to_litellm) for each in sent]}


def _to_dict(message: Any) -> dict[str, Any]:
    """A message as it is on the wire: replies of litellm are objects, and it takes them too."""
    return message if isinstance(message, dict) else dict(to_plain_data(message))


def _to_message(message: Any) -> Message:
    wire = _to_dict(message)
    try:
        return message_from_dict(wire)
    except ValueError:  # a provider may know roles that OpenAI does not
        return Message("user", json.dumps(wire, default=repr))


def _to_litellm(message: Message, original: Any | None) -> dict[str, Any]:
    """A message that the strategy made or changed, with what else the original said."""
    beside = {} if original is None else _to_dict(original)
    wire = message.to_dict()
    return wire | {key: said for key, said in beside.items() if key not in _STRATEGY_KEYS}
