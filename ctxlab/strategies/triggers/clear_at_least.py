"""Wrapper that skips edits that remove too few tokens to justify a prompt cache miss."""

from __future__ import annotations

from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.strategies.base import Strategy
from ctxlab.strategies.triggers.base import DryRunWrapper, appended_tokens, next_dry_run


@dataclass(frozen=True, repr=False)
class clear_at_least(DryRunWrapper):
    r"""Runs another strategy only when it removes enough tokens to justify the edit.

    The saving is found by a dry run, at most once for each sixteenth of the context that is
    appended. A dry run changes nothing and calls no model.

    Source: Anthropic, context editing, ``clear_at_least`` of ``clear_tool_uses_20250919``; in
    LangChain's ``ClearToolUsesEdit`` a parameter of that name ends the clearing instead.

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
    >>> seldom = clear_at_least(observation_mask(keep=0), tokens=500)
    >>> for length in (3, 5, 7, 9):
    ...     context.advance(length)
    ...     print(seldom(context).tokens)
    269
    533
    74
    338
    """

    strategy: Strategy
    "the strategy that removes tokens"
    tokens: int = 10_000
    "minimum number of tokens to remove at a time"

    def __call__(self, context: Context, /) -> Context:
        """Run the strategy if it removes enough tokens."""
        due = context.strategy_state.get(self, 0)
        if context.tokens < self.tokens or appended_tokens(context) < due:
            return context
        saved = context.tokens - self.dry_run(context).tokens
        if saved >= self.tokens:
            return self.strategy(context)
        context.strategy_state[self] = next_dry_run(context, self.tokens - max(saved, 0))
        return context
