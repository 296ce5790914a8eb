"""Baselines of OpenAI's Responses API: truncation, and compaction on the server."""

from __future__ import annotations

from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.common.compaction import body_start, fresh_start
from ctxlab.strategies.baselines.settings import Setting, unavailable


@dataclass(frozen=True, repr=False)
class drop_oldest(BaseStrategy):
    """Drops the oldest messages of a request that does not fit, also the first user message.

    The system prompt is kept, because the API takes it apart from the conversation. Tool calls and
    their results are dropped together.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> talk = [{"role": "user", "content": f"line {i}"} for i in range(100)]
    >>> sent = build_messages("Be brief.", talk, strategy=drop_oldest(), limit=40, reserve=0)
    >>> [message["content"] for message in sent]
    ['Be brief.', 'line 96', 'line 97', 'line 98', 'line 99']
    """

    def __call__(self, context: Context, /) -> Context:
        """Drop the oldest messages until the request fits."""
        excess, entries = context.excess, context.entries
        first, last = body_start(context), context.last_unit_start
        stop = first
        while excess > 0 and stop < last:
            excess -= entries[stop].tokens
            stop += 1
        stop = context.next_safe_cut(stop)
        if stop > first:
            context.drop(first, stop)
        return context


MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "openai.truncation_auto",
        drop_oldest(),
        "OpenAI Responses API, truncation='auto', as documented in openai 3.57.0",
        "https://pypi.org/project/openai/3.57.0/",
        "If the input exceeds the window, the oldest items of the conversation are dropped. Earlier "
        "versions of the documentation said that items are dropped in the middle. The default is "
        "'disabled', which rejects the request. It is not documented whether calls are dropped "
        "together with their results, as in ctxlab, and of which models the largest possible reply is "
        "subtracted from the window; ctxlab subtracts its reserve.",
    ),
    Baseline(
        "openai.compact",
        fresh_start(trigger=200_000),
        "OpenAI Responses API, compact_threshold, as documented on 2026-11-26",
        "https://developers.openai.com/api/docs/guides/compaction",
        "When the input reaches compact_threshold, the server adds an encrypted item that stands for "
        "everything before it except the instructions. What this item contains, and how large it is, "
        "is not published; ctxlab writes a summary in its place, which says nothing about the quality "
        "of the server's. No default threshold is documented; ctxlab uses 200,000 tokens.",
        settings=(
            Setting(
                "trigger",
                "python",
                "openai",
                "client.responses.create.context_management",
                '[{"type": "compaction", "compact_threshold": {value}}]',
                threshold="tokens",
            ),
            *unavailable("summary_tokens", "model", note="of ctxlab"),
        ),
    ),
)
