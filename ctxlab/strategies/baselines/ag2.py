"""Baselines of AG2's assembly policies: a window of events, and a token budget.

The event stream of a live AG2 agent has more events than the conversation has messages. A step with
n tool calls produces 2n + 3 events: the model's response, a list of the calls, n calls, n results,
and a list of the results. The policies count all of these events. A tool result is left out if its
call was dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.context.history import Entry
from ctxlab.messages.types import Message
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.baselines.base import Baseline, BaselineStrategy
from ctxlab.strategies.baselines.common.parts import Part, split_parts
from ctxlab.strategies.baselines.settings import arguments
from ctxlab.strategies.helpers.message_blocks import block_end, block_start, system_prompt_end

_BlockCosts = Callable[[int, int], Sequence[int]]
"Function that returns the cost of each event in the block ``entries[start:stop]``, in order."


@dataclass(frozen=True, repr=False)
class sliding_window(BaseStrategy):
    """Keeps the newest ``max_events`` events, without tool results whose call was dropped.

    If all of these events are such results, older messages are added until at least one message can
    be sent.

    Source: ag2 1.2.1, ``SlidingWindowPolicy``.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> said = [Message("user", text) for text in "abcde"]
    >>> sent = build_messages(None, said, strategy=sliding_window(2))
    >>> [message["content"] for message in sent]
    ['d', 'e']
    """

    max_events: int = 40
    "number of events to keep; a step with one tool call has five events, each further call adds two"

    def __call__(self, context: Context, /) -> Context:
        """Keep the newest ``max_events`` events, without tool results whose call was dropped."""

        def ones(start: int, stop: int) -> Sequence[int]:
            return [1] * _count_events(context.entries, start, stop)

        return _trim_events(context, self.max_events, ones)


@dataclass(frozen=True, repr=False)
class token_budget(BaselineStrategy):
    """Keeps the newest events that fit a token budget; a long text counts as about 100 characters.

    The size of an event is the length of its ``repr``, divided by ``chars_per_token``. AG2 prints only
    the first 80 characters of arguments, tool results and user texts. A request may therefore be far
    larger than the budget.

    Source: ag2 1.2.1, ``TokenBudgetPolicy``.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> said = [Message("user", text * 4000) for text in "abcde"]
    >>> sent = build_messages(None, said, strategy=token_budget(100))
    >>> [message["content"][:1] for message in sent]
    ['d', 'e']
    """

    positive = ("chars_per_token",)
    max_tokens: int | None = None
    "maximum estimated tokens of the events; None: all tokens that are available for messages"
    chars_per_token: int = 4
    "number of characters that count as one token"

    def __call__(self, context: Context, /) -> Context:
        """Keep the newest events whose estimated tokens fit the budget, at least one event."""
        tokens = context.available if self.max_tokens is None else self.max_tokens
        known: dict[int, tuple[Entry, list[int]]] = context.strategy_state.setdefault(self, {})

        def printed(start: int, stop: int) -> Sequence[int]:
            entry = context.entries[start]
            seen, cost = known.get(entry.start, (None, []))
            if seen is not entry:
                cost = list(_printed_lengths(context, context.entries[start:stop]))
                known[entry.start] = entry, cost
            return cost

        return _trim_events(context, tokens * self.chars_per_token, printed)


def _trim_events(context: Context, limit: int, block_costs: _BlockCosts) -> Context:
    """Keep the newest events with a total cost of at most ``limit``, and drop orphans.

    Orphans are the tool results that ``_find_orphans`` returns. At least one event is kept.
    """
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
        # If no event of this block is kept, the next block is the first to keep.
        first = stop if whole or entries[start].message.role != "tool" else start
    elif floor < len(entries) and entries[floor].start > floor:
        first = floor  # a previous cut may have left orphans at this index
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
        # Drop orphans only from this request: a later call may reuse their id and make them valid.
        sent = sent if sent is not context else context.fork()
        sent.drop(a - shift, b - shift)
    return sent


def _are_all_orphaned(entries: Sequence[Entry], first: int, orphans: list[tuple[int, int]]) -> bool:
    """Return True if all entries from ``first`` on are in ``orphans`` and have a call id.

    ``orphans`` are ranges of entries, as returned by ``_find_orphans``.
    """
    if sum(b - a for a, b in orphans) < len(entries) - first:
        return False
    return all(entry.message.tool_call_id for entry in entries[first:])


def _find_orphans(entries: Sequence[Entry], first: int) -> list[tuple[int, int]]:
    """Return all runs of consecutive tool results in which at least one result has no call.

    Each run is returned as a whole, with its other results. Only the results and the calls in
    ``entries[first:]`` are considered.
    """
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
    """Return the number of AG2 events in ``entries[start:stop]``.

    These entries are consecutive tool results, or a single message of another role.
    """
    message = entries[start].message
    if message.role == "tool":
        return stop - start + 1
    return len(message.tool_calls) + 2 if message.tool_calls else 1


def _printed_lengths(context: Context, block: Sequence[Entry]) -> Iterator[int]:
    """Yield the length of the ``repr`` of each AG2 event of a block, in order.

    A block is a sequence of consecutive tool results, or a single message of another role.
    """
    message = block[0].message
    if message.role == "tool":
        results = []
        for entry in block:
            message, call = entry.message, context.history.calls_by_result.get(entry.start)
            name = (call and call.name) or message.name or "tool"
            results.append(
                f"ToolResultEvent(parent_id={message.tool_call_id or ''}, name='{name}', "
                f"result=ToolResult(parts=[{_format_inputs(message)}], final=False, metadata={{}}))"
            )
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
    """Return the ``repr`` of the text and image parts of a message, as AG2 prints them."""
    kinds = "TextInput(content=", "UrlInput(kind=<BinaryType.IMAGE: 'image'>, url="
    parts = split_parts(message) or [Part(False, "")]
    return ", ".join(f"{kinds[part.is_image]}{_format_text(part.value)})" for part in parts)


def _format_text(text: str) -> str:
    """Return the ``repr`` of a string; if it is long, its first 80 characters and the length."""
    shown = repr(text)
    return shown if len(shown) <= 80 else f"{shown[:80]}...{shown[-1]} (len={len(text)})"


_SOURCE_URL = "https://github.com/ag2ai/ag2/blob/v1.2.1/ag2/policies/"

MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "ag2.sliding_window",
        sliding_window(),
        "ag2 1.2.1",
        _SOURCE_URL + "sliding_window.py",
        "Keeps the newest events of AG2's event stream. A step with one tool call has five events. "
        "Tool results without their call are left out, unless a later call uses the same id. AG2 "
        "has no default size; 40 is ctxlab's choice. A live stream also contains usage events, "
        "which are not counted.",
        ("", "max_events=12", "max_events=4", "max_events=1"),
        settings=arguments("ag2.policies", "SlidingWindowPolicy", "max_events"),
    ),
    Baseline(
        "ag2.token_budget",
        token_budget(),
        "ag2 1.2.1",
        _SOURCE_URL + "token_budget.py",
        "Keeps the newest events that fit a token budget. The size of an event is the length of its "
        "printed form, at 4 characters per token. Long texts are shortened when they are printed, "
        "so a request may exceed the budget. AG2 has no default budget; ctxlab uses all tokens that "
        "are available for messages.",
        (
            "max_tokens=2000",
            "max_tokens=500",
            "max_tokens=100",
            "max_tokens=500, chars_per_token=2",
        ),
        settings=arguments("ag2.policies", "TokenBudgetPolicy", "max_tokens", "chars_per_token"),
    ),
)
