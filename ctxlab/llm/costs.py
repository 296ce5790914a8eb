"""Usage totals of model calls, and a spending limit that is checked before each call.

Before each HTTP request, its worst-case cost is reserved. The worst case charges every prompt token
at the highest input price for a prompt of this size, and as many reply tokens as the request allows.
When the reply arrives, the billed cost replaces the reservation. An interrupted attempt may have
been billed, so its worst-case cost counts as spent.
"""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from typing_extensions import override

from ctxlab.errors import ModelRequestRejected, ModelUnavailable, SpecError
from ctxlab.llm.base import (
    BaseClient,
    Client,
    Embedder,
    Embedding,
    OnReply,
    Replies,
    Reply,
    Request,
    Streamer,
    as_embedder,
    client_options,
    complete_in_order,
    split_for_workers,
)
from ctxlab.llm.concurrency import POLL_SECONDS
from ctxlab.tokens.counter import TokenCounter, get_counter
from ctxlab.tokens.models import find_model

_INEXACT_MARGIN = 1.5
"factor applied to token counts of models without a public vocabulary"
_TIER_TOLERANCE = 0.99
"a prompt reaches a price tier at this share of the tier's start, as counts may be slightly too low"
_EPSILON = 1e-12
"tolerance in USD for the rounding of float sums"


class UsageTotals(NamedTuple):
    """Usage totals of all calls that a client has made so far. An attempt is one HTTP request."""

    attempts: int = 0
    "number of HTTP requests: the sum of ``answered``, ``failed`` and ``interrupted``"
    answered: int = 0
    "number of attempts that got a reply"
    failed: int = 0
    "number of attempts for which the provider returned an error; they are not billed"
    interrupted: int = 0
    "number of attempts without a readable reply, for example after a timeout; they may be billed"
    prompt_tokens: int = 0
    "number of input tokens billed for the answered attempts"
    completion_tokens: int = 0
    "number of output tokens billed for the answered attempts"
    usd: float = 0.0
    "cost of the answered attempts in USD; nan if the price of any of them is unknown"


class UsageTracker:
    """Thread-safe counter of a client's usage and of its consecutive failed calls."""

    def __init__(self) -> None:
        self.totals = UsageTotals()
        "totals of all attempts so far"
        self._lock = threading.Lock()
        self._calls_without_reply = 0

    def add_attempt(self, **figures: Any) -> None:
        """Add one attempt to the totals.

        Parameters
        ----------
        **figures : int or float
            Values to add, by field of ``UsageTotals``, such as ``answered=1``. ``attempts`` is
            increased by 1.
        """
        with self._lock:
            self.totals = UsageTotals(*map(operator.add, self.totals, UsageTotals(1, **figures)))

    def end_call(self, *, reached: bool) -> int:
        """Record the end of a call, after its last attempt.

        Parameters
        ----------
        reached : bool
            True if the provider replied, or if it declined only this request. Such a call does not
            count as failed.

        Returns
        -------
        int
            Number of consecutive failed calls up to this one; 0 if ``reached`` is True.
        """
        with self._lock:
            self._calls_without_reply = 0 if reached else self._calls_without_reply + 1
            return self._calls_without_reply


class CostLimitExceeded(ModelRequestRejected):
    """Error raised in place of a call that could exceed the cost limit."""


@dataclass
class Reservation:
    """Amount of a cost limit that is reserved for one attempt, that is, one HTTP request."""

    usd: float
    "worst-case cost in USD; replace it by the billed cost when the reply arrives"


