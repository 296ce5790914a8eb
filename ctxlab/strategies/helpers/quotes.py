"""Quotes from a message: the lines that say something about an entity, and what was said or called.

A quote is found once per message, and shared by all contexts and histories that contain the message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple, TypeAlias

from ctxlab.context.message_cache import MessageCache
from ctxlab.messages.entities import (
    find_entities,
    find_entities_in_value,
    find_entity_offset,
)
from ctxlab.messages.source_lines import (
    MAX_LINE_CHARS,
    Segment,
    entities_in_line,
    is_informative,
    leaf_text,
    line_end,
    mention_span,
    message_segments,
)
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.helpers.entity_memory import MAX_SCANNED_CHARS
from ctxlab.strategies.helpers.text import find_decision, single_line

HEADING = "### "
"beginning of a line that says where the quotes below it come from"
CALL = -1
"segment of a quote that shows a whole tool call"

_MAX_USER_CHARS, _MAX_DECISION_CHARS, _MAX_CALL_CHARS = 300, 160, 160
_MAX_LEAF_CHARS = 100
_MAX_OCCURRENCES = 3  # of an entity in a message: lines that are looked at
_WIDE = re.compile("[\u2e80-\U0010ffff]")  # about one token each

Place: TypeAlias = tuple[int, int, int]
"""Place of a quote in its message: index of the segment, or ``CALL`` for a whole tool call; offset of
the first character in the segment, or index of the tool call; and the offset after the last character,
or the index after the tool call."""


class Quote(NamedTuple):
    """Part of a message: lines of its text, lines of an argument, or a whole tool call."""

    place: Place
    "place of the quote in the message"
    text: str
    "the quoted text"
    entities: frozenset[str]
    "entities about which the text says something, beside the one for which it was found"
    wide: int
    "number of characters of which each is about one token"


class Section(NamedTuple):
    """Heading of the quotes from one part of a message."""

    heading: str
    "text of the heading"
    entities: frozenset[str]
    "entities of the heading, if it names a tool call"
    call: ToolCall | None
    "tool call that the heading names"


class Found(NamedTuple):
    """Quote that was found for an entity."""

    quote: Quote
    "the quote"
    is_bare: bool
    "True if the quote contains little else than names"


class MessageQuotes:
    """Quotes of one message.

    Parameters
    ----------
    message : Message
        Message to quote from.
    """

    def __init__(self, message: Message) -> None:
        self._message = message
        self._found: dict[str, Found | None] = {}
        self._lines: dict[Place, Quote | None] = {}
        self._called: dict[int, Quote] = {}
        self._sections: dict[int, Section] = {}

    @cached_property
    def _segments(self) -> list[Segment]:
        segments = message_segments(self._message)
        return [Segment(tool, text[:MAX_SCANNED_CHARS]) for tool, text in segments]

    def section(self, segment: int, answered: ToolCall | None) -> Section:
        """Return the heading of the quotes of a segment.

        Parameters
        ----------
        segment : int
            Index of the segment.
        answered : ToolCall or None
            Tool call that the message answers, if it is the result of one.

        Returns
        -------
        Section
            Heading, its entities, and the tool call that it names.
        """
        if segment not in self._sections:
            self._sections[segment] = self._make_section(segment, answered)
        return self._sections[segment]

    def _make_section(self, segment: int, answered: ToolCall | None) -> Section:
        message, call = self._message, None
        if message.role == "tool":
            call = answered
            name = single_line(message.name or "tool", _MAX_CALL_CHARS)
            heading = f"{_format_call(call) if call else name} gave"
        elif segment > 0:
            call = _call_of_segment(message, segment)
            heading = f"{_format_call(call)} with"
        else:
            heading = message.role
        entities = frozenset(each.text for each in find_entities(heading)) if call else frozenset()
        return Section(heading, entities, call)

    @cached_property
    def said(self) -> Quote | None:
        """Beginning of a user message, or the decision of an assistant message."""
        message, text = self._message, ""
        if message.role == "user":
            text = single_line(message.text, _MAX_USER_CHARS)
        elif message.role == "assistant":
            text = single_line(find_decision(message.text), _MAX_DECISION_CHARS)
        if not text:
            return None
        if _is_heading(text):
            text = f" {text}"  # a quote cannot pretend to be a heading
        return _make_quote((0, -1, -1), text, frozenset(_held_entities(text, message.text)))

    def find(self, entity: str) -> Found | None:
        """Return the first quote that says something about an entity, or else names it.

        Parameters
        ----------
        entity : str
            Text of an entity that the message mentions.

        Returns
        -------
        Found or None
            The quote; None if no line with the entity can be quoted.
        """
        if entity not in self._found:
            self._found[entity] = self._search(entity)
        return self._found[entity]

    def _search(self, entity: str) -> Found | None:
        bare = None
        for number, (tool, text) in enumerate(self._segments):
            at, seen = find_entity_offset(text, entity), 0
            while at >= 0 and seen < _MAX_OCCURRENCES:
                if tool and len(text) <= _MAX_LEAF_CHARS and "\n" not in text:
                    quote = self._quote_call(number)
                    if entity in quote.entities:  # not if the call is too long to show it
                        return Found(quote, False)
                line = self._find_line(number, text, at, entity)
                if line is not None and not line.is_bare:
                    return line
                bare = bare or line
                at, seen = find_entity_offset(text, entity, at + len(entity)), seen + 1
        return bare

    def _quote_call(self, segment: int) -> Quote:
        if segment not in self._called:
            self._called[segment] = self._make_call_quote(segment)
        return self._called[segment]

    def _make_call_quote(self, segment: int) -> Quote:
        call = _call_of_segment(self._message, segment)
        text = _format_call(call)
        found = {each.text for each in find_entities(text)}
        for _, leaf in call.argument_leaves():  # such as a person's name
            used = find_entities_in_value(leaf) if len(str(leaf)) <= _MAX_LEAF_CHARS else ()
            found |= {each.text for each in used if find_entity_offset(text, each.text) >= 0}
        index = next(i for i, each in enumerate(self._message.tool_calls) if each is call)
        return _make_quote((CALL, index, index + 1), text, frozenset(found))

    def _find_line(self, segment: int, text: str, at: int, entity: str) -> Found | None:
        start, stop = _quoted_span(text, at, entity)
        low, high = start, stop
        if stop - start > MAX_LINE_CHARS or at - start > MAX_LINE_CHARS // 2:
            low, high = mention_span(text, at, entity)
        is_bare = not is_informative(text[low:high], entity)
        if is_bare:  # a neighbouring line may say what the entity is
            for pair in _neighbours(text, start, stop):
                if is_informative(text[slice(*pair)], entity):
                    (start, stop), is_bare = pair, False
                    break
        place = segment, start, stop
        if place not in self._lines:
            self._lines[place] = _quote_lines(place, text)
        quote = self._lines[place]
        return None if quote is None else Found(quote, is_bare)


QUOTES = MessageCache(MessageQuotes)
"""Quotes of each message of a history."""


def _quote_lines(place: Place, text: str) -> Quote | None:
    """Return a part of a text as a quote; None if it looks like a heading."""
    segment, start, stop = place
    quoted = text[start:stop].rstrip()
    if HEADING.rstrip() in quoted and any(map(_is_heading, quoted.splitlines())):
        return None  # a quote cannot pretend to be a heading
    entities = set()
    is_line = _is_whole_line(text, start, stop)
    for other in entities_in_line(quoted):
        offset = find_entity_offset(quoted, other.text)
        low, high = start, stop
        if not is_line or not 0 <= offset <= MAX_LINE_CHARS // 2:
            low, high = mention_span(text, start + offset, other.text)
        if start <= low and high <= stop and is_informative(text[low:high], other.text):
            entities.add(other.text)
    return _make_quote((segment, start, start + len(quoted)), quoted, frozenset(entities))


def _is_whole_line(text: str, start: int, stop: int) -> bool:
    """Return whether a part of a text is one line, and all of it is near to its beginning."""
    return (
        stop - start <= MAX_LINE_CHARS
        and (start == 0 or text[start - 1] == "\n")
        and (stop == len(text) or text[stop] == "\n")
        and "\n" not in text[start:stop]
    )


def _make_quote(place: Place, text: str, entities: frozenset[str]) -> Quote:
    return Quote(place, text, entities, 0 if text.isascii() else len(_WIDE.findall(text)))


def _held_entities(quoted: str, text: str) -> Iterator[str]:
    """Yield the entities of a text about which a quote from the text says something."""
    for entity in find_entities(quoted):
        at = find_entity_offset(text, entity.text)
        span = text[slice(*mention_span(text, at, entity.text))].strip()
        if at >= 0 and span in quoted and is_informative(span, entity.text):
            yield entity.text


def _quoted_span(text: str, at: int, entity: str) -> tuple[int, int]:
    """Return the line of a mention, or the part of it around the mention if it is long."""
    begin, end = text.rfind("\n", 0, at) + 1, line_end(text, at + len(entity))
    if end - begin <= MAX_LINE_CHARS:
        return begin, end
    return mention_span(text, at, entity)


def _neighbours(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    if start > 0 and text[start - 1] == "\n":
        yield max(text.rfind("\n", 0, start - 1) + 1, start - 1 - MAX_LINE_CHARS), stop
    if stop < len(text) and text[stop] == "\n":
        yield start, min(line_end(text, stop + 1), stop + 1 + MAX_LINE_CHARS)


def _is_heading(line: str) -> bool:
    return line.startswith(HEADING.rstrip()) and line[3:4].strip() == ""


def _call_of_segment(message: Message, segment: int) -> ToolCall:
    """Return the tool call to which a segment of a message belongs."""
    stop = 1
    for call in message.tool_calls:
        stop += max(1, sum(1 for _ in call.argument_leaves()))
        if segment < stop:
            return call
    raise IndexError(segment)


def _format_call(call: ToolCall) -> str:
    """Return a tool call on one line, with its short arguments."""
    leaves = (
        single_line(leaf_text(leaf), 10 * _MAX_LEAF_CHARS) for _, leaf in call.argument_leaves()
    )
    name = single_line(call.name, _MAX_CALL_CHARS)  # one line, so that it cannot forge a heading
    shown, room = [], _MAX_CALL_CHARS - len(name) - 2
    for leaf in filter(None, leaves):
        part = leaf if len(leaf) <= min(room, _MAX_LEAF_CHARS) else "…"
        if room < len(part):
            break
        shown.append(part)
        room -= len(part) + 2
    return f"{name}({', '.join(shown)})"
