"""Strategy that keeps a summary of all messages before a recent window.

When more messages leave the window, the summary is extended. Messages in the window stay unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.messages.types import Message
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.summaries.fold import SUMMARY_HEADER, fold_into_summary
from ctxlab.strategies.summaries.llm import load_prompt


@dataclass(frozen=True, repr=False)
class rolling_summary(BaseStrategy):
    """Replaces all messages before a recent window by one summary when the context fills up.

    Compaction starts when the context exceeds a share ``trigger`` of the available tokens, and
    reduces it to a share ``target``. Compactions are therefore rare, and a prompt cache stays valid
    between them. Each summary extends the previous one. If a summary is not shorter than the
    messages, it is rejected and the messages stay. If the model fails or its reply is not a usable
    summary, a summary is extracted without a model. Both cases are reported as events.

    Source: design notes "Robustness" (summary and recent messages; 10.7) and "Workspace-scoped
    sessions" (rolling summary and a bounded window, both capped).

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> talk = [{"role": "user", "content": f"line {i}: " + "word " * 20} for i in range(100)]
    >>> sent = build_messages(None, talk, strategy=rolling_summary(tokens=99), limit=999, reserve=0)
    >>> len(sent), [line[:24] for line in sent[1]["content"].splitlines()[1:3]]
    (14, ['## Goal', '[… 84 more]'])
    """

    trigger: float = 0.8
    "share of the available tokens above which compaction starts"
    target: float = 0.5
    "share of the available tokens that the request may take after compaction"
    keep_recent: int = 20
    "maximum number of newest messages to keep; fewer are kept if they do not fit ``target``"
    tokens: int = 2000
    "maximum tokens of the summary, limited to a third of the tokens allowed by ``target``"
    model: str | None = None
    "model that writes the summary; None: the summary is extracted without a model"
    prompt: str = "structured"
    """prompt of the model: ``summary``, ``structured`` or the path of a file; extracted summaries
    have sections if this is ``structured``"""

    def __post_init__(self) -> None:
        """Raise SpecError if a parameter is invalid or the prompt is unknown."""
        super().__post_init__()
        load_prompt(self.prompt)

    def __call__(self, context: Context, /) -> Context:
        """Summarise older messages if the request exceeds ``trigger`` of the available tokens."""
        if context.tokens <= self.trigger * context.available:
            return context
        head, tail, entries = context.first_droppable, context.last_unit_start, context.entries
        room = self.target * context.available
        tokens = min(self.tokens, int(room / 3))
        header = context.history.counter.count_message(Message("user", SUMMARY_HEADER))
        room -= tokens + header + sum(entry.tokens for entry in entries[:head])
        start = len(entries)
        while start > head and len(entries) - start < self.keep_recent:
            room -= entries[start - 1].tokens
            if room < 0:
                break
            start -= 1
        start = min(context.next_safe_cut(start), tail)
        if start <= head:
            return context
        part = sum(entry.tokens for entry in entries[head:start])
        # After a rejected summary, wait until twice as many tokens can be summarised.
        if self.model is not None and part < 2 * context.strategy_state.get(self, 0):
            return context
        done = fold_into_summary(context, head, start, tokens, self.model, self.prompt)
        context.strategy_state[self] = 0 if done else part
        return context
