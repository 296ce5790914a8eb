"""Builder for assistant messages that a log splits into blocks, rows or items.

The readers of Anthropic's API, Claude Code, Codex and pi use the builder. Readers of logs in which
every answer names its model use ``most_common_model`` for the model of the recording.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ctxlab.messages.types import Message, ToolCall, Usage


@dataclass
class AssistantMessageBuilder:
    """The parts of an assistant message by kind, each in order."""

    time: float | None = None
    "seconds since 1970"
    usage: Usage | None = None
    "the billed usage"
    texts: list[str] = field(default_factory=list)
    "texts of the content"
    reasoning: list[str] = field(default_factory=list)
    "texts of hidden reasoning"
    calls: list[ToolCall] = field(default_factory=list)
    "tool calls"
    results: list[Message] = field(default_factory=list)
    "tool results of these calls"

    @property
    def message(self) -> Message:
        r"""The assistant message.

        Examples
        --------
        >>> AssistantMessageBuilder(texts=["a", "b"]).message.content
        'a\nb'
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
        """The assistant message, followed by the results."""
        return (self.message, *self.results)


def most_common_model(models: Counter[str]) -> str | None:
    """Return the model that gave most answers; the first one if several gave as many.

    Parameters
    ----------
    models : Counter of str
        Model → number of answers.

    Returns
    -------
    str or None
        The model, or None if no answer names one.

    Examples
    --------
    >>> most_common_model(Counter(["a", "b", "b"])), most_common_model(Counter())
    ('b', None)
    """
    return max(models, key=models.__getitem__, default=None)
