"""Baseline of Roo Code, which summarises the whole conversation or hides half of its messages."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, islice

from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.messages.types import Message
from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.common import compaction
from ctxlab.strategies.baselines.settings import Setting, unavailable


@dataclass(frozen=True, repr=False)
class condense(compaction.CompactingStrategy):
    """Replaces the conversation by one summary, or hides the older half of its messages.

    Messages are hidden if summarising is disabled or fails. Hidden messages are not sent; one
    message with their number is sent instead. The first message is never hidden.
    Messages are counted as in Anthropic's API: all tool results and user messages between two
    assistant messages count as one message.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> roles = ("user", "assistant")
    >>> talk = [{"role": r, "content": f"{r} {i} " + "word " * 30} for i in range(12) for r in roles]
    >>> halve = condense(auto_condense_context=False, max_tokens=100)
    >>> sent = build_messages(None, talk, strategy=halve, limit=900, reserve=0)
    >>> len(talk), [m["content"][:20] for m in sent][:3]
    (24, ['user 0 word word wor', '[10 messages hidden ', 'assistant 5 word wor'])
    """

    auto_condense_context: bool = True
    "True: summarise; False: only hide messages"
    auto_condense_context_percent: int = 100
    "percentage of the window at which to summarise, even if the reply would still have enough room"
    max_tokens: int = 8192
    "number of tokens reserved for the reply, in addition to a tenth of the window"
    summary_tokens: int = compaction.MAX_SUMMARY_TOKENS
    "maximum number of tokens of the summary, limited to a tenth of the context window"
    model: str | None = None
    "name of the model that writes the summary; None: make an extractive summary without a model"

    def __call__(self, context: Context, /) -> Context:
        """Replace the conversation by one summary, or hide the older half of its messages."""
        size, start = compaction.window_tokens(context), compaction.body_start(context)
        allowed = max(0, 0.9 * size - self.max_tokens)
        limit = min(allowed + 1, self.auto_condense_context_percent / 100 * size)
        if start == len(context.entries):
            return context
        due = self.auto_condense_context and self.should_compact(context, limit)
        if due and self.compact(context, start, len(context.entries)):
            return context
        if compaction.prompt_tokens(context) > allowed:
            self._hide_older_half(context, start)
        return context

    def _hide_older_half(self, context: Context, start: int) -> None:
        """Hide up to half of the messages after the first one, always an even number."""
        entries = context.entries
        seen = [i for i in range(start, len(entries)) if entries[i].start < entries[i].stop]
        groups: list[int] = []
        for replied, run in groupby(seen, lambda i: entries[i].message.role == "assistant"):
            groups += islice(run, None if replied else 1)
        going = (len(groups) - 1) // 2 // 2 * 2
        if going <= 0:
            return
        first, stop = groups[1], context.next_safe_cut(groups[going + 1])
        stop = min(stop, max(first, context.last_unit_start))
        if first < stop:
            context.drop(first, stop)
            marker = Message("user", f"[{going} messages hidden to make room]")
            context.insert(first, marker, Form.REWRITTEN)


MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "roo",
        condense(),
        "Roo Code, context-management at 0cc04f4 and condense of a fork at 8400c68",
        "https://github.com/RooCodeInc/Roo-Code/blob/0cc04f43f1a1e340df9a72771c2cb80df6e103b3/src/core/context-management/index.ts",
        "The prompt limit is 0.9 of the window, minus the tokens reserved for the reply. When the "
        "prompt exceeds it, one summary replaces the conversation. If that fails, half of the "
        "messages after the first are hidden, and a line with their number is inserted. The setting "
        "auto_condense_context_percent is 100 by default and then has no effect, because the prompt "
        "limit is lower. In a window of less than 9,100 tokens, no room is left for the prompt, so "
        "every request is summarised. Until the end of 2025, Roo also kept the first message and "
        "the last 3. Not implemented: Roo's outlines of files that were read.",
        settings=(
            Setting(
                "auto_condense_context",
                "dialog",
                "Settings > Context",
                "Automatically trigger intelligent context condensing",
                alternatives=(),
            ),
            Setting(
                "auto_condense_context_percent",
                "dialog",
                "Settings > Context",
                "Threshold to trigger intelligent context condensing",
                "{value} %",
                threshold="percent",
            ),
            Setting(
                "max_tokens",
                "dialog",
                "Settings > Providers",
                "Max Output Tokens",
                note="shown for some models only",
                alternatives=(),
            ),
            *unavailable("summary_tokens", "model", note="of ctxlab"),
        ),
    ),
)
