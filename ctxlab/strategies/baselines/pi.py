"""Baselines of pi, which summarises everything except the newest 20,000 tokens."""

from __future__ import annotations

from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.common import compaction
from ctxlab.strategies.baselines.settings import Setting, unavailable


@dataclass(frozen=True, repr=False)
class recent_messages(compaction.CompactingStrategy):
    """Summarises everything except the newest messages when few tokens of the window are left.

    About ``keep_recent_tokens`` tokens stay: the message that reaches this size, or the next one that is
    not a tool result, is the oldest one kept. It is often an assistant message within a turn.
    A user message at the end is not counted and always stays.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> roles = ("user", "assistant")
    >>> talk = [{"role": r, "content": f"{r} {i} " + "word " * 30} for i in range(12) for r in roles]
    >>> strategy = recent_messages(reserve_tokens=300, keep_recent_tokens=90)
    >>> sent = build_messages(None, talk[:23], strategy=strategy, limit=900, reserve=0)
    >>> [m["content"][:14] for m in sent]
    ['Summary of the', 'assistant 9 wo', 'user 10 word w', 'assistant 10 w', 'user 11 word w']
    """

    reserve_tokens: int = 16_384
    "compaction starts when fewer than this number of tokens of the window are free"
    keep_recent_tokens: int = 20_000
    "about how many tokens of the newest messages stay"
    between_turns: bool = True
    """True: also compact while the agent works; False: only when a user message arrives, or when a
    request exceeds the window"""
    summary_tokens: int = compaction.MAX_SUMMARY_TOKENS
    "maximum number of tokens of the summary, limited to a tenth of the context window"
    model: str | None = None
    "name of the model that writes the summary; None: make an extractive summary without a model"

    def limit(self, size: int) -> int:
        """Return the number of tokens above which compaction starts.

        Parameters
        ----------
        size : int
            Size of the context window in tokens.

        Returns
        -------
        int
            Number of tokens of the request.
        """
        return size - self.reserve_tokens

    def __call__(self, context: Context, /) -> Context:
        """Summarise everything except the newest messages when few tokens of the window are left."""
        entries, start, stop = context.entries, compaction.body_start(context), len(context.entries)
        while stop > start and compaction.is_user_message(entries[stop - 1]):
            stop -= 1
        size, whole = compaction.window_tokens(context), compaction.prompt_tokens(context)
        counted = whole - sum(entry.tokens for entry in entries[stop:])
        due = counted > self.limit(size) and (self.between_turns or stop < len(entries))
        if not (due or whole > size) or not self.should_compact(context, 0):
            return context
        index = compaction.start_of_recent(entries, max(1, self.keep_recent_tokens), start, stop)
        cut = context.next_safe_cut(index)
        if cut >= stop:  # one call has all of the newest tokens; it stays with its results
            cut = index
            while cut > start and not context.is_safe_cut(cut):
                cut -= 1
        if cut <= start or not self.compact(context, start, cut):
            self.postpone(context)
        return context


_FILE = "~/.pi/agent/settings.json"
_DEVICES = unavailable(
    "summary_tokens", "model", note="of ctxlab; pi uses the model of the session"
)
_SETTINGS = (
    Setting("reserve_tokens", "json", _FILE, "compaction.reserveTokens", threshold="free"),
    Setting(
        "keep_recent_tokens",
        "json",
        _FILE,
        "compaction.keepRecentTokens",
        alternatives=(10_000,),
    ),
    *unavailable("between_turns", note="fixed in the source"),
    *_DEVICES,
)
_WORKINGS = (
    "a summary replaces everything except about the newest 20,000 tokens. The cut may be within a "
    "turn. A later summary extends the earlier one. pi estimates the kept tokens as characters / 4; "
    "ctxlab counts them. If all messages together have fewer than 20,000 tokens, nothing is "
    "summarised, so a small window overflows. Not implemented: the lists of read and changed files "
    "that pi appends to a summary"
)

MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "pi",
        recent_messages(),
        "pi 1.6.0 (npm @earendil-works/pi-coding-agent)",
        "https://unpkg.com/@earendil-works/pi-coding-agent@1.6.0/docs/compaction.md",
        "When fewer than 16,384 tokens of the window are free, also between the steps of a turn, "
        f"{_WORKINGS}, and its second summary of the beginning of a turn that is cut.",
        settings=_SETTINGS,
        formats=("pi",),
    ),
    Baseline(
        "pi.v0_80",
        recent_messages(between_turns=False),
        "pi 0.74.2 to 0.80.2 (npm @earendil-works/pi-coding-agent, before @mariozechner)",
        "https://github.com/badlogic/pi-mono/blob/0430917881c87bcba8b8ca4c450d67219a3b86cf/packages/coding-agent/src/core/compaction/compaction.ts",
        "When a user message arrives and fewer than 16,384 tokens of the window are free, or when a "
        f"request overflows, {_WORKINGS}. During a turn the request may grow up to the window.",
        settings=_SETTINGS,
        superseded_by="pi",
    ),
)
