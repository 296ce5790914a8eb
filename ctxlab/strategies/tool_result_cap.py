"""Capping cuts each tool result when it arrives, as an agent loop does before it appends one."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.base import BaseStrategy, rewrite_tool_results, tool_result_positions
from ctxlab.strategies.helpers.text import with_text

__all__ = ["tool_result_cap"]


@dataclass(frozen=True, repr=False)
class tool_result_cap(BaseStrategy):
    """No tool result is longer than ``chars`` characters; the rest of it is never sent.

    Cutting at arrival changes nothing that was sent before, so the prompt cache is kept whole.

    >>> from ctxlab.messages.types import Message
    >>> tool_result_cap(chars=5, marker="…").cut(Message("tool", "a long result"), None).content
    'a lon…'

    Source: seed design "Hybrid session management" (``MAX_TOOL_RESULT_CHARS = 4000``).
    """

    chars: int = 4000
    "characters of a tool result that are kept"
    marker: str = "\n\n[truncated]"
    "what stands after a cut; it comes on top of ``chars``"

    def __call__(self, context: Context, /) -> Context:
        upto = bisect_left(tool_result_positions(context), context.history_length)
        rewrite_tool_results(context, self, upto, self.cut, Form.TRUNCATED)
        return context

    def cut(self, message: Message, _: ToolCall | None) -> Message | None:
        """The message with its text cut; None where it is short enough."""
        text = message.text
        if len(text) <= self.chars:
            return None
        return with_text(message, text[: self.chars] + self.marker)
