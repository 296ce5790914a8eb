"""A purse holds so many dollars, and nothing is begun that it could not pay for at the worst.

Before each HTTP request its worst case is set aside: every prompt token at the dearest input price that
a prompt of its size can have, and as many tokens of reply as the request allows. Once it is answered,
what it really cost takes the place of that. An attempt that was cut may have been billed, so its worst
case counts as spent.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TypeAlias

from ctxlab.errors import (
    ModelRefused,
    ModelUnavailable,
    SpecError,
)
from ctxlab.llm.base import Request
from ctxlab.tokens.counter import TokenCounter
from ctxlab.tokens.models import find_model

__all__ = ["Pay", "Payment", "Purse", "PurseEmpty", "most_tokens", "worst_case"]

_HEARD = 0.2
"seconds after which it is heard that nobody waits any more"
_MARGIN = 1.5
"by which counts are raised of a model whose vocabulary is not public"
_NEAR = 0.99
"of the size from which on prompts are dearer: there a count that is a little low would cost the most"
_EPSILON = 1e-12


class PurseEmpty(ModelRefused):
    """The next call could cost more than is left of what may be spent."""


@dataclass
class Payment:
    """What one attempt cost, in dollars: its worst case, until more is known."""

    usd: float


Pay: TypeAlias = Callable[[], AbstractContextManager[Payment]]
"""Begins an attempt; how it ends is written into the ``Payment``."""


class Purse:
    """So many dollars, spent by several threads.

    >>> purse = Purse(0.05)
    >>> with purse.pay("gpt-4o", 0.04) as payment:
    ...     payment.usd = 0.01
    >>> purse.spent
    0.01
    >>> with purse.pay("gpt-4o", 0.045):
    ...     pass
    Traceback (most recent call last):
    ctxlab.llm.cost_budget.PurseEmpty: $0.01 of at most $0.05 is spent, and the next call to gpt-4o \
may cost $0.045: raise the bound to go on
    """

    def __init__(self, most: float) -> None:
        if not 0 <= most < math.inf:
            raise SpecError(f"what may be spent is 0 dollars or more, not {most}")
        self.most = most
        self.spent = 0.0
        "what was billed, as far as that is known, and the worst case of what was cut"
        self._aside = 0.0  # for what is under way
        self._under_way = 0
        self._changed = threading.Condition()

    def __repr__(self) -> str:
        return f"Purse({self.most})"

    def __reduce__(self) -> tuple[type[Purse], tuple[float]]:
        return Purse, (self.left,)

    @property
    def left(self) -> float:
        """Dollars that are neither spent nor set aside."""
        return max(self.most - self.spent - self._aside, 0.0)

    def opened(self, model: str, most: float, unwanted: threading.Event) -> Pay:
        """``pay`` for every attempt of one call."""
        return partial(self.pay, model, most, unwanted)

    @contextmanager
    def pay(
        self, model: str, most: float, unwanted: threading.Event | None = None
    ) -> Iterator[Payment]:
        """Sets ``most`` aside for one attempt, and pays what it turns out to cost.

        Where there is room only once others have ended, it waits for them. Raises ``PurseEmpty`` where
        there would be none even then, ``SpecError`` where ``most`` is not known, and
        ``ModelUnavailable`` where it is ``unwanted``.
        """
        if math.isnan(most):
            raise SpecError(
                f"what a call to {model} may cost is not known, so no bound can hold: it takes a model "
                "with a known price and a bound on the tokens of the reply"
            )
        with self._changed:
            while self.spent + self._aside + most > self.most + _EPSILON:
                if not self._under_way:
                    raise PurseEmpty(
                        f"${self.spent:.4g} of at most ${self.most:.4g} is spent, and the next call to "
                        f"{model} may cost ${most:.4g}: raise the bound to go on"
                    )
                self._changed.wait(_HEARD)
                if unwanted is not None and unwanted.is_set():
                    raise ModelUnavailable(f"{model}: nobody waits for the answer", 0)
            self._aside += most
            self._under_way += 1
        payment = Payment(most)
        try:
            yield payment
        finally:
            with self._changed:
                self._under_way -= 1
                # Sums of many small numbers drift: nothing under way is nothing set aside.
                self._aside = self._aside - most if self._under_way else 0.0
                self.spent += most if math.isnan(payment.usd) else payment.usd
                self._changed.notify_all()


def worst_case(request: Request) -> float:
    """The most that one attempt can cost, in USD, by the prices that ctxlab knows.

    nan where the model has no known price or the request does not bound its reply. A model whose
    vocabulary is not public is taken to count half as many tokens again as are counted here. Where long
    prompts are dearer, it goes by the dearest prices from nothing to one per cent above that size.

    >>> from ctxlab.messages.types import Message
    >>> request = Request("gpt-4o", (Message("user", "Hi"),), max_tokens=100)
    >>> worst_case(request), worst_case(Request("gpt-4o", ()))
    (0.00102, nan)
    """
    prices = find_model(request.model).prices
    if not prices.known or request.max_tokens is None:
        return math.nan
    counter = _counter(request.model)
    prompt = counter.request(request.messages, request.tools) * _margin(counter)
    return max(
        prompt * max(rates.input, rates.cache_write, rates.cache_read)
        + request.max_tokens * rates.output
        for rates in (prices, *(tier for tier in prices.above if tier.start * _NEAR <= prompt))
    )


def most_tokens(model: str, text: str) -> float:
    """Tokens that a text has at most, as the model counts."""
    counter = _counter(model)
    return counter.text(text) * _margin(counter)


def _margin(counter: TokenCounter) -> float:
    return 1.0 if counter.exact else _MARGIN


@lru_cache(maxsize=8)
def _counter(model: str) -> TokenCounter:
    return TokenCounter(model)
