"""LangChain's ``SummarizationMiddleware``, and its rules for when and where to cut."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ctxlab.context.context import Context
from ctxlab.context.history import Entry, Form
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.baselines.common.summaries import write_unchecked_summary
from ctxlab.strategies.baselines.langchain.trim import trim_to_newest

__all__ = [
    "NOTHING_TO_SUMMARIZE",
    "ContextSize",
    "count_leading_system_entries",
    "find_cutoff",
    "has_object_arguments",
    "is_triggered",
    "summarization",
]

ContextSize: TypeAlias = tuple[str, float]
"""``("messages", 20)``, ``("tokens", 4000)``, or ``("fraction", 0.8)`` of the available tokens."""

NOTHING_TO_SUMMARIZE = "Previous conversation was too long to summarize."
"""What stands for the summary where none of the user's messages is in what the summariser may see."""

_SUMMARY_PREFIX = "Here is a summary of the conversation to date:\n\n"


@dataclass(frozen=True, repr=False)
class summarization(BaseStrategy):
    """From a trigger on, everything but the newest messages becomes one summary by the user's name.

    The summariser is given the newest ``trim_tokens_to_summarize`` of what goes, from a message of
    the user's on: an older summary may be beyond that, and where the user said nothing in it, a
    placeholder stands for the summary and no model is asked. The system prompt is no part of it.

    Source: langchain, ``SummarizationMiddleware``.

    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.context.history import History
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> said = [Message("user", text) for text in ("My name is Ada", "Hello", "Bye")]
    >>> context = Context(Budget(99), History(TokenCounter("gpt-4o"), said))
    >>> context.advance(3)
    >>> after = summarization(trigger=("messages", 3), keep=("messages", 1))(context)
    >>> print(after.messages[0].text, after.messages[1].text, sep="\\n")
    Here is a summary of the conversation to date:
    <BLANKLINE>
    - user: My name is Ada
    - user: Hello
    Bye
    """

    trigger: ContextSize | tuple[ContextSize, ...] | None = None
    "from which size on it summarises, or any of several sizes; None: never"
    keep: ContextSize = ("messages", 20)
    "how much stays; a cut before a tool result moves back to its call"
    trim_tokens_to_summarize: int | None = 4000
    "tokens that the summariser sees; None: all that goes"
    summary_tokens: int = 1000
    "tokens that a summary is to have; a model is not held to it"
    model: str | None = None
    "model that writes the summary; None: its lines are extracted and no model is called"

    def __call__(self, context: Context, /) -> Context:
        head = count_leading_system_entries(context)
        entries, limit = context.entries, context.available
        tokens = context.tokens - sum(entry.tokens for entry in entries[:head])
        if not is_triggered(self.trigger, len(entries) - head, tokens, limit):
            return context
        stop = find_cutoff(entries, head, tokens, self.keep, limit)
        if stop > head:
            said = self._write_summary(context, entries[head:stop])
            context.fold(head, stop, Message("user", _SUMMARY_PREFIX + said))
            context.report("summary")
        return context

    def _write_summary(self, context: Context, entries: Sequence[Entry]) -> str:
        seen = [entry.message for entry in entries]
        if self.trim_tokens_to_summarize is not None:
            counter, room = context.history.counter, self.trim_tokens_to_summarize
            seen = trim_to_newest(seen, room, counter, keep_system=True)
        if not seen:
            context.report("summary: the summariser would see nothing, a placeholder stands")
            return NOTHING_TO_SUMMARIZE
        previous = ""
        if entries[0].form is Form.SUMMARY and seen[0] is entries[0].message:
            previous = seen.pop(0).text.removeprefix(_SUMMARY_PREFIX)
        return write_unchecked_summary(
            context, previous, seen, self.summary_tokens, self.model
        ).strip()


def count_leading_system_entries(context: Context) -> int:
    """How many system messages stand at the beginning."""
    entries = context.entries
    return next((i for i, e in enumerate(entries) if e.message.role != "system"), len(entries))


def is_triggered(
    trigger: ContextSize | tuple[ContextSize, ...] | None, messages: int, tokens: int, limit: int
) -> bool:
    """Whether a conversation of this size has reached the trigger, or any of several.

    >>> is_triggered((("messages", 50), ("fraction", 0.8)), messages=10, tokens=800, limit=1000)
    True
    """
    if not trigger:
        return False
    several = (trigger,) if isinstance(trigger[0], str) else trigger
    for size in several:
        kind, value = size
        if kind == "messages":
            reached = messages >= value
        else:
            reached = tokens >= (max(1, int(limit * value)) if kind == "fraction" else value)
        if reached:
            return True
    return False


def find_cutoff(
    entries: Sequence[Entry], head: int, tokens: int, keep: ContextSize, limit: int
) -> int:
    """Index of the first entry that stays, ``head`` where nothing goes; ``tokens``: those behind it."""
    kind, value = keep
    if kind == "messages":
        start = len(entries) - int(value)
        return _move_to_call(entries, head, start) if start > head else head
    room = max(1, int(limit * value if kind == "fraction" else value))
    if tokens <= room:
        return head
    start = len(entries)
    while start > head and entries[start - 1].tokens <= room:
        start -= 1
        room -= entries[start].tokens
    if start == len(entries):
        if start - head == 1:
            return head
        start -= 1
    return _move_to_call(entries, head, start)


def has_object_arguments(call: ToolCall) -> bool:
    """Whether the arguments are an object: LangChain keeps other calls apart and finds none of them."""
    try:
        return isinstance(json.loads(call.arguments or "{}"), dict)
    except ValueError:
        return False


def _move_to_call(entries: Sequence[Entry], head: int, start: int) -> int:
    """A cut before results moves back to the call, or behind them where there is none."""
    stop, ids = start, set()
    while stop < len(entries) and entries[stop].message.role == "tool":
        ids.add(entries[stop].message.tool_call_id)
        stop += 1
    if stop == start:
        return start
    ids -= {None, ""}
    for index in range(start - 1, head - 1, -1):
        calls = entries[index].message.tool_calls
        if any(call.id in ids and has_object_arguments(call) for call in calls):
            return index
    return stop
