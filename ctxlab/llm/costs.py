"""Usage totals of model calls, and a spending limit that holds before each call.

Before each HTTP request its worst case is reserved: every prompt token at the highest input price
that applies to a prompt of its size, plus as many reply tokens as the request allows. When the
reply arrives, the billed cost replaces the reservation. An interrupted attempt may have been
billed, so its worst case counts as spent.
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
"fraction of a tier's start from which its prices apply, since counts may be slightly too low"
_EPSILON = 1e-12
"tolerance in USD for the rounding of float sums"


class UsageTotals(NamedTuple):
    """Running totals of a client's calls; ``attempts`` is the sum of the three counts after it."""

    attempts: int = 0
    "number of HTTP requests"
    answered: int = 0
    "attempts that got a reply"
    failed: int = 0
    "attempts that the provider answered with an error; they are not billed"
    interrupted: int = 0
    "attempts without a readable reply (timeout, cut connection, invalid body), perhaps billed"
    prompt_tokens: int = 0
    "input tokens billed for the answered attempts"
    completion_tokens: int = 0
    "output tokens billed for the answered attempts"
    usd: float = 0.0
    "cost of the answered attempts in USD; nan after a call without a known price"


class UsageTracker:
    """Thread-safe usage totals of a client, and the number of its latest calls without a reply."""

    def __init__(self) -> None:
        self.totals = UsageTotals()
        "totals of all attempts"
        self._lock = threading.Lock()
        self._calls_without_reply = 0

    def add_attempt(self, **figures: Any) -> None:
        """Add an attempt to the totals.

        Parameters
        ----------
        **figures : int or float
            Totals of this attempt alone, by their names in ``UsageTotals``.
        """
        with self._lock:
            self.totals = UsageTotals(*map(operator.add, self.totals, UsageTotals(1, **figures)))

    def end_call(self, *, reached: bool) -> int:
        """Count a call, after all its attempts.

        Parameters
        ----------
        reached : bool
            True if the provider replied, or declined this one request.

        Returns
        -------
        int
            Number of consecutive calls up to this one that did not reach the provider.
        """
        with self._lock:
            self._calls_without_reply = 0 if reached else self._calls_without_reply + 1
            return self._calls_without_reply


class CostLimitExceeded(ModelRequestRejected):
    """The next call could cost more than what is left of the cost limit."""


@dataclass
class Reservation:
    """Cost reserved for one attempt."""

    usd: float
    "worst-case cost in USD; set it to the billed cost once that is known"


class CostLimit:
    """Spending limit in USD, shared by several threads.

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
            raise SpecError(f"Expected a cost limit of 0 USD or more, got {max_usd}")
        self.max_usd = max_usd
        self.spent = 0.0
        "billed cost in USD; interrupted attempts count at their worst case"
        self._reserved = 0.0  # for attempts that are running
        self._in_flight = 0
        self._changed = threading.Condition()

    def __repr__(self) -> str:
        """Show the maximum cost."""
        return f"CostLimit({self.max_usd})"

    def __reduce__(self) -> tuple[type[CostLimit], tuple[float]]:
        """Give a copy in another process what is left."""
        return CostLimit, (self.remaining,)

    @property
    def remaining(self) -> float:
        """USD that are neither spent nor reserved."""
        return max(self.max_usd - self.spent - self._reserved, 0.0)

    @contextmanager
    def reserve(
        self, model: str, max_usd: float, cancelled: threading.Event | None = None
    ) -> Iterator[Reservation]:
        """Reserve ``max_usd`` for one attempt and book its actual cost at the end.

        If the amount fits only after other attempts have ended, wait for them.

        Parameters
        ----------
        model : str
            Name of the model, for error messages.
        max_usd : float
            Worst-case cost of the attempt in USD.
        cancelled : threading.Event, optional
            Stops the wait when set.

        Yields
        ------
        Reservation
            The reservation; write the billed cost into its ``usd``.

        Raises
        ------
        CostLimitExceeded
            If the amount does not fit even when no other attempt is running.
        SpecError
            If ``max_usd`` is nan: the worst case is not known.
        ModelUnavailable
            If ``cancelled`` was set while waiting.
        """
        if math.isnan(max_usd):
            advice = "use a model with a known price and set max_tokens"
            raise SpecError(f"no cost limit can hold for calls to {model}; {advice}")
        with self._changed:
            while self.spent + self._reserved + max_usd > self.max_usd + _EPSILON:
                if not self._in_flight:
                    known = f"${self.spent:.4g} of the cost limit of ${self.max_usd:.4g} is spent"
                    may = f"the next call to {model} may cost ${max_usd:.4g}"
                    raise CostLimitExceeded(f"{known}, and {may}; raise the limit to continue")
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
    """Return the maximum cost of one attempt in USD, by the prices that ctxlab knows.

    For a model without a public vocabulary the token count is raised by half. Where long prompts
    cost more, the most expensive of the tiers applies that the prompt reaches or misses by 1 %.

    Parameters
    ----------
    request : Request
        The request.

    Returns
    -------
    float
        Cost in USD; nan if the model has no known price or the request does not set ``max_tokens``.

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
    """Return an upper bound on the tokens of a text, as the model counts them.

    Parameters
    ----------
    model : str
        Name of the model.
    text : str
        The text.

    Returns
    -------
    float
        Number of tokens.
    """
    counter = get_counter(model)
    return counter.count_text(text) * _count_margin(counter)


def _count_margin(counter: TokenCounter) -> float:
    return 1.0 if counter.exact else _INEXACT_MARGIN


class CostAwareClient(BaseClient, Embedder, Streamer):
    """A client that counts and pays each of its HTTP requests, such as ``LiteLLMClient``."""

    cost_limit: CostLimit | None = None
    "limit that pays for each HTTP request; None for no limit"

    def __init__(self) -> None:
        self._usage = UsageTracker()

    @property
    def totals(self) -> UsageTotals:
        """Totals of all calls of this client; a copy in another process counts its own calls."""
        return self._usage.totals

    def with_cost_limit(self, cost_limit: CostLimit) -> Self:
        """Return a view of this client, which shares its state and pays from a limit.

        Parameters
        ----------
        cost_limit : CostLimit
            The limit.

        Returns
        -------
        CostAwareClient
            The view.
        """
        view = object.__new__(type(self))
        view.__dict__ = {**vars(self), "cost_limit": cost_limit}
        return view


class CostLimitedClient(BaseClient, Embedder, Streamer):
    """Client that calls another client as long as the possible cost stays within a limit.

    A call starts only if its worst case fits beside the cost that is already spent or reserved. If
    it would not fit even with no other call running, ``CostLimitExceeded`` (a
    ``ModelRequestRejected``) is raised. Calls that are running at that time still finish, and a
    ``CachedClient`` above stores them. A request without ``max_tokens``, or to a model without a
    known price, raises ``SpecError``.

    With ``LiteLLMClient`` each attempt is paid separately; an interrupted attempt counts at its
    worst case. For other clients only the cost stated in their replies is known, and if they do not
    stream, ``stream`` yields the whole text as one piece. The prices are
    ctxlab's: costs that they leave out (see ``Prices``), and a provider that writes more than
    ``max_tokens``, are not covered by the limit.

    Parameters
    ----------
    client : Client
        The client to call.
    max_cost : float or CostLimit
        Maximum cost in USD, or a limit that is shared with other clients.

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
        "tracks what is spent and what is left"

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
