"""Strategy that truncates each tool result when it is appended."""

from __future__ import annotations

from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.base import BaseStrategy, rewrite_tool_results
from ctxlab.strategies.helpers.text import with_text


@dataclass(frozen=True, repr=False)
class tool_result_cap(BaseStrategy):
    """Truncates tool results that are longer than a maximum; the rest is never sent.

    Results are truncated when they arrive, so earlier messages do not change and the prompt cache
    stays valid.

    Source: design note "Hybrid session management" (``MAX_TOOL_RESULT_CHARS = 4000``).

    Examples
    --------
    >>> from ctxlab.messages.types import Message
    >>> tool_result_cap(chars=5, marker="…").cut(Message("tool", "a long result"), None).content
    'a lon…'
    """

    chars: int = 4000
    "characters of a tool result to keep"
    marker: str = "\n\n[truncated]"
    "text after a truncated result; not counted in ``chars``"

    def __call__(self, context: Context, /) -> Context:
        """Truncate the tool results that are new in the context."""
        return rewrite_tool_results(context, self, self.cut, Form.TRUNCATED)

    def cut(self, message: Message, _: ToolCall | None) -> Message | None:
        """Return a tool result with its text truncated.

        Parameters
        ----------
        message : Message
            A tool result.
        _ : ToolCall or None
            The call of the result; not used.

        Returns
        -------
        Message or None
            The truncated message; None if it is short enough.
        """
        text = message.text
        if len(text) <= self.chars:
            return None
        return with_text(message, text[: self.chars] + self.marker)
