"""Strategy that masks older tool results and keeps all other messages."""

from __future__ import annotations

from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.base import BaseStrategy, rewrite_tool_results
from ctxlab.strategies.helpers.text import shorten_to


@dataclass(frozen=True, repr=False)
class observation_mask(BaseStrategy):
    r"""Replaces each older tool result by a placeholder that states its number of lines.

    Source: Lindenbauer et al., "The Complexity Trap" (JetBrains, 2025), which found that masking
    performs as well as summaries at lower cost; and SWE-agent's ``LastNObservations``, which is
    older.

    Examples
    --------
    >>> from ctxlab.messages.types import Message
    >>> observation_mask().mask(Message("tool", "a line of output\n" * 30), None).content
    '[output left out: 31 lines]'
    """

    keep: int = 10
    "number of newest tool results to keep"

    def __call__(self, context: Context, /) -> Context:
        """Mask all tool results except for the ``keep`` newest."""
        return rewrite_tool_results(context, self, self.mask, Form.STUB, self.keep)

    def mask(self, message: Message, _: ToolCall | None) -> Message | None:
        """Replace the content of a tool result by a placeholder.

        Parameters
        ----------
        message : Message
            Message with the tool result.
        _ : ToolCall or None
            Tool call that produced the result; not used.

        Returns
        -------
        Message or None
            The masked message; None if it would not be shorter than the original.
        """
        return shorten_to(message, f"[output left out: {message.text.count(chr(10)) + 1} lines]")
