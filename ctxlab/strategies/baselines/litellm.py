"""Baseline of litellm's ``trim_messages``, including its faults: most trimmed requests are invalid."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ctxlab.context.context import Context
from ctxlab.context.history import Entry, Form
from ctxlab.messages.types import Message
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.baselines.base import Baseline
from ctxlab.strategies.baselines.settings import arguments
from ctxlab.strategies.helpers.text import with_text
from ctxlab.tokens.counter import TokenCounter
from ctxlab.tokens.images import count_image_tokens

_Entries: TypeAlias = Sequence[Entry]
_MESSAGE_TOKENS, _REQUEST_TOKENS = 3, 3
"Number of tokens that litellm adds for each message, and for a request."

_PIECE_CHARS = 1024
"Number of characters that are counted at a time; a token at a boundary is counted twice."

_MAX_ATTEMPTS = 10
"Maximum number of attempts to shorten a message before it is left out."

_SMALL_ROOM = 64
"If at most this many tokens remain, messages are looked up by size, because few of them fit."


@dataclass(frozen=True, repr=False)
class trim_messages(BaseStrategy):
    """Keeps the newest messages, and cuts the middle out of older messages that do not fit.

    Messages are selected from the whole conversation before each request. All system messages are
    joined into one. The tool results at the end are sent even if they do not fit. If a message
    without text would have to be shortened, litellm fails and the whole conversation is sent.

    Source: litellm, ``litellm.utils.trim_messages``.

    Examples
    --------
    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.context.history import History
    >>> asked = "Tell me all about the sea, please, and the ships"
    >>> said = [Message("user", asked), Message("user", "Bye")]
    >>> context = Context(Budget(99), History(TokenCounter("gpt-4o"), said))
    >>> context.advance(2)
    >>> [m.content for m in trim_messages(max_tokens=19)(context).messages]
    ['Tell m.. ships', 'Bye']
    """

    max_tokens: int | None = None
    "maximum number of tokens of the request; None: ``trim_ratio`` of the available tokens"
    trim_ratio: float = 0.75
    "share of the available tokens to use if ``max_tokens`` is None"

    def __call__(self, context: Context, /) -> Context:
        """Keep the newest messages, and cut the middle out of older messages that do not fit."""
        share = int(context.available * self.trim_ratio)
        room, entries = share if self.max_tokens is None else self.max_tokens, context.entries
        # Sizes are cached only while no other strategy has edited the context.
        sizes = context.strategy_state.get(self) if context.version == 0 else None
        if sizes is None:
            sizes = _MessageSizes(context.history.counter)
            if context.version == 0:
                context.strategy_state[self] = sizes
        sizes.extend(entries)
        tail = len(entries)
        while tail and entries[tail - 1].message.role == "tool":
            tail -= 1
        if sizes.cumulative_tokens[tail] + _REQUEST_TOKENS < room:
            return context
        try:
            kept = sizes.select_entries(entries, tail, room, context.request_index)
        except TypeError:
            context.report("litellm fails: a message that must be shortened has no text")
            return context
        same = int(bool(kept) and kept[0] is entries[0])
        fork = context.fork_with(same, len(entries), kept[same:])
        fork.maybe_invalid = True  # calls may be separated from their results
        return fork


class _MessageSizes:
    """Token counts of messages as litellm computes them, with an index of messages by size."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        # litellm does not shorten a message to this number of tokens or fewer.
        self._min_shortening_room = 10 if "gpt" in counter.model else 0
        self.cumulative_tokens = [0]
        self.system_indexes: list[int] = []
        self._textless_indexes: list[int] = []
        self._by_frame: dict[int, list[int]] = defaultdict(list)
        self._by_size: dict[int, list[int]] = defaultdict(list)

    def extend(self, entries: _Entries) -> None:
        """Count the tokens of the entries that were appended since the last call."""
        for index in range(len(self.cumulative_tokens) - 1, len(entries)):
            message = entries[index].message
            frame = self._frame_tokens(message)
            size = frame + self._content_tokens(message)
            self.cumulative_tokens.append(self.cumulative_tokens[-1] + size)
            if message.role == "system":
                self.system_indexes.append(index)
                continue
            if not isinstance(message.content, str):
                self._textless_indexes.append(index)
            if frame <= _SMALL_ROOM:
                self._by_frame[frame].append(index)
            if size <= self._min_shortening_room:
                self._by_size[size].append(index)

    def select_entries(self, entries: _Entries, tail: int, room: int, turn: int) -> list[Entry]:
        """Return the entries to send. Raise ``TypeError`` if a message to shorten has no text.

        Entries from index ``tail`` on are all sent. Earlier entries are selected, and shortened if
        necessary, to fit ``room`` tokens. ``turn`` is the index of the request.
        """
        first: list[Entry] = []
        if self.system_indexes:
            first.append(self._system_entry(entries, room, turn))
            room -= self._message_tokens(first[0].message) + _REQUEST_TOKENS
            if room == 0:
                return first
        kept: list[Entry] = []
        used, index = _REQUEST_TOKENS, tail
        while (left := room - used) > 3:
            index = self._next_candidate(index, left)
            if index < 0:
                break
            entry = entries[index]
            size = self.cumulative_tokens[index + 1] - self.cumulative_tokens[index]
            if size > left and left > self._min_shortening_room:
                entry = self._with_message(entry, self._shorten(entry.message, left), turn)
                size = self._message_tokens(entry.message)
            if size <= left:
                kept.append(entry)
                used += size
        return [*first, *reversed(kept), *entries[tail:]]

    def _system_entry(self, entries: _Entries, room: int, turn: int) -> Entry:
        found = [entries[index] for index in self.system_indexes]
        message = found[0].message
        if len(found) > 1:
            message = Message("system", "\n".join(_require_text(entry.message) for entry in found))
        if self._message_tokens(message) + _REQUEST_TOKENS > room:
            message = self._shorten(message, room)
        same = message is found[0].message
        return found[0] if same else self._with_message(found[0], message, turn)

    def _with_message(self, old: Entry, message: Message, turn: int) -> Entry:
        tokens = self._counter.count_message(message)
        return Entry(message, tokens, Form.TRUNCATED, old.start, old.stop, turn)

    def _next_candidate(self, index: int, left: int) -> int:
        """Return the index of the next older message to try, or -1.

        Messages that are certainly too large are skipped. Messages without text are not skipped,
        because litellm fails when it tries to shorten such a message.
        """
        if left <= self._min_shortening_room:
            return _newest_before(self._by_size, index, left)
        if left > _SMALL_ROOM:
            index -= 1
            while index >= 0 and index in self.system_indexes:
                index -= 1
            return index
        textless = bisect_left(self._textless_indexes, index) - 1
        stop = self._textless_indexes[textless] if textless >= 0 else -1
        return max(stop, _newest_before(self._by_frame, index, left))

    def _shorten(self, message: Message, room: int) -> Message:
        if room <= self._min_shortening_room:
            return message
        for _ in range(_MAX_ATTEMPTS):
            size = self._message_tokens(message) + _REQUEST_TOKENS
            if size <= room:
                break
            text = _require_text(message)
            half = max(0, int(len(text) * (room / size)) - 1) // 2
            # If ``half`` is 0, ``text[-half:]`` is the whole text. litellm has the same fault.
            message = with_text(message, text[:half] + ".." + text[-half:])
        return message

    def _message_tokens(self, message: Message) -> int:
        return self._frame_tokens(message) + self._content_tokens(message)

    def _frame_tokens(self, message: Message) -> int:
        """Count the tokens of a message without its content. Tool names are not counted."""
        size = _MESSAGE_TOKENS + self._text_tokens(message.role)
        size += sum(self._text_tokens(call.arguments) for call in message.tool_calls)
        if message.tool_call_id:
            size += self._text_tokens(message.tool_call_id)
        if message.name is not None:
            size += self._text_tokens(message.name) + 1
        return size

    def _content_tokens(self, message: Message) -> int:
        content = message.content
        if not isinstance(content, tuple):
            return self._text_tokens(content or "")
        family = self._counter.family
        return sum(
            self._text_tokens(str(part.get("text") or ""))
            if part.get("type") == "text"
            else count_image_tokens(part, family)
            for part in content
        )

    def _text_tokens(self, text: str) -> int:
        count = self._counter.count_text
        return sum(count(text[i : i + _PIECE_CHARS]) for i in range(0, len(text), _PIECE_CHARS))


