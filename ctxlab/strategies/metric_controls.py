"""Controls that attack recall as a metric: requests full of names, words or quoted lines.

A model that is sent a bare list of names knows nothing about them. A metric that only asks whether a
name stands in the request cannot tell such a list from the messages that said what the name means.
These controls show how much of a recall figure can be had in this way. ``line_list`` shows the price
of what held recall counts as knowledge: a quoted line per name. They are no strategies for an agent.
Together they are the group ``metric_controls`` of the command line.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ctxlab.context.context import Context
from ctxlab.context.history import Form
from ctxlab.messages.entities import find_entities, find_entities_in_value
from ctxlab.messages.source_lines import MAX_LINE_CHARS, is_informative
from ctxlab.messages.types import Message, ToolCall, message_text
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.helpers.text import rewrite_calls

_MAX_TOKEN_CHARS = 8
"more characters per token than any of the texts below has on average"
_STEP = 0.97
"share of the pieces that should fit which are tried next, because tokens per piece vary"
_NO_NAMES = "-"
_WORD = re.compile(r"[\w./@~+#-]+")


@dataclass(frozen=True, repr=False)
class _TextOfAll(BaseStrategy):
    """Base of controls that keep the head, the newest unit, and one text made of all between them."""

    supports_live: ClassVar[bool] = False
    "False: the strategy only tests a metric"

    def __call__(self, context: Context, /) -> Context:
        """Return a copy of the context with the text in place of the messages between."""
        head, tail = context.first_droppable, context.last_unit_start
        if tail <= head:
            return context
        newest = context.history.unit_starts[context.history_length - 1]
        pieces = self._newest_pieces(context, newest)
        fork = context.fork_with(head, tail, ())
        message = self._fit(context, pieces, -fork.excess)
        if message:
            fork.insert(head, message)
        return fork

    def _newest_pieces(self, context: Context, stop: int) -> Iterator[str]:
        """Return the distinct pieces of all messages after the head, those said last first."""
        known: dict[str, None]
        done, known = context.strategy_state.get(self, (context.history.head_length, {}))
        for message in context.history[done:stop]:
            for piece in self._pieces(message):
                known.pop(piece, None)
                known[piece] = None
        context.strategy_state[self] = max(done, stop), known
        return reversed(known)

    def _fit(self, context: Context, newest: Iterable[str], room: int) -> Message | None:
        """Return a message with as many of the last pieces as fit ``room`` tokens; None if none does."""
        pieces, chars = list[str](), 0
        for piece in newest:
            chars += len(piece)
            if chars > room * _MAX_TOKEN_CHARS:
                break
            pieces.append(piece)
        count = len(pieces)
        while count > 0:
            message = Message("user", self._join(pieces[count - 1 :: -1]))
            tokens = context.history.counter.count_message(message)
            if tokens <= room:
                return message
            count = min(count - 1, int(count * room / tokens * _STEP))
        return None

    def _pieces(self, message: Message) -> Iterable[str]:
        """Return the pieces of one message, such as its names."""
        raise NotImplementedError

    def _join(self, pieces: Sequence[str]) -> str:
        """Return the text made of the pieces."""
        raise NotImplementedError


@dataclass(frozen=True, repr=False)
class name_list(_TextOfAll):
    """Replaces all messages between the first user message and the newest by a list of their names.

    The names are the paths, ids, numbers and similar entities that recall looks for, each once and
    in alphabetical order. If the list does not fit the budget, the names said last are kept.

    Source: ctxlab; a control of the metric ``recall``.

    Examples
    --------
    >>> from ctxlab import Budget, History, TokenCounter
    >>> said = ["Go", "see src/io.py", "and HAT136 too", "So?"]
    >>> history = History(TokenCounter("gpt-4o"), [Message("user", text) for text in said])
    >>> context = Context(Budget(1000), history)
    >>> context.advance(len(said))
    >>> [m.content for m in name_list()(context).messages]
    ['Go', 'HAT136 src/io.py', 'So?']
    """

    separator: str = " "
    "text between two names"

    def _pieces(self, message: Message) -> Iterable[str]:
        return _names(message)

    def _join(self, pieces: Sequence[str]) -> str:
        return self.separator.join(sorted(pieces))


@dataclass(frozen=True, repr=False)
class word_list(_TextOfAll):
    """Replaces all messages between the first user message and the newest by a list of their words.

    A word is a sequence of letters, digits and the characters of paths. Each word is listed once, in
    alphabetical order. If the list does not fit the budget, the words said last are kept.

    Source: ctxlab; a control of the metric ``recall``.

    Examples
    --------
    >>> from ctxlab import Budget, History, TokenCounter
    >>> said = ["Go", "to be or not to be", "So?"]
    >>> history = History(TokenCounter("gpt-4o"), [Message("user", text) for text in said])
    >>> context = Context(Budget(1000), history)
    >>> context.advance(len(said))
    >>> [m.content for m in word_list()(context).messages]
    ['Go', 'be not or to', 'So?']
    """

    separator: str = " "
    "text between two words"

    def _pieces(self, message: Message) -> Iterable[str]:
        return _WORD.findall(message_text(message))

    def _join(self, pieces: Sequence[str]) -> str:
        return self.separator.join(sorted(pieces))


@dataclass(frozen=True, repr=False)
class base64_text(_TextOfAll):
    """Replaces all messages between the first user message and the newest by their text in base64.

    Every character could be recovered, but no model reads it. If the text does not fit the budget,
    the lines said last are kept.

    Source: ctxlab; a control of the metric ``recall``.

    Examples
    --------
    >>> from ctxlab import Budget, History, TokenCounter
    >>> said = ["Go", "see src/io.py", "So?"]
    >>> history = History(TokenCounter("gpt-4o"), [Message("user", text) for text in said])
    >>> context = Context(Budget(1000), history)
    >>> context.advance(len(said))
    >>> [m.content for m in base64_text()(context).messages]
    ['Go', 'c2VlIHNyYy9pby5weQ==', 'So?']
    """

    def _pieces(self, message: Message) -> Iterable[str]:
        data = message_text(message).encode("utf-8", "backslashreplace")
        return base64.encodebytes(data).decode("ascii").split()

    def _join(self, pieces: Sequence[str]) -> str:
        return "\n".join(pieces)


@dataclass(frozen=True, repr=False)
class line_list(_TextOfAll):
    r"""Replaces all messages between the first user message and the newest by a line for each name.

    The line is a part, of at most 160 characters, of the last line so far that mentions the name and
    says more than names; of the last one that mentions it, if none says more. Lines are copied word
    for word, so held recall counts them. Each line is listed once. If the list does not fit the
    budget, the lines said last are kept.

    Source: ctxlab; a control of the metric ``recall``.

    Examples
    --------
    >>> from ctxlab import Budget, History, TokenCounter
    >>> said = ["Go", "the reader is src/io.py", "src/io.py", "and HAT136 too", "So?"]
    >>> history = History(TokenCounter("gpt-4o"), [Message("user", text) for text in said])
    >>> context = Context(Budget(1000), history)
    >>> context.advance(len(said))
    >>> line_list()(context).messages[1].content
    'the reader is src/io.py\nand HAT136 too'
    """

    def _newest_pieces(self, context: Context, stop: int) -> Iterator[str]:
        """Return the distinct lines for the names of all messages after the head, the newest first."""
        known: dict[str, tuple[bool, str]]
        done, known = context.strategy_state.get(self, (context.history.head_length, {}))
        for message in context.history[done:stop]:
            for name, line in _named_lines(message):
                tells = is_informative(line, name)
                if tells or not known.get(name, (False,))[0]:
                    known.pop(name, None)
                    known[name] = tells, line
        context.strategy_state[self] = max(done, stop), known
        return _distinct(line for _, line in reversed(known.values()))

    def _join(self, pieces: Sequence[str]) -> str:
        return "\n".join(pieces)


@dataclass(frozen=True, repr=False)
class names_in_place(BaseStrategy):
    """Replaces each message between the first user message and the newest ones by its names.

    The messages keep their places and roles, and tool calls keep their ids, so that the request
    stays valid. The names of a call's arguments are listed in the text of its message. If the request
    exceeds the budget, the oldest messages are dropped. What stands verbatim is what a window of
    ``keep`` messages sends, which is the strategy to compare with.

    Source: ctxlab; a control of the metric ``recall``.

    Examples
    --------
    >>> from ctxlab import Budget, History, TokenCounter
    >>> said = ["Go", "see src/io.py", "and HAT136 too", "So?"]
    >>> history = History(TokenCounter("gpt-4o"), [Message("user", text) for text in said])
    >>> context = Context(Budget(1000), history)
    >>> context.advance(len(said))
    >>> [m.content for m in names_in_place()(context).messages]
    ['Go', 'src/io.py', 'HAT136', 'So?']
    """

    keep: int = 0
    "number of newest messages that stay as they are, beside the newest unit"
    separator: str = " "
    "text between two names"

    supports_live: ClassVar[bool] = False
    "False: the strategy only tests a metric"

    def __call__(self, context: Context, /) -> Context:
        """Replace older messages by their names, then drop the oldest ones until the request fits."""
        done = context.strategy_state.get(self, context.history.head_length)
        entries, tail = context.entries, context.last_unit_start
        tail = min(tail, max(0, len(entries) - self.keep))
        stop = entries[tail].start if tail < len(entries) else context.history_length
        for position in range(done, stop):
            index = context.find_index(position)
            if index is not None and not entries[index].is_aggregate:
                context.rewrite(index, self._to_names, Form.REWRITTEN)
        context.strategy_state[self] = max(done, stop)
        head, tail, excess = context.first_droppable, context.last_unit_start, context.excess
        end = head
        while excess > 0 and end < tail:
            excess -= entries[end].tokens
            end += 1
        end = min(context.next_safe_cut(end), tail)
        if end > head:
            context.drop(head, end)
        return context

    def _to_names(self, message: Message, _: ToolCall | None) -> Message:
        values = (name for call in message.tool_calls for name in _names_in_arguments(call))
        names = dict.fromkeys((*(each.text for each in find_entities(message.text)), *values))
        content = self.separator.join(names)
        if not content and not message.tool_calls:
            content = _NO_NAMES
        named = message.replace(content=content or None)
        return rewrite_calls(named, _without_arguments) or named


def _distinct(lines: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for line in lines:
        if line not in seen:
            seen.add(line)
            yield line


def _named_lines(message: Message) -> Iterator[tuple[str, str]]:
    """Yield each name of a message, with a part of its line. Arguments follow the name of the tool."""
    lines = message.text.split("\n")
    for call in message.tool_calls:
        for _, leaf in call.argument_leaves():
            lines += f"{call.name} {leaf if leaf is not None else ''}".split("\n")
    for line in lines:
        for entity in find_entities(line):
            start = max(line.find(entity.text) - MAX_LINE_CHARS // 2, 0)
            yield entity.text, line[start : start + MAX_LINE_CHARS].strip()


def _without_arguments(call: ToolCall) -> ToolCall:
    return ToolCall(call.id, call.name, "{}")


def _names(message: Message) -> list[str]:
    """Return the names in the text, the tool names and the arguments of a message."""
    values = (name for call in message.tool_calls for name in _names_in_arguments(call))
    return [*(entity.text for entity in find_entities(message_text(message))), *values]


def _names_in_arguments(call: ToolCall) -> Iterator[str]:
    for _, leaf in call.argument_leaves():
        yield from (entity.text for entity in find_entities_in_value(leaf))
