"""What is asked of a model is estimated before, kept on disk, and stopped before it costs too much."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

from ctxlab._utils.progress import track
from ctxlab.errors import (
    ModelRefused,
    ModelUnavailable,
)
from ctxlab.llm import (
    AT_A_TIME,
    CALLS,
    CachedClient,
    CacheMode,
    CappedClient,
    LiteLLMClient,
)
from ctxlab.llm.base import (
    Client,
    Embedding,
    Reply,
    Request,
)
from ctxlab.llm.cost_budget import worst_case
from ctxlab.tokens.counter import TokenCounter

__all__ = ["Estimate", "answers_kept", "ask", "ask_each", "estimate", "offline", "paid_client"]


class Estimate(NamedTuple):
    """What it would take to ask: counts and sums."""

    questions: int = 0
    known: int = 0
    "of them, those that need not be asked: the answer is on disk, or an equal question comes before"
    prompt: int = 0
    "prompt tokens of the others, as counted"
    usd: float = 0.0
    "what the others cost at most; nan where a price or the bound of a reply is not known"

    def plus(self, other: Estimate) -> Estimate:
        """Both together."""
        return Estimate(
            self.questions + other.questions,
            self.known + other.known,
            self.prompt + other.prompt,
            self.usd + other.usd,
        )


def paid_client(
    max_cost: float | None = None,
    mode: CacheMode = "auto",
    client: Client | None = None,
    concurrency: int = AT_A_TIME,
) -> CachedClient:
    """A client that keeps every answer on disk and stops before ``max_cost`` dollars are passed.

    ``client``: who is asked; None is the provider, through litellm, ``concurrency`` calls at a time. A
    ``CachedClient`` keeps its folder and its mode. Answers that are on disk cost nothing.
    """
    if isinstance(client, CachedClient):
        inner, folder, mode = client.client, client.folder, client.mode
    else:
        folder = CALLS
        inner = LiteLLMClient(concurrency=concurrency) if client is None else client
    if max_cost is not None and inner is not None:
        inner = CappedClient(inner, max_cost)
    return CachedClient(inner, folder, mode)


def estimate(requests: Iterable[Request], client: Client, seen: set[str] | None = None) -> Estimate:
    """What asking would take at most; nothing is asked, and requests may be a stream.

    Replies are taken to be as long as their requests allow. ``seen``: keys of questions that were
    estimated before; those of these are added.
    """
    seen = set() if seen is None else seen
    questions = known = prompt = 0
    usd = 0.0
    for request in requests:
        questions += 1
        if isinstance(client, CachedClient):
            key = client.key_of(request)
            if key in seen or client.holds(key):
                known += 1
                continue
            seen.add(key)
        prompt += _counter(request.model).request(request.messages, request.tools)
        usd += worst_case(request)
    return Estimate(questions, known, prompt, usd)


def ask(
    requests: Sequence[Request], client: Client, progress: bool | None = None
) -> list[Reply | ModelUnavailable]:
    """The replies in order; what stayed unanswered stands as its error.

    ``progress``: whether a bar is shown; None decides by who is looking. Raises ``ModelRefused``, which
    says that what was answered is kept.
    """
    with closing(ask_each(requests, client)) as each:
        bar = track(each, "questions answered", len(requests), progress)
        return [reply for _, reply in sorted(bar, key=lambda pair: pair[0])]


def ask_each(
    requests: Sequence[Request], client: Client
) -> Generator[tuple[int, Reply | ModelUnavailable], None, None]:
    """The replies as they come, each with the place of its request, where the client gives them so.

    To be closed by who leaves early: what is under way is then waited for and kept.
    """
    each: Callable[..., Any] | None = getattr(client, "complete_each", None)
    with answers_kept(client):
        if each is None:
            yield from enumerate(client.complete_all(requests))
            return
        with closing(each(requests)) as replies:
            yield from replies


@contextmanager
def answers_kept(client: Client | None) -> Iterator[None]:
    """A model that stops a run says that nothing of what was answered is lost."""
    try:
        yield
    except ModelRefused as error:
        folder = getattr(client, "folder", None)
        if folder is None or getattr(client, "mode", None) == "replay":
            raise
        hint = f"what was answered is kept in {folder}, and the next run goes on there"
        if hint in str(error):
            raise
        raise type(error)(f"{error}; {hint}") from error


def offline(client: Client | None) -> Client:
    """Gives what a client has on disk, and no answer to anything else.

    Strategies that ask a model then do as they do without an answer: so what they would send is
    estimated before anything is asked.
    """
    options = getattr(getattr(client, "client", None), "options", None)
    nobody = _Nobody(options or {})
    return CachedClient(nobody, client.folder) if isinstance(client, CachedClient) else nobody


class _Nobody:
    """Answers no question."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options

    def complete(self, request: Request, /) -> Reply:
        raise ModelUnavailable("nothing is asked yet", 0)

    def complete_all(self, requests: Sequence[Request], /) -> list[Reply | ModelUnavailable]:
        return [ModelUnavailable("nothing is asked yet", 0) for _ in requests]

    def embed(self, model: str, texts: Sequence[str], /) -> Embedding:
        raise ModelUnavailable("nothing is asked yet", 0)


@lru_cache(maxsize=8)
def _counter(model: str) -> TokenCounter:
    return TokenCounter(model)
