"""Baselines of Cline: summaries of earlier turns, and a digest without a model."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.cline.basic import INPUT_SHARE, user_digest
from ctxlab.strategies.baselines.common.threshold import (
    CompactingStrategy,
    body_start,
    is_user_message,
    window_tokens,
)


@dataclass(frozen=True, repr=False)
class earlier_turns(CompactingStrategy):
    """Summarises everything before the last user message, except the newest tokens.

    A cut is possible only at a user message. While an agent works on its first request there is
    none, so nothing is done.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> roles = ("user", "assistant")
    >>> talk = [{"role": r, "content": f"{r} {i} " + "word " * 30} for i in range(12) for r in roles]
    >>> turns = earlier_turns(preserve_recent_tokens=100)
    >>> sent = build_messages(None, talk[:23], strategy=turns, limit=900, reserve=0)
    >>> [m["content"][:14] for m in sent]
    ['Summary of the', 'user 10 word w', 'assistant 10 w', 'user 11 word w']
    """

    threshold_ratio: float = 0.9
    "share of the input tokens at which compaction starts; the input is 0.9 of the window"
    preserve_recent_tokens: int = 20_000
    "newest tokens to keep at least, but no more than the target"
    target_ratio: float = 0.7
    "share of the trigger that remains in use after compaction"
    summary_tokens: int = 4_096
    "tokens of the summary at most; never more than a tenth of the window"
    model: str | None = None
    "model that writes the summary; None: it is extracted and no model is called"

    def __call__(self, context: Context, /) -> Context:
        """Summarise everything before the last user message, except the newest tokens."""
        trigger = self.threshold_ratio * INPUT_SHARE * window_tokens(context)
        start = body_start(context)
        newest = bisect_left(context.history.user_positions, context.history_length) - 1
        if newest < 0 or not self.should_compact(context, trigger):
            return context
        cut = context.index_at_or_after(context.history.user_positions[newest])
        room = min(self.preserve_recent_tokens, self.target_ratio * trigger)
        index = len(context.entries)
        while index > start and room > 0:
            index -= 1
            room -= context.entries[index].tokens
        cut = min(cut, index)
        while cut > start and not (
            is_user_message(context.entries[cut]) and context.is_safe_cut(cut)
        ):
            cut -= 1
        if cut > start:
            self.compact(context, start, cut)
        return context


_URL = "https://github.com/cline/cline/tree/main/sdk/packages/core/src/extensions/context"
_VERSION_PREFIX = "Cline SDK, its description of compaction and compaction-shared.ts at 03297ec; "

MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "cline",
        earlier_turns(),
        _VERSION_PREFIX + "strategy agentic, its default",
        _URL,
        "At 0.81 of the window everything before the last user message becomes a summary, except "
        "the newest 20,000 tokens. If there is only one user message nothing is done; Cline then "
        "cuts texts to make the request fit, which is not imitated. Cline estimates tokens as "
        "characters / 3. The lists of files in its summary are left to the extracted summary or "
        "the model here.",
    ),
    Baseline(
        "cline.basic",
        user_digest(),
        _VERSION_PREFIX + "strategy basic",
        _URL,
        "Works without a model: it keeps all user messages, the newest steps, and a digest of the "
        "rest. Cline attaches the digest to the user message; here it follows that message. The "
        "target of 0.5 of the input is Cline's rule for five turns or more. The digest lists 50 "
        "files and commands here. Since all user messages stay, the request finally outgrows any "
        "window.",
    ),
)
