"""Baseline of aider, which limits the turns before the current one to a few thousand tokens."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.common import compaction
from ctxlab.strategies.baselines.settings import Setting, unavailable


@dataclass(frozen=True, repr=False)
class chat_summary(compaction.CompactingStrategy):
    """Summarises earlier turns when the user writes a new message and these turns exceed a budget.

    The newest messages of the earlier turns stay, up to half of the budget. The other messages of
    these turns become a summary. The current turn is never shortened.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> roles = ("user", "assistant")
    >>> talk = [{"role": r, "content": f"{r} {i} " + "word " * 30} for i in range(12) for r in roles]
    >>> sent = build_messages(None, talk[:23], strategy=chat_summary(400))
    >>> [m["content"][:14] for m in sent][:3]
    ['Summary of the', 'user 8 word wo', 'assistant 8 wo']
    """

    max_chat_history_tokens: int | None = None
    "maximum tokens of the earlier turns; None: a sixteenth of the window, within 1,024 to 8,192"
    model: str | None = None
    "name of the model that writes the summary; None: make an extractive summary without a model"

    def __call__(self, context: Context, /) -> Context:
        """When the user writes a new message, summarise the earlier turns if they exceed the budget."""
        spoken = bisect_left(context.history.user_positions, context.history_length)
        if context.strategy_state.get(self) == spoken or not spoken:
            return context
        context.strategy_state[self] = spoken
        most = self.max_chat_history_tokens
        if most is None:
            most = min(max(compaction.window_tokens(context) // 16, 1024), 8192)
        start = compaction.body_start(context)
        current = context.index_at_or_after(context.history.user_positions[spoken - 1])
        done = context.entries[start:current]
        if sum(entry.tokens for entry in done) <= most:
            return context
        split, tail = current, 0
        while split > start and tail + context.entries[split - 1].tokens < most // 2:
            split -= 1
            tail += context.entries[split].tokens
        replied = [each.message.role == "assistant" for each in context.entries[:split]]
        while split > start + 1 and not (replied[split - 1] and context.is_safe_cut(split)):
            split -= 1
        if split - start <= 4:
            split = current
        if context.is_safe_cut(split):
            self.compact(context, start, split, most // 2)
        return context


MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "aider",
        chat_summary(),
        "aider 0.86.2 (PyPI aider-chat), ChatSummary at 041f3a4",
        "https://github.com/Aider-AI/aider/blob/041f3a4a381670449011e3cfbf4d18900452855b/aider/history.py",
        "When the user writes a new message, earlier turns may take a sixteenth of the window. If "
        "they take more, their newest messages stay, up to half of that size, and the other "
        "messages become a summary. aider makes no tool calls and sends the files of the chat "
        "separately; in recordings of other agents, the tool results of earlier turns are "
        "summarised too. Not implemented: if the result is still too large, aider summarises it "
        "again, up to three times.",
        settings=(
            Setting(
                "max_chat_history_tokens", "yaml", ".aider.conf.yml", "max-chat-history-tokens"
            ),
            *unavailable("model", note="of ctxlab; aider: weak-model"),
        ),
    ),
)
