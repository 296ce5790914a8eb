"""Adapter for litellm, for use with its proxy, its router or ``acompletion``."""

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

# Keys that a strategy may change or remove. All others are kept, such as the role ``developer``.
_STRATEGY_KEYS = frozenset({"content", "tool_calls", "name"})

_LOG = logging.getLogger("ctxlab.adapters")


class ContextHook(CustomLogger):
    """Callback that applies a strategy to every chat completion.

    Register the hook with ``litellm.callbacks = [ContextHook("…")]``. For a proxy, name an instance
    under ``litellm_settings: callbacks`` in ``config.yaml`` instead. Pass the messages to
    ``acompletion`` as a keyword argument, because the hook does not receive positional arguments.
    The synchronous ``completion`` does not call the hook; use ``ctxlab.ContextManager`` instead. A
    hook may be shared between threads and event loops.

    Parameters
    ----------
    *arguments : Any
        Positional arguments of ``ConversationPool``.
    **options : Any
        Keyword arguments of ``ConversationPool``. If ``model`` is not passed, the model of each call
        is used. If a router falls back to another model, the hook is called again with that model.

    References
    ----------
    litellm's documentation of call hooks.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__()
        self._conversations = ConversationPool[Any](*arguments, **options)

    # The proxy calls its router, and the router calls ``acompletion``, which calls this hook for
    # each attempt. If the proxy's own hook was implemented too, requests would be processed twice.
    async def async_pre_call_deployment_hook(
        self, kwargs: dict[str, Any], call_type: Any
    ) -> dict[str, Any]:
        """Apply the strategy to the messages of a call.

        The strategy runs in a separate thread, because it may call a model itself and would then
        block the event loop.

        Parameters
        ----------
        kwargs : dict
            Keyword arguments of the call.
        call_type : CallTypes or str
            Kind of the call. Only chat completions are changed.

        Returns
        -------
        dict
            Keyword arguments of the call, with the messages to send under ``messages``.
        """
        if getattr(call_type, "value", call_type) not in ("completion", "acompletion"):
            return kwargs
        if not kwargs.get("messages"):
            why = "litellm's hooks receive only messages passed by keyword; use messages=..."
            _LOG.warning("cannot apply the strategy: %s", why)
            return kwargs
        conversation = [(_to_message(message), message) for message in kwargs["messages"]]
        # A model that was passed as a positional argument is only in litellm's logging object.
        model = kwargs.get("model") or getattr(kwargs.get("litellm_logging_obj"), "model", None)
        tools = kwargs.get("tools") or ()
        prepare = self._conversations.prepare_messages
        sent = await asyncio.to_thread(prepare, conversation, tools, model)
        return kwargs | {"messages": [each.to_framework(_to_litellm) for each in sent]}


def _to_dict(message: Any) -> dict[str, Any]:
    """Convert a message to a dict. litellm accepts messages as dicts and as response objects."""
    return message if isinstance(message, dict) else dict(to_plain_data(message))


def _to_message(message: Any) -> Message:
    wire = _to_dict(message)
    try:
        return message_from_dict(wire)
    except ValueError:  # a role that only some provider defines
        return Message("user", json.dumps(wire, default=repr))


def _to_litellm(message: Message, original: Any | None) -> dict[str, Any]:
    """Convert a changed message to a dict; keep all other keys of ``original``."""
    beside = {} if original is None else _to_dict(original)
    wire = message.to_dict()
    return wire | {key: said for key, said in beside.items() if key not in _STRATEGY_KEYS}
