"""Baseline of aider, which limits the turns before the current one to a few thousand tokens."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.context.history import Entry, Form
from ctxlab.messages.types import Message
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.common import compaction, summaries
from ctxlab.strategies.baselines.settings import Setting, unavailable
from ctxlab.strategies.summaries.fold import SUMMARY_HEADER

_MAX_TRIES = 5
_MIN_SPLIT = 4
_REPLY = "Ok."


@dataclass(frozen=True, repr=False)
class chat_summary(BaseStrategy):
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
        most: float | None = self.max_chat_history_tokens
        if most is None:
            most = min(max(compaction.window_tokens(context) / 16, 1024), 8192)
        start = compaction.body_start(context)
        stop = context.index_at_or_after(context.history.user_positions[spoken - 1])
        if _count_tokens(context, start, stop) > most and context.is_safe_cut(stop):
            self._summarize_turns(context, start, stop, most)
        return context

    def _summarize_turns(self, context: Context, start: int, stop: int, most: float) -> None:
        """Summarise entries ``[start, stop)``, again and again until they fit, at most five times."""
        for tries in range(_MAX_TRIES):
            split = stop if tries == _MAX_TRIES - 1 else _find_split(context, start, stop, most)
            wrapping = (self.model, SUMMARY_HEADER, "", int(most // 2))
            said = summaries.make_wrapped_summary(context, start, split, *wrapping)
            context.fold(start, split, said)
            context.report("summary")
            whole, stop = split == stop, stop - split + start + 1
            if whole or _count_tokens(context, start, stop) < most:
                break
        if all(entry.message.role != "assistant" for entry in _last_unit(context, start, stop)):
            context.insert(stop, Message("assistant", _REPLY), Form.REWRITTEN)


def _count_tokens(context: Context, start: int, stop: int) -> int:
    return sum(entry.tokens for entry in context.entries[start:stop])


def _find_bounds(context: Context, start: int, stop: int) -> list[int]:
    """Return the indices before which a cut keeps calls and results together, and ``stop``."""
    return [start, *(i for i in range(start + 1, stop) if context.is_safe_cut(i)), stop]


def _last_unit(context: Context, start: int, stop: int) -> Sequence[Entry]:
    """Return the last call with its results, or the last message, of entries ``[start, stop)``."""
    return context.entries[_find_bounds(context, start, stop)[-2] : stop]


def _find_split(context: Context, start: int, stop: int, most: float) -> int:
    """Return the index after the messages to summarise, which end with a reply of the agent."""
    bounds = _find_bounds(context, start, stop)
    place, tail = len(bounds) - 1, 0
    if place <= _MIN_SPLIT:
        return stop
    while (tail := tail + _count_tokens(context, bounds[place - 1], bounds[place])) < most // 2:
        place -= 1
    while place > 1 and context.entries[bounds[place - 1]].message.role != "assistant":
        place -= 1
    return bounds[place] if place > _MIN_SPLIT else stop


MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "aider",
        chat_summary(),
        "aider-chat 0.86.2",
        "https://github.com/Aider-AI/aider/blob/041f3a4a381670449011e3cfbf4d18900452855b/aider/history.py",
        "When the user writes a new message, earlier turns may take a sixteenth of the window. If "
        "they take more, their newest messages stay, up to half of that size, and the other "
        "messages become a summary. If the result is still too large, it is summarised again. aider "
        "makes no tool calls and sends the files of the chat separately; in recordings of other "
        "agents, a call and its results count as one message.",
        (
            "model='scripted'",
            "max_chat_history_tokens=300, model='scripted'",
            "max_chat_history_tokens=4000, model='scripted'",
        ),
        settings=(
            Setting(
                "max_chat_history_tokens", "yaml", ".aider.conf.yml", "max-chat-history-tokens"
            ),
            *unavailable("model", note="of ctxlab; aider: weak-model"),
        ),
    ),
)
