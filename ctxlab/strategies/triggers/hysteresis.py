"""Wrapper that compacts rarely and deeply, so that a prompt cache lasts between compactions."""

from __future__ import annotations

from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.errors import SpecError
from ctxlab.strategies.base import Strategy
from ctxlab.strategies.triggers.base import WrapperStrategy


@dataclass(frozen=True, repr=False)
class hysteresis(WrapperStrategy):
    """Runs another strategy only when the context fills up, and then with a smaller budget.

    Between two compactions each request starts with the whole previous request, so a prompt cache
    serves it. A strategy that cuts to fit sees the smaller budget; one that ignores the budget acts
    as usual. If the context is still above the trigger afterwards, that is reported, and the
    strategy runs again when half of the remaining room is used.

    Source: ctxlab, after products that compact at a high mark and go down to a low one: Letta,
    goose, Cline (0.9 and 0.7 of the input).

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
    "the strategy that compacts"
    trigger: float = 0.8
    "share of the available tokens above which the strategy runs"
    target: float = 0.5
    "share of the available tokens that the strategy may use"

    def __post_init__(self) -> None:
        """Raise SpecError if the target is above the trigger."""
        super().__post_init__()
        low, high = self.target, self.trigger
        if low > high:
            raise SpecError(f"hysteresis: the target {low} is above the trigger {high}; lower it")

    def __call__(self, context: Context, /) -> Context:
        """Run the strategy with the smaller budget once the trigger is exceeded."""
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
