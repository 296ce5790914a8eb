"""A rolling summary stands for everything that has left the recent window, and grows by extension.

What stands older than the summary is in it; what is newer stands word for word.
"""

from __future__ import annotations

from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.summaries.fold import fold_into_summary, header_tokens
from ctxlab.strategies.summaries.llm import load_prompt

__all__ = ["rolling_summary"]


@dataclass(frozen=True, repr=False)
class rolling_summary(BaseStrategy):
    """When the context fills up, everything older than a recent window becomes one summary message.

    It compacts when ``trigger`` of the budget is used and goes down to ``target``, so that compactions
    are rare and a prompt cache lives between them. The next summary extends the one before. One that is
    no shorter than what it would replace is rejected and reported; where a model fails or writes what is
    no summary, the summary is written without it and that is reported.

    >>> from ctxlab import build_messages
    >>> talk = [{"role": "user", "content": f"line {i}: " + "word " * 20} for i in range(100)]
    >>> sent = build_messages(None, talk, strategy=rolling_summary(tokens=99), limit=999, reserve=0)
    >>> len(sent), [line[:24] for line in sent[1]["content"].splitlines()[1:3]]
    (14, ['## Goal', '[… 84 more]'])

    Source: seed designs "Robustness" (summary and recent messages; 10.7) and "Workspace-scoped sessions"
    (rolling summary and a bounded window, both capped).
    """

    trigger: float = 0.8
    "share of the available tokens at which it compacts"
    target: float = 0.5
    "share of the available tokens that it leaves in use"
    keep_recent: int = 20
    "messages that stay at most; fewer where the target is small"
    tokens: int = 2000
    "of the summary at most; a third of the target's where that is less"
    model: str | None = None
    "model that writes the summary; None: it is extracted and no model is called"
    prompt: str = "structured"
    "what it is asked for: ``summary``, ``structured`` (with a model and without), or a file of yours"

    def __post_init__(self) -> None:
        super().__post_init__()
        load_prompt(self.prompt)

    def __call__(self, context: Context, /) -> Context:
        if context.tokens <= self.trigger * context.available:
            return context
        head, tail, entries = context.first_droppable, context.last_unit_start, context.entries
        room = self.target * context.available
        tokens = min(self.tokens, int(room / 3))
        room -= tokens + header_tokens(context) + sum(entry.tokens for entry in entries[:head])
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
        # What was rejected is not asked for again until there is twice as much to summarize.
        if self.model is not None and part < 2 * context.strategy_state.get(self, 0):
            return context
        done = fold_into_summary(context, head, start, tokens, self.model, self.prompt)
        context.strategy_state[self] = 0 if done else part
        return context
