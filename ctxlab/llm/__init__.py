"""Model clients: litellm with retries, a cache on disk, a cost limit, and scripted replies.

``LiteLLMClient``, ``CostLimitedClient`` and ``ScriptedClient`` can also stream
(``ctxlab.llm.base.Streamer``). The other clients, which strategies use, return whole replies;
callers that stream fall back on ``complete`` for them. Importing this package loads neither litellm
nor diskcache.
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
"""Default folder of the reply cache."""


def default_client(folder: Path = DEFAULT_CACHE_FOLDER, mode: CacheMode = "auto") -> Client:
    """Return the default client: litellm with a reply cache on disk.

    Neither litellm nor the cache is loaded before the first request.

    Parameters
    ----------
    folder : pathlib.Path, optional
        Folder of the cache.
    mode : CacheMode, optional
        Mode of the cache; see ``CachedClient``.

    Returns
    -------
    Client
        The client.
    """
    return CachedClient(LiteLLMClient(), folder, mode)
