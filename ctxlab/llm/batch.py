"""What is asked of a model is estimated before, kept on disk, and stopped before it costs too much."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

from ctxlab._utils.progress import track
from ctxlab.errors import ModelRequestRejected, ModelUnavailable
from ctxlab.llm import (
    DEFAULT_CACHE_FOLDER,
    MAX_CONCURRENT_CALLS,
    CachedClient,
    CacheMode,
    CostLimitedClient,
    LiteLLMClient,
)
from ctxlab.llm.base import Client, Embedding, IncrementalClient, Reply, Request, client_options
from ctxlab.llm.costs import worst_case_cost
from ctxlab.tokens.counter import get_counter

__all__ = [
    "RequestEstimate",
    "add_cache_hint",
    "build_cost_limited_client",
    "cache_only_client",
    "complete_with_progress",
    "estimate_requests",
    "iter_replies",
]


class RequestEstimate(NamedTuple):
    """What it would take to ask: counts and sums."""

    questions: int = 0
    known: int = 0
    "of them, those that need not be asked: the answer is on disk, or an equal question comes before"
    prompt: int = 0
    "prompt tokens of the others, as counted"
    usd: float = 0.0
    "what the others cost at most; nan where a price or the bound of a reply is not known"

    def plus(self, other: RequestEstimate) -> RequestEstimate:
        """Both together."""
        return RequestEstimate(
            self.questions + other.questions,
            self.known + other.known,
            self.prompt + other.prompt,
            self.usd + other.usd,
        )


def build_cost_limited_client(
    max_cost: float | None = None,
    mode: CacheMode = "auto",
    client: Client | None = None,
    concurrency: int = MAX_CONCURRENT_CALLS,
) -> CachedClient:
    """A client that keeps every answer on disk and stops before ``max_cost`` dollars are passed.

    ``client``: who is asked; None is the provider, through litellm, ``concurrency`` calls at a time. A
    ``CachedClient`` keeps its folder and its mode. Answers that are on disk cost nothing.
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
    """What asking would take at most; nothing is asked, and requests may be a stream.

    Replies are taken to be as long as their requests allow. ``seen_keys``: keys of questions that were
    estimated before; those of these are added.
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


def complete_with_progress(
    requests: Sequence[Request], client: Client, progress: bool | None = None
) -> list[Reply | ModelUnavailable]:
    """The replies in order; what stayed unanswered stands as its error.

    ``progress``: whether a bar is shown; None decides by who is looking. Raises
    ``ModelRequestRejected``, which says that what was answered is kept.
    """
    with closing(iter_replies(requests, client)) as each:
        bar = track(each, "questions answered", len(requests), progress)
        return [reply for _, reply in sorted(bar, key=lambda pair: pair[0])]


def iter_replies(
    requests: Sequence[Request], client: Client
) -> Generator[tuple[int, Reply | ModelUnavailable], None, None]:
    """The replies as they come, each with the place of its request, where the client gives them so.

    To be closed by who leaves early: what is under way is then waited for and kept.
    """
    with add_cache_hint(client):
        if not isinstance(client, IncrementalClient):
            yield from enumerate(client.complete_all(requests))
            return
        with closing(client.complete_each(requests)) as replies:
            yield from replies


@contextmanager
def add_cache_hint(client: Client | None) -> Iterator[None]:
    """A model that stops a run says that nothing of what was answered is lost."""
    try:
        yield
    except ModelRequestRejected as error:
        if not isinstance(client, CachedClient) or client.mode == "replay":
            raise
        hint = f"what was answered is kept in {client.folder}, and the next run goes on there"
        if hint in str(error):
            raise
        raise type(error)(f"{error}; {hint}") from error


def cache_only_client(client: Client | None) -> Client:
    """Gives what a client has on disk, and no answer to anything else.

    Strategies that ask a model then do as they do without an answer: so what they would send is
    estimated before anything is asked.
    """
    if not isinstance(client, CachedClient):
        return _OfflineClient({})
    return CachedClient(_OfflineClient(client_options(client.client)), client.folder)


class _OfflineClient:
    """Answers no question."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options

    def complete(self, request: Request, /) -> Reply:
        raise ModelUnavailable("nothing is asked yet", 0)

    def complete_all(self, requests: Sequence[Request], /) -> list[Reply | ModelUnavailable]:
        return [ModelUnavailable("nothing is asked yet", 0) for _ in requests]

    def embed(self, model: str, texts: Sequence[str], /) -> Embedding:
        raise ModelUnavailable("nothing is asked yet", 0)