class CostLimit:
    """Spending limit in USD that several threads can share.

    Parameters
    ----------
    max_usd : float
        Maximum cost in USD.

    Raises
    ------
    SpecError
        If ``max_usd`` is negative or not finite.

    Examples
    --------
    >>> limit = CostLimit(0.05)
    >>> with limit.reserve("gpt-4o", 0.04) as reservation:
    ...     reservation.usd = 0.01
    >>> limit.spent
    0.01
    >>> with limit.reserve("gpt-4o", 0.045):
    ...     pass
    Traceback (most recent call last):
    ctxlab.llm.costs.CostLimitExceeded: $0.01 of the cost limit of $0.05 is spent, and the next \
call to gpt-4o may cost $0.045; raise the limit to continue
    """

    def __init__(self, max_usd: float) -> None:
        if not 0 <= max_usd < math.inf:
            raise SpecError(f"Expected a finite cost limit of 0 USD or more, got {max_usd}")
        self.max_usd = max_usd
        self.spent = 0.0
        "cost so far in USD: billed costs, and worst-case costs of interrupted attempts"
        self._reserved = 0.0  # for attempts that are running
        self._in_flight = 0
        self._changed = threading.Condition()

    def __repr__(self) -> str:
        """Show the maximum cost in USD."""
        return f"CostLimit({self.max_usd})"

    def __reduce__(self) -> tuple[type[CostLimit], tuple[float]]:
        """Pickle the remaining amount, which becomes the limit of the copy."""
        return CostLimit, (self.remaining,)

    @property
    def remaining(self) -> float:
        """Amount in USD that is neither spent nor reserved."""
        return max(self.max_usd - self.spent - self._reserved, 0.0)

    @contextmanager
    def reserve(
        self, model: str, max_usd: float, cancelled: threading.Event | None = None
    ) -> Iterator[Reservation]:
        """Reserve ``max_usd`` for one attempt and record its actual cost at the end.

        If the amount exceeds the limit only because of the reservations of running attempts, wait
        until these attempts have ended.

        Parameters
        ----------
        model : str
            Name of the model, shown in error messages.
        max_usd : float
            Worst-case cost of the attempt in USD.
        cancelled : threading.Event, optional
            Event that ends the wait when it is set.

        Yields
        ------
        Reservation
            Reservation of ``max_usd``. Set its ``usd`` to the billed cost.

        Raises
        ------
        CostLimitExceeded
            If the amount exceeds the rest of the limit and no other attempt is running.
        SpecError
            If ``max_usd`` is nan, so that the worst-case cost is unknown.
        ModelUnavailable
            If ``cancelled`` is set during the wait.
        """
        if math.isnan(max_usd):
            advice = "use a model with a known price and set max_tokens, or use no cost limit"
            raise SpecError(f"the maximum cost of a call to {model} is unknown; {advice}")
        with self._changed:
            while self.spent + self._reserved + max_usd > self.max_usd + _EPSILON:
                if not self._in_flight:
                    known = f"${self.spent:.4g} of the cost limit of ${self.max_usd:.4g}"
                    may = f"may cost ${max_usd:.4g}; raise the limit to continue"
                    raise CostLimitExceeded(f"{known} is spent, and the next call to {model} {may}")
                self._changed.wait(POLL_SECONDS)
                if cancelled is not None and cancelled.is_set():
                    raise ModelUnavailable(f"{model}: the call was cancelled", 0)
            self._reserved += max_usd
            self._in_flight += 1
        reservation = Reservation(max_usd)
        try:
            yield reservation
        finally:
            with self._changed:
                self._in_flight -= 1
                # Float sums drift, so reset to zero when no attempt is running.
                self._reserved = self._reserved - max_usd if self._in_flight else 0.0
                self.spent += max_usd if math.isnan(reservation.usd) else reservation.usd
                self._changed.notify_all()


def worst_case_cost(request: Request) -> float:
    """Return the maximum cost of one attempt to send a request, by ctxlab's prices.

    The reply is assumed to have ``max_tokens`` tokens. For a model without a public vocabulary, the
    counted prompt tokens are multiplied by 1.5. If the model has higher prices for long prompts, the
    most expensive price tier that the prompt reaches applies. Because counts may be slightly too
    low, a prompt reaches a tier at 99 % of the tier's minimum length.

    Parameters
    ----------
    request : Request
        Request to price.

    Returns
    -------
    float
        Cost in USD; nan if the model's price is unknown or the request does not set ``max_tokens``.

    Examples
    --------
    >>> from ctxlab.messages.types import Message
    >>> request = Request("gpt-4o", (Message("user", "Hi"),), max_tokens=100)
    >>> worst_case_cost(request), worst_case_cost(Request("gpt-4o", ()))
    (0.00102, nan)
    """
    prices, most = find_model(request.model).prices, request.max_tokens
    if not prices.known or most is None:
        return math.nan
    counter = get_counter(request.model)
    prompt = counter.count_request(request.messages, request.tools) * _count_margin(counter)
    rates = [prices, *(tier for tier in prices.above if tier.start * _TIER_TOLERANCE <= prompt)]
    return max(prompt * max(r.input, r.cache_write, r.cache_read) + most * r.output for r in rates)


def max_token_count(model: str, text: str) -> float:
    """Return an upper bound on the number of tokens of a string.

    Parameters
    ----------
    model : str
        Name of the model.
    text : str
        String to count.

    Returns
    -------
    float
        Counted tokens; multiplied by 1.5 if the model's vocabulary is not public.
    """
    counter = get_counter(model)
    return counter.count_text(text) * _count_margin(counter)


def _count_margin(counter: TokenCounter) -> float:
    return 1.0 if counter.exact else _INEXACT_MARGIN


