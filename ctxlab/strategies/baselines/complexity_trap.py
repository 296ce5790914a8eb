"""Baselines of the paper The Complexity Trap (2025): masking, periodic summaries, and a combination."""

from __future__ import annotations

from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.strategies.baselines.base import Baseline, BaselineStrategy
from ctxlab.strategies.baselines.common.compaction import MAX_SUMMARY_TOKENS, allowed_summary_tokens
from ctxlab.strategies.baselines.settings import Setting, unavailable
from ctxlab.strategies.baselines.swe_agent import last_observations, masking_settings
from ctxlab.strategies.summaries.fold import fold_into_summary

_REPOSITORY_URL = "https://github.com/Recursive-Safeguarding/the-complexity-trap/blob"
_COMMIT = "303738f4cbf6c098135a18784b0a198c4a32e283"
_SOURCE_URL = f"{_REPOSITORY_URL}/{_COMMIT}/sweagent/agent/history_processors.py"
_VERSION_PREFIX = "The Complexity Trap, arXiv 2508.21433; a fork of JetBrains' code at 303738f, "


@dataclass(frozen=True, repr=False)
class turn_summary(BaselineStrategy):
    """Adds the oldest turns to a rolling summary, ``summarize_every`` turns at a time.

    A turn is an assistant message and all messages up to the next assistant message. Turns are
    counted regardless of their tokens, so the budget has no effect.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> roles = ("user", "assistant")
    >>> talk = [{"role": r, "content": f"{r} {i} " + "word " * 30} for i in range(12) for r in roles]
    >>> sent = build_messages(None, talk, strategy=turn_summary(8, 4))
    >>> len(talk), [m["content"][:14] for m in sent][:4]
    (24, ['user 0 word wo', 'Summary of the', 'assistant 8 wo', 'user 9 word wo'])
    """

    positive = ("summarize_every",)
    summarize_every: int = 21
    "number of turns that are added to the summary at a time"
    keep_last_m_turns: int = 10
    "number of newest turns to keep"
    summary_tokens: int = MAX_SUMMARY_TOKENS
    "maximum number of tokens of the summary, limited to a tenth of the context window"
    model: str | None = None
    "name of the model that writes the summary; None: make an extractive summary without a model"

    def __call__(self, context: Context, /) -> Context:
        """Add the oldest turns to a rolling summary, ``summarize_every`` turns at a time."""
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


_PLACE = "the configuration of the run"
_PROCESSORS = "agent.history_processors"
_SUMMARY = "type: summarize_every_n_turns, enable_static_checkpointing: true"
_SUMMARY_SETTINGS = (
    Setting("summarize_every", "yaml", _PLACE, _PROCESSORS, f"[{{{_SUMMARY}, n: {{value}}}}]"),
    Setting(
        "keep_last_m_turns",
        "yaml",
        _PLACE,
        _PROCESSORS,
        f"[{{{_SUMMARY}, n: 21, keep_last_m_turns: {{value}}}}]",
        "n must be given too",
    ),
    *unavailable("summary_tokens", "model", note="of ctxlab"),
)

MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "complexity_trap.masking",
        last_observations(n=10),
        _VERSION_PREFIX + "configuration N=1, M=10",
        _SOURCE_URL,
        "Masks all tool results except the newest 10, like SWE-agent's LastNObservations. In the "
        "paper, 10 was the best value for SWE-agent; it may not suit other agents.",
        settings=masking_settings(_PLACE),
    ),
    Baseline(
        "complexity_trap.summary",
        turn_summary(),
        _VERSION_PREFIX + "static checkpointing, N=21, M=10",
        _SOURCE_URL,
        "When there are 31 turns after the summary, the oldest 21 are added to it. In the paper, "
        "the summary is an assistant message of any length; in ctxlab it is a user message of "
        "limited length. In the paper, a turn is one call with one result, and other messages "
        "between turns are dropped. ctxlab summarises these messages too and keeps calls with "
        "their results.",
        settings=_SUMMARY_SETTINGS,
    ),
    Baseline(
        "complexity_trap.hybrid",
        turn_summary() | last_observations(n=10),
        _VERSION_PREFIX + "static checkpointing, N=21, M=10, then LastNObservations 10",
        _SOURCE_URL,
        "Adds the oldest turns to a summary, 21 at a time, and masks all tool results except the "
        "newest 10. The paper's second setting is summarize_every=43.",
        settings=(*_SUMMARY_SETTINGS, *masking_settings(_PLACE)),
    ),
)
