"""Token prices in USD, including higher prices for long prompts.

Some providers have higher prices for long prompts (Google from 200,001 tokens, OpenAI from 272,001,
Alibaba in several steps). The higher prices apply to all tokens of such a request: also to the
tokens below the threshold, to cached tokens and to the reply. litellm's cost calculator uses the
same rule.
"""

from __future__ import annotations

import math

import msgspec

from ctxlab.messages.types import Usage


class Rates(msgspec.Struct, frozen=True):
    """Prices per token in USD for each kind of token; 0.0 if unknown."""

    input: float = 0.0
    "price of an input token"
    output: float = 0.0
    "price of an output token"
    cache_read: float = 0.0
    """price of a token read from the prompt cache; equal to ``input`` if the provider publishes no
    separate price"""
    cache_write: float = 0.0
    "full price of a token written to the prompt cache; never below ``input``"
    cache_write_1h: float = 0.0
    """full price of a token that the prompt cache keeps for an hour; a lower value is raised to
    ``cache_write``, the price at a provider that does not sell this"""

    def __post_init__(self) -> None:
        """Raise the price of a write for an hour to the price of a write."""
        if self.cache_write_1h < self.cache_write:
            msgspec.structs.force_setattr(self, "cache_write_1h", self.cache_write)


class PriceTier(Rates, frozen=True):
    """Prices for requests with a long prompt. They apply to all tokens of the request."""

    start: int = 0
    "minimum number of prompt tokens, including cached ones, for which the prices apply"


class Prices(Rates, frozen=True):
    """Prices per token in USD for prompts of any length; 0.0 if unknown.

    Discounts for batches or off-peak hours are not included. Hidden reasoning is billed at the
    output price, even if the provider has a separate price for it.
    """

    above: tuple[PriceTier, ...] = ()
    "tiers for long prompts in ascending order of ``start``; shorter prompts use this object's prices"

    @property
    def known(self) -> bool:
        """True if the input price is known, that is, greater than 0."""
        return self.input > 0

    @property
    def tiers(self) -> tuple[Rates, ...]:
        """Prices for all prompt lengths, shortest first: this object, then the tiers in ``above``."""
        return self, *self.above

    def rates_for(self, prompt_tokens: float) -> Rates:
        """Return the prices that apply to a prompt of a given length.

        Parameters
        ----------
        prompt_tokens : float
            Number of prompt tokens, including cached ones.

        Returns
        -------
        Rates
            Prices for all tokens of the request.

        Examples
        --------
        >>> prices = Prices(1e-6, 8e-6, above=(PriceTier(2e-6, 12e-6, start=200_001),))
        >>> prices.rates_for(200_000).input, prices.rates_for(200_001).input
        (1e-06, 2e-06)
        """
        return self.tiers[sum(tier.start <= prompt_tokens for tier in self.above)]

    def cost(self, usage: Usage) -> float:
        """Return the cost of a request and its reply.

        Parameters
        ----------
        usage : Usage
            Numbers of tokens of the request and its reply.

        Returns
        -------
        float
            Cost in USD; nan if the price is unknown.

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
            + (usage.cache_write - usage.cache_write_1h) * rates.cache_write
            + usage.cache_write_1h * rates.cache_write_1h
            + usage.output * rates.output
        )


def fill_missing_prices(
    input: float | None,
    output: float | None,
    read: float | None,
    write: float | None,
    long_write: float | None = None,
) -> tuple[float, float, float, float, float]:
    """Fill in the missing prices of a model.

    A missing cache price is replaced by the input price, and a missing input or output price by 0.0.
    A write price below the input price is raised to the input price, because litellm's table lists
    0.0 if writing costs nothing extra, and sometimes lists the read price as write price. In the same
    way, the price of a write for an hour is never below the write price.

    Parameters
    ----------
    input : float or None
        Price of an input token; None if it is missing.
    output : float or None
        Price of an output token.
    read : float or None
        Price of a token read from the cache.
    write : float or None
        Price of a token written to the cache.
    long_write : float or None
        Price of a token written to the cache for an hour.

    Returns
    -------
    tuple of (float, float, float, float, float)
        Prices of input tokens, output tokens, cache reads, cache writes, and cache writes for an hour.

    Examples
    --------
    >>> fill_missing_prices(2e-6, 8e-6, None, 0.0)
    (2e-06, 8e-06, 2e-06, 2e-06, 2e-06)
    """
    plain = input or 0.0
    short = max(write or 0.0, plain)
    long = max(long_write or 0.0, short)
    return plain, output or 0.0, plain if read is None else read, short, long
