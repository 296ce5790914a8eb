"""Adapter for litellm: its proxy, its router and ``acompletion``."""

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

# Keys that a strategy may change or remove. The role is kept, e.g. ``developer``.
_STRATEGY_KEYS = frozenset({"content", "tool_calls", "name"})

_LOG = logging.getLogger("ctxlab.adapters")


class ContextHook(CustomLogger):
    """Callback that applies a strategy to every chat completion.

    Register it with ``litellm.callbacks = [ContextHook("…")]``, or name an instance under
    ``litellm_settings: callbacks`` in the ``config.yaml`` of a proxy. ``acompletion`` passes only
    keyword arguments to the hook. The synchronous ``completion`` has no such hook; use
    ``ctxlab.ContextManager`` there. A hook may be shared between threads and event loops.

    Parameters
    ----------
    *arguments : Any
        Positional arguments of ``ConversationPool``.
    **options : Any
        Keyword arguments of ``ConversationPool``. Without a ``model``, the model of each call is
        used, including a router's fallback to a smaller model.

    References
    ----------
    litellm's documentation of call hooks.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__()
        self._conversations = ConversationPool[Any](*arguments, **options)

    # The proxy calls its router, and the router calls ``acompletion``, which calls this hook once per
    # attempt. The proxy's own hook would process the same request a second time.
    async def async_pre_call_deployment_hook(
        self, kwargs: dict[str, Any], call_type: Any
    ) -> dict[str, Any]:
        """Apply the strategy to the messages of a call.

        The strategy runs in a thread, since it may call a model itself.

        Parameters
        ----------
        kwargs : dict
            Keyword arguments of the call.
        call_type : CallTypes or str
            The kind of call. Only chat completions are changed.

        Returns
        -------
        dict
            The keyword arguments, with the messages to send.
        """
        if getattr(call_type, "value", call_type) not in ("completion", "acompletion"):
            return kwargs
        if not kwargs.get("messages"):
            why = "litellm shows hooks only messages passed by keyword; pass messages=..."
            _LOG.warning("cannot apply the strategy: %s", why)
            return kwargs
        conversation = [(_to_message(message), message) for message in kwargs["messages"]]
        # A model that was passed by position is only in litellm's logging object.
        model = kwargs.get("model") or getattr(kwargs.get("litellm_logging_obj"), "model", None)
        tools = kwargs.get("tools") or ()
        prepare = self._conversations.prepare_messages
        sent = await asyncio.to_thread(prepare, conversation, tools, model)
        return kwargs | {"messages": [each.to_framework(_to_litellm) for each in sent]}


def _to_dict(message: Any) -> dict[str, Any]:
    """Return a message as a dict; litellm also accepts its own response objects."""
    return message if isinstance(message, dict) else dict(to_plain_data(message))


def _to_message(message: Any) -> Message:
    wire = _to_dict(message)
    try:
        return message_from_dict(wire)
    except ValueError:  # a provider may define further roles
        return Message("user", json.dumps(wire, default=repr))


def _to_litellm(message: Message, original: Any | None) -> dict[str, Any]:
    """Return a changed message with the remaining keys of the original."""
    beside = {} if original is None else _to_dict(original)
    wire = message.to_dict()
    return wire | {key: said for key, said in beside.items() if key not in _STRATEGY_KEYS}
