"""Wrapper that runs a strategy seldom and then removes many tokens at once."""

from __future__ import annotations

from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.strategies.base import Strategy
from ctxlab.strategies.triggers.base import (
    DEFAULT_TRIGGER,
    WrapperStrategy,
    appended_tokens,
    check_target,
    check_trigger,
    dry_run_strategy,
    next_dry_run,
    retry_above,
    run_with_target,
    trigger_tokens,
    without_models,
)


@dataclass(frozen=True, repr=False)
class in_batches(WrapperStrategy):
    r"""Runs another strategy only when the context is large, and then removes many tokens at once.

    Between two runs, each request starts with the whole previous request, so a prompt cache can serve
    it. The strategy runs when the context exceeds ``trigger``, or when fewer than ``headroom`` tokens
    of the limit are free. During the run, its budget is only ``target``. The smaller budget has no
    effect on a strategy that ignores the budget.

    With ``tokens``, the strategy runs only if it removes at least this number of tokens. To find out,
    it is run on a copy of the context each time the context has grown by a sixteenth since the last
    such dry run. A dry run changes nothing and calls no model. If the request exceeds the available
    tokens, the strategy runs in any case.

    If the context is still above the trigger after a run, an event is reported. The strategy runs again
    when half of the tokens that are then still free are used, or when the context has grown by half.

    Source: products that compact at a high threshold down to a low one, such as Letta, goose, and
    Cline (from 0.9 down to 0.7 of its input limit); Claude Code and pi, which state the threshold as
    a headroom (33,000 and 16,384 tokens); and ``clear_at_least`` of Anthropic's context editing
    (``clear_tool_uses_20250919``), which is ``tokens``.

    Examples
    --------
    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.messages.types import Message, ToolCall
    >>> from ctxlab.context.history import History
    >>> from ctxlab.strategies.observation_mask import observation_mask
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> said = [Message("user", "go")]
    >>> for i in range(4):
    ...     said += [Message("assistant", tool_calls=(ToolCall("c", "ls"),))]
    ...     said += [Message("tool", "a line of output\n" * 50, tool_call_id="c")]
    >>> context = Context(Budget(9000), History(TokenCounter("gpt-4o"), said))
    >>> seldom = in_batches(observation_mask(keep=0), trigger=0, tokens=500)
    >>> for length in (3, 5, 7, 9):
    ...     context.advance(length)
    ...     print(seldom(context).tokens)
    269
    533
    74
    338
    """

    strategy: Strategy
    "strategy that removes tokens"
    trigger: float = DEFAULT_TRIGGER
    """size of the context above which the strategy runs: up to 1, a share of the available tokens;
    above 1, a number of tokens of the messages; 0: any size"""
    target: float = 0.5
    "budget of the strategy during a run, given in the same way as ``trigger``"
    tokens: int = 0
    "minimum number of tokens to remove at a time; 0: no minimum, and no dry runs"
    headroom: int | None = None
    """the strategy runs when fewer than this number of tokens of the limit are free, instead of at
    ``trigger``; None: ``trigger`` decides"""

    def __post_init__(self) -> None:
        """Raise SpecError if the parameters contradict each other or a dry run would call a model."""
        super().__post_init__()
        check_trigger(self, self.trigger, self.headroom)
        if self.headroom is None:
            check_target(self, self.target, "trigger", self.trigger)
        if self.tokens:
            without_models(self.strategy)

    def __call__(self, context: Context, /) -> Context:
        """Run the wrapped strategy with the smaller budget if the context exceeds the trigger."""
        level, whole = trigger_tokens(context, self.trigger, self.headroom), context.available
        above, due = context.strategy_state.get(self, (0, 0))
        if context.tokens <= level:
            if above:
                context.strategy_state[self] = 0, due
            return context
        if context.tokens <= whole:
            if context.tokens <= above:
                return context
            if self.tokens and not self._removes_enough(context, above, due):
                return context
        sent = run_with_target(context, self.target, self.strategy)
        if sent.tokens > level > 0:
            context.report("in_batches: still above the trigger")
            context.strategy_state[self] = retry_above(sent.tokens, whole), due
        return sent

    def _removes_enough(self, context: Context, above: int, due: int) -> bool:
        """Return whether a run removes ``tokens``; False between two dry runs."""
        if context.tokens < self.tokens or appended_tokens(context) < due:
            return False
        plain = without_models(self.strategy)
        tried = run_with_target(context, self.target, lambda each: dry_run_strategy(each, plain))
        saved = context.tokens - tried.tokens
        if saved < self.tokens:
            again = next_dry_run(context, self.tokens - max(saved, 0))
            context.strategy_state[self] = above, again
        return saved >= self.tokens
