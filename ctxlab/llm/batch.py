"""Send batches of requests with a reply cache and a cost limit, and estimate their cost."""

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
    """Number of requests in a batch, and the estimated cost of those that need a call."""

    questions: int = 0
    "number of requests"
    known: int = 0
    "number of requests that need no call: their reply is cached, or they equal an earlier request"
    prompt: int = 0
    "counted prompt tokens of the requests that need a call"
    usd: float = 0.0
    "maximum cost in USD of the requests that need a call; nan if a price or ``max_tokens`` is unknown"

    def plus(self, other: RequestEstimate) -> RequestEstimate:
        """Return the sum of this estimate and another one.

        Parameters
        ----------
        other : RequestEstimate
            Estimate to add.

        Returns
        -------
        RequestEstimate
            Sum of both estimates, field by field.
        """
        return RequestEstimate(*map(operator.add, self, other))


def build_cost_limited_client(
    max_cost: float | None = None,
    mode: CacheMode = "auto",
    client: Client | None = None,
    concurrency: int = MAX_CONCURRENT_CALLS,
) -> CachedClient:
    """Build a client that caches every reply on disk and stops before the cost exceeds a limit.

    Cached replies do not count towards the limit.

    Parameters
    ----------
    max_cost : float, optional
        Maximum cost in USD; None for no limit.
    mode : CacheMode, optional
        Mode of the cache; see ``CachedClient``.
    client : Client, optional
        Client that sends the requests. By default, a ``LiteLLMClient``. If it is a
        ``CachedClient``, its folder and mode are used, and ``mode`` is ignored.
    concurrency : int, optional
        Maximum number of concurrent calls if ``client`` is None.

    Returns
    -------
    CachedClient
        Client with the cache and the cost limit.
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
    """Estimate the maximum cost of requests without sending them.

    Each reply is assumed to be as long as ``max_tokens`` of its request allows.

    Parameters
    ----------
    requests : iterable of Request
        Requests to estimate.
    client : Client
        Client that would send the requests. If it is a ``CachedClient``, requests with a cached
        reply and repetitions of a request cost nothing.
    seen_keys : set of str, optional
        Cache keys of requests that earlier calls of this function estimated. Requests with these
        keys cost nothing. The keys of new requests are added to the set.

    Returns
    -------
    RequestEstimate
        Number of all requests; prompt tokens and maximum cost of those that need a call.
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
    """Send several requests and yield each reply as soon as it arrives.

    A client that does not derive from ``BaseClient`` yields all replies after the last one has
    arrived. A caller that stops before the last reply must close the generator. Running calls then
    finish, and a ``CachedClient`` stores their replies.

    Parameters
    ----------
    requests : sequence of Request
        Requests to send.
    client : Client
        Client that sends the requests.

    Yields
    ------
    tuple of int and (Reply or ModelUnavailable)
        Index of the request, and its reply or error.
    """
    with add_cache_hint(client):
        yield from complete_each(client, requests)


@contextmanager
def add_cache_hint(client: Client | None) -> Iterator[None]:
    """Add the cache folder to the message of a ``ModelRequestRejected`` error.

    Use this as a context manager around code that calls the client. The message then tells the user
    that earlier replies are cached and will not be requested again.

    Parameters
    ----------
    client : Client or None
        Client that the code calls. The error is not changed if ``client`` is not a
        ``CachedClient``, or if its mode is ``replay``.

    Yields
    ------
    None
        No value.
    """
    try:
        yield
    except ModelRequestRejected as error:
        if not isinstance(client, CachedClient) or client.mode == "replay":
            raise
        kept = f"earlier replies are cached in {client.folder}"
        hint = f"{kept} and will not be requested again"
        if hint in str(error):
            raise
        raise type(error)(f"{error}; {hint}") from error


def cache_only_client(client: Client | None) -> Client:
    """Return a client that reads replies from the cache of another client and calls no model.

    Requests without a cached reply raise ``ModelUnavailable``, so a strategy behaves as if its model
    did not reply. Use this client to estimate the requests of a strategy without calling its model.

    Parameters
    ----------
    client : Client or None
        Client with the cache. If it is not a ``CachedClient``, there are no cached replies.

    Returns
    -------
    Client
        Client that never calls a model.
    """
    if not isinstance(client, CachedClient):
        return _OfflineClient({})
    return CachedClient(_OfflineClient(client_options(client.client)), client.folder)


class _OfflineClient(BaseClient, Embedder):
    """Client that raises ``ModelUnavailable`` for every request."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options

    @override
    def complete_each(self, requests: Sequence[Request], /, on_reply: OnReply = None) -> Replies:
        return complete_in_order(self._refuse, requests, on_reply)

    def embed(self, model: str, texts: Sequence[str], /) -> Embedding:
        return self._refuse()

    def _refuse(self, *_: object) -> NoReturn:
        raise ModelUnavailable("the reply is not cached, and estimates call no model", 0)
