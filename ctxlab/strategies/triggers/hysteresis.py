"""Wrapper that runs a strategy rarely, so that a prompt cache stays valid between compactions."""

from __future__ import annotations

from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.errors import SpecError
from ctxlab.strategies.base import Strategy
from ctxlab.strategies.triggers.base import WrapperStrategy


@dataclass(frozen=True, repr=False)
class hysteresis(WrapperStrategy):
    """Runs another strategy only when the context exceeds a threshold, and then with a smaller budget.

    Between two compactions, each request starts with the whole previous request, so a prompt cache
    can serve it. The threshold is the share ``trigger`` of the available tokens. During a
    compaction, the budget of the wrapped strategy is only the share ``target`` of these tokens. The
    smaller budget has no effect on a strategy that ignores the budget. If the context is still above
    the threshold after a compaction, an event is reported, and the strategy runs again when half of
    the tokens that are then still free are used.

    Source: ctxlab, modelled on products that compact at a high threshold down to a low one: Letta,
    goose, and Cline, which compacts from 0.9 down to 0.7 of its input limit.

    Examples
    --------
    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.messages.types import Message
    >>> from ctxlab.context.history import History
    >>> from ctxlab.strategies.windows import sliding_window
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> said = [Message("user" if i % 2 else "system", f"This is message {i}") for i in range(12)]
    >>> context = Context(Budget(103), History(TokenCounter("gpt-4o"), said))
    >>> kept = []
    >>> for length in range(6, 13):
    ...     context.advance(length)
    ...     kept.append(len(hysteresis(sliding_window())(context).messages))
    >>> kept
    [6, 7, 8, 5, 6, 7, 8]
    """

    strategy: Strategy
    "strategy that removes tokens"
    trigger: float = 0.8
    "share of the available tokens above which the strategy runs"
    target: float = 0.5
    "share of the available tokens that the strategy gets as its budget"

    def __post_init__(self) -> None:
        """Raise SpecError if ``target`` is greater than ``trigger``."""
        super().__post_init__()
        low, high = self.target, self.trigger
        if low > high:
            raise SpecError(f"hysteresis: expected target <= trigger ({high}), got target {low}")

    def __call__(self, context: Context, /) -> Context:
        """Run the wrapped strategy with the smaller budget if the context exceeds the threshold."""
        whole, level = context.available, self.trigger * context.available
        if context.tokens <= level:
            context.strategy_state.pop(self, None)
            return context
        if context.tokens <= min(context.strategy_state.get(self, level), whole):
            return context
        told = len(context.events)
        sent = context.run_with_budget_share(self.target, self.strategy)
        if sent.tokens <= whole:  # the target was missed, but the request fits the budget
            context.events[told:] = [e for e in context.events[told:] if e[1] != "stuck"]
        if sent.tokens > level:
            context.report("hysteresis: still above the trigger")
            context.strategy_state[self] = (sent.tokens + whole) // 2
        return sent
