"""Baselines of Google's ADK: one sends only the current turn, the other summarises older turns."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.messages.types import Message
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.baselines.base import Baseline, BaselineStrategy
from ctxlab.strategies.baselines.common import summaries
from ctxlab.strategies.baselines.common.compaction import body_start

_SUMMARY_PREFIX = "For context:\n[model] said: "
_REPOSITORY_URL = "https://github.com/google/adk-python/blob/"


@dataclass(frozen=True, repr=False)
class adk_current_turn(BaseStrategy):
    """Drops everything before the newest user message, except the system prompt.

    User and assistant messages with neither text nor tool calls are dropped too.

    Source: Google ADK, ``LlmAgent(include_contents="none")``.

    Examples
    --------
    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.context.history import History
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> talk = [Message("user", "Hello"), Message("assistant", "Hi"), Message("user", "Bye")]
    >>> context = Context(Budget(1000), History(TokenCounter("gpt-4o"), talk))
    >>> context.advance(3)
    >>> [m.content for m in adk_current_turn()(context).messages]
    ['Bye']
    """

    def __call__(self, context: Context, /) -> Context:
        """Drop everything before the newest user message, except the system prompt."""
        history, entries = context.history, context.entries
        newest = bisect_left(history.user_positions, context.history_length) - 1
        start = body_start(context)
        stop = len(entries)
        if newest >= 0:
            stop = context.index_at_or_after(history.user_positions[newest])
        if start < stop:
            context.drop(start, stop)
        for position in range(context.strategy_state.get(self, 0), context.history_length):
            message, index = history[position], context.find_index(position)
            said = message.content or message.tool_calls or message.role in ("tool", "system")
            if index is not None and not said:
                context.drop(index, index + 1)
        context.strategy_state[self] = context.history_length
        return context


@dataclass(frozen=True, repr=False)
class adk_compaction(BaselineStrategy):
    """Replaces every ``compaction_interval`` completed turns by a summary.

    The summary also covers the ``overlap_size`` turns before these turns. The summariser gets the
    text of user and assistant messages, without tool calls and tool results. Each compaction adds
    another summary message. The task is in the first turn and is summarised like other messages.

    Source: Google ADK, ``EventsCompactionConfig``.

    Examples
    --------
    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.context.history import History
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> talk = [Message("user", f"Question {i}, which is long. " * 9) for i in range(4)]
    >>> context = Context(Budget(1000), History(TokenCounter("gpt-4o"), talk))
    >>> context.advance(len(talk))
    >>> [m.text[:12] for m in adk_compaction()(context).messages]
    ['For context:', 'Question 3, ']
    """

    positive = ("compaction_interval",)
    compaction_interval: int = 3
    "number of completed turns that one summary replaces"
    overlap_size: int = 1
    "number of earlier turns that the summary also covers"
    model: str | None = None
    "name of the model that writes the summary; None: make an extractive summary without a model"

    def __call__(self, context: Context, /) -> Context:
        """Replace every ``compaction_interval`` completed turns by a summary."""
        # A turn is completed when the next user message has arrived.
        over = bisect_left(context.history.user_positions, context.history_length) - 1
        done: int = context.strategy_state.get(self, 0)
        while over - done >= self.compaction_interval:
            self._compact(context, done, done + self.compaction_interval)
            done = context.strategy_state[self] = done + self.compaction_interval
        return context

    def _compact(self, context: Context, begin: int, end: int) -> None:
        history = context.history
        begin_position, end_position = history.user_positions[begin], history.user_positions[end]
        start, stop = map(context.index_at_or_after, (begin_position, end_position))
        told = history[history.user_positions[max(0, begin - self.overlap_size)] : end_position]
        said = [m.replace(tool_calls=()) for m in told if m.role != "tool" and m.text]
        source_tokens = history.tokens_before[end_position] - history.tokens_before[begin_position]
        most = summaries.limit_tokens(source_tokens, self.model)
        text = summaries.write_unchecked_summary(context, "", said, most, self.model)
        context.fold(start, stop, Message("user", _SUMMARY_PREFIX + text))
        context.report("summary")


MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "adk.include_contents_none",
        adk_current_turn(),
        "google-adk 1.10.0",
        _REPOSITORY_URL + "v1.10.0/src/google/adk/flows/llm_flows/contents.py",
        "Sends the system prompt and the current turn, which starts with the newest user message. "
        "If a turn uses a call id twice, ADK answers both calls with the newest result; in ctxlab "
        "each call keeps its own result.",
        ("",),
    ),
    Baseline(
        "adk.compaction",
        adk_compaction(),
        "google-adk 1.18.0",
        _REPOSITORY_URL + "v1.18.0/src/google/adk/apps/compaction.py",
        "Replaces every 3 completed turns by a summary, which also covers the turn before them. "
        "ADK has no default values; these are from its documentation. If the conversation has a "
        "single user message, nothing is compacted. If a call id is used twice, ADK answers both "
        "calls with the newest result; in ctxlab each call keeps its own result.",
    ),
)