class CostAwareClient(BaseClient, Embedder, Streamer):
    """Base class of clients that count every HTTP request and charge it to a cost limit."""

    cost_limit: CostLimit | None = None
    "limit to which each HTTP request is charged; None if there is no limit"

    def __init__(self) -> None:
        self._usage = UsageTracker()

    @property
    def totals(self) -> UsageTotals:
        """Usage totals of all calls of this client. A copy in another process counts separately."""
        return self._usage.totals

    def with_cost_limit(self, cost_limit: CostLimit) -> Self:
        """Return a shallow copy of this client that charges its calls to a cost limit.

        Parameters
        ----------
        cost_limit : CostLimit
            Limit to which each HTTP request of the copy is charged.

        Returns
        -------
        CostAwareClient
            Copy that shares the usage totals and all other state with this client.
        """
        view = object.__new__(type(self))
        view.__dict__ = {**vars(self), "cost_limit": cost_limit}
        return view


class CostLimitedClient(BaseClient, Embedder, Streamer):
    """Client that calls another client as long as the total cost cannot exceed a limit.

    Before a call starts, its worst-case cost is added to the cost that is already spent and to the
    reservations of running calls. If the sum exceeds the limit, the call waits until running calls
    have ended. If the sum exceeds the limit while no other call runs, ``CostLimitExceeded`` (a
    ``ModelRequestRejected``) is raised. Calls that have already started still finish, and a
    ``CachedClient`` that wraps this client stores their replies. A request without ``max_tokens``,
    or to a model without a known price, raises ``SpecError``.

    A ``LiteLLMClient`` charges each attempt separately, and an interrupted attempt counts with its
    worst-case cost. Other clients report only the costs of their replies. If such a client does not
    stream, ``stream`` yields the whole text as one piece.

    Costs are computed from ctxlab's prices. The limit does not cover costs that these prices omit
    (see ``Prices``), nor replies that are longer than ``max_tokens``.

    Parameters
    ----------
    client : Client
        Client that sends the requests.
    max_cost : float or CostLimit
        Maximum cost in USD, or a ``CostLimit`` that is shared with other clients.

    Examples
    --------
    >>> from ctxlab.messages.types import Message
    >>> from ctxlab.llm import ScriptedClient
    >>> client = CostLimitedClient(ScriptedClient("Hello."), 0.001)
    >>> client.complete(Request("gpt-4o", (Message("user", "Hi"),), max_tokens=10)).text
    'Hello.'
    """

    def __init__(self, client: Client, max_cost: float | CostLimit) -> None:
        self.client = client
        self.options = client_options(client)
        self.cost_limit = max_cost if isinstance(max_cost, CostLimit) else CostLimit(max_cost)
        "limit of this client, with the amounts spent and reserved so far"

    def __repr__(self) -> str:
        """Show the wrapped client and the maximum cost."""
        return f"CostLimitedClient({self.client!r}, {self.cost_limit.max_usd})"

    @override
    def split_for_workers(self, workers: int, /) -> CostLimitedClient:
        part = CostLimit(self.cost_limit.remaining / workers)
        return CostLimitedClient(split_for_workers(self.client, workers), part)

    @override
    def complete_each(self, requests: Sequence[Request], /, on_reply: OnReply = None) -> Replies:
        if isinstance(self.client, CostAwareClient):
            return self.client.with_cost_limit(self.cost_limit).complete_each(requests, on_reply)
        return complete_in_order(self._complete, requests, on_reply)

    @override
    def stream(self, request: Request, /) -> Generator[str | Reply, None, None]:
        if isinstance(self.client, CostAwareClient):
            yield from self.client.with_cost_limit(self.cost_limit).stream(request)
        elif isinstance(self.client, Streamer):
            worst = worst_case_cost(request)
            with self.cost_limit.reserve(request.model, worst) as reservation:
                for piece in self.client.stream(request):
                    if isinstance(piece, Reply):
                        reservation.usd = piece.usd
                    yield piece
        else:
            reply = self.complete(request)
            yield from (reply.text, reply) if reply.text else (reply,)

    @override
    def embed(self, model: str, texts: Sequence[str], /) -> Embedding:
        if isinstance(self.client, CostAwareClient):
            return self.client.with_cost_limit(self.cost_limit).embed(model, texts)
        embedder = as_embedder(self.client)
        with self.cost_limit.reserve(model, 0.0) as reservation:
            embedding = embedder.embed(model, texts)
            reservation.usd = embedding.usd
        return embedding

    def _complete(self, request: Request) -> Reply:
        worst = worst_case_cost(request)
        with self.cost_limit.reserve(request.model, worst) as reservation:
            try:
                reply = self.client.complete(request)
            except ModelUnavailable as error:
                reservation.usd = worst * error.attempts
                raise
            reservation.usd = reply.usd + worst * max(reply.attempts - 1, 0)
            return reply
