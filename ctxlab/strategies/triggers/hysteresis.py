"""Compacting rarely and deeply keeps the prompt cache: what is there is read until there is no room."""

from __future__ import annotations

from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.errors import SpecError
from ctxlab.strategies.base import Strategy
from ctxlab.strategies.triggers.base import WrapperStrategy

__all__ = ["hysteresis"]


@dataclass(frozen=True, repr=False)
class hysteresis(WrapperStrategy):
    """Another strategy is asked only when the context fills up, and then to cut below a target.

    Between two compactions each request begins with the whole of the one before, so a prompt cache
    serves it. A strategy that cuts to fit is told of a smaller budget while it is asked; one that does
    not look at the budget does what it always does. Where the context is then still above the trigger,
    that is reported, and the strategy is asked again once half of the room that is left is used.

    Source: ctxlab, after products that compact at a high mark and go down to a low one: Letta, goose,
    Cline (0.9 and 0.7 of the input).

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
    "what compacts"
    trigger: float = 0.8
    "share of the available tokens above which it is asked"
    target: float = 0.5
    "share of the available tokens that it may use"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target > self.trigger:
            raise SpecError(
                f"hysteresis: the target {self.target} is above the trigger {self.trigger}"
            )

    def __call__(self, context: Context, /) -> Context:
        whole, level = context.available, self.trigger * context.available
        if context.tokens <= level:
            context.strategy_state.pop(self, None)
            return context
        if context.tokens <= min(context.strategy_state.get(self, level), whole):
            return context
        told = len(context.events)
        sent = context.run_with_budget_share(self.target, self.strategy)
        if sent.tokens <= whole:  # what could not be made to fit the target fits the budget
            context.events[told:] = [e for e in context.events[told:] if e[1] != "stuck"]
        if sent.tokens > level:
            context.report("hysteresis: still above the trigger")
            context.strategy_state[self] = (sent.tokens + whole) // 2
        return sent