def _newest_before(indexes_by_size: dict[int, list[int]], index: int, max_size: int) -> int:
    """Return the index of the newest message before ``index`` that has at most ``max_size`` tokens.

    Return -1 if there is no such message.
    """
    newest = -1
    for size in range(_MESSAGE_TOKENS, max_size + 1):
        if indexes := indexes_by_size.get(size):
            at = bisect_left(indexes, index) - 1
            newest = max(newest, indexes[at] if at >= 0 else -1)
    return newest


def _require_text(message: Message) -> str:
    if not isinstance(message.content, str):
        raise TypeError(f"expected text as content, got {type(message.content).__name__}")
    return message.content


MODULE_BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "litellm.trim_messages",
        trim_messages(),
        "litellm 1.110.2",
        "https://github.com/BerriAI/litellm/blob/v1.110.2/litellm/utils.py",
        "Keeps the newest messages in 0.75 of the window. The middle of messages that do not fit is "
        "removed, and older messages that fit are added. This may separate calls from results. If a "
        "call without text does not fit, litellm raises an error, and the whole conversation is "
        "sent. Tokens are counted like litellm does for OpenAI's models, in pieces of 1,024 "
        "characters. For other models, the vocabulary of ctxlab is used. Images are counted by "
        "ctxlab.",
        ("", "max_tokens=4000", "max_tokens=1500"),
        settings=arguments("litellm.utils", "trim_messages", "max_tokens", "trim_ratio"),
    ),
)
