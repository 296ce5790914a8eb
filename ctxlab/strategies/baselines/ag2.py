"""AG2's assembly policies: a sliding window of events, and a budget of them in characters.

A live agent's stream holds more than messages: a step with n calls is a response, an event that lists
the calls, one for each call, one for each result, and one that lists the results. Windows count them
all, and what they cut through is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.context.history import Entry
from ctxlab.errors import SpecError
from ctxlab.messages.types import Message
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.helpers.message_blocks import block_end, block_start, system_prompt_end

__all__ = ["MODULE_BASELINES", "sliding_window", "token_budget"]

_BlockCosts = Callable[[int, int], Sequence[int]]
"""What the events of the block ``entries[start:stop]`` cost, in their order."""


@dataclass(frozen=True, repr=False)
class sliding_window(BaseStrategy):
    """The newest events; what the cut has parted is left out, and an empty window widens.

    Source: ag2 1.2.1, ``SlidingWindowPolicy``.

    >>> from ctxlab import build_messages
    >>> said = [Message("user", text) for text in "abcde"]
    >>> sent = build_messages(None, said, strategy=sliding_window(2))
    >>> [message["content"] for message in sent]
    ['d', 'e']
    """

    max_events: int = 40
    "events that stay; a step with one call has five of them, each further call two more"

    def __call__(self, context: Context, /) -> Context:
        entries = context.entries

        def ones(start: int, stop: int) -> Sequence[int]:
            return [1] * _count_events(entries, start, stop)

        return _trim_events(context, self.max_events, ones)


@dataclass(frozen=True, repr=False)
class token_budget(BaseStrategy):
    """The newest events that fit a budget of characters, long texts counted as about a hundred.

    The budget is held against how an event prints: arguments, results and what the user said print as
    their first 80 characters, so requests may be far larger than the budget.

    Source: ag2 1.2.1, ``TokenBudgetPolicy``.

    >>> from ctxlab import build_messages
    >>> said = [Message("user", text * 4000) for text in "abcde"]
    >>> sent = build_messages(None, said, strategy=token_budget(100))
    >>> [message["content"][:1] for message in sent]
    ['d', 'e']
    """

    max_tokens: int | None = None
    "tokens of the events at most, as the policy estimates them; None: what the budget allows"
    chars_per_token: int = 4
    "characters that it takes for a token"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.chars_per_token == 0:
            raise SpecError("token_budget: chars_per_token is 0; a token has at least 1")

    def __call__(self, context: Context, /) -> Context:
        tokens = context.available if self.max_tokens is None else self.max_tokens
        known: dict[int, tuple[Entry, list[int]]] = context.strategy_state.setdefault(self, {})
        entries, calls = context.entries, context.history.calls_by_result

        def printed(start: int, stop: int) -> Sequence[int]:
            entry, block = entries[start], entries[start:stop]
            seen, cost = known.get(entry.start, (None, []))
            if seen is not entry:
                names = [calls[e.start].name if e.start in calls else None for e in block]
                cost = list(_printed_lengths([e.message for e in block], names))
                known[entry.start] = entry, cost
            return cost

        return _trim_events(context, tokens * self.chars_per_token, printed)


def _trim_events(context: Context, limit: int, block_costs: _BlockCosts) -> Context:
    """The newest events that cost no more than ``limit``, at least one, less what the cut orphans."""
    entries, floor = context.entries, system_prompt_end(context.entries)
    start, stop, room, retained = len(entries), len(entries), limit, 0
    whole, cut = True, False
    while start > floor and not cut:
        stop, start = start, block_start(entries, start, floor)
        block = block_costs(start, stop)
        for left, cost in zip(range(len(block) - 1, -1, -1), reversed(block), strict=True):
            if cost > room and retained:
                cut, whole = True, left == len(block) - 1
                break
            room -= cost
            retained += 1
    if cut:
        # The break came inside the block, or after all of its events: then the next one begins.
        first = stop if whole or entries[start].message.role != "tool" else start
    elif floor < len(entries) and entries[floor].start > floor:
        first = floor  # it was cut before, and what that orphaned may still stand there
    else:
        return context
    orphans = _find_orphans(entries, first)
    while first > floor and _are_all_orphaned(entries, first, orphans):
        first = block_start(entries, first, floor)
        orphans = _find_orphans(entries, first)
    shift = first - floor
    if shift:
        context.drop(floor, first)
    sent = context
    for a, b in reversed(orphans):
        # A later call may use an id again, and then they count as answers: they go for this time only.
        sent = sent if sent is not context else context.fork()
        sent.drop(a - shift, b - shift)
    return sent


def _are_all_orphaned(entries: Sequence[Entry], first: int, orphans: list[tuple[int, int]]) -> bool:
    """Whether no event is left; a single result without an id is one, though it is not sent."""
    if sum(b - a for a, b in orphans) < len(entries) - first:
        return False
    return all(entry.message.tool_call_id for entry in entries[first:])


def _find_orphans(entries: Sequence[Entry], first: int) -> list[tuple[int, int]]:
    """Results from ``first`` on that answer no call there, by id alone, wherever the call stands."""
    kept = entries[first:]
    answerable = {call.id for entry in kept for call in entry.message.tool_calls}
    orphans, index = [], first
    while index < len(entries):
        stop = block_end(entries, index)
        if entries[index].message.role == "tool":
            needed = {entry.message.tool_call_id for entry in entries[index:stop]} - {None, ""}
            if not needed <= answerable:
                orphans.append((index, stop))
        index = stop
    return orphans


def _count_events(entries: Sequence[Entry], start: int, stop: int) -> int:
    """How many events a block is."""
    message = entries[start].message
    if message.role == "tool":
        return stop - start + 1
    return len(message.tool_calls) + 2 if message.tool_calls else 1


def _printed_lengths(block: Sequence[Message], names: Sequence[str | None]) -> Iterator[int]:
    """Characters of each event of a block as it prints, in their order."""
    message = block[0]
    if message.role == "tool":
        results = [
            f"ToolResultEvent(parent_id={m.tool_call_id or ''}, name='{name or m.name or 'tool'}', "
            f"result=ToolResult(parts=[{_format_inputs(m)}], final=False, metadata={{}}))"
            for m, name in zip(block, names, strict=True)
        ]
        yield from map(len, results)
        yield len(f"ToolResultsEvent(results=[{', '.join(results)}])")
    elif message.role == "assistant":
        said = None if message.content is None else message.text
        calls = [
            f"ToolCallEvent(id={call.id}, name='{call.name}'"
            + (f", arguments={_format_text(call.arguments)})" if call.arguments else ")")
            for call in message.tool_calls
        ]
        listed = f"ToolCallsEvent(calls=[{', '.join(calls)}])"
        yield len(f"ModelResponse(content={said}" + (f", tool_calls={listed})" if calls else ")"))
        if calls:
            yield len(listed)
            yield from map(len, calls)
    else:
        yield len(f"ModelRequest(parts=[{_format_inputs(message)}])")


def _format_inputs(message: Message) -> str:
    """The parts of a message as they print."""
    if not isinstance(message.content, tuple):
        return f"TextInput(content={_format_text(message.text)})"
    printed = []
    for part in message.content:
        if part.get("type") == "image_url":
            url = _format_text(str(part.get("image_url", {}).get("url", "")))
            printed.append(f"UrlInput(kind=<BinaryType.IMAGE: 'image'>, url={url})")
        else:
            printed.append(f"TextInput(content={_format_text(str(part.get('text') or ''))})")
    return ", ".join(printed)


def _format_text(text: str) -> str:
    """A text as it prints: 80 characters of it, and how long it is."""
    shown = repr(text)
    return shown if len(shown) <= 80 else f"{shown[:80]}...{shown[-1]} (len={len(text)})"


_SOURCE_URL = "https://github.com/ag2ai/ag2/blob/v1.2.1/ag2/policies/"

MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "ag2.sliding_window",
        sliding_window(),
        "ag2 1.2.1",
        _SOURCE_URL + "sliding_window.py",
        "The newest events of the stream, in which a step with one call is five; results without "
        "their call are left out, unless a later call uses the same id. The package sets no size: "
        "40 is ours. Events of usage, which a live stream also holds, are not counted.",
        "ag2",
        ("", "max_events=12", "max_events=4", "max_events=1"),
    ),
    Baseline(
        "ag2.token_budget",
        token_budget(),
        "ag2 1.2.1",
        _SOURCE_URL + "token_budget.py",
        "The newest events that fit, measured as they print, at 4 characters a token; long texts "
        "print shortened, so the budget is not kept. The package sets no budget: what is available "
        "is ours.",
        "ag2",
        (
            "max_tokens=2000",
            "max_tokens=500",
            "max_tokens=100",
            "max_tokens=500, chars_per_token=2",
        ),
    ),
)
