"""Baselines of OpenHands: summaries in its SDK, masking and forgetting in its V0.

An event is a message, a tool call, or a tool result; a message with three calls is three events.
Only the SDK's condenser considers the tokens of a request: it also condenses when the window is
full.
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

_MASKED_TEXT = "<MASKED>"
_MAX_TRIES = 5
_Range: TypeAlias = tuple[int, int]


def _count_events(message: Message) -> int:
    return max(1, len(message.tool_calls))


@dataclass(frozen=True, repr=False)
class openhands_summarizing(BaseStrategy):
    """Summarises the older half, after the first few events, when there are too many events or tokens.

    Cuts move on to places where no tool call waits for its result. A condensation that would remove
    too little is not made; if the tokens require one, all but the system prompt is summarised
    instead. This repeats until the request is small enough or does not get smaller.

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
    "number of events above which it condenses, to half as many"
    max_tokens: int | None = None
    "tokens above which it condenses, to half as many; never more than the available tokens"
    keep_first: int = 4
    "number of first events to keep"
    minimum_progress: float = 0.1
    "share of the events that a condensation must remove"
    model: str | None = None
    "name of the model that writes the summary; None: make an extractive summary without a model"

    def __post_init__(self) -> None:
        """Check the parameters."""
        super().__post_init__()
        if self.max_size // 2 - self.keep_first - 1 <= 0:
            raise SpecError("openhands.default: keep_first must be less than max_size // 2 - 1")

    def __call__(self, context: Context, /) -> Context:
        """Summarise the older half when there are too many events or tokens."""
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
        """Return the range of entries to condense; None if there is no valid cut or too little to do."""
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
        """Return how many newest events may stay if the others must have ``excess`` tokens."""
        # The tokens of a message count for its first event.
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
    """Return the number of events in the context; earlier counts are reused."""
    key = (strategy, "size")
    seen, counted = context.strategy_state.get(key, (0, 0))
    counted += sum(_count_events(entry.message) for entry in context.entries[seen:])
    context.strategy_state[key] = len(context.entries), counted
    return int(counted)


def _find_safe_cuts(entries: Sequence[Entry]) -> list[int]:
    """Return the indices where no call waits for a result; a cut elsewhere would separate pairs."""
    cuts, waiting = [0], set[str]()
    for index, entry in enumerate(entries, 1):
        waiting.update(call.id for call in entry.message.tool_calls)
        if entry.message.role == "tool":
            waiting.discard(entry.message.tool_call_id or "")
        if not waiting:
            cuts.append(index)
    return cuts


def _prompt_size(entries: Sequence[Entry]) -> int:
    """Return 1 if there is a system prompt, else 0."""
    return int(bool(entries) and entries[0].message.role == "system")


@dataclass(frozen=True, repr=False)
class openhands_masking(BaseStrategy):
    """Replaces results outside the newest events by a user message ``<MASKED>`` and drops their calls.

    The masked observation is not a tool result, so V0 waits for the result of the call and never
    sends it. The agent's text and action are lost together with the result. If some results of one
    message are masked, the others are not sent either.

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
    "number of newest events whose results stay"

    def __call__(self, context: Context, /) -> Context:
        """Replace results outside the newest events by a user message ``<MASKED>``."""
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
        if context.entries[index].form is not Form.VERBATIM:
            context.insert(index + 1, masked, Form.REWRITTEN)
            return
        stop = index + 1
        while stop < len(context.entries) and not context.is_safe_cut(stop):
            stop += 1
        context.fold(index, stop, masked, Form.REWRITTEN)


@dataclass(frozen=True, repr=False)
class openhands_amortized(BaseStrategy):
    """Drops all but the first and the newest events, down to half, when there are too many.

    The task stays, because V0 restores it. A call whose results are partly dropped is not sent.

    Source: OpenHands V0, ``AmortizedForgettingCondenser``.

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
    "number of events above which events are dropped, to half as many"
    keep_first: int = 1
    "number of first events to keep"

    def __post_init__(self) -> None:
        """Check the parameters."""
        super().__post_init__()
        if self.keep_first >= self.max_size // 2:
            raise SpecError("openhands.amortized: keep_first must be less than half of max_size")

    def __call__(self, context: Context, /) -> Context:
        """Drop all but the first and the newest events, down to half, when there are too many."""
        seen: _EventNumbers = context.strategy_state.setdefault(self, _EventNumbers())
        seen.update(context)
        if seen.events - seen.handled <= self.max_size:
            return context
        entries, target = context.entries, self.max_size // 2
        seen.handled = seen.events - target
        events = [*accumulate(_count_events(entry.message) for entry in entries)]
        start = bisect_right(events, self.keep_first)
        while not context.is_safe_cut(start):
            start -= 1
        start = max(start, context.first_droppable)
        stop, newest = len(entries), target - self.keep_first
        while stop and (newest := newest - _count_events(entries[stop - 1].message)) >= 0:
            stop -= 1
        stop = context.next_safe_cut(stop)
        if start < stop:
            context.drop(start, stop)
        return context


@dataclass
class _EventNumbers:
    """Number of events so far, and the event number of each tool result."""

    scanned: int = 0
    events: int = 0
    results: list[int] = field(default_factory=list)
    handled: int = 0
    "number of results that were masked, or of events that were dropped"

    def update(self, context: Context) -> None:
        """Add the messages appended since the last call."""
        positions: Sequence[int] = range(context.history_length)
        if isinstance(context, Branch):
            positions = context.positions
        for position in positions[self.scanned :]:
            message = context.history[position]
            if message.role == "tool":
                self.results.append(self.events)
            self.events += _count_events(message)
        self.scanned = len(positions)


_V0_URL = "https://github.com/All-Hands-AI/OpenHands/blob/0.59.0/openhands/memory/condenser/impl/"

MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "openhands.default",
        openhands_summarizing(),
        "openhands-sdk 1.55.1",
        (
            "https://github.com/OpenHands/software-agent-sdk/blob/v1.55.1/openhands-sdk/openhands/sdk/"
            "context/condenser/llm_summarizing_condenser.py"
        ),
        "Keeps the first 4 events and about the newest 35, with a summary between "
        "them, once there are over 80 events. If the window is full, it keeps as many "
        "events as half the tokens hold. Consecutive user messages stay separate here; "
        "the SDK joins them when it sends. If a condensation changes nothing, the SDK "
        "would repeat it forever; here the request is sent unchanged.",
        (
            "model='scripted'",
            "max_size=30, model='scripted'",
            "max_size=14, keep_first=2, max_tokens=6000, model='scripted'",
        ),
    ),
    Baseline(
        "openhands.masking",
        openhands_masking(),
        "OpenHands 0.59.0",
        _V0_URL + "observation_masking_condenser.py",
        "Tool results older than the newest 100 events become user messages with <MASKED>. The "
        "calls that they answered are not sent, because V0 keeps waiting for their results.",
    ),
    Baseline(
        "openhands.amortized",
        openhands_amortized(),
        "OpenHands 0.59.0",
        _V0_URL + "amortized_forgetting_condenser.py",
        "Once there are over 100 events, all but the first and the newest 49 are "
        "dropped; the task stays.",
    ),
)
