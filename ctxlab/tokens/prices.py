"""What a token costs, in USD; where long prompts are dearer, it goes by the size of the prompt.

Providers that ask more for long prompts (Google from 200,001 tokens on, OpenAI from 272,001, Alibaba in
several steps) bill every token of such a request at the higher prices, those below the threshold, those
read from a cache and the reply included. So does litellm's own calculator.
"""

from __future__ import annotations

import math

import msgspec

from ctxlab.messages.types import Usage

__all__ = ["PriceTier", "Prices", "Rates", "fill_missing_prices"]


class Rates(msgspec.Struct, frozen=True):
    """What a token of each kind costs, in USD; 0.0 where no price is known."""

    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0
    "the input price where the provider publishes no other"
    cache_write: float = 0.0
    "what a written token costs in all, so never less than the input price"


class PriceTier(Rates, frozen=True):
    """What every token of a request costs whose prompt is long."""

    start: int = 0
    "tokens of the prompt from which on it holds, cached ones included"


class Prices(Rates, frozen=True):
    """What a token costs, in USD, in prompts of every size; 0.0 where no price is known.

    Discounts for batches or at night, and what hidden reasoning costs where that is not the output
    price, are left out.
    """

    above: tuple[PriceTier, ...] = ()
    "for longer prompts, by rising ``start``; the prices of its own hold below the first"

    @property
    def known(self) -> bool:
        """Whether there is a price to go by."""
        return self.input > 0

    @property
    def tiers(self) -> tuple[Rates, ...]:
        """All there are, from that of the shortest prompts on."""
        return self, *self.above

    def rates_for(self, prompt_tokens: float) -> Rates:
        """What holds for a request with so many tokens of prompt.

        >>> prices = Prices(1e-6, 8e-6, above=(PriceTier(2e-6, 12e-6, start=200_001),))
        >>> prices.rates_for(200_000).input, prices.rates_for(200_001).input
        (1e-06, 2e-06)
        """
        return self.tiers[sum(tier.start <= prompt_tokens for tier in self.above)]

    def cost(self, usage: Usage) -> float:
        """What a call cost in USD, by the size of its prompt; nan where no price is known.

        >>> Prices(2e-6, 8e-6, cache_read=5e-7).cost(Usage(1_000, cache_read=2_000, output=500))
        0.007
        """
        if not self.known:
            return math.nan
        rates = self.rates_for(usage.total_input)
        return (
            usage.input * rates.input
            + usage.cache_read * rates.cache_read
            + usage.cache_write * rates.cache_write
            + usage.output * rates.output
        )


def fill_missing_prices(
    input: float | None, output: float | None, read: float | None, write: float | None
) -> tuple[float, float, float, float]:
    """Prices of a table with the gaps filled: no cache price means the input price.

    A write of 0.0 is litellm's way to say "nothing extra", and some of its entries hold the read price
    in its place: a written token still costs what an input token costs.

    >>> fill_missing_prices(2e-6, 8e-6, None, 0.0)
    (2e-06, 8e-06, 2e-06, 2e-06)
    """
    plain = input or 0.0
    return plain, output or 0.0, plain if read is None else read, max(write or 0.0, plain)
