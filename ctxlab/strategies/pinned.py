"""Wrapper that keeps chosen messages in every request, whatever the wrapped strategy removes."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from ctxlab.context.context import Context
from ctxlab.context.hidden_entries import find_inserted, insert_entry, run_without
from ctxlab.context.history import Entry, Form, History
from ctxlab.errors import SpecError, StrategyError
from ctxlab.messages.types import Message, ToolCall, message_text
from ctxlab.strategies.base import Strategy
from ctxlab.strategies.helpers.text import clip_text
from ctxlab.strategies.triggers.base import WrapperStrategy

_MAX_NOTE_CHARS, _MAX_LINE_CHARS = 800, 240


class _Pin(NamedTuple):
    """A unit with a message to keep, from position ``start`` up to, but not including, ``stop``."""

    start: int
    stop: int
    note: Entry | None = None
    "for a unit that is too long: entry that quotes from it once the unit is no longer verbatim"
    quoted: tuple[int, ...] = ()
    "for a unit that is too long: positions of the messages that the note quotes"


@dataclass(frozen=True, repr=False)
class pinned(WrapperStrategy):
    r"""Runs another strategy, but keeps user messages and other chosen messages in every request.

    The other strategy does not see the kept messages, so it cannot drop, shorten or summarise them. Its
    budget is smaller by their tokens. They stay verbatim at their places: a summary of messages on both
    sides of a kept message precedes it. If a tool call or one of its results is kept, all of them
    are. In a pipeline, put the strategies that shorten or drop messages inside of ``pinned``, because a
    strategy after it sees all messages.

    A unit (a tool call with its results, or any other message) of more than ``max_tokens`` tokens is
    not kept. When it is no longer verbatim in the request, a note follows its place. The note quotes
    the lines that match ``match``, or the beginning of a user or system message, up to 800 characters.

    A strategy that cuts only at user messages, such as ``cline``, does nothing if it sees none of them:
    pass ``users=False`` there, and a pattern.

    The first user message stays visible to the other strategy, because strategies keep it. If
    the other strategy drops or changes it nevertheless, the request is built again without showing it.

    If the kept messages alone exceed the budget, ``StrategyError`` is raised.

    Source: ctxlab; modelled on products that keep some messages through compaction: Codex CLI keeps the
    newest user messages, up to 20,000 tokens, and OpenHands the first four events.

    Examples
    --------
    >>> from ctxlab import build_messages
    >>> from ctxlab.strategies import sliding_window
    >>> talk = [{"role": "user", "content": "Fix a.py"}, {"role": "assistant", "content": "Done."}]
    >>> talk += [{"role": "user", "content": "Never touch b.py"}]
    >>> talk += [{"role": "assistant", "content": f"Step {i}"} for i in range(50)]
    >>> talk += [{"role": "user", "content": "Go on"}]
    >>> sent = build_messages(None, talk, strategy=pinned(sliding_window(messages=1)))
    >>> [message["content"] for message in sent]
    ['Fix a.py', 'Never touch b.py', 'Step 49', 'Go on']
    """

    strategy: Strategy
    "strategy that edits the other messages"
    users: bool = True
    "True: keep all user messages"
    systems: bool = True
    "True: keep all system messages that come after the first user message"
    match: str | None = None
    """regular expression; messages of any role whose text it matches somewhere are kept, with upper and
    lower case as written. The text includes tool names and arguments. None: no messages"""
    max_tokens: int = 2000
    "maximum tokens of a unit to keep; of a longer one, only a note is kept"
    newest: bool = False
    """True: keep the newest user message, which the agent is answering, whatever ``users`` and
    ``max_tokens`` are"""

    def __post_init__(self) -> None:
        """Raise SpecError if ``match`` is not a regular expression."""
        super().__post_init__()
        if self.match is not None:
            try:
                re.compile(self.match)
            except re.error as error:
                why = f"expected a regular expression for match, got {self.match!r}: {error}"
                raise SpecError(f"pinned: {why}") from None

    def __call__(self, context: Context, /) -> Context:
        """Run the wrapped strategy on the other messages."""
        pins = self._find_pins(context)
        if self.newest:
            pins = self._with_newest(context, pins)
        hides_head = (self, "head") in context.strategy_state
        head = context.history.head_length
        if not hides_head and (not pins or pins[-1].start < head):
            sent = self.strategy(context)  # nothing to hide
        else:
            shown = [pin for pin in pins if hides_head or pin.start >= head]
            sent = self._run(context, shown)
        if not hides_head and not _holds_head(sent, pins):
            context.strategy_state[self, "head"] = True
            context.version += 1  # the strategy now sees other indexes
            return self(context)
        return sent

    def quote(self, message: Message, _: ToolCall | None) -> Message | None:
        """Return a note that quotes the part of a message for which the message is kept.

        Parameters
        ----------
        message : Message
            Message of any role.
        _ : ToolCall or None
            Tool call that the message answers; not used.

        Returns
        -------
        Message or None
            User message with the note; None if the message is not to be kept.
        """
        lines: list[str] = []
        if self.match is not None:
            lines = list(_matching_lines(_compile(self.match), message_text(message)))
        whole = (self.users and message.role == "user") or (
            self.systems and message.role == "system"
        )
        if not lines and not whole:
            return None
        what = {"tool": "tool result", "assistant": "reply"}.get(message.role, "message")
        if not lines:
            text = clip_text(message.text.strip(), _MAX_NOTE_CHARS)
            return Message("user", f"[Beginning of an earlier {message.role} {what}]\n{text}")
        text = clip_text("\n".join(dict.fromkeys(lines)), _MAX_NOTE_CHARS)
        role = "" if message.role in ("tool", "assistant") else f"{message.role} "
        return Message("user", f"[Quoted from an earlier {role}{what}]\n{text}")

    # --- finding the messages -------------------------------------------------------------------

    def _find_pins(self, context: Context) -> tuple[_Pin, ...]:
        """Return the units to keep, in order. Only units with new messages are searched."""
        known: tuple[int, tuple[_Pin, ...]] = context.strategy_state.get(self, (0, ()))
        done, pins = known
        history, length = context.history, context.history_length
        if done == length:
            return pins
        starts = history.unit_starts
        first = min(starts[done:length])  # a late result may belong to an earlier unit
        kept = pins
        while kept and kept[-1].start >= first:
            kept = kept[:-1]
        found = []
        while first < length:
            stop = first + 1
            while stop < length and starts[stop] == starts[first]:
                stop += 1
            if pin := self._pin_unit(history, first, stop):
                found.append(pin)
            first = stop
        before = [pin.start for pin in pins]
        if before != [pin.start for pin in (*kept, *found) if pin.start < done]:
            context.version += 1  # the strategy no longer sees messages that it has seen
        pins = (*kept, *found) if found else kept
        context.strategy_state[self] = length, pins
        return pins

    def _with_newest(self, context: Context, pins: tuple[_Pin, ...]) -> tuple[_Pin, ...]:
        """Return the units to keep with the newest user message, unless strategies keep it anyway."""
        users = context.history.user_positions
        count = bisect_left(users, context.history_length)
        if not count:
            return pins
        newest = users[count - 1]
        if context.strategy_state.get((self, "newest"), newest) != newest:
            context.version += 1  # the strategy now sees the message that was the newest one
        context.strategy_state[self, "newest"] = newest
        index = context.find_index(newest)
        in_head = index is not None and index < context.first_droppable
        if in_head or context.verbatim_entry(newest).tokens > context.available:
            return pins
        others = [pin for pin in pins if not pin.start <= newest < pin.stop]
        return tuple(sorted([*others, _Pin(newest, newest + 1)], key=lambda pin: pin.start))

    def _pin_unit(self, history: History, start: int, stop: int) -> _Pin | None:
        """Return the unit with a message to keep; None if no message of the unit is to be kept."""
        notes, quoted = [], []
        cache = history.get_rewrite_cache(self.quote)
        for position in range(start, stop):
            if position < history.head_length and history[position].role == "system":
                continue
            note, _ = cache.apply(history.entries[position])
            if note is not None:
                notes.append(note)
                quoted.append(position)
        if not notes:
            return None
        tokens = history.tokens_before[stop] - history.tokens_before[start]
        if tokens <= self.max_tokens:
            return _Pin(start, stop)
        text = "\n".join(note.text for note in notes)
        note = Message("user", clip_text(text, 2 * _MAX_NOTE_CHARS))
        size = history.counter.count_message(note)
        if size >= tokens:
            return _Pin(start, stop)
        entry = Entry(note, size, Form.SUMMARY, stop, stop)
        return _Pin(start, stop, entry, tuple(quoted))

    # --- the request ----------------------------------------------------------------------------

    def _run(self, context: Context, pins: Sequence[_Pin]) -> Context:
        """Run the wrapped strategy without the kept messages, and add the notes that are needed."""
        hidden: list[Entry] = []
        room = 0
        for pin in pins:
            if pin.note is None:
                hidden += map(context.verbatim_entry, range(pin.start, pin.stop))
            elif (present := find_inserted(context, pin.note)) is not None:
                hidden.append(present)
            else:
                room += pin.note.tokens
        hidden.sort(key=lambda entry: (entry.start, entry.stop))
        needed = room + sum([entry.tokens for entry in hidden])
        if needed > context.available:
            raise StrategyError(
                f"pinned: the messages to keep have {needed:,} tokens, but only "
                f"{context.available:,} are available for messages; keep fewer with users=False, "
                "match or max_tokens, or raise the limit"
            )
        sent = run_without(context, hidden, self.strategy, room)
        for pin in pins:
            if pin.note is None or find_inserted(sent, pin.note) is not None:
                continue
            if not all(_is_verbatim(sent, position) for position in pin.quoted):
                insert_entry(sent, pin.note.start, pin.note)
        return sent


@lru_cache(maxsize=64)
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _matching_lines(pattern: re.Pattern[str], text: str) -> Iterator[str]:
    """Yield the lines that a pattern matches; of a long line, the part around the match."""
    for found in pattern.finditer(text):
        start = text.rfind("\n", 0, found.start()) + 1
        stop = text.find("\n", found.end())
        stop = len(text) if stop < 0 else stop
        if stop - start <= _MAX_LINE_CHARS:
            yield text[start:stop].strip()
            continue
        margin = max(0, _MAX_LINE_CHARS - (found.end() - found.start())) // 2
        first, last = max(start, found.start() - margin), min(stop, found.end() + margin)
        before, after = "…" * (first > start), "…" * (last < stop)
        yield f"{before}{text[first:last]}{after}"


def _is_verbatim(context: Context, position: int) -> bool:
    index = context.index_at_or_after(position)
    entries = context.entries
    return index < len(entries) and entries[index] is context.verbatim_entry(position)


def _holds_head(sent: Context, pins: Sequence[_Pin]) -> bool:
    """Return whether a request contains the kept messages of the head, which are not hidden."""
    for pin in pins:
        if pin.start >= sent.history.head_length:
            return True
        if not all(_is_verbatim(sent, each) for each in pin.quoted or range(pin.start, pin.stop)):
            return False
    return True
