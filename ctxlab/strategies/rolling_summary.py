"""A rolling summary stands for everything that has left the recent window, and grows by extension.

Sources: seed designs "Robustness" (summary, recent messages) and "Workspace-scoped sessions" (rolling
summary and a bounded window, both capped).
"""

from __future__ import annotations

from dataclasses import dataclass

from ctxlab.context import Context
from ctxlab.conversation import Message
from ctxlab.history import Form
from ctxlab.strategies.base import Base
from ctxlab.strategies.extract import Summarizer, extract

__all__ = ["HEADER", "rolling_summary"]

HEADER = "Summary of the conversation so far, written by the engine:\n"


@dataclass(frozen=True, repr=False)
class rolling_summary(Base):
    """When the context fills up, everything older than a recent window becomes one summary message.

    It compacts when ``trigger`` of the budget is used and goes down to ``target``, so that compactions
    are rare and a prompt cache lives between them. A summary that is no shorter than what it would
    replace is rejected and reported.
    """

    trigger: float = 0.8
    "share of the available tokens at which it compacts"
    target: float = 0.5
    "share of the available tokens that it leaves in use"
    keep_recent: int = 20
    "messages that stay at most; fewer where the target is small"
    chars: int = 4000
    "characters of the summary at most; a third of the target's tokens where that is less"
    summarizer: Summarizer = extract
    "writes the summary"

    def __call__(self, context: Context, /) -> Context:
        if context.tokens <= self.trigger * context.available:
            return context
        head, tail, entries = context.head, context.tail, context.entries
        room = self.target * context.available
        chars = min(self.chars, int(room))  # a third of the target, at three characters a token
        empty = context.history.counter.message(Message("user", HEADER))
        room -= chars // 3 + empty + sum(entry.tokens for entry in entries[:head])
        start = len(entries)
        while start > head and len(entries) - start < self.keep_recent:
            room -= entries[start - 1].tokens
            if room < 0:
                break
            start -= 1
        start = min(context.next_cut(start), tail)
        if start <= head:
            return context
        before = sum(entry.tokens for entry in entries[head:start])
        message = self._summary(context, head, start, chars, empty)
        if context.history.counter.message(message) >= before:
            context.report("summary rejected: longer than what it stands for")
            return context
        context.fold(head, start, message)
        context.report("summary")
        return context

    def _summary(self, context: Context, start: int, stop: int, chars: int, empty: int) -> Message:
        folded = context.entries[start:stop]
        previous = ""
        if folded[0].form is Form.SUMMARY:
            previous = folded[0].message.text.removeprefix(HEADER)
            folded = folded[1:]
        messages = [entry.message for entry in folded]
        count, allowed = context.history.counter.message, chars // 3
        while True:
            summary = Message("user", HEADER + self.summarizer(previous, messages, chars))
            tokens = count(summary) - empty
            if tokens <= allowed or chars == 0:
                return summary
            # Other scripts than Latin have fewer characters a token.
            chars = chars * allowed // tokens
