"""Count what calls cost, and begin none that could pass a limit in dollars.

Before each HTTP request its worst case is reserved: every prompt token at the dearest input price that a
prompt of its size can have, and as many tokens of reply as the request allows. Once it is answered, what
it really cost takes the place of that. An attempt that was cut may have been billed, so its worst case
counts as spent.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from ctxlab.errors import ModelRequestRejected, ModelUnavailable, SpecError
from ctxlab.llm.base import (
    Client,
    Embedder,
    Embedding,
    Reply,
    Request,
    Streamer,
    client_options,
    split_for_workers,
)
from ctxlab.llm.concurrency import BatchMixin
from ctxlab.messages.types import Usage
from ctxlab.tokens.counter import TokenCounter, get_counter
from ctxlab.tokens.models import find_model

__all__ = [
    "CostAwareClient",
    "CostLimit",
    "CostLimitExceeded",
    "CostLimitedClient",
    "Reservation",
    "ReserveAttempt",
    "UsageTotals",
    "UsageTracker",
    "max_token_count",
    "worst_case_cost",
]


class UsageTotals(NamedTuple):
    """What a client's calls took so far; ``attempts`` is the sum of the three that follow it."""

    attempts: int = 0
    "HTTP requests"
    answered: int = 0
    failed: int = 0
    "the provider answered with an error, for which nothing is billed"
    interrupted: int = 0
    "no answer that could be read: timeouts, cut connections, nonsense; may have been billed"
    prompt_tokens: int = 0
    "input tokens as billed for what was answered"
    completion_tokens: int = 0
    "output tokens as billed for what was answered"
    usd: float = 0.0
    "what that cost; nan once a call had no known price"


class UsageTracker:
    """Totals that several threads add to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals = UsageTotals()
        self._unanswered_in_row = 0

    @property
    def totals(self) -> UsageTotals:
        """As they stand."""
        with self._lock:
            return self._totals

    def add_answered(self, usage: Usage, usd: float) -> None:
        """A request was answered."""
        with self._lock:
            was = self._totals
            self._unanswered_in_row = 0
            self._totals = was._replace(
                attempts=was.attempts + 1,
                answered=was.answered + 1,
                prompt_tokens=was.prompt_tokens + usage.total_input,
                completion_tokens=was.completion_tokens + usage.output,
                usd=was.usd + usd,
            )

    def add_failed(self) -> None:
        """A request was answered with an error."""
        with self._lock:
            was = self._totals
            self._totals = was._replace(attempts=was.attempts + 1, failed=was.failed + 1)

    def add_interrupted(self) -> None:
        """A request got no answer that could be read."""
        with self._lock:
            was = self._totals
            self._totals = was._replace(attempts=was.attempts + 1, interrupted=was.interrupted + 1)

    def reset_unanswered(self) -> None:
        """A provider that will not answer one request is there all the same."""
        with self._lock:
            self._unanswered_in_row = 0

    def add_unanswered(self) -> int:
        """A call stayed without an answer; returns how many in a row did."""
        with self._lock:
            self._unanswered_in_row += 1
            return self._unanswered_in_row


_POLL_SECONDS = 0.2
"seconds after which it is heard that nobody waits any more"
_INEXACT_MARGIN = 1.5
"by which counts are raised of a model whose vocabulary is not public"
_TIER_TOLERANCE = 0.99
"of the size from which on prompts are dearer: there a count that is a little low would cost the most"
_EPSILON = 1e-12


class CostLimitExceeded(ModelRequestRejected):
    """The next call could cost more than is left of what may be spent."""


@dataclass
class Reservation:
    """What one attempt cost, in dollars: its worst case, until more is known."""

    usd: float


ReserveAttempt: TypeAlias = Callable[[], AbstractContextManager[Reservation]]
"""Begins an attempt; how it ends is written into the ``Reservation``."""


class CostLimit:
    """So many dollars, spent by several threads.

    >>> limit = CostLimit(0.05)
    >>> with limit.reserve("gpt-4o", 0.04) as reservation:
    ...     reservation.usd = 0.01
    >>> limit.spent
    0.01
    >>> with limit.reserve("gpt-4o", 0.045):
    ...     pass
    Traceback (most recent call last):
    ctxlab.llm.costs.CostLimitExceeded: $0.01 of at most $0.05 is spent, and the next call to \
