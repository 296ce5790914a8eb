"""Clients that ask models: litellm with retries, answers kept on disk, and scripted ones for tests.

``LiteLLMClient``, ``CostLimitedClient`` and ``ScriptedClient`` also stream
(``ctxlab.llm.base.Streamer``). The
others, which strategies ask, answer whole: who streams falls back on ``complete`` where there is none.
Importing it loads neither litellm nor diskcache.
"""

from __future__ import annotations

from pathlib import Path

from ctxlab.llm.base import Client
from ctxlab.llm.cached import CachedClient, CacheMode
from ctxlab.llm.concurrency import MAX_CONCURRENT_CALLS
from ctxlab.llm.costs import CostLimitedClient, CostLimitExceeded, UsageTotals
from ctxlab.llm.fault_tolerant import FaultTolerantClient
from ctxlab.llm.litellm import LiteLLMClient
from ctxlab.llm.scripted import ScriptedClient

__all__ = [
    "DEFAULT_CACHE_FOLDER",
    "MAX_CONCURRENT_CALLS",
    "CacheMode",
    "CachedClient",
    "CostLimitExceeded",
    "CostLimitedClient",
    "FaultTolerantClient",
    "LiteLLMClient",
    "ScriptedClient",
    "UsageTotals",
    "default_client",
]

DEFAULT_CACHE_FOLDER = Path(".ctxlab/calls")
"""Where answers are kept where nothing else is said."""


def default_client(folder: Path = DEFAULT_CACHE_FOLDER, mode: CacheMode = "auto") -> Client:
    """The lab's: asks through litellm and keeps the answers; nothing is opened before it is asked."""
    return CachedClient(LiteLLMClient(), folder, mode)
