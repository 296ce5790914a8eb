"""Baseline of LangChain's ``SummarizationMiddleware``, with its rules for when and where to cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ctxlab.context.context import Context
from ctxlab.context.history import Entry, Form
from ctxlab.messages.types import Message
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.baselines.common.compaction import body_start, newest_that_fit
from ctxlab.strategies.baselines.common.parts import object_arguments
from ctxlab.strategies.baselines.common.summaries import write_unchecked_summary
from ctxlab.strategies.baselines.langchain.trim import trim_to_newest

ContextSize: TypeAlias = tuple[str, float]
"""Size of messages: ``("messages", 20)``, ``("tokens", 4000)``, or ``("fraction", 0.8)`` of the
available tokens."""

Trigger: TypeAlias = ContextSize | tuple[ContextSize, ...] | None
"Size at which a strategy starts. If there are several, any one is enough; None: it never starts."

NOTHING_TO_SUMMARIZE = "Previous conversation was too long to summarize."
"Placeholder for the summary if the summariser's input has no user message."

_SUMMARY_PREFIX = "Here is a summary of the conversation to date:\n\n"


@dataclass(frozen=True, repr=False)
class summarization(BaseStrategy):
    r"""Replaces everything except the newest messages by one summary when a trigger is reached.

    The summariser gets only the last ``trim_tokens_to_summarize`` tokens of the older messages,
    starting with a user message. An earlier summary that is not in this part is lost. If no user
    message is in this part, a placeholder replaces the summary and no model is called. The system
    prompt is not summarised.

    Source: langchain, ``SummarizationMiddleware``.

    Examples
    --------
    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.context.history import History
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> said = [Message("user", text) for text in ("My name is Ada", "Hello", "Bye")]
    >>> context = Context(Budget(99), History(TokenCounter("gpt-4o"), said))
    >>> context.advance(3)
    >>> after = summarization(trigger=("messages", 3), keep=("messages", 1))(context)
    >>> print(after.messages[0].text, after.messages[1].text, sep="\n")
    Here is a summary of the conversation to date:
    <BLANKLINE>
    - user: My name is Ada
    - user: Hello
    Bye
    """

    trigger: ContextSize | tuple[ContextSize, ...] | None = None
    "size at which messages are summarised; if there are several, any one is enough; None: never"
    keep: ContextSize = ("messages", 20)
    "size of the newest messages to keep; a cut before a tool result moves back to its call"
    trim_tokens_to_summarize: int | None = 4000
    "maximum tokens of the messages that the summariser gets; None: all older messages"
    summary_tokens: int = 1000
    "target number of tokens of the summary; a longer summary of a model is used unchanged"
    model: str | None = None
    "name of the model that writes the summary; None: make an extractive summary without a model"

    def __call__(self, context: Context, /) -> Context:
        """Replace everything except the newest messages by one summary when a trigger is reached."""
        head = body_start(context)
        entries = context.entries
        tokens = context.tokens - sum(entry.tokens for entry in entries[:head])
        if not is_triggered(self.trigger, len(entries) - head, tokens, context.available):
            return context
        stop = find_cutoff(entries, head, self.keep, context.available)
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
            context.report("summary: no message for the summariser, so a placeholder is used")
            return NOTHING_TO_SUMMARIZE
        previous = ""
        if entries[0].form is Form.SUMMARY and seen[0] is entries[0].message:
            previous = seen.pop(0).text.removeprefix(_SUMMARY_PREFIX)
        most, model = self.summary_tokens, self.model
        return write_unchecked_summary(context, previous, seen, most, model).strip()


def is_triggered(trigger: Trigger, messages: int, tokens: int, limit: int) -> bool:
    """Return True if a conversation has reached a trigger.

    Parameters
    ----------
    trigger : Trigger
        One size, or several sizes of which at least one must be reached. None: never reached.
    messages : int
        Number of messages of the conversation.
    tokens : int
        Number of tokens of the conversation.
    limit : int
        Number of available tokens. A ``("fraction", ...)`` is a share of this number.

    Returns
    -------
    bool
        True if the conversation has reached at least one of the sizes.

    Examples
    --------
    >>> is_triggered((("messages", 50), ("fraction", 0.8)), messages=10, tokens=800, limit=1000)
    True
    """
    if not trigger:
        return False
    sizes: Any = (trigger,) if isinstance(trigger[0], str) else trigger
    used = {"messages": messages}
    return any(used.get(size[0], tokens) >= size_tokens(size, limit) for size in sizes)


def size_tokens(size: ContextSize, limit: int) -> float:
    """Return the number in a size; a fraction is converted to a number of tokens.

    Parameters
    ----------
    size : ContextSize
        Size to convert.
    limit : int
        Number of available tokens. A ``("fraction", ...)`` is a share of this number.

    Returns
    -------
    float
        Number of messages for a size in messages, otherwise number of tokens. A fraction is
        converted to at least 1 token.
    """
    kind, value = size
    return max(1, int(limit * value)) if kind == "fraction" else value


def find_cutoff(entries: Sequence[Entry], head: int, keep: ContextSize, limit: int) -> int:
    """Return the index of the first entry to keep.

    Parameters
    ----------
    entries : sequence of Entry
        Entries of a context.
    head : int
        Number of system messages at the beginning.
    keep : ContextSize
        Size of the newest messages to keep.
    limit : int
        Number of available tokens. A ``("fraction", ...)`` is a share of this number.

    Returns
    -------
    int
        Index of the entry; ``head`` if all entries are kept.
    """
    kind, value = keep
    if kind == "messages":
        start = len(entries) - int(value)
        return _move_to_call(entries, head, start) if start > head else head
    start = newest_that_fit(entries, max(1, int(size_tokens(keep, limit))), head)
    if head < start == len(entries):
        start -= 1
    return head if start == head else _move_to_call(entries, head, start)


def _move_to_call(entries: Sequence[Entry], head: int, start: int) -> int:
    """Move a cut that is directly before tool results.

    It moves back to their call or, if they have no call, forward to after the results.
    """
    stop, ids = start, set()
    while stop < len(entries) and entries[stop].message.role == "tool":
        ids.add(entries[stop].message.tool_call_id)
        stop += 1
    if stop == start:
        return start
    ids -= {None, ""}
    for index in range(start - 1, head - 1, -1):
        calls = entries[index].message.tool_calls
        if any(call.id in ids and object_arguments(call) is not None for call in calls):
            return index
    return stop
