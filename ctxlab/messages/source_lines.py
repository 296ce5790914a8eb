"""Source lines: the text around an entity, by which a summary or stub shows that it kept a fact.

A bare list of names contains every path and id of a conversation and tells nothing about them. A
text therefore *holds* an entity only if it contains, word for word, a source line: the line of an
earlier message that mentions the entity.

- The source line is the part of the line within about 80 characters of the entity. It must contain at
  least ``MIN_PLAIN_CHARS`` letters or digits in words that contain neither the entity nor another one.
- A *bare* line has fewer. Together with the line before or after it, it is a source line if both
  lines together contain enough.
- An argument of a tool call that consists of one bare line has no source line. A text holds it if
  one line of the text contains the name of the tool and the entity, and no entity that is not part of
  this tool call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from ctxlab.messages.entities import (
    Entity,
    contains_entity,
    find_entities,
    has_plain_characters,
)
from ctxlab.messages.types import Message

MIN_PLAIN_CHARS = 6
"""Letters or digits outside of entities that a source line must contain."""

MAX_LINE_CHARS = 160
"""A source line contains at most this many characters, or the entity if it is longer."""

_SOME_NAME = "a_b"
"an entity of the kind ``identifier``, which stands for any entity"

FindOffset: TypeAlias = Callable[[str, int], int]
"""Function of a text and a start that returns the offset of the next mention of an entity, or -1."""


class Segment(NamedTuple):
    """Part of a message: its content, or one argument of a tool call."""

    tool: str
    "name of the called tool; empty for the content"
    text: str
    "text of the content or the argument"


class SourceLine:
    """A mention of an entity with the text around it, from which the held test is made.

    The neighbours of the line are found when they are asked for, because most lines need none.

    Parameters
    ----------
    segments : sequence of Segment
        Segments of the message.
    segment : Segment
        Segment with the mention.
    at : int
        Offset of the mention in the text of the segment.
    entity : str
        Text of the entity.
    """

    __slots__ = ("_segment", "_segments", "_start", "_stop", "offset", "text")

    def __init__(self, segments: Sequence[Segment], segment: Segment, at: int, entity: str) -> None:
        text = segment.text
        start, stop = mention_span(text, at, entity)
        line = text[start:stop]
        begun = line.lstrip()
        self.text = begun.rstrip()
        "line of the mention, shortened if it is long, without spaces at its ends"
        self.offset = at - start - (len(line) - len(begun))
        "offset of the entity in ``text``"
        self._segments, self._segment = segments, segment
        self._start, self._stop = start, stop

    @property
    def above(self) -> str:
        """``text`` with the line before it; empty if there is none."""
        start, text = self._start, self._segment.text
        if not start or text[start - 1] != "\n":
            return ""
        top = max(start - 1 - MAX_LINE_CHARS, 0)
        return text[max(text.rfind("\n", top, start - 1) + 1, top) : self._stop].strip()

    @property
    def below(self) -> str:
        """``text`` with the line after it; empty if there is none."""
        stop, text = self._stop, self._segment.text
        if not text.startswith("\n", stop):
            return ""
        bottom = stop + 1 + MAX_LINE_CHARS
        end = text.find("\n", stop + 1, bottom)
        return text[self._start : bottom if end < 0 else end].strip()

    @property
    def tool(self) -> str:
        """Name of the called tool if the line is a whole argument of a tool call, otherwise empty."""
        tool, text = self._segment
        return tool if tool and text.strip() == self.text else ""

    @property
    def call_text(self) -> str:
        """Names and values of the tool calls of the message."""
        return "\n".join(f"{name} {value}" for name, value in self._segments if name)

    def held_in(self, text: str, at: int, entity: str) -> bool:
        """Return whether a mention of the entity in another text shows this line.

        Parameters
        ----------
        text : str
            Other text, such as a summary (see ``searchable_text``).
        at : int
            Offset of a mention of the entity in ``text``.
        entity : str
            Text of the entity.

        Returns
        -------
        bool
            True if ``text`` contains the line at this place, with a neighbour if the line is bare,
            or names the tool of a bare argument.
        """
        if self.matches(text, at):
            if is_informative(self.text, entity):
                return True
            if any(pair in text for pair in self.informative_pairs(entity)):
                return True
        if not self.tool or is_informative(self.text, entity):
            return False
        line = text[text.rfind("\n", 0, at) + 1 : line_end(text, at + len(entity))]
        return contains_entity(line, self.tool) and all(
            contains_entity(self.call_text, found.text) for found in entities_in_line(line)
        )

    def matches(self, text: str, at: int) -> bool:
        """Return whether another text contains the line around a mention of the entity.

        Parameters
        ----------
        text : str
            Other text.
        at : int
            Offset of a mention of the entity in ``text``.

        Returns
        -------
        bool
            True if the line stands there, also if it is bare.
        """
        return at >= self.offset and text.startswith(self.text, at - self.offset)

    def informative_pairs(self, entity: str) -> list[str]:
        """Return the line with the line before and after it, where the two say enough together.

        Parameters
        ----------
        entity : str
            Text of the entity.

        Returns
        -------
        list of str
            Up to two texts.
        """
        pairs = (pair for pair in (self.above, self.below) if pair)
        return [pair for pair in pairs if is_informative(pair, entity)]

    def quote(self, entity: str) -> str:
        """Return a text that holds the entity if possible, otherwise the line.

        Parameters
        ----------
        entity : str
            Text of the entity.

        Returns
        -------
        str
            The line; with a neighbour or with the name of the tool if the line is bare.
        """
        if is_informative(self.text, entity):
            return self.text
        if self.tool:
            return f"{self.tool} {self.text}"
        return next(iter(self.informative_pairs(entity)), self.text)


def message_segments(message: Message) -> list[Segment]:
    """Split a message into its content and the arguments of its tool calls.

    Parameters
    ----------
    message : Message
        Message of any role.

    Returns
    -------
    list of Segment
        The content, followed by one segment per argument.
    """
    found = [Segment("", message.text)]
    for call in message.tool_calls:
        leaves = [leaf for _, leaf in call.argument_leaves()] or [None]
        found += [Segment(call.name, leaf_text(leaf)) for leaf in leaves]
    return found


def leaf_text(leaf: object) -> str:
    """Return an argument value as text, with a short number that is a string in double quotes.

    Parameters
    ----------
    leaf : Any
        Value of an argument: a string, a number, a bool or None.

    Returns
    -------
    str
        Text of the value; empty for None.
    """
    if leaf is None:
        return ""
    if isinstance(leaf, str) and len(leaf) < 4 and leaf.strip().isdecimal():
        return f'"{leaf.strip()}"'
    return str(leaf)


def searchable_text(segments: Sequence[Segment]) -> str:
    """Join the segments of a message. Each argument follows the name of its tool on the same line.

    Parameters
    ----------
    segments : sequence of Segment
        Segments of one message.

    Returns
    -------
    str
        Text of the whole message.
    """
    if len(segments) == 1 and not segments[0].tool:
        return segments[0].text
    return "\n".join(f"{tool} {text}" if tool else text for tool, text in segments)


def find_source_lines(
    segments: Sequence[Segment], entity: str, find: FindOffset
) -> Iterator[SourceLine]:
    """Find the source lines of an entity in a message that mentions it.

    Parameters
    ----------
    segments : sequence of Segment
        Segments of the message.
    entity : str
        Text of the entity.
    find : callable
        Function that finds the next mention of the entity.

    Yields
    ------
    SourceLine
        One per mention, in order.
    """
    for segment in segments:
        text = segment.text
        at = find(text, 0)
        while at >= 0:
            yield SourceLine(segments, segment, at, entity)
            at = find(text, at + len(entity))


def mention_span(text: str, at: int, entity: str) -> tuple[int, int]:
    """Return the part of a line around a mention that a source line consists of.

    Parameters
    ----------
    text : str
        Text with the mention.
    at : int
        Offset of the mention in ``text``.
    entity : str
        Text of the entity.

    Returns
    -------
    tuple of (int, int)
        Offsets of the first character and after the last one.
    """
    # Search only as far as the span can reach, because a line of JSON can be as long as the message.
    first = max(at - MAX_LINE_CHARS // 2, 0)
    start = max(text.rfind("\n", first, at) + 1, first)
    last = max(at + len(entity), start + MAX_LINE_CHARS)
    end = text.find("\n", at + len(entity), last)
    return start, min(last, len(text)) if end < 0 else end


def line_end(text: str, start: int) -> int:
    """Return the offset of the first line break at an offset or later.

    Parameters
    ----------
    text : str
        Text of any number of lines.
    start : int
        Offset at which the search starts.

    Returns
    -------
    int
        Offset of the line break, or the length of the text if there is none.
    """
    end = text.find("\n", start)
    return len(text) if end < 0 else end


@lru_cache(maxsize=8192)
def entities_in_line(line: str) -> tuple[Entity, ...]:
    """Find the entities of a line, and remember them: excerpts and summaries often repeat a line.

    Parameters
    ----------
    line : str
        Line of a message or of a text that a strategy wrote.

    Returns
    -------
    tuple of Entity
        Distinct entities.
    """
    return find_entities(line)


@lru_cache(maxsize=65536)
def is_informative(line: str, entity: str) -> bool:
    """Return whether a line contains enough words that are not names.

    A word that contains the entity, such as a path with an id, is a name too.

    Parameters
    ----------
    line : str
        Line that mentions the entity, or several lines.
    entity : str
        Text of the entity.

    Returns
    -------
    bool
        True if at least ``MIN_PLAIN_CHARS`` letters or digits belong to no entity.
    """
    return has_plain_characters(line.replace(entity, _SOME_NAME), MIN_PLAIN_CHARS)
