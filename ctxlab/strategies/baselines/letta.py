"""Baselines of Letta, which summarises the oldest messages, and more of them until the rest fits."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.common import compaction
from ctxlab.strategies.baselines.settings import Setting, unavailable


@dataclass(frozen=True, repr=False)
class evict_share(compaction.CompactingStrategy):
    """Summarises the oldest 40 % of the messages, or 50 % and so on, until the rest is small enough.

    The cut moves back to an assistant message. If there is no valid cut, or if the request is still
    too large, all messages except the system prompt are summarised.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> roles = ("user", "assistant")
    >>> talk = [{"role": r, "content": f"{r} {i} " + "word " * 30} for i in range(12) for r in roles]
    >>> sent = build_messages(None, talk, strategy=evict_share(), limit=800, reserve=0)
    >>> len(talk), [m["content"][:14] for m in sent][:3]
    (24, ['Summary of the', 'assistant 5 wo', 'user 6 word wo'])
    """

    trigger: float = 1.0
    "share of the window at which compaction starts, if ``headroom`` is None"
    headroom: int | None = None
    """compaction starts when fewer than this number of tokens of the window are free, limited to a fifth
    of the window"""
    sliding_window_percentage: float = 0.30
    """share of the messages to summarise, increased by 0.1 before each attempt; the remaining
    messages may take ``1 - sliding_window_percentage`` of the window"""
    clip_chars: int = 50_000
    """maximum characters of the summary, at four characters per token; never more than a tenth of the
    window"""
    model: str | None = None
    "name of the model that writes the summary; None: make an extractive summary without a model"

    def __call__(self, context: Context, /) -> Context:
        """Summarise as many of the oldest messages as needed to make the rest small enough."""
        size = compaction.window_tokens(context)
        limit = self.trigger * size
        if self.headroom is not None:
            limit = size - min(self.headroom, size // 5)
        start = compaction.body_start(context)
        if not self.should_compact(context, limit) or start == len(context.entries):
            return context
        stop = self._find_cut(context, start) or len(context.entries)
        tokens = self.clip_chars // 4
        self.compact(context, start, stop, tokens)
        first = context.entries[start]
        # Letta counts the rest without the summary.
        too_large = compaction.prompt_tokens(context) - first.tokens >= limit
        if first.form is Form.SUMMARY and too_large and start + 1 < len(context.entries):
            self.compact(context, start, len(context.entries), tokens)
        return context

    def _find_cut(self, context: Context, start: int) -> int | None:
        entries = context.entries[start:]
        total = 1 + len(entries)  # Letta counts the system prompt too
        window = compaction.window_tokens(context)
        goal = (1 - self.sliding_window_percentage) * window
        system = sum(entry.tokens for entry in context.entries[:start])
        before = [0, *accumulate(entry.tokens for entry in entries)]
        share, left, cut = self.sliding_window_percentage, float(window), 0
        while left >= goal and share < 1.0:
            share += 0.10
            place = min(round(share * total), total - 1)
            while place >= 1 and entries[place - 1].message.role != "assistant":
                place -= 1
            if place >= 1:
                cut, left = place, system + before[-1] - before[place - 1]
        if share >= 1.0 or not 1 < cut < total - 1 or not context.is_safe_cut(start + cut - 1):
            return None
        return start + cut - 1


_AGENT = "PATCH /v1/agents/{agent_id}"
_SETTINGS = (
    Setting(
        "sliding_window_percentage",
        "json",
        _AGENT,
        "compaction_settings.sliding_window_percentage",
    ),
    Setting("clip_chars", "json", _AGENT, "compaction_settings.clip_chars"),
    *unavailable("trigger", "headroom", note="fixed in the source"),
    *unavailable("model", note="of ctxlab; Letta: compaction_settings.model"),
)
_WORKINGS = (
    "the oldest 40 % or more of the messages are replaced by a summary, so that the other messages "
    "take less than 70 % of the window. Letta increases the configured share of 30 % before the first "
    "attempt, so 30 % is never tried. Not implemented: Letta's memory blocks, and its search of the "
    "replaced messages."
)
_SERVER_URL = "https://github.com/letta-ai/letta/blob"
_SOURCE = "letta/services/summarizer/summarizer_sliding_window.py"

MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "letta",
        evict_share(headroom=16_384),
        "Letta 0.34.12 (PyPI; Letta Code with its local backend)",
        "https://pypi.org/project/letta/0.34.12/",
        f"When fewer than 16,384 tokens, or a fifth of a small window, are free, {_WORKINGS} Letta "
        "does not count the system prompt as a message, so its cut may differ by one message. The "
        "thresholds of Letta's cloud service are not published.",
        settings=_SETTINGS,
    ),
    Baseline(
        "letta.v0_16_8",
        evict_share(trigger=0.9),
        "letta 0.16.8",
        "https://pypi.org/project/letta/0.16.8/",
        f"In the server of versions 0.16.6 to 0.16.8, at 0.9 of the window for all models, {_WORKINGS} "
        "A second summary, which is made if the request is still too large, does not contain the "
        "first one in Letta.",
        (
            "model='scripted'",
            "sliding_window_percentage=0.5, model='scripted'",
            "sliding_window_percentage=0.05, model='scripted'",
        ),
        settings=_SETTINGS,
        superseded_by="letta",
    ),
    Baseline(
        "letta.v0_16_4",
        evict_share(),
        "Letta 0.16.4, summarizer at 63d3146 (sliding window) and 1a4b119 (compact)",
        f"{_SERVER_URL}/63d3146fdca2815b21a0f4f21675740a7a797a36/{_SOURCE}",
        f"When the window is full, {_WORKINGS}",
        settings=_SETTINGS,
        superseded_by="letta",
    ),
)
