"""OpenHands condenses events: its SDK by summaries, and its V0 by masking or by forgetting.

An event is a message, a tool call, or a tool result; a message with three calls is three events. None of
these looks at what a request costs but the SDK's, which condenses when the window is full as well.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from ctxlab.context.branch import Branch
from ctxlab.context.context import Context
from ctxlab.context.history import Entry, Form
from ctxlab.errors import SpecError
from ctxlab.messages.types import Message
from ctxlab.strategies.base import BaseStrategy, tool_result_positions
from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.common.summaries import make_wrapped_summary

__all__ = ["MODULE_BASELINES", "openhands_amortized", "openhands_masking", "openhands_summarizing"]

_MASKED_TEXT = "<MASKED>"
_MAX_TRIES = 5


def _count_events(message: Message) -> int:
    return max(1, len(message.tool_calls))


@dataclass(frozen=True, repr=False)
class openhands_summarizing(BaseStrategy):
    """Once there are too many events or tokens, the older half becomes a summary behind the first few.

    Cuts are moved on to where no tool call waits for its result. A condensation that would leave out
    too little is not made; where tokens ask for it, all but the system prompt is summarized instead.
    It goes on until the request is small enough, or no further compaction makes it smaller.

    Source: OpenHands SDK, ``LLMSummarizingCondenser``.

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
    "events from which on it condenses, to half as many"
    max_tokens: int | None = None
    "tokens from which on it condenses, to half as many, where that is less than is available"
    keep_first: int = 4
    "events at the beginning that stay"
    minimum_progress: float = 0.1
    "share of the events that a condensation must leave out"
    model: str | None = None
    "model that writes the summary; None: its lines are extracted and no model is called"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_size // 2 - self.keep_first - 1 <= 0:
            raise SpecError("openhands.default: keep_first must be less than max_size // 2 - 1")

    def __call__(self, context: Context, /) -> Context:
        for _ in range(_MAX_TRIES):
            size = _count_context_events(context, self)
            over_tokens = context.tokens > self._max_prompt_tokens(context)
            if not (over_tokens or size > self.max_size):
                break
            before = (context.tokens, size)
            part = self._find_forgettable(context, size, over_tokens)
            if part is None and over_tokens:
                part = _all_but_system(context.entries)
            if part is None:
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

    def _find_forgettable(
        self, context: Context, size: int, over_tokens: bool
    ) -> tuple[int, int] | None:
        """The entries that a condensation takes; None where it has no fit place or too little to do."""
        entries = context.entries
        first = [0, *accumulate(_count_events(entry.message) for entry in entries)]
        tail = []
        if over_tokens:
            tail.append(
                self._tail_events(
                    entries, first, context.tokens - self._max_prompt_tokens(context) // 2
                )
            )
        if size > self.max_size:
            tail.append(self.max_size // 2 - self.keep_first - 1)
        cuts = _find_safe_cuts(entries)
        systems = [i for i, entry in enumerate(entries[:1]) if entry.message.role == "system"]
        head = max(self.keep_first, len(systems))
        start = next((i for i in cuts if first[i] >= head), None)
        stop = next((i for i in cuts if first[i] >= size - min(tail)), None)
        if start is None or stop is None or start >= stop:
            return None
        return (start, stop) if first[stop] - first[start] >= size * self.minimum_progress else None

    def _tail_events(self, entries: Sequence[Entry], first: Sequence[int], excess: int) -> int:
        """Events at the end that may stay if the oldest behind the first few have that many tokens."""
        # What a message costs is counted at the first of its events.
        begin = bisect_left(first, self.keep_first, hi=len(entries))
        rest = first[-1] - self.keep_first
        if rest <= 0:
            return 0
        if excess <= 0:
            return rest
        for index in range(begin, len(entries)):
            excess -= entries[index].tokens
            if excess < 0:
                return first[-1] - first[index] - 1
        return 0


def _count_context_events(context: Context, strategy: BaseStrategy) -> int:
    """Events in the context; what was counted before is not counted again."""
    key = (strategy, "size")
    seen, counted = context.strategy_state.get(key, (0, 0))
    counted += sum(_count_events(entry.message) for entry in context.entries[seen:])
    context.strategy_state[key] = len(context.entries), counted
    return int(counted)


def _find_safe_cuts(entries: Sequence[Entry]) -> list[int]:
    """Where no call waits for a result of its id; entries in between must not be parted."""
    cuts, waiting = [0], set[str]()
    for index, entry in enumerate(entries, 1):
        waiting.update(call.id for call in entry.message.tool_calls)
        if entry.message.role == "tool":
            waiting.discard(entry.message.tool_call_id or "")
        if not waiting:
            cuts.append(index)
    return cuts


def _all_but_system(entries: Sequence[Entry]) -> tuple[int, int] | None:
    start = 1 if entries and entries[0].message.role == "system" else 0
    return (start, len(entries)) if start < len(entries) else None


@dataclass(frozen=True, repr=False)
class openhands_masking(BaseStrategy):
    """Results outside the newest events become a user message ``<MASKED>``, and their calls go.

    The masked observation is no tool result any more, so V0 waits for the results of that call for ever
    and never sends it: what the agent did and said there is gone with what it saw. Where some results of
    one message are masked, the others are not sent either.

    Source: OpenHands V0, ``ObservationMaskingCondenser``, and how ``ConversationMemory`` shows it.

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
    "newest events whose results stay"

    def __call__(self, context: Context, /) -> Context:
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
    """Once there are too many events, all but the first few and the newest are forgotten, to half.

    The task stays, since V0 puts it back; a call whose results are partly forgotten is not sent.

    Source: OpenHands V0, ``AmortizedForgettingCondenser``.

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
    "events from which on it forgets, to half as many"
    keep_first: int = 1
    "events at the beginning that stay"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep_first >= self.max_size // 2:
            raise SpecError("openhands.amortized: keep_first must be less than half of max_size")

    def __call__(self, context: Context, /) -> Context:
        seen: _EventNumbers = context.strategy_state.setdefault(self, _EventNumbers())
        seen.update(context)
        if seen.events - seen.handled <= self.max_size:
            return context
        entries, target = context.entries, self.max_size // 2
        seen.handled = seen.events - target
        start, first = 0, self.keep_first
        while (
            start < len(entries) and (first := first - _count_events(entries[start].message)) >= 0
        ):
            start += 1
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
    """Events so far, and the number of the event that each tool result is."""

    scanned: int = 0
    events: int = 0
    results: list[int] = field(default_factory=list)
    handled: int = 0
    "results that were masked, or events that were forgotten"

    def update(self, context: Context) -> None:
        """What came since."""
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
        name="openhands.default",
        strategy=openhands_summarizing(),
        product_version="openhands-sdk 1.55.1",
        url=(
            "https://github.com/OpenHands/software-agent-sdk/blob/v1.55.1/openhands-sdk/openhands/sdk/"
            "context/condenser/llm_summarizing_condenser.py"
        ),
        description="Keeps the first 4 events and about the newest 35, with a summary between them, "
        "once there are over 80 events; where the window is full, as many as half the tokens hold. "
        "User messages that follow one another are shown apart here; the SDK joins them when it "
        "sends. Where a condensation changes nothing the SDK would try again for ever; here it is "
        "sent as it is.",
        package="openhands-sdk",
        conformance_options=(
            "model='scripted'",
            "max_size=30, model='scripted'",
            "max_size=14, keep_first=2, max_tokens=6000, model='scripted'",
        ),
    ),
    Baseline(
        name="openhands.masking",
        strategy=openhands_masking(),
        product_version="OpenHands 0.59.0",
        url=_V0_URL + "observation_masking_condenser.py",
        description="Tool results older than the newest 100 events are shown as <MASKED> from the "
        "user; the calls that they answered are not sent, since V0 goes on waiting for their "
        "results.",
    ),
    Baseline(
        name="openhands.amortized",
        strategy=openhands_amortized(),
        product_version="OpenHands 0.59.0",
        url=_V0_URL + "amortized_forgetting_condenser.py",
        description="Once there are over 100 events all but the first and the newest 49 are "
        "forgotten; the task stays.",
    ),
)
