"""What a model said at once is one message, whether a log holds it in blocks, rows or items.

Readers of logs that take an answer apart (Anthropic's API, Claude Code, Codex, pi) collect it here;
those of logs in which every answer names its model take the recording's from here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ctxlab.messages.types import Message, ToolCall, Usage

__all__ = ["AssistantMessageBuilder", "most_common_model"]


@dataclass
class AssistantMessageBuilder:
    """An answer that is being put together, kind by kind and each in order."""

    time: float | None = None
    "seconds since 1970"
    usage: Usage | None = None
    texts: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    results: list[Message] = field(default_factory=list)
    "of its calls"

    @property
    def message(self) -> Message:
        """The assistant's message.

        >>> AssistantMessageBuilder(texts=["a", "b"]).message.content
        'a\\nb'
        """
        return Message(
            "assistant",
            "\n".join(self.texts) if self.texts else None,
            tool_calls=tuple(self.calls),
            reasoning="\n".join(self.reasoning) or None,
            usage=self.usage,
            time=self.time,
        )

    @property
    def messages(self) -> tuple[Message, ...]:
        """The message and, behind it, the results."""
        return (self.message, *self.results)


def most_common_model(models: Counter[str]) -> str | None:
    """The model that gave most answers; of several, the first of them. None where none is named.

    >>> most_common_model(Counter(["a", "b", "b"])), most_common_model(Counter())
    ('b', None)
    """
    return max(models, key=models.__getitem__, default=None)
