"""Strategy that truncates long tool results when they are appended to the context."""

from __future__ import annotations

from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.base import BaseStrategy, rewrite_tool_results
from ctxlab.strategies.helpers.text import with_text
from ctxlab.strategies.tool_stubs import OUTCOME_KEY, describe_json


@dataclass(frozen=True, repr=False)
class tool_result_cap(BaseStrategy):
    """Truncates tool results that are longer than a maximum length.

    If the result is JSON, ``tool_stubs`` can still tell its number of results and its files.

    A result is truncated before it is sent for the first time, so messages that were already sent
    do not change and the prompt cache stays valid.

    Source: design note "Hybrid session management" (``MAX_TOOL_RESULT_CHARS = 4000``).

    Examples
    --------
    >>> from ctxlab.messages.types import Message
    >>> tool_result_cap(chars=5, marker="…").cut(Message("tool", "a long result"), None).content
    'a lon…'
    """

    chars: int = 4000
    "maximum number of characters of a tool result to keep"
    marker: str = "\n\n[truncated]"
    "text that marks where a result was truncated; its length is not included in ``chars``"
    tail: float = 0.0
    """share of ``chars`` that is kept from the end of a result, where programs often say how they ended.
    The marker then says how many characters are left out."""

    def __call__(self, context: Context, /) -> Context:
        """Truncate the tool results that were appended since the last request."""
        return rewrite_tool_results(context, self, self.cut, Form.TRUNCATED)

    def cut(self, message: Message, _: ToolCall | None) -> Message | None:
        """Truncate the text of a tool result to ``chars`` characters and add the marker.

        Parameters
        ----------
        message : Message
            Message with the tool result.
        _ : ToolCall or None
            Tool call that produced the result; not used.

        Returns
        -------
        Message or None
            The truncated message; None if the text is short enough.
        """
        text = message.text
        if len(text) <= self.chars:
            return None
        if OUTCOME_KEY not in message.extra and (outcome := describe_json(message)):
            message = message.replace(extra={**message.extra, OUTCOME_KEY: outcome})
        end = int(self.chars * self.tail)
        if not end:
            return with_text(message, text[: self.chars] + self.marker)
        left_out = len(text) - self.chars
        middle = f"{self.marker} {left_out:,} of {len(text):,} characters left out here\n\n"
        return with_text(message, text[: self.chars - end] + middle + text[-end:])
