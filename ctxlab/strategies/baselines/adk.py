"""Google's ADK can leave out all but the current turn, or put summaries in the place of older turns."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.errors import SpecError
from ctxlab.messages.types import Message
from ctxlab.strategies.base import Base
from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.common.unchecked_summary import written
from ctxlab.strategies.baselines.common.wrapped_summary import SUMMARY_TOKENS

__all__ = ["FAMILY", "adk_compaction", "adk_current_turn"]

_FOREIGN = "For context:\n[model] said: "


@dataclass(frozen=True, repr=False)
class adk_current_turn(Base):
    """What was said before the newest user message goes; the system prompt stays.

    A message without any text or call is not sent either.

    Source: Google ADK, ``LlmAgent(include_contents="none")``.

    >>> from ctxlab.context.budget import Budget
    >>> from ctxlab.context.history import History
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> talk = [Message("user", "Hello"), Message("assistant", "Hi"), Message("user", "Bye")]
    >>> context = Context(Budget(1000), History(TokenCounter("gpt-4o"), talk))
    >>> context.advance(3)
    >>> [m.content for m in adk_current_turn()(context).messages]
    ['Bye']
    """

    def __call__(self, context: Context, /) -> Context:
        history, entries = context.history, context.entries
        newest = bisect_left(history.users, context.length) - 1
        start = 0
        while start < len(entries) and entries[start].message.role == "system":
            start += 1
        stop = context.index_from(history.users[newest]) if newest >= 0 else len(entries)
        if start < stop:
            context.drop(start, stop)
        for position in range(context.notes.get(self, 0), context.length):
            message, index = history[position], context.find(position)
            if index is not None and not (
                message.content or message.tool_calls or message.role in ("tool", "system")
            ):
                context.drop(index, index + 1)
        context.notes[self] = context.length
        return context


@dataclass(frozen=True, repr=False)
class adk_compaction(Base):
    """After every few turns of the user those turns become a summary of their own.

    A summary is written of what was said in them, and in a few turns before them; calls and results are
    not shown to its writer. Summaries stay, one behind the other, and no task is kept beside them.

    Source: Google ADK, ``EventsCompactionConfig``.

    >>> from ctxlab.context.budget import Budget
    >>> from ctxlab.context.history import History
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> talk = [Message("user", f"Question {i}, which is long. " * 9) for i in range(4)]
    >>> context = Context(Budget(1000), History(TokenCounter("gpt-4o"), talk))
    >>> context.advance(len(talk))
    >>> [m.text[:12] for m in adk_compaction()(context).messages]
    ['For context:', 'Question 3, ']
    """

    compaction_interval: int = 3
    "turns of the user that become one summary"
    overlap_size: int = 1
    "turns before them that the summary is of as well"
    model: str | None = None
    "model that writes the summary; None: its lines are extracted and no model is called"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.compaction_interval < 1:
            raise SpecError("adk.compaction: compaction_interval is at least 1")

    def __call__(self, context: Context, /) -> Context:
        # A turn is over once the user's next message is there.
        over = bisect_left(context.history.users, context.length) - 1
        done: int = context.notes.get(self, 0)
        while over - done >= self.compaction_interval:
            self._compact(context, done, done + self.compaction_interval)
            done = context.notes[self] = done + self.compaction_interval
        return context

    def _compact(self, context: Context, done: int, over: int) -> None:
        history = context.history
        begin, end = history.users[done], history.users[over]
        start, stop = context.index_from(begin), context.index_from(end)
        told = history[history.users[max(0, done - self.overlap_size)] : end]
        said = [m.replace(tool_calls=()) for m in told if m.role != "tool" and m.text]
        most = SUMMARY_TOKENS
        if self.model is None:
            most = min(most, max(40, (history.before[end] - history.before[begin]) // 2))
        text = written(context, "", said, most, self.model)
        context.fold(start, stop, Message("user", _FOREIGN + text))
        context.report("summary")


FAMILY: tuple[Baseline, ...] = (
    Baseline(
        name="adk.include_contents_none",
        strategy=adk_current_turn(),
        imitates="google-adk 1.10.0",
        source=(
            "https://github.com/google/adk-python/blob/v1.10.0/src/google/adk/flows/llm_flows/contents.py"
        ),
        says="Sends the system prompt and the current turn, from the newest user message on. Where a "
        "turn uses a call's id again, ADK answers both calls with the newest result; here each keeps "
        "its own.",
        package="google-adk",
        checks=("",),
    ),
    Baseline(
        name="adk.compaction",
        strategy=adk_compaction(),
        imitates="google-adk 1.18.0",
        source="https://github.com/google/adk-python/blob/v1.18.0/src/google/adk/apps/compaction.py",
        says="Every 3 turns of the user become a summary, which takes in the turn before them too. "
        "ADK has no defaults; these are its documentation's. With one user message nothing is "
        "compacted. Where an id of a call is used again ADK answers both calls with the newest "
        "result; here each keeps its own.",
    ),
)
