"""A strategy before every call that goes through litellm: its proxy, its router, or ``acompletion``."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from litellm.integrations.custom_logger import CustomLogger

from ctxlab.adapters.base import Conversations
from ctxlab.conversation import Message

__all__ = ["ContextHook"]

_LOG = logging.getLogger("ctxlab.adapters")


class ContextHook(CustomLogger):
    """Manages the messages of every chat completion: ``litellm.callbacks = [ContextHook("…")]``.

    In a proxy's ``config.yaml`` name an instance of it under ``litellm_settings: callbacks``. Arguments
    are those of ``Conversations``. ``acompletion`` shows it only what is given by keyword, and the
    synchronous ``completion`` has no such hook: use ``ctxlab.ContextManager`` there. Source: litellm's
    documentation of call hooks.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__()
        self._conversations = Conversations[dict[str, Any]](*arguments, **options)

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any]:
        """The proxy's hook, before a deployment is chosen."""
        return await self._managed(data, call_type)

    async def async_pre_call_deployment_hook(
        self, kwargs: dict[str, Any], call_type: Any
    ) -> dict[str, Any]:
        """The hook of ``acompletion`` and the router, right before a call is made."""
        return await self._managed(kwargs, str(getattr(call_type, "value", call_type)))

    async def _managed(self, data: dict[str, Any], call_type: str) -> dict[str, Any]:
        if call_type not in ("completion", "acompletion"):
            return data
        if not data.get("messages"):
            _LOG.warning(
                "messages were not given by keyword, so litellm does not let them be managed"
            )
            return data
        given = [(Message.from_dict(message), message) for message in data["messages"]]
        # A strategy may ask a model itself, which would hold up every other call.
        sent = await asyncio.to_thread(self._conversations.prepare, given, data.get("tools") or ())
        return data | {"messages": [theirs or message.to_dict() for message, theirs in sent]}
