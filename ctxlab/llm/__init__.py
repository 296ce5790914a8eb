"""Clients that send requests to models.

``LiteLLMClient`` calls a provider through litellm and retries failed calls. ``CachedClient`` stores
replies on disk. ``CostLimitedClient`` enforces a spending limit. ``FaultTolerantClient`` lets a live
agent continue when a provider rejects a request. ``ScriptedClient`` returns prepared replies.

``LiteLLMClient``, ``CostLimitedClient`` and ``ScriptedClient`` can also stream replies (see
``ctxlab.llm.base.Streamer``). The other clients return whole replies only; callers that
stream use the method ``complete`` of these clients. Importing this package imports neither litellm nor
diskcache.
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
    """Return the default client, which calls models through litellm and caches replies on disk.

    litellm is imported and the cache is opened with the first request.

    Parameters
    ----------
    folder : pathlib.Path, optional
        Folder of the cache.
    mode : CacheMode, optional
        Mode of the cache; see ``CachedClient``.

    Returns
    -------
    Client
        ``CachedClient`` with a ``LiteLLMClient``.
    """
    return CachedClient(LiteLLMClient(), folder, mode)
