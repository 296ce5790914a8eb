"""Strategy that summarises everything before a recent window, and extends the summary later.

The summary covers all older messages. Newer messages stay verbatim.
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
    """Replaces everything before a recent window by one summary when the context fills up.

    Compaction starts when ``trigger`` of the budget is used and goes down to ``target``, so
    compactions are rare and a prompt cache stays valid between them. Each summary extends the
    previous one. A summary that is not shorter than the messages that it replaces is rejected, and
    the rejection is reported. If a model fails or its reply is not a summary, an extracted summary
    is used, and that is reported.

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
    "share of the available tokens at which compaction starts"
    target: float = 0.5
    "share of the available tokens that remain in use after compaction"
    keep_recent: int = 20
    "newest messages to keep at most; fewer if ``target`` is small"
    tokens: int = 2000
    "tokens of the summary at most; never more than a third of the target"
    model: str | None = None
    "model that writes the summary; None: it is extracted and no model is called"
    prompt: str = "structured"
    """prompt of the model: ``summary``, ``structured`` (which also structures extracted summaries),
    or the path of a file"""

    def __post_init__(self) -> None:
        """Raise SpecError if a parameter is invalid or there is no such prompt."""
        super().__post_init__()
        load_prompt(self.prompt)

    def __call__(self, context: Context, /) -> Context:
        """Summarise the messages before the window once the trigger is exceeded."""
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
        # After a rejection, wait until there is twice as much to summarise.
        if self.model is not None and part < 2 * context.strategy_state.get(self, 0):
            return context
        done = fold_into_summary(context, head, start, tokens, self.model, self.prompt)
        context.strategy_state[self] = 0 if done else part
        return context
