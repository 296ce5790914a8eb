"""Baseline of LangChain's ``SummarizationMiddleware``, and its rules for when and where to cut."""

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

ContextSize: TypeAlias = tuple[str, float]
"""Size as ``("messages", 20)``, ``("tokens", 4000)`` or ``("fraction", 0.8)`` of the available
tokens."""

NOTHING_TO_SUMMARIZE = "Previous conversation was too long to summarize."
"Placeholder for the summary if the summariser's input has no user message."

_SUMMARY_PREFIX = "Here is a summary of the conversation to date:\n\n"


@dataclass(frozen=True, repr=False)
class summarization(BaseStrategy):
    r"""Replaces everything but the newest messages by one summary once a trigger is reached.

    The summariser gets the newest ``trim_tokens_to_summarize`` tokens of the older part, from a
    user message on. An earlier summary may lie before that. If there is no user message, a
    placeholder replaces the summary and no model is called. The system prompt is not summarised.

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
    "size, or any of several sizes, from which messages are summarised; None: never"
    keep: ContextSize = ("messages", 20)
    "size of the newest part to keep; a cut before a tool result moves back to its call"
    trim_tokens_to_summarize: int | None = 4000
    "tokens that the summariser sees; None: all of the older part"
    summary_tokens: int = 1000
    "tokens that a summary should have; a longer reply of a model is used as it is"
    model: str | None = None
    "model that writes the summary; None: it is extracted and no model is called"

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
            context.report("summary: no message for the summariser, so a placeholder is used")
            return NOTHING_TO_SUMMARIZE
        previous = ""
        if entries[0].form is Form.SUMMARY and seen[0] is entries[0].message:
            previous = seen.pop(0).text.removeprefix(_SUMMARY_PREFIX)
        return write_unchecked_summary(
            context, previous, seen, self.summary_tokens, self.model
        ).strip()


def count_leading_system_entries(context: Context) -> int:
    """Return the number of leading system messages.

    Parameters
    ----------
    context : Context
        The context.

    Returns
    -------
    int
        Index of the first other message.
    """
    entries = context.entries
    return next((i for i, e in enumerate(entries) if e.message.role != "system"), len(entries))


def is_triggered(
    trigger: ContextSize | tuple[ContextSize, ...] | None, messages: int, tokens: int, limit: int
) -> bool:
    """Return True if a conversation has reached a trigger, or any of several.

    Parameters
    ----------
    trigger : ContextSize, tuple of ContextSize or None
        Size or sizes; None is never reached.
    messages : int
        Number of messages.
    tokens : int
        Number of tokens.
    limit : int
        Available tokens, of which a fraction is a share.

    Returns
    -------
    bool
        True if a size is reached.

    Examples
    --------
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
    """Return the index of the first entry to keep.

    Parameters
    ----------
    entries : sequence of Entry
        Entries of a context.
    head : int
        Number of leading system messages.
    tokens : int
        Tokens of the entries after the head.
    keep : ContextSize
        Size of the newest part to keep.
    limit : int
        Available tokens, of which a fraction is a share.

    Returns
    -------
    int
        Index of the entry; ``head`` if nothing is dropped.
    """
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
    """Return True if the arguments of a call are a JSON object.

    LangChain stores other calls apart and does not find them.

    Parameters
    ----------
    call : ToolCall
        The call.

    Returns
    -------
    bool
        True for an object.
    """
    try:
        return isinstance(json.loads(call.arguments or "{}"), dict)
    except ValueError:
        return False


def _move_to_call(entries: Sequence[Entry], head: int, start: int) -> int:
    """Move a cut before results back to their call, or after them if there is no call."""
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
