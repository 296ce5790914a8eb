"""Baseline of LangChain's ``trim_messages``, which keeps the newest messages that fit.

The strategy ``trim_messages`` edits requests. The function ``trim_to_newest`` selects the messages
that LangChain and LangMem pass to their summarisers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.messages.types import Message
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.helpers.text import with_text
from ctxlab.tokens.counter import TokenCounter

_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}


@dataclass(frozen=True, repr=False)
class trim_messages(BaseStrategy):
    """Keeps the newest messages that fit, even if that separates a tool call from its results.

    The task is dropped like other old messages. The system prompt is dropped too, unless
    ``include_system`` is True.

    Source: langchain-core, ``trim_messages`` with ``strategy="last"``.

    Examples
    --------
    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.context.history import History
    >>> said = [Message("system", "Be brief"), Message("user", "Hello"), Message("user", "Bye")]
    >>> context = Context(Budget(99), History(TokenCounter("gpt-4o"), said))
    >>> context.advance(3)
    >>> [m.content for m in trim_messages(max_tokens=12)(context).messages]
    ['Hello', 'Bye']
    """

    max_tokens: int | None = None
    "maximum number of tokens to keep; None: the available tokens"
    start_on: str | None = None
    """``human``, ``ai``, ``tool`` or ``system``: role of the first kept message. Messages before it
    are dropped. None: any role"""
    include_system: bool = False
    "True: keep a system message at the beginning of the conversation"

    def __call__(self, context: Context, /) -> Context:
        """Drop the oldest messages that do not fit."""
        entries, tokens = context.entries, context.tokens
        room = context.available if self.max_tokens is None else self.max_tokens
        start = 0
        if self.include_system and entries and entries[0].start == 0:
            start = int(entries[0].message.role == "system")
        if start:
            room, tokens = max(0, room - entries[0].tokens), tokens - entries[0].tokens
        stop = start
        while stop < len(entries) and tokens > room:
            tokens -= entries[stop].tokens
            stop += 1
        if self.start_on is not None:
            wanted = _ROLES.get(self.start_on, self.start_on)
            while stop < len(entries) and entries[stop].message.role != wanted:
                stop += 1
        if stop > start:
            context.drop(start, stop)
        return context


def trim_to_newest(
    messages: Sequence[Message], max_tokens: int, counter: TokenCounter, keep_system: bool = False
) -> list[Message]:
    r"""Return the newest messages that fit, starting with a user message.

    The oldest of these messages may be shortened to as many of its last lines as fit.

    Parameters
    ----------
    messages : sequence of Message
        Messages of a conversation.
    max_tokens : int
        Maximum number of tokens of the returned messages.
    counter : TokenCounter
        Token counter.
    keep_system : bool, default False
        Whether to keep a system message at the beginning.

    Returns
    -------
    list of Message
        Kept messages, in order. If no user message fits, the list is empty or contains only the
        system message.

    Examples
    --------
    >>> said = [Message("user", "one\ntwo\nthree"), Message("assistant", "yes")]
    >>> [m.content for m in trim_to_newest(said, 13, TokenCounter("gpt-4o"))]
    ['two\nthree', 'yes']
    """
    first = list(messages[: keep_system and messages[0].role == "system"])
    rest = messages[len(first) :]
    if first:
        max_tokens = max(0, max_tokens - counter.count_message(first[0]))
    start = len(rest)
    while start and (tokens := counter.count_message(rest[start - 1])) <= max_tokens:
        max_tokens -= tokens
        start -= 1
    kept = list(rest[start:])
    if start and (part := _trim_message(rest[start - 1], max_tokens, counter)):
        kept.insert(0, part)
    begin = next((i for i, message in enumerate(kept) if message.role == "user"), len(kept))
    return [*first, *kept[begin:]]


def _trim_message(message: Message, max_tokens: int, counter: TokenCounter) -> Message | None:
    content = message.content
    if isinstance(content, tuple):
        for dropped in range(1, len(content)):
            shorter = message.replace(content=content[dropped:])
            if counter.count_message(shorter) <= max_tokens:
                return shorter
        content = str(content[-1].get("text") or "") if content else ""
    if not content:
        return None
    lines = content.split("\n")
    lines = [line + "\n" for line in lines[:-1]] + lines[-1:]
    lines.reverse()
    fewest, most = 0, len(lines)
    while fewest < most:
        middle = (fewest + most + 1) // 2
        # The lines are counted in reverse order, as LangChain does.
        if counter.count_message(with_text(message, "".join(lines[:middle]))) <= max_tokens:
            fewest = middle
        else:
            most = middle - 1
    return with_text(message, "".join(reversed(lines[:fewest]))) if fewest else None
