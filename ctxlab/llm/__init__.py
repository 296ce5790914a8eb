"""Clients that ask models: litellm with retries, answers kept on disk, and scripted ones for tests.

``LiteLLMClient``, ``CappedClient`` and ``ScriptedClient`` also stream
(``ctxlab.llm.base.Streamer``). The
others, which strategies ask, answer whole: who streams falls back on ``complete`` where there is none.
Importing it loads neither litellm nor diskcache.
"""

from __future__ import annotations

from pathlib import Path

from ctxlab.llm.base import Client
from ctxlab.llm.budgeted import CappedClient
from ctxlab.llm.cached import (
    CachedClient,
    CacheMode,
)
from ctxlab.llm.cost_budget import PurseEmpty
from ctxlab.llm.fault_tolerant import LenientClient
from ctxlab.llm.litellm import LiteLLMClient
from ctxlab.llm.scripted import ScriptedClient
from ctxlab.llm.thread_pool import AT_A_TIME
from ctxlab.llm.usage_totals import Totals

__all__ = [
    "AT_A_TIME",
    "CALLS",
    "CacheMode",
    "CachedClient",
    "CappedClient",
    "LenientClient",
    "LiteLLMClient",
    "PurseEmpty",
    "ScriptedClient",
    "Totals",
    "default_client",
]

CALLS = Path(".ctxlab/calls")
"""Where answers are kept where nothing else is said."""


def default_client(folder: Path = CALLS, mode: CacheMode = "auto") -> Client:
    """The lab's: asks through litellm and keeps the answers; nothing is opened before it is asked."""
    return CachedClient(LiteLLMClient(), folder, mode)
