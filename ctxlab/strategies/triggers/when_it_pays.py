"""Wrapper that runs a strategy only when its saving exceeds the cost of a changed prompt cache."""

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

# Used if the prices of a model are unknown: the relative prices of Anthropic, whose cache writes
# are the most expensive of all providers.
_DEFAULT_READ_PRICE, _DEFAULT_WRITE_PRICE = 0.1, 1.25


@dataclass(frozen=True, repr=False)
class when_it_pays(WrapperStrategy):
    r"""Runs another strategy when the tokens it saves are worth more than rewriting the prompt cache.

    The cached part of a request costs the read price per token, and the rest costs the write price.
    Let ``S`` be the number of tokens that the other strategy removes, and ``T`` the number of tokens
    that remain. Let ``U`` be the number of leading tokens that are unchanged since the previous request
    if the other strategy does not run, and ``P`` the same number if it runs. Compaction pays if

        remaining × S × read  >  (T − P) × write + P × read − (S + T − U) × write − U × read + own

    The left side is the saving in the remaining requests. The right side is the extra cost of the
    next request. ``own`` is the cost of the model that the other strategy calls, estimated as the price
    of reading the ``S`` tokens once. Prices are those of the replayed model. If this model charges
    more for long prompts, the requests with and without compaction are each priced by their own
    size. In a cache with explicit breakpoints, only the system prompt stays valid when older
    messages are edited.

    The number of remaining requests is unknown. It is assumed to equal the number of requests since
    the last compaction. Under this assumption, the other strategy runs as soon as the requests since
    the last compaction have paid as much for the ``S`` tokens as rewriting the cache costs. This is
    the break-even rule of the ski-rental problem: rent until the rent paid equals the price of buying.

    If the budget is exceeded, the other strategy runs in any case. A run is reported as the event
    ``compacted: pays`` or ``compacted: no room``. Later strategies of a pipeline should wait until
    the whole budget is used, because otherwise they drop messages that the other strategy would compact.

    The saving is determined by a dry run each time the context has grown by a sixteenth since the
    last dry run. A dry run changes nothing and does not call a model.

    Source: ctxlab; break-even rule of the ski-rental problem (Karlin et al., 1988).

    Examples
    --------
    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.messages.types import Message, ToolCall
    >>> from ctxlab.context.history import History
    >>> from ctxlab.strategies.observation_mask import observation_mask
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> said = [Message("user", "go")]
    >>> for i in range(9):
    ...     said += [Message("assistant", tool_calls=(ToolCall("c", "ls"),))]
    ...     said += [Message("tool", "a line of output\n" * 50, tool_call_id="c")]
    >>> context = Context(Budget(9000), History(TokenCounter("gpt-4o"), said))
    >>> pays = when_it_pays(observation_mask(keep=2), read=0.1, write=1.25)
    >>> for length in range(3, 20, 2):
    ...     context.advance(length)
    ...     context.commit_request(pays(context))
    >>> context.events
    [(5, 'compacted: pays')]
    """

    strategy: Strategy
    "strategy that removes tokens"
    remaining: int | None = None
    """number of future requests in which the tokens are saved; None: the number of requests since
    the last compaction"""
    read: float | None = None
    """price of a token read from the cache, as a share of the input price; None: the model's cache
    price"""
    write: float | None = None
    """price of a token written to the cache, as a share of the input price; None: the model's cache
    price"""

    def __post_init__(self) -> None:
        """Raise SpecError if a dry run of the wrapped strategy would call a model."""
        super().__post_init__()
        without_models(self.strategy)

    def __call__(self, context: Context, /) -> Context:
        """Run the wrapped strategy if it saves cost, or if the budget is exceeded."""
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
        fixed, prices = context.budget.overhead, model.prices
        read, write = self._cache_prices(prices, compacted.tokens + fixed)
        read_now, write_now = self._cache_prices(prices, context.tokens + fixed)
        kept, left = context.unchanged_tokens, compacted.unchanged_tokens
        if left < kept:  # prefix that a cache with breakpoints can still serve
            left = model.cache.readable_prefix(left, context.system_tokens, kept, 0)
        now = kept * read_now + (context.tokens - kept) * write_now
        own = saved * self._model_input_price(prices, saved)
        once = left * read + (compacted.tokens - left) * write + own
        remaining = requests_since if self.remaining is None else self.remaining
        dearer = remaining * context.tokens * (read_now - read)
        return remaining * saved * read + dearer > once - now

    def _cache_prices(self, prices: Prices, prompt: int) -> tuple[float, float]:
        """Return the prices of a cache read and a cache write, relative to the model's input price."""
        read, write, dearer = _DEFAULT_READ_PRICE, _DEFAULT_WRITE_PRICE, 1.0
        if prices.known:
            rates = prices.rates_for(prompt)
            read, write = rates.cache_read / rates.input, rates.cache_write / rates.input
            dearer = rates.input / prices.input
        read = read if self.read is None else self.read
        write = write if self.write is None else self.write
        return read * dearer, write * dearer

    def _model_input_price(self, prices: Prices, tokens: int) -> float:
        """Return the sum of the input prices per token of the models that the strategy calls.

        The sum is divided by the input price per token of the replayed model. The prices are those of
        a request of ``tokens`` tokens.
        """
        others = map(find_model_without_warning, models_used(self.strategy))
        return sum(each.prices.rates_for(tokens).input for each in others) / (prices.input or 1.0)