gpt-4o may cost $0.045: raise the bound to go on
    """

    def __init__(self, max_usd: float) -> None:
        if not 0 <= max_usd < math.inf:
            raise SpecError(f"what may be spent is 0 dollars or more, not {max_usd}")
        self.max_usd = max_usd
        self.spent = 0.0
        "what was billed, as far as that is known, and the worst case of what was cut"
        self._reserved = 0.0  # for what is under way
        self._in_flight = 0
        self._changed = threading.Condition()

    def __repr__(self) -> str:
        return f"CostLimit({self.max_usd})"

    def __reduce__(self) -> tuple[type[CostLimit], tuple[float]]:
        return CostLimit, (self.remaining,)

    @property
    def remaining(self) -> float:
        """Dollars that are neither spent nor reserved."""
        return max(self.max_usd - self.spent - self._reserved, 0.0)

    def bind_reserve(
        self, model: str, max_usd: float, cancelled: threading.Event
    ) -> ReserveAttempt:
        """``reserve`` for every attempt of one call."""
        return partial(self.reserve, model, max_usd, cancelled)

    @contextmanager
    def reserve(
        self, model: str, max_usd: float, cancelled: threading.Event | None = None
    ) -> Iterator[Reservation]:
        """Reserves ``max_usd`` for one attempt, and books what it turns out to cost.

        Where there is room only once others have ended, it waits for them. Raises
        ``CostLimitExceeded`` where there would be none even then, ``SpecError`` where ``max_usd``
        is not known, and ``ModelUnavailable`` where it is ``cancelled``.
        """
        if math.isnan(max_usd):
            raise SpecError(
                f"what a call to {model} may cost is not known, so no bound can hold: it takes a model "
                "with a known price and a bound on the tokens of the reply"
            )
        with self._changed:
            while self.spent + self._reserved + max_usd > self.max_usd + _EPSILON:
                if not self._in_flight:
                    raise CostLimitExceeded(
                        f"${self.spent:.4g} of at most ${self.max_usd:.4g} is spent, and the next "
                        f"call to {model} may cost ${max_usd:.4g}: raise the bound to go on"
                    )
                self._changed.wait(_POLL_SECONDS)
                if cancelled is not None and cancelled.is_set():
                    raise ModelUnavailable(f"{model}: nobody waits for the answer", 0)
            self._reserved += max_usd
            self._in_flight += 1
        reservation = Reservation(max_usd)
        try:
            yield reservation
        finally:
            with self._changed:
                self._in_flight -= 1
                # Sums of many small numbers drift: nothing under way is nothing reserved.
                self._reserved = self._reserved - max_usd if self._in_flight else 0.0
                self.spent += max_usd if math.isnan(reservation.usd) else reservation.usd
                self._changed.notify_all()


def worst_case_cost(request: Request) -> float:
    """The most that one attempt can cost, in USD, by the prices that ctxlab knows.

    nan where the model has no known price or the request does not bound its reply. A model whose
    vocabulary is not public is taken to count half as many tokens again as are counted here. Where long
    prompts are dearer, it goes by the dearest prices from nothing to one per cent above that size.

    >>> from ctxlab.messages.types import Message
    >>> request = Request("gpt-4o", (Message("user", "Hi"),), max_tokens=100)
    >>> worst_case_cost(request), worst_case_cost(Request("gpt-4o", ()))
    (0.00102, nan)
    """
    prices = find_model(request.model).prices
    if not prices.known or request.max_tokens is None:
        return math.nan
    counter = get_counter(request.model)
    prompt = counter.count_request(request.messages, request.tools) * _count_margin(counter)
    return max(
        prompt * max(rates.input, rates.cache_write, rates.cache_read)
        + request.max_tokens * rates.output
        for rates in (
            prices,
            *(tier for tier in prices.above if tier.start * _TIER_TOLERANCE <= prompt),
        )
    )


def max_token_count(model: str, text: str) -> float:
    """Tokens that a text has at most, as the model counts."""
    counter = get_counter(model)
    return counter.count_text(text) * _count_margin(counter)


def _count_margin(counter: TokenCounter) -> float:
    return 1.0 if counter.exact else _INEXACT_MARGIN


@runtime_checkable
class CostAwareClient(Protocol):
    """Something that reserves the cost of every HTTP request of its own, as ``LiteLLMClient`` does."""

    def complete_each(
        self,
        requests: Sequence[Request],
        on_reply: Callable[[int, Reply | ModelUnavailable], object] | None,
        cost_limit: CostLimit,
        /,
    ) -> Generator[tuple[int, Reply | ModelUnavailable], None, None]:
        """The replies as they come."""
        ...

    def stream(
        self, request: Request, cost_limit: CostLimit, /
    ) -> Generator[str | Reply, None, None]:
        """Pieces of the reply, then the reply."""
        ...

    def embed(self, model: str, texts: Sequence[str], cost_limit: CostLimit, /) -> Embedding:
        """A vector for each text."""
        ...


class CostLimitedClient(BatchMixin):
    """Asks another client as long as what it may cost stays within a bound.

    A call is begun only if its worst case fits beside what is spent and what is under way; where it
    would not fit even if nothing were under way, ``CostLimitExceeded`` (a ``ModelRequestRejected``)
    is raised. What is under way by then ends, and is kept by a ``CachedClient`` above. A request
    without ``max_tokens``, or to a model without a known price, cannot be bounded and raises
    ``SpecError``.

    With ``LiteLLMClient`` every attempt is paid on its own; one that was cut counts at its worst case.
    Of any other client only what its replies say is known. The prices are ctxlab's: what they leave out
    (see ``Prices``), and a provider that writes more than ``max_tokens``, are beyond the bound.

    >>> from ctxlab.messages.types import Message
    >>> from ctxlab.llm import ScriptedClient
    >>> client = CostLimitedClient(ScriptedClient("Hello."), 0.001)
    >>> client.complete(Request("gpt-4o", (Message("user", "Hi"),), max_tokens=10)).text
    'Hello.'
    """

    def __init__(self, client: Client, max_cost: float | CostLimit) -> None:
        self.client = client
        self.cost_limit = max_cost if isinstance(max_cost, CostLimit) else CostLimit(max_cost)
        "what is spent and what is left"

    def __repr__(self) -> str:
        return f"CostLimitedClient({self.client!r}, {self.cost_limit.max_usd})"

    @property
    def options(self) -> Any:
        """Of the client that is asked: another answer is wanted with others."""
        return client_options(self.client)

    @property
    def _cost_aware_client(self) -> CostAwareClient | None:
        return self.client if isinstance(self.client, CostAwareClient) else None

    def split_for_workers(self, workers: int) -> CostLimitedClient:
        """A client for each of several worker processes, with its part of what is left."""
        part = CostLimit(self.cost_limit.remaining / workers)
        return CostLimitedClient(split_for_workers(self.client, workers), part)

    def complete_each(
        self,
        requests: Sequence[Request],
        /,
        on_reply: Callable[[int, Reply | ModelUnavailable], object] | None = None,
    ) -> Generator[tuple[int, Reply | ModelUnavailable], None, None]:
        """The replies as they come, each given to ``on_reply`` before it is handed out."""
        if (client := self._cost_aware_client) is not None:
            with closing(client.complete_each(requests, on_reply, self.cost_limit)) as replies:
                yield from replies
            return
        for place, request in enumerate(requests):
            reply = self._complete(request)
            if on_reply is not None:
                on_reply(place, reply)
            yield place, reply

    def stream(self, request: Request, /) -> Generator[str | Reply, None, None]:
        """Pieces of the reply as they come, then the reply; in one where the client does not stream."""
        if not isinstance(self.client, Streamer):
            reply = self.complete(request)
            if reply.text:
                yield reply.text
            yield reply
            return
        if (client := self._cost_aware_client) is not None:
            with closing(client.stream(request, self.cost_limit)) as pieces:
                yield from pieces
            return
        with (
            self.cost_limit.reserve(request.model, worst_case_cost(request)) as reservation,
            closing(self.client.stream(request)) as pieces,  # type: ignore[type-var]
        ):
            for piece in pieces:
                if isinstance(piece, Reply):
                    reservation.usd = piece.usd
                yield piece

    def embed(self, model: str, texts: Sequence[str], /) -> Embedding:
        """A vector for each text."""
        if not isinstance(self.client, Embedder):
            raise ModelRequestRejected(
                f"{self.client!r} makes no embeddings: give a client that does"
            )
        if (client := self._cost_aware_client) is not None:
            return client.embed(model, texts, self.cost_limit)
        with self.cost_limit.reserve(model, 0.0) as reservation:
            found = self.client.embed(model, texts)
            reservation.usd = found.usd
        return found

    def _complete(self, request: Request) -> Reply | ModelUnavailable:
        most = worst_case_cost(request)
        with self.cost_limit.reserve(request.model, most) as reservation:
            try:
                reply = self.client.complete(request)
            except ModelUnavailable as error:
                reservation.usd = most * error.attempts
                return error
            reservation.usd = reply.usd + most * max(reply.attempts - 1, 0)
            return reply
