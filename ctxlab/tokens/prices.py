"""Token prices in USD, with higher prices for long prompts.

Some providers have higher prices for long prompts (Google from 200,001 tokens, OpenAI from 272,001,
Alibaba in several steps). They bill all tokens of such a request at the higher prices, including
those below the threshold, cached tokens and the reply. litellm's cost calculator does the same.
"""

from __future__ import annotations

import math

import msgspec

from ctxlab.messages.types import Usage


class Rates(msgspec.Struct, frozen=True):
    """Price per token in USD, by kind of token; 0.0 if unknown."""

    input: float = 0.0
    "price of an input token"
    output: float = 0.0
    "price of an output token"
    cache_read: float = 0.0
    """price of a token read from the prompt cache; the input price if the provider publishes no
    other"""
    cache_write: float = 0.0
    "total price of a token written to the prompt cache, never below the input price"


class PriceTier(Rates, frozen=True):
    """Prices of all tokens of a request with a long prompt."""

    start: int = 0
    "tokens of the prompt, cached ones included, from which the tier applies"


class Prices(Rates, frozen=True):
    """Price per token in USD for prompts of any length; 0.0 if unknown.

    Discounts for batches or off-peak hours are not included, and neither are prices of hidden
    reasoning that differ from the output price.
    """

    above: tuple[PriceTier, ...] = ()
    "prices for longer prompts, by ascending ``start``; below the first, the own rates apply"

    @property
    def known(self) -> bool:
        """True if the price is known."""
        return self.input > 0

    @property
    def tiers(self) -> tuple[Rates, ...]:
        """All rates, from the shortest prompts to the longest."""
        return self, *self.above

    def rates_for(self, prompt_tokens: float) -> Rates:
        """Return the rates for a request.

        Parameters
        ----------
        prompt_tokens : float
            Tokens of the prompt.

        Returns
        -------
        Rates
            The rates.

        Examples
        --------
        >>> prices = Prices(1e-6, 8e-6, above=(PriceTier(2e-6, 12e-6, start=200_001),))
        >>> prices.rates_for(200_000).input, prices.rates_for(200_001).input
        (1e-06, 2e-06)
        """
        return self.tiers[sum(tier.start <= prompt_tokens for tier in self.above)]

    def cost(self, usage: Usage) -> float:
        """Return the cost of a request.

        Parameters
        ----------
        usage : Usage
            Its tokens.

        Returns
        -------
        float
            Cost in USD; nan if no price is known.

        Examples
        --------
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
    """Fill gaps in listed prices: a missing cache price equals the input price.

    In litellm's table a write price of 0.0 means that writing costs nothing extra, and some entries
    list the read price as write price. A written token still costs at least as much as an input
    token.

    Parameters
    ----------
    input : float or None
        Price of an input token.
    output : float or None
        Price of an output token.
    read : float or None
        Price of a token read from the cache.
    write : float or None
        Price of a token written to the cache.

    Returns
    -------
    tuple of (float, float, float, float)
        The four prices in this order.

    Examples
    --------
    >>> fill_missing_prices(2e-6, 8e-6, None, 0.0)
    (2e-06, 8e-06, 2e-06, 2e-06)
    """
    plain = input or 0.0
    return plain, output or 0.0, plain if read is None else read, max(write or 0.0, plain)
