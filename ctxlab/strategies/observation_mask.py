"""Masking keeps every step of an agent and leaves out what the older tools answered."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.base import BaseStrategy, rewrite_tool_results, tool_result_positions
from ctxlab.strategies.helpers.text import is_text_only, with_text

__all__ = ["observation_mask"]


@dataclass(frozen=True, repr=False)
class observation_mask(BaseStrategy):
    """All tool results but the newest ``keep`` are replaced by a line that says how much was there.

    >>> from ctxlab.messages.types import Message
    >>> observation_mask().mask(Message("tool", "a line of output\\n" * 30), None).content
    '[output left out: 31 lines]'

    Source: Lindenbauer et al., "The Complexity Trap" (JetBrains, 2025), which found it as good as
    summaries at less cost; SWE-agent's ``LastNObservations`` before it.
    """

    keep: int = 10
    "tool results that stay"

    def __call__(self, context: Context, /) -> Context:
        upto = bisect_left(tool_result_positions(context), context.history_length) - self.keep
        rewrite_tool_results(context, self, upto, self.mask, Form.STUB)
        return context

    def mask(self, message: Message, _: ToolCall | None) -> Message | None:
        """The message with its content masked; None where that would not be shorter."""
        text = message.text
        masked = f"[output left out: {text.count(chr(10)) + 1} lines]"
        if len(text) <= len(masked) and is_text_only(message):
            return None
        return with_text(message, masked)
