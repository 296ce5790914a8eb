"""Compaction is an investment: the cache is written anew now, and every later request is shorter."""

from __future__ import annotations

from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.strategies.base import Strategy, models_used
from ctxlab.strategies.triggers.base import (
    WrapperStrategy,
    appended_tokens,
    dry_run_strategy,
    next_dry_run,
    without_models,
)
from ctxlab.tokens.models import find_model_without_warning
from ctxlab.tokens.prices import Prices

__all__ = ["when_it_pays"]

# Where no price is known: what Anthropic asks, of whose cache writes the most is known to be paid.
_DEFAULT_READ_PRICE, _DEFAULT_WRITE_PRICE = 0.1, 1.25


@dataclass(frozen=True, repr=False)
class when_it_pays(WrapperStrategy):
    """Another strategy compacts only when that saves more than writing the cache anew costs.

    A request costs what the cache serves of it at the price of a read and the rest at the price of a
    write. With ``S`` tokens taken away, ``T`` left, ``U`` the unchanged prefix without compaction and
    ``P`` the one with it, it pays where

        remaining × S × read  >  (T − P) × write + P × read − (S + T − U) × write − U × read + own

    ``own``: what a model that the strategy asks takes, as if it read the ``S`` tokens once. All prices
    are those of the model that is replayed; where it asks more for long prompts, the requests
    with compaction and those without are each taken at the prices of their size. A cache that serves
    only up to breakpoints has nothing left of a conversation that is edited further back but the system
    prompt. How many requests remain is not known: it is taken that there are as many until the next
    compaction as there were since the last one. So it compacts when carrying the ``S`` tokens has cost
    about what writing the rest anew costs, as one buys what one has rented long enough. Where the budget
    is exceeded it compacts anyway. Both are reported, as ``compacted: pays`` and ``compacted: no room``.
    What follows it in a pipeline should wait for the whole budget: one that acts at a share of it drops
    what was to be compacted.

    What is taken away is known from a trial, at most one for each sixteenth of the context that is
    appended; nothing of a trial stays. A strategy that asks a model is tried as it is without one.

    Source: ctxlab; the rule for when to buy is that of ski rental (Karlin et al., 1988).

    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.messages.types import Message, ToolCall
    >>> from ctxlab.context.history import History
    >>> from ctxlab.strategies.observation_mask import observation_mask
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> said = [Message("user", "go")]
    >>> for i in range(9):
    ...     said += [Message("assistant", tool_calls=(ToolCall("c", "ls"),))]
    ...     said += [Message("tool", "a line of output\\n" * 50, tool_call_id="c")]
    >>> context = Context(Budget(9000), History(TokenCounter("gpt-4o"), said))
    >>> pays = when_it_pays(observation_mask(keep=2), read=0.1, write=1.25)
    >>> for length in range(3, 20, 2):
    ...     context.advance(length)
    ...     context.commit_request(pays(context))
    >>> context.events
    [(5, 'compacted: pays')]
    """

    strategy: Strategy
    "what compacts"
    remaining: int | None = None
    "requests for which it will have been worth it; None: as many as since it last compacted"
    read: float | None = None
    "price of a token from the cache, as a share of the input price; None: the model's"
    write: float | None = None
    "price of a token that is written to the cache, likewise"

    def __post_init__(self) -> None:
        super().__post_init__()
        without_models(self.strategy)  # raises where it cannot be tried

    def __call__(self, context: Context, /) -> Context:
        since, due = context.strategy_state.get(self, (0, 0))
        if context.excess > 0:
            return self._compact(context, "no room")
        if appended_tokens(context) < due:
            return context
        compacted = dry_run_strategy(context, without_models(self.strategy))
        if self._is_worthwhile(context, compacted, context.request_index - since):
            return self._compact(context, "pays")
        context.strategy_state[self] = since, next_dry_run(context)
        return context

    def _compact(self, context: Context, reason: str) -> Context:
        before, version = context.tokens, context.version
        sent = self.strategy(context)
        if sent is not context or (context.tokens, context.version) != (before, version):
            context.report(f"compacted: {reason}")
            context.strategy_state[self] = context.request_index, next_dry_run(context)
        return sent

    def _is_worthwhile(self, context: Context, compacted: Context, requests_since: int) -> bool:
        saved = context.tokens - compacted.tokens
        if saved <= 0:
            return False
        model = context.history.model
        fixed, prices = context.budget.fixed, model.prices
        read, write = self._cache_prices(prices, compacted.tokens + fixed)
        read_now, write_now = self._cache_prices(prices, context.tokens + fixed)
        kept, left = context.unchanged_tokens, compacted.unchanged_tokens
        if left < kept:  # what a cache with breakpoints has left of the request before
            left = model.cache.readable_prefix(left, context.system_tokens, kept, 0)
        now = kept * read_now + (context.tokens - kept) * write_now
        once = (
            left * read
            + (compacted.tokens - left) * write
            + saved * self._model_input_price(prices, saved)
        )
        remaining = requests_since if self.remaining is None else self.remaining
        dearer = remaining * context.tokens * (read_now - read)
        return remaining * saved * read + dearer > once - now

    def _cache_prices(self, prices: Prices, prompt: int) -> tuple[float, float]:
        """Of a token that is read and one that is written in a prompt of so many; 1 is ``input``."""
        if not prices.known:
            return _or_default(self.read, _DEFAULT_READ_PRICE), _or_default(
                self.write, _DEFAULT_WRITE_PRICE
            )
        rates = prices.rates_for(prompt)
        read, write = rates.cache_read / rates.input, rates.cache_write / rates.input
        dearer = rates.input / prices.input
        return _or_default(self.read, read) * dearer, _or_default(self.write, write) * dearer

    def _model_input_price(self, prices: Prices, tokens: int) -> float:
        """Of a token that models of the strategy's own read, ``tokens`` at once."""
        others = [
            find_model_without_warning(model).prices.rates_for(tokens).input
            for model in models_used(self.strategy)
        ]
        return sum(others) / (prices.input or 1.0)


def _or_default(share: float | None, otherwise: float) -> float:
    return otherwise if share is None else share
