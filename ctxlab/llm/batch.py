"""Batches of requests: a cost estimate, a cost limit and a cache on disk."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

from typing_extensions import override

from ctxlab.errors import ModelRequestRejected, ModelUnavailable
from ctxlab.llm import DEFAULT_CACHE_FOLDER, CachedClient, CacheMode, LiteLLMClient
from ctxlab.llm.base import (
    BaseClient,
    Client,
    Embedder,
    Embedding,
    OnReply,
    Replies,
    Request,
    client_options,
    complete_each,
    complete_in_order,
)
from ctxlab.llm.concurrency import MAX_CONCURRENT_CALLS
from ctxlab.llm.costs import CostLimitedClient, worst_case_cost
from ctxlab.tokens.counter import get_counter


class RequestEstimate(NamedTuple):
    """Estimated number, tokens and cost of a batch of requests."""

    questions: int = 0
    "number of requests"
    known: int = 0
    "requests that need no call: their reply is on disk, or an equal request comes earlier"
    prompt: int = 0
    "prompt tokens of the other requests, as counted"
    usd: float = 0.0
    "maximum cost of the other requests in USD; nan if a price or a reply's limit is unknown"

    def plus(self, other: RequestEstimate) -> RequestEstimate:
        """Return the sum of two estimates.

        Parameters
        ----------
        other : RequestEstimate
            The other estimate.

        Returns
        -------
        RequestEstimate
            The sum.
        """
        return RequestEstimate(*map(operator.add, self, other))


def build_cost_limited_client(
    max_cost: float | None = None,
    mode: CacheMode = "auto",
    client: Client | None = None,
    concurrency: int = MAX_CONCURRENT_CALLS,
) -> CachedClient:
    """Build a client that caches every reply on disk and stops before it exceeds ``max_cost``.

    Replies that are on disk cost nothing.

    Parameters
    ----------
    max_cost : float, optional
        Maximum cost in USD; None for no limit.
    mode : CacheMode, optional
        Mode of the cache; see ``CachedClient``.
    client : Client, optional
        Client to call; None calls the provider through litellm. A ``CachedClient`` keeps its folder
        and mode.
    concurrency : int, optional
        Maximum number of concurrent calls if ``client`` is None.

    Returns
    -------
    CachedClient
        The client.
    """
    if isinstance(client, CachedClient):
        inner, folder, mode = client.client, client.folder, client.mode
    else:
        folder = DEFAULT_CACHE_FOLDER
        inner = LiteLLMClient(concurrency=concurrency) if client is None else client
    if max_cost is not None and inner is not None:
        inner = CostLimitedClient(inner, max_cost)
    return CachedClient(inner, folder, mode)


def estimate_requests(
    requests: Iterable[Request], client: Client, seen_keys: set[str] | None = None
) -> RequestEstimate:
    """Estimate the maximum cost of requests, without sending any.

    Each reply is assumed to be as long as its request allows.

    Parameters
    ----------
    requests : iterable of Request
        The requests; a generator is fine.
    client : Client
        The client that would be called; a ``CachedClient`` knows which replies are on disk.
    seen_keys : set of str, optional
        Cache keys of requests that were estimated before. The keys of these requests are added.

    Returns
    -------
    RequestEstimate
        The estimate.
    """
    seen_keys = set() if seen_keys is None else seen_keys
    questions = known = prompt = 0
    usd = 0.0
    for request in requests:
        questions += 1
        if isinstance(client, CachedClient):
            key = client.cache_key(request)
            if key in seen_keys or client.has_answer(key):
                known += 1
                continue
            seen_keys.add(key)
        prompt += get_counter(request.model).count_request(request.messages, request.tools)
        usd += worst_case_cost(request)
    return RequestEstimate(questions, known, prompt, usd)


def iter_replies(requests: Sequence[Request], client: Client) -> Replies:
    """Yield the replies as they arrive, if the client supports it, else all at once.

    A caller that leaves early must close the generator: running calls are then awaited and cached.

    Parameters
    ----------
    requests : sequence of Request
        The requests.
    client : Client
        The client to call.

    Yields
    ------
    tuple of int and (Reply or ModelUnavailable)
        Index of the request and its reply.
    """
    with add_cache_hint(client):
        yield from complete_each(client, requests)


@contextmanager
def add_cache_hint(client: Client | None) -> Iterator[None]:
    """Add to a ``ModelRequestRejected`` error where the earlier replies are cached.

    Parameters
    ----------
    client : Client or None
        The client that was called; only a ``CachedClient`` adds a hint.

    Yields
    ------
    None
        Nothing.
    """
    try:
        yield
    except ModelRequestRejected as error:
        if not isinstance(client, CachedClient) or client.mode == "replay":
            raise
        kept = f"earlier replies are cached in {client.folder}"
        hint = f"{kept}, and the next run continues from there"
        if hint in str(error):
            raise
        raise type(error)(f"{error}; {hint}") from error


def cache_only_client(client: Client | None) -> Client:
    """Return a client that serves replies from a client's cache and calls no model.

    Other requests raise ``ModelUnavailable``, so a strategy that calls a model behaves as if it got
    no reply. This way its requests can be estimated before any call.

    Parameters
    ----------
    client : Client or None
        The client; only a ``CachedClient`` has replies on disk.

    Returns
    -------
    Client
        The client.
    """
    if not isinstance(client, CachedClient):
        return _OfflineClient({})
    return CachedClient(_OfflineClient(client_options(client.client)), client.folder)


class _OfflineClient(BaseClient, Embedder):
    """Client that answers no request."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options

    @override
    def complete_each(self, requests: Sequence[Request], /, on_reply: OnReply = None) -> Replies:
        return complete_in_order(self._refuse, requests, on_reply)

    def embed(self, model: str, texts: Sequence[str], /) -> Embedding:
        return self._refuse()

    def _refuse(self, *_: object) -> NoReturn:
        raise ModelUnavailable("no model is called during an estimate", 0)
