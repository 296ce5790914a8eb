"""Baselines of OpenHands: summaries in its SDK, masking and dropping of events in its version V0.

An event is a message, a tool call, or a tool result. A message with three tool calls is three
events. All three strategies count events. The summarising strategy of the SDK also summarises
events when the window is full. In V0, each call of a message is followed by its result.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TypeAlias

from ctxlab.context.branch import Branch
from ctxlab.context.context import Context
from ctxlab.context.history import Entry, Form
from ctxlab.errors import SpecError
from ctxlab.messages.types import Message
from ctxlab.strategies.base import BaseStrategy, tool_result_positions
from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.common.summaries import make_wrapped_summary
from ctxlab.strategies.baselines.settings import Setting, arguments
from ctxlab.strategies.helpers.message_blocks import system_prompt_end

_MASKED_TEXT = "<MASKED>"
_MAX_TRIES = 5
_Range: TypeAlias = tuple[int, int]


def _count_events(message: Message) -> int:
    return max(1, len(message.tool_calls))


@dataclass(frozen=True, repr=False)
class openhands_summarizing(BaseStrategy):
    """Summarises older events, except the first few, when there are too many events or tokens.

    The summarised range ends at a position that separates no tool call from its result. If
    summarising would remove too few events, nothing is summarised. An exception is a request with too
    many tokens: then everything except the system prompt is summarised. Summarising is repeated up
    to five times, until the request is small enough or no longer gets smaller.

    Source: OpenHands SDK, ``LLMSummarizingCondenser``.

    Examples
    --------
    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.context.history import History
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> talk = [Message("user", f"question number {i}") for i in range(11)]
    >>> context = Context(Budget(1000), History(TokenCounter("gpt-4o"), talk))
    >>> context.advance(len(talk))
    >>> [m.text[:11] for m in openhands_summarizing(max_size=10, keep_first=1)(context).messages]
    ['question nu', '- user: que', 'question nu', 'question nu', 'question nu']
    """

    max_size: int = 80
    "number of events above which events are summarised, until half of this number is left"
    max_tokens: int | None = None
    """number of tokens above which events are summarised, until half of this number is left; limited
    to the available tokens"""
    keep_first: int = 4
    "number of first events to keep"
    minimum_progress: float = 0.1
    "minimum share of the events that a summary must replace"
    model: str | None = None
    "name of the model that writes the summary; None: make an extractive summary without a model"

    def __post_init__(self) -> None:
        """Raise ``SpecError`` if ``keep_first`` is too large for ``max_size``."""
        super().__post_init__()
        if self.max_size // 2 - self.keep_first - 1 <= 0:
            raise SpecError(
                "openhands.default: keep_first must be less than max_size // 2 - 1 = "
                f"{self.max_size // 2 - 1}, got {self.keep_first}"
            )

    def __call__(self, context: Context, /) -> Context:
        """Summarise older events when there are too many events or tokens."""
        for _ in range(_MAX_TRIES):
            size = _count_context_events(context, self)
            over_tokens = context.tokens > self._max_prompt_tokens(context)
            if not (over_tokens or size > self.max_size):
                break
            before = (context.tokens, size)
            part = self._find_forgettable(context, size, over_tokens)
            if part is None and over_tokens:
                part = _prompt_size(context.entries), len(context.entries)
            if part is None or part[0] == part[1]:
                break
            context.fold(*part, make_wrapped_summary(context, *part, model=self.model))
            context.report("summary")
            context.strategy_state.pop((self, "size"), None)
            if (context.tokens, _count_context_events(context, self)) >= before:
                break
        return context

    def _max_prompt_tokens(self, context: Context) -> int:
        available = context.available
        return available if self.max_tokens is None else min(self.max_tokens, available)

    def _find_forgettable(self, context: Context, size: int, over: bool) -> _Range | None:
        """Return the range of entries to summarise; None if no valid range removes enough events.

        ``size`` is the number of events in the context. ``over`` is True if the request has too
        many tokens.
        """
        entries = context.entries
        first = [0, *accumulate(_count_events(entry.message) for entry in entries)]
        tail = []
        if over:
            excess = context.tokens - self._max_prompt_tokens(context) // 2
            tail.append(self._tail_events(entries, first, excess))
        if size > self.max_size:
            tail.append(self.max_size // 2 - self.keep_first - 1)
        cuts, head = _find_safe_cuts(entries), max(self.keep_first, _prompt_size(entries))
        start = next((i for i in cuts if first[i] >= head), None)
        stop = next((i for i in cuts if first[i] >= size - min(tail)), None)
        if start is None or stop is None or start >= stop:
            return None
        return (start, stop) if first[stop] - first[start] >= size * self.minimum_progress else None

    def _tail_events(self, entries: Sequence[Entry], first: Sequence[int], excess: int) -> int:
        """Return how many of the newest events to keep so that ``excess`` tokens are summarised."""
        # All tokens of a message are assigned to its first event.
        begin = bisect_left(first, self.keep_first, hi=len(entries))
        rest = first[-1] - self.keep_first
        if rest <= 0 or excess <= 0:
            return max(0, rest)
        for index in range(begin, len(entries)):
            excess -= entries[index].tokens
            if excess < 0:
                return first[-1] - first[index] - 1
        return 0


def _count_context_events(context: Context, strategy: BaseStrategy) -> int:
    """Count the events in the context. Only entries added since the last call are counted anew."""
    key = (strategy, "size")
    seen, counted = context.strategy_state.get(key, (0, 0))
    counted += sum(_count_events(entry.message) for entry in context.entries[seen:])
    context.strategy_state[key] = len(context.entries), counted
    return int(counted)


def _find_safe_cuts(entries: Sequence[Entry]) -> list[int]:
    """Return the indices at which a cut separates no tool call from its result."""
    cuts, waiting = [0], set[str]()
    for index, entry in enumerate(entries, 1):
        waiting.update(call.id for call in entry.message.tool_calls)
        if entry.message.role == "tool":
            waiting.discard(entry.message.tool_call_id or "")
        if not waiting:
            cuts.append(index)
    return cuts


def _prompt_size(entries: Sequence[Entry]) -> int:
    """Return 1 if the first entry is a system prompt, and 0 otherwise."""
    return int(bool(entries) and entries[0].message.role == "system")


@dataclass(frozen=True, repr=False)
class openhands_masking(BaseStrategy):
    """Replaces older tool results by the user message ``<MASKED>`` and drops their tool calls.

    In V0 a masked result is no longer a tool result. V0 does not send a call without a result, so
    the assistant message with the call is lost too. If only some results of a message are masked,
    its other results are not sent either.

    Source: OpenHands V0, ``ObservationMaskingCondenser``, as formatted by ``ConversationMemory``.

    Examples
    --------
    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.messages.types import ToolCall
    >>> from ctxlab.context.history import History
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> run = [Message("user", "go")]
    >>> for id in ("c1", "c2"):
    ...     run.append(Message("assistant", None, tool_calls=(ToolCall(id, "read"),)))
    ...     run.append(Message("tool", "found", tool_call_id=id))
    >>> context = Context(Budget(1000), History(TokenCounter("gpt-4o"), run))
    >>> context.advance(len(run))
    >>> [m.content for m in openhands_masking(attention_window=2)(context).messages]
    ['go', '<MASKED>', None, 'found']
    """

    attention_window: int = 100
    "number of newest events whose results are kept"

    def __call__(self, context: Context, /) -> Context:
        """Replace older tool results by the user message ``<MASKED>`` and drop their tool calls."""
        seen: _EventNumbers = context.strategy_state.setdefault(self, _EventNumbers())
        seen.update(context)
        upto = bisect_left(seen.results, seen.events - self.attention_window)
        for position in tool_result_positions(context)[seen.handled : upto]:
            self._mask_result(context, position)
        seen.handled = max(seen.handled, upto)
        return context

    def _mask_result(self, context: Context, position: int) -> None:
        unit = context.history.unit_starts[position]
        index, masked = context.find_index(unit), Message("user", _MASKED_TEXT)
        if index is None:
            return
        if not context.entries[index].is_verbatim:
            context.insert(index + 1, masked, Form.REWRITTEN)
            return
        stop = index + 1
        while stop < len(context.entries) and not context.is_safe_cut(stop):
            stop += 1
        context.fold(index, stop, masked, Form.REWRITTEN)


@dataclass(frozen=True, repr=False)
class openhands_amortized(BaseStrategy):
    """Drops the events between the first and the newest ones when there are too many events.

    The number of events is reduced to half of ``max_size``. The system prompt is an event, but V0
    restores it if it is dropped. If a result of an assistant message is dropped, the message and all
    its results are dropped.

    Source: OpenHands V0, ``AmortizedForgettingCondenser``, as formatted by ``ConversationMemory``.

    Examples
    --------
    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.context.history import History
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> talk = [Message("user", str(i)) for i in range(7)]
    >>> context = Context(Budget(1000), History(TokenCounter("gpt-4o"), talk))
    >>> context.advance(len(talk))
    >>> [m.content for m in openhands_amortized(max_size=6)(context).messages]
    ['0', '5', '6']
    """

    max_size: int = 100
    "number of events above which events are dropped, until half of this number is left"
    keep_first: int = 1
    "number of first events to keep"

    def __post_init__(self) -> None:
        """Raise ``SpecError`` if ``keep_first`` is too large for ``max_size``."""
        super().__post_init__()
        if self.keep_first >= self.max_size // 2:
            raise SpecError(
                "openhands.amortized: keep_first must be less than max_size // 2 = "
                f"{self.max_size // 2}, got {self.keep_first}"
            )

    def __call__(self, context: Context, /) -> Context:
        """Drop the events between the first and the newest ones when there are too many."""
        seen: _EventNumbers = context.strategy_state.setdefault(self, _EventNumbers())
        seen.update(context)
        if seen.events - seen.handled <= self.max_size:
            return context
        entries, target = context.entries, self.max_size // 2
        seen.handled = seen.events - target
        if seen.head is None:
            seen.head = self._find_head_end(context)
        stop, newest = len(entries), target - self.keep_first
        while stop and newest > 0:
            newest -= _count_events(entries[stop - 1].message)
            stop -= 1
        if newest < -1:  # V0 sends a message with several calls even if the first one was dropped
            stop += 1
        stop = context.next_safe_cut(stop)
        if seen.head < stop:
            context.drop(seen.head, stop)
        return context

    def _find_head_end(self, context: Context) -> int:
        """Return the index after the system prompt and the first steps that are kept whole."""
        events = [*accumulate(_count_events(entry.message) for entry in context.entries)]
        end = bisect_right(events, self.keep_first)
        while not context.is_safe_cut(end):
            end -= 1
        return max(end, system_prompt_end(context.entries))


@dataclass
class _EventNumbers:
    """Number of events of V0 so far, and the number of events before each tool result."""

    scanned: int = 0
    events: int = 0
    results: list[int] = field(default_factory=list)
    handled: int = 0
    "number of tool results that were masked, or number of events that were dropped"
    head: int | None = None
    "index after the first entries that are never dropped; None before the first drop"
    waiting: int = 0
    "number of calls of the newest message that have no result yet"

    def update(self, context: Context) -> None:
        """Count the events of the messages that were appended since the last call."""
        positions: Sequence[int] = range(context.history_length)
        if isinstance(context, Branch):
            positions = context.positions
        for position in positions[self.scanned :]:
            message = context.history[position]
            if message.role == "tool":
                # The calls that have no result yet come after this result.
                self.waiting = max(0, self.waiting - 1)
                self.results.append(self.events - self.waiting)
            else:
                self.waiting = len(message.tool_calls)
            self.events += _count_events(message)
        self.scanned = len(positions)


_V0_URL = "https://github.com/All-Hands-AI/OpenHands/blob/1.6.0/openhands/memory/condenser/impl/"

MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "openhands.default",
        openhands_summarizing(),
        "openhands-sdk 1.58.2",
        (
            "https://github.com/OpenHands/software-agent-sdk/blob/v1.58.2/openhands-sdk/openhands/sdk/"
            "context/condenser/llm_summarizing_condenser.py"
        ),
        "When there are more than 80 events, a summary replaces the events between the first 4 and "
        "about the newest 35. When the window is full, only as many of the newest events are kept "
        "as fit half of it. The SDK joins consecutive user messages; ctxlab sends them separately. "
        "If a condensation changes nothing, the SDK repeats it forever; ctxlab sends the request "
        "unchanged.",
        (
            "model='scripted'",
            "max_size=30, model='scripted'",
            "max_size=14, keep_first=2, max_tokens=6000, model='scripted'",
        ),
        settings=(
            *arguments(
                "openhands.sdk.context.condenser",
                "LLMSummarizingCondenser",
                "max_size",
                "max_tokens",
                "keep_first",
                "minimum_progress",
            ),
            Setting(
                "model",
                "python",
                "openhands.sdk.context.condenser",
                "LLMSummarizingCondenser.llm",
                "LLM(model={value})",
            ),
        ),
        formats=("openhands-completions", "openhands-events", "openhands-sdk"),
    ),
    Baseline(
        "openhands.masking",
        openhands_masking(),
        "openhands-ai 1.6.0",
        _V0_URL + "observation_masking_condenser.py",
        "Tool results older than the newest 100 events are replaced by user messages with the text "
        "<MASKED>. Their calls are not sent, because V0 sends a call only with its result. V0 also "
        "drops recorded calls without a result, puts two newlines between consecutive user messages, "
        "and sends the first user message second if another one is there; ctxlab does none of this.",
        ("", "attention_window=20", "attention_window=3", "attention_window=1"),
        settings=(
            Setting(
                "attention_window",
                "toml",
                "config.toml",
                "condenser.attention_window",
                note='with type = "observation_masking"',
            ),
        ),
    ),
    Baseline(
        "openhands.amortized",
        openhands_amortized(),
        "openhands-ai 1.6.0",
        _V0_URL + "amortized_forgetting_condenser.py",
        "When there are more than 100 events, all except the first and the newest 49 are dropped. "
        "The first event is the system prompt, so the task is dropped too; openhands-ai 0.62 restored "
        "it. `openhands.masking` says what else V0 changes.",
        (
            "",
            "max_size=20",
            "max_size=20, keep_first=5",
            "max_size=8, keep_first=0",
        ),
        settings=tuple(
            Setting(
                each, "toml", "config.toml", f"condenser.{each}", note='with type = "amortized"'
            )
            for each in ("max_size", "keep_first")
        ),
    ),
)
