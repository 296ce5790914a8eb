"""Contents keep older turns as numbered lines, from which any of them can be fetched again.

Source: seed design "Session Table of Contents": one line of at most 100 characters a turn, written by a
model, or extracted from the turn where there is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ctxlab.context.context import Context
from ctxlab.context.history import Entry, Form
from ctxlab.context.turns import MAX_HEADLINE_CHARS, headline, turn_at, turn_span
from ctxlab.errors import ModelUnavailable
from ctxlab.llm.base import Request
from ctxlab.messages.types import Message, message_text
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.helpers.text import clip_text
from ctxlab.strategies.summaries.llm import load_prompt
from ctxlab.tokens.models import find_model

__all__ = ["contents"]

_HEADER = "Contents of earlier turns; get_turn(number) gives one in full:"
_UNLISTED_PREFIX = "Earlier turns that are no longer listed: "
_NUMBERED_LINE = re.compile(r"[-*\s]*(?:turn\s+)?(\d+)\s*[.):]\s*(.+)", re.IGNORECASE)
_MAX_TURN_CHARS, _MAX_MESSAGE_CHARS = 1200, 400
_LINE_TOKENS, _REASONING_TOKENS = 50, 2000
_MAX_WINDOW_SHARE = 0.8  # share of the model's window that its prompt and its reply may take


@dataclass(frozen=True, repr=False)
class contents(BaseStrategy):
    """Older turns become numbered lines, a block at a time, and ``get_turn(number)`` gives one in full.

    When the context fills, everything older than a recent window becomes one message with a line for
    each turn. That block is not touched again, and the next one is put behind it, so a prompt cache
    keeps what stands before. Where the blocks outgrow their share, the oldest leave a line that says
    how many turns are no longer listed. The agent must be given the tool:
    ``ctxlab.context.turns.GET_TURN_TOOL`` is its definition; ``ContextManager.get_turn`` answers it.

    Source: seed design "Session Table of Contents and Interaction Summaries".

    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.context.history import History
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> talk = [Message("system", "Be brief.")]
    >>> for what in ("the parser", "the tests", "the docs", "the build"):
    ...     talk += [Message("user", f"Fix {what}"), Message("assistant", "Done. " + "It works. " * 30)]
    >>> context = Context(Budget(400), History(TokenCounter("gpt-4o"), talk))
    >>> context.advance(8)
    >>> print(contents(share=0.2)(context).messages[2].content)
    Contents of earlier turns; get_turn(number) gives one in full:
    1. Fix the parser
    2. Fix the tests
    3. Fix the docs
    """

    trigger: float = 0.8
    "share of the available tokens at which it compacts"
    target: float = 0.5
    "share of the available tokens that it leaves in use at most"
    share: float = 0.1
    "share of the available tokens that all blocks may have together; it is part of ``target``"
    model: str | None = None
    "model that writes the lines, asked once a block; None: they are extracted and no model is called"
    prompt: str = "contents"
    "what it is asked for: ``contents``, or a file of your own"

    def __post_init__(self) -> None:
        super().__post_init__()
        load_prompt(self.prompt)

    def __call__(self, context: Context, /) -> Context:
        if context.tokens <= self.trigger * context.available:
            return context
        first = _blocks_end(context)
        start = self._window_start(context, first)
        if start > first:
            self._list_turns(context, first, start)
        return context

    def _window_start(self, context: Context, first: int) -> int:
        """Index where the recent window begins: it fits, and begins with a turn where it can."""
        entries, head = context.entries, context.first_droppable
        history, begin = context.history, entries[first].start if first < len(entries) else 0
        lines = _LINE_TOKENS * (
            turn_at(history, context.history_length) - turn_at(history, begin) + 1
        )
        lines += sum([entry.tokens for entry in entries[head:first]])
        room = self.target * context.available - min(lines, self.share * context.available)
        room -= sum([entry.tokens for entry in entries[:head]])
        start = len(entries)
        while start > first and entries[start - 1].tokens <= room:
            start -= 1
            room -= entries[start].tokens
        tail = context.last_unit_start
        later = range(min(start, tail), tail + 1)
        return next(
            (i for i in later if _begins_turn(context, i)), min(context.next_safe_cut(start), tail)
        )

    def _list_turns(self, context: Context, block_start: int, window_start: int) -> None:
        """Entries ``[block_start, window_start)`` become a block of lines, as far as there is room."""
        entries = context.entries
        limit = int(self.share * context.available)
        numbers = _turn_numbers(context, entries[block_start:window_start])
        # What would not be much shorter as lines is not worth a call.
        before = sum([entry.tokens for entry in entries[block_start:window_start]])
        worth = before > max(limit, _LINE_TOKENS * len(numbers))
        lines = self._turn_lines(context, numbers, entries[window_start - 1].stop, worth)
        count = context.history.counter.count_text
        room, kept = limit - count(_HEADER) - 8, len(numbers)
        while kept and (cost := count(lines[numbers[kept - 1]]) + 1) <= room:
            room -= cost
            kept -= 1
        listed = numbers[kept:]
        middle = block_start
        if kept:
            begin = (
                turn_span(context.history, listed[0])[0]
                if listed
                else entries[window_start - 1].stop
            )
            middle = min(
                context.next_safe_cut(max(block_start, context.index_at_or_after(begin))),
                window_start,
            )
        block = Message("user", "\n".join([_HEADER, *(lines[number] for number in listed)]))
        if middle < window_start:
            after = context.history.counter.count_message(block)
            if after >= sum([entry.tokens for entry in entries[middle:window_start]]):
                context.report("contents rejected: longer than what they stand for")
                return
            context.fold(middle, window_start, block, Form.POINTER)
            context.report("contents")
        oldest = block_start
        while oldest > context.first_droppable and _is_contents_block(context.entries[oldest - 1]):
            oldest -= 1
        keep = middle
        if middle == block_start:  # all of it is listed: older blocks stay as far as there is room
            used = context.entries[middle].tokens
            while keep > oldest and (used := used + context.entries[keep - 1].tokens) <= limit:
                keep -= 1
        if keep > oldest:
            self._unlist(context, oldest, keep)

    def _unlist(self, context: Context, start: int, stop: int) -> None:
        """Entries ``[start, stop)`` become a line that says which turns are no longer listed."""
        going = context.entries[start:stop]
        turn = [turn_at(context.history, at) for at in (going[0].start, going[-1].stop - 1)]
        message = Message("user", f"{_UNLISTED_PREFIX}{max(1, turn[0])} to {turn[1]}.")
        if context.history.counter.count_message(message) < sum([entry.tokens for entry in going]):
            context.fold(start, stop, message)
            context.report("contents: the oldest turns are no longer listed")

    # --- the lines -----------------------------------------------------------------------------

    def _turn_lines(
        self, context: Context, numbers: Sequence[int], stop: int, ask_model: bool
    ) -> Mapping[int, str]:
        """A line for each turn, with its number; a model writes them where that is worth it."""
        turns = {number: _turn_messages(context, number, stop) for number in numbers}
        written: Mapping[int, str] = {}
        if self.model is not None and ask_model:
            written = self._request_lines(context, self.model, turns)
        return {
            number: f"{number}. {written.get(number) or headline(turn)}"
            for number, turn in turns.items()
        }

    def _request_lines(
        self, context: Context, model: str, turns: Mapping[int, Sequence[Message]]
    ) -> Mapping[int, str]:
        """The lines that a model writes, as far as they are of use."""
        request = self._build_request(context, model, turns)
        if request is None:
            context.report(f"contents fallback: {len(turns)} turns are too many for {model}")
            return {}
        try:
            reply = context.ask(request)
        except ModelUnavailable as error:
            context.report(f"contents fallback: {error}")
            return {}
        found = {
            n: line
            for n, line in _parse_lines(reply.text)
            if n in turns and len(line) <= MAX_HEADLINE_CHARS
        }
        if missing := len(turns) - len(found):
            context.report(
                f"contents fallback: {missing} of {len(turns)} lines missing or too long"
            )
        return found

    def _build_request(
        self, context: Context, model: str, turns: Mapping[int, Sequence[Message]]
    ) -> Request | None:
        """What the model is asked, turns cut to what its window holds; None where they are too many."""
        known, each = find_model(model), _MAX_TURN_CHARS
        wanted = _LINE_TOKENS * len(turns) + _REASONING_TOKENS
        reply = min(wanted, known.max_output, known.limit // 4)
        room = int(_MAX_WINDOW_SHARE * known.limit) - reply
        rules = Message("system", load_prompt(self.prompt))
        while each >= MAX_HEADLINE_CHARS:
            shown = (
                clip_text(f"Turn {n}\n{_format_turn(turn)}", each) for n, turn in turns.items()
            )
            asked = (rules, Message("user", "\n\n".join(shown)))
            used = context.history.counter.count_request(asked)
            if used <= room:
                return Request(model, asked, max_tokens=reply)
            each = min(each * room // used, each * 9 // 10)
        return None


def _blocks_end(context: Context) -> int:
    """Index behind the blocks, and summaries, that stand already."""
    entries, index = context.entries, context.first_droppable
    while index < len(entries) and entries[index].form in (Form.POINTER, Form.SUMMARY):
        index += 1
    return index


def _is_contents_block(entry: Entry) -> bool:
    return entry.form is Form.POINTER or entry.message.text.startswith(_UNLISTED_PREFIX)


def _begins_turn(context: Context, index: int) -> bool:
    if index >= len(context.entries):
        return False
    position = context.entries[index].start
    begin = turn_span(context.history, turn_at(context.history, position))[0]
    return begin == position and context.is_safe_cut(index)


def _turn_numbers(context: Context, entries: Iterable[Entry]) -> list[int]:
    """Turns that entries belong to, ascending."""
    history = context.history
    found: dict[int, None] = {}
    for entry in entries:
        if entry.start == entry.stop:
            continue  # it was inserted, and stands for no turn
        last = turn_at(history, entry.stop - 1)
        found.update(dict.fromkeys(range(max(1, turn_at(history, entry.start)), last + 1)))
    return list(found)


def _turn_messages(context: Context, number: int, stop: int) -> Sequence[Message]:
    start, end = turn_span(context.history, number)
    return context.history[start : min(end, stop)]


def _format_turn(turn: Sequence[Message]) -> str:
    return "\n".join(
        f"{m.role}: {clip_text(message_text(m).strip(), _MAX_MESSAGE_CHARS)}" for m in turn
    )


def _parse_lines(text: str) -> Iterable[tuple[int, str]]:
    for line in text.splitlines():
        if match := _NUMBERED_LINE.fullmatch(line.strip()):
            yield int(match[1]), " ".join(match[2].split())
