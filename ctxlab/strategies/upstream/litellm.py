"""litellm's ``trim_messages`` as a strategy, run over the whole conversation."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from ctxlab.messages.openai_format import message_from_dict
from ctxlab.messages.types import Message
from ctxlab.strategies.upstream.base import PeerAdapter, PeerSettings

# Without this, litellm fetches a price list from the network on import.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

from litellm.utils import trim_messages as trim


def trim_messages(
    settings: PeerSettings, max_tokens: int | None = None, trim_ratio: float = 0.75
) -> PeerAdapter:
    """Return an adapter for ``trim_messages``, which counts with its own tokenizer for the model.

    Parameters
    ----------
    settings : PeerSettings
        Available tokens, and the name of the model.
    max_tokens : int, optional
        Tokens of the request; None: a share of the available tokens.
    trim_ratio : float, default 0.75
        That share.

    Returns
    -------
    PeerAdapter
        The adapter of one conversation.
    """
    room = int(settings.available * trim_ratio) if max_tokens is None else max_tokens
    return _TrimAdapter(settings.counter.model, room)


class _TrimAdapter:
    def __init__(self, model: str, max_tokens: int) -> None:
        self._model, self._max_tokens = model, max_tokens
        # It logs a traceback for every failure and then sends the whole conversation.
        logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)

    def prepare(self, history: Sequence[Message], /) -> Sequence[Message]:
        made = trim([m.to_dict() for m in history], model=self._model, max_tokens=self._max_tokens)
        return [message_from_dict(message) for message in made]
