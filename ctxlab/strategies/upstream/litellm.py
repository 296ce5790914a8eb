"""litellm's own code as a strategy: ``trim_messages`` over the whole conversation."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from ctxlab.messages.openai_format import message_from_dict
from ctxlab.messages.types import Message
from ctxlab.strategies.upstream.base import PeerAdapter, PeerSettings

# Else it fetches a list of prices from the network while it is imported.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

from litellm.utils import trim_messages as trim

__all__ = ["trim_messages"]


def trim_messages(
    settings: PeerSettings, max_tokens: int | None = None, trim_ratio: float = 0.75
) -> PeerAdapter:
    """It counts by itself, as the model's own tokenizer that it knows."""
    room = int(settings.available * trim_ratio) if max_tokens is None else max_tokens
    return _TrimAdapter(settings.counter.model, room)


class _TrimAdapter:
    def __init__(self, model: str, max_tokens: int) -> None:
        self._model, self._max_tokens = model, max_tokens
        # It tells every failure with a traceback, and then sends the whole conversation.
        logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)

    def prepare(self, history: Sequence[Message], /) -> Sequence[Message]:
        made = trim([m.to_dict() for m in history], model=self._model, max_tokens=self._max_tokens)
        return [message_from_dict(message) for message in made]
