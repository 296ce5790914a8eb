"""litellm's own code as a strategy: ``trim_messages`` over the whole conversation."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from ctxlab.messages.types import Message
from ctxlab.strategies.upstream.base import (
    Adapter,
    Setting,
)

# Else it fetches a list of prices from the network while it is imported.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

from litellm.utils import trim_messages as trim

__all__ = ["trim_messages"]


def trim_messages(
    setting: Setting, max_tokens: int | None = None, trim_ratio: float = 0.75
) -> Adapter:
    """It counts by itself, as the model's own tokenizer that it knows."""
    room = int(setting.available * trim_ratio) if max_tokens is None else max_tokens
    return _Trimmed(setting.counter.model, room)


class _Trimmed:
    def __init__(self, model: str, room: int) -> None:
        self._model, self._room = model, room
        # It tells every failure with a traceback, and then sends the whole conversation.
        logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)

    def prepare(self, history: Sequence[Message], /) -> Sequence[Message]:
        made = trim([m.to_dict() for m in history], model=self._model, max_tokens=self._room)
        return [Message.from_dict(message) for message in made]
