"""The Complexity Trap (JetBrains, 2025): masking, a summary every few turns, and both."""

from __future__ import annotations

from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.errors import SpecError
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.common.threshold import MAX_SUMMARY_TOKENS, allowed_summary_tokens
from ctxlab.strategies.baselines.swe_agent import last_observations
from ctxlab.strategies.summaries.fold import fold_into_summary

__all__ = ["MODULE_BASELINES", "turn_summary"]

_SOURCE_URL = (
    "https://github.com/Recursive-Safeguarding/the-complexity-trap/blob/"
    "303738f4cbf6c098135a18784b0a198c4a32e283/sweagent/agent/history_processors.py"
)
_VERSION_PREFIX = "The Complexity Trap, arXiv 2508.21433; a fork of JetBrains' code at 303738f, "


@dataclass(frozen=True, repr=False)
class turn_summary(BaseStrategy):
    """Every ``summarize_every`` turns the oldest turns go into the summary, which they extend.

    A turn is what the model says with what is answered. It does not look at the budget.

    >>> from ctxlab import build_messages
    >>> roles = ("user", "assistant")
    >>> talk = [{"role": r, "content": f"{r} {i} " + "word " * 30} for i in range(12) for r in roles]
    >>> sent = build_messages(None, talk, strategy=turn_summary(8, 4))
    >>> len(talk), [m["content"][:14] for m in sent][:4]
    (24, ['user 0 word wo', 'Summary of the', 'assistant 8 wo', 'user 9 word wo'])
    """

    summarize_every: int = 21
    "turns that go into the summary at a time"
    keep_last_m_turns: int = 10
    "newest turns that stay"
    summary_tokens: int = MAX_SUMMARY_TOKENS
    "of the summary at most, and at most a tenth of the window"
    model: str | None = None
    "model that writes the summary; None: its lines are extracted and no model is called"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.summarize_every:
            raise SpecError("turn_summary: summarize_every is 0; a summary takes one turn at least")

    def __call__(self, context: Context, /) -> Context:
        looked, turns, due = context.strategy_state.get(self, (0, (), self._max_turns))
        new = context.history.entries[looked : context.history_length]
        turns = (*turns, *(e.start for e in new if e.message.role == "assistant"))
        if len(turns) >= due:
            keep, head = self.keep_last_m_turns, context.first_droppable
            stop = context.index_at_or_after(turns[-keep]) if keep else len(context.entries)
            stop = context.next_safe_cut(stop)
            tokens = allowed_summary_tokens(context, self.summary_tokens)
            if stop > head and fold_into_summary(context, head, stop, tokens, self.model):
                turns, due = turns[len(turns) - keep :], self._max_turns
            else:
                due = len(turns) + 1 + self.summarize_every // 2
        context.strategy_state[self] = context.history_length, turns, due
        return context

    @property
    def _max_turns(self) -> int:
        return self.summarize_every + self.keep_last_m_turns


MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "complexity_trap.masking",
        last_observations(n=10),
        _VERSION_PREFIX + "configuration N=1, M=10",
        _SOURCE_URL,
        "SWE-agent's LastNObservations with 10: its own best, and not to be carried over to other"
        " scaffolds unchanged.",
    ),
    Baseline(
        "complexity_trap.summary",
        turn_summary(),
        _VERSION_PREFIX + "static checkpointing, N=21, M=10",
        _SOURCE_URL,
        "Once 31 turns stand after the summary, the oldest 21 go into it. There the summary is the"
        " assistant's message and bounded by nothing; here it is the user's. A turn there is one "
        "call with one result, and whatever else is said between turns is dropped; here it is"
        " summarised with them, and no pair is broken.",
    ),
    Baseline(
        "complexity_trap.hybrid",
        turn_summary() | last_observations(n=10),
        _VERSION_PREFIX + "static checkpointing, N=21, M=10, then LastNObservations 10",
        _SOURCE_URL,
        "The summary of every 21 turns, and of the turns that stay all but the last 10 observations"
        " masked. The paper's other window is summarize_every=43.",
    ),
)
