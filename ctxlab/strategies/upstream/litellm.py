"""Adapter for litellm's ``trim_messages``, which is applied to the whole conversation."""

from __future__ import annotations

import logging
import os

from ctxlab.messages.openai_format import message_from_dict
from ctxlab.messages.types import Message
from ctxlab.strategies.upstream.base import PeerAdapter, PeerSettings

# Without this, litellm fetches a price list from the network on import.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

from litellm.utils import trim_messages as trim


class _TrimAdapter(PeerAdapter):
    """Adapter that trims one conversation with litellm and its tokenizer for the replayed model."""

    separate_prompt = False

    def __init__(
        self, settings: PeerSettings, max_tokens: int | None = None, trim_ratio: float = 0.75
    ) -> None:
        super().__init__(settings)
        room = int(settings.available * trim_ratio) if max_tokens is None else max_tokens
        self._options = {"model": settings.counter.model, "max_tokens": room}
        # If trimming fails, litellm logs a traceback and returns the whole conversation.
        logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)

    def select(self) -> list[Message]:
        sent = trim([message.to_dict() for message in self.history], **self._options)
        return list(map(message_from_dict, sent))


FACTORIES = {"trim_messages": _TrimAdapter}
