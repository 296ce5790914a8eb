"""Baselines of DeepSeek Harness, which keeps a sixth of the window and summarises the rest."""

from __future__ import annotations

from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.common import compaction
from ctxlab.strategies.baselines.settings import Setting, SettingKind, unavailable
from ctxlab.strategies.helpers.text import is_text_only, with_text

_MAX_CHARS, _HEAD_CHARS, _TAIL_CHARS = 8_192, 4_096, 1_024


@dataclass(frozen=True, repr=False)
class retained_share(compaction.CompactingStrategy):
    """Shortens long tool results, then summarises everything except a share of the window.

    Both happen only when the request reaches the threshold. If the shortened request is below it, no
    summary is made. If the request is still above it after a summary, a second one is made. If a
    request exceeds the window, only the newest unit stays.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> roles = ("user", "assistant")
    >>> talk = [{"role": r, "content": f"{r} {i} " + "word " * 30} for i in range(12) for r in roles]
    >>> strategy = retained_share(headroom_tokens=100)
    >>> sent = build_messages(None, talk[:23], strategy=strategy, limit=900, reserve=0)
    >>> [m["content"][:14] for m in sent]
    ['Summary of the', 'assistant 9 wo', 'user 10 word w', 'assistant 10 w', 'user 11 word w']
    """

    threshold_ratio: float = 0.8
    "maximum share of the window at which compaction starts"
    headroom_tokens: int | None = 65_536
    """number of tokens of the window, besides the reply, that are free when compaction starts; None:
    only ``threshold_ratio`` decides"""
    max_tokens: int = 0
    "maximum tokens of the reply that a request asks for; 0: none stated, so none are reserved"
    retain_ratio: float = 0.16
    "share of the window, without the reply, that the kept messages have at least"
    prune: bool = True
    "True: before a summary, cut tool results of more than 8,192 characters to 4,096 + 1,024"
    retries: int = 1
    "number of further summaries if the request is still at the threshold"
    summary_tokens: int = compaction.MAX_SUMMARY_TOKENS
    "maximum number of tokens of the summary, limited to a tenth of the context window"
    model: str | None = None
    "name of the model that writes the summary; None: make an extractive summary without a model"

    def __call__(self, context: Context, /) -> Context:
        """Shorten long tool results, then summarise everything except a share of the window."""
        size = compaction.window_tokens(context)
        limit, retained = self._limits(size)
        due = retained < limit and self.should_compact(context, limit)
        if due:
            self._shorten_results(context)
        attempts = 1 + self.retries if due else 0
        while attempts and compaction.prompt_tokens(context) >= limit:
            attempts = attempts - 1 if self._compact_before(context, retained) else 0
        if compaction.prompt_tokens(context) > size and self.should_compact(context, 0):
            self._shorten_results(context)
            self._compact_before(context, 1)
        return context

    def _limits(self, size: int) -> tuple[int, int]:
        """Return the tokens at which compaction starts, and the minimum tokens of the kept messages."""
        room, limit = size - self.max_tokens, int(self.threshold_ratio * size)
        if self.headroom_tokens is not None:
            limit = min(limit, room - self.headroom_tokens)
        return limit, max(1, int(self.retain_ratio * room))

    def _compact_before(self, context: Context, retained: int) -> bool:
        """Summarise the messages before the newest ``retained`` tokens; return False if none are."""
        entries, start = context.entries, compaction.body_start(context)
        cut = compaction.start_of_recent(entries, retained, start, len(entries))
        while cut > start and not context.is_safe_cut(cut):
            cut -= 1
        if cut > start and self.compact(context, start, cut):
            return True
        self.postpone(context)
        return False

    def _shorten_results(self, context: Context) -> None:
        for index, entry in enumerate(context.entries if self.prune else ()):
            if entry.message.role == "tool":
                context.rewrite(index, _shorten, Form.TRUNCATED)


def _shorten(message: Message, _: ToolCall | None) -> Message | None:
    """Keep the beginning and the end of a tool result; None if it is short or has images."""
    text = message.text
    if len(text) <= _MAX_CHARS or not is_text_only(message):
        return None
    gone = len(text) - _HEAD_CHARS - _TAIL_CHARS
    return with_text(message, f"{text[:_HEAD_CHARS]}\n[{gone} characters]\n{text[-_TAIL_CHARS:]}")


def _settings(kind: SettingKind = "yaml") -> tuple[Setting, ...]:
    place = "entry of @deepseek-ai/dsh-compaction-basic in the configuration"
    names = {
        "headroom_tokens": "headroomTokens",
        "retain_ratio": "retainRatio",
        "retries": "compactionRetries",
    }
    return (
        Setting("threshold_ratio", kind, place, "config.thresholdRatio", threshold="share"),
        *(
            Setting(each, kind, place, f"config.{name}", alternatives=())
            for each, name in names.items()
        ),
        *unavailable("max_tokens", note="maxTokens of the request, or the default of the provider"),
        *unavailable(
            "prune", note="remove dsh-compaction-tool-result-pruner from the configuration"
        ),
        *unavailable("summary_tokens", note="of ctxlab; the harness: config.maxTokens"),
        *unavailable("model", note="of ctxlab; the harness: config.summarizationModel"),
    )


_WORKINGS = (
    "tool results of more than 8,192 characters are cut, and if that is not enough, a summary replaces "
    "everything except 0.16 of the window. If a request exceeds the window, only the newest message, "
    "or call with its results, stays."
)

MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "deepseek",
        retained_share(),
        "DeepSeek Harness, compaction-basic as quoted in discussion 9434, read on 2026-11-27",
        "https://github.com/deepseek-ai/deepseek-harness/discussions/9434",
        "At 0.8 of the window, or earlier if fewer than 65,536 tokens besides the reply would be free, "
        f"{_WORKINGS} The formula stands in the discussion and in public copies of the repository, "
        "whose newest commit could not be read; one copy limits the 65,536 to a quarter of the window. "
        "Without this limit, a window of up to 65,536 tokens leaves no room, and only a request that "
        "overflows is compacted.",
        settings=_settings(),
    ),
    Baseline(
        "deepseek.v0_1",
        retained_share(headroom_tokens=None),
        "DeepSeek Harness, dsh-compaction-basic 0.1.0-rc.8 (npm)",
        "https://unpkg.com/@deepseek-ai/dsh-compaction-basic@0.1.0-rc.8/README.md",
        f"At 0.8 of the window, {_WORKINGS}",
        settings=_settings(),
        superseded_by="deepseek",
    ),
)
