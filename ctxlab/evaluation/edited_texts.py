"""Entities and quoted lines in the texts that strategies wrote, for the needs of one recording.

A strategy replaces messages by shorter ones, or many messages by a summary. ``EditedTexts`` finds
which needed entities such a text contains, and whether it quotes a source line of them (see
``ctxlab.messages.source_lines``). Texts of consecutive requests have most lines in common, so each
line is searched once, for all configurations of a recording.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import itemgetter

from ctxlab.evaluation.references import NeedIndex
from ctxlab.messages.entities import Entity
from ctxlab.messages.source_lines import message_segments, searchable_text
from ctxlab.messages.types import Message

_ROW = itemgetter(0)

AGGREGATE = -1
"""Position of a text that stands for several messages or none, such as a summary."""


class EditedTexts:
    """Index of the entities in texts that strategies wrote, shared by the replays of a recording.

    Results are cached by the ``id`` of the message. The caches keep the messages, so that no id is
    used again.

    Parameters
    ----------
    needs : NeedIndex
        Needs of the recording.
    """

    def __init__(self, needs: NeedIndex) -> None:
        self.needs = needs
        # Plain lists: element access is several times faster than in arrays.
        self.mentions: list[int] = needs.mentions.tolist()
        self.mention_entity: list[int] = needs.mention_entity.tolist()
        self.rows_by_position: dict[int, list[int]] = {}
        "indices of the mentions in a message, by position of the message"
        for row, position in enumerate(self.mentions):
            self.rows_by_position.setdefault(position, []).append(row)
        self._entities: dict[tuple[int, int], tuple[Message, frozenset[int]]] = {}
        self._texts: dict[int, tuple[Message, str]] = {}
        self._lines: dict[int, list[tuple[str, frozenset[int]]]] = {}
        self._line_entities: dict[str, frozenset[int]] = {}
        self._line_rows: dict[tuple[str, int], tuple[int, list[tuple[int, str]]]] = {}
        self._own: dict[tuple[int, int], bool] = {}
        self._quoted: dict[tuple[int, int], int] = {}

    def entities_in(self, message: Message, position: int) -> frozenset[int]:
        """Find the entities that an edited message contains.

        Parameters
        ----------
        message : Message
            Message that a strategy wrote.
        position : int
            Position of the recorded message that it replaces; only entities that this message
            mentions are searched. ``AGGREGATE`` if it replaces several messages or none; all
            entities are searched.

        Returns
        -------
        frozenset of int
            Indices into ``needs.entities``.
        """
        key = (id(message), position)
        known = self._entities.get(key)
        if known is not None:
            return known[1]
        found: Collection[int]
        if position == AGGREGATE:
            found = frozenset().union(*[numbers for _, numbers in self._lines_of(message)])
        else:
            rows = self.rows_by_position.get(position, ())
            found = self.needs.find_entities(message, [self.mention_entity[row] for row in rows])
        self._entities[key] = message, frozenset(found)
        return self._entities[key][1]

    def holds_own_line(self, message: Message, row: int) -> bool:
        """Return whether an edited message still shows a line of the original with a mention.

        Parameters
        ----------
        message : Message
            Message that a strategy wrote in place of the one with the mention.
        row : int
            Index of the mention in ``needs.mentions``.

        Returns
        -------
        bool
            True if it contains one of the source lines of the mention.
        """
        key = (id(message), row)
        if key not in self._own:
            text, entity = self._text_of(message), self.needs.entities[self.mention_entity[row]]
            places = self._offsets(entity, text)
            lines = self.needs.source_lines(row)
            self._own[key] = any(
                line.held_in(text, at, entity.text) for line in lines for at in places
            )
        return self._own[key]

    def first_quoted_row(self, message: Message, number: int) -> int:
        """Return the first mention of an entity of which a text quotes a source line.

        Parameters
        ----------
        message : Message
            Text that stands for several messages or none.
        number : int
            Index of the entity in ``needs.entities``.

        Returns
        -------
        int
            Index into ``needs.mentions``; the number of all mentions if the text quotes none.
        """
        key = (id(message), number)
        if key not in self._quoted:
            first, text = len(self.mentions), self._text_of(message)
            for line, numbers in self._lines_of(message):
                if number not in numbers:
                    continue
                row, bare = self._quoted_rows(line, number)
                wider = (row for row, pair in bare if pair in text)
                first = min(first, row, next(wider, first))
            self._quoted[key] = first
        return self._quoted[key]

    def _quoted_rows(self, line: str, number: int) -> tuple[int, Sequence[tuple[int, str]]]:
        """Find the first mention of which a line of a text quotes a source line.

        Return its index, or the number of all mentions, and the earlier mentions whose source line
        is bare: the index of each, and a pair of lines that the text must contain.
        """
        key = line, number
        if key not in self._line_rows:
            entity = self.needs.entities[number]
            places, first = self._offsets(entity, line), len(self.mentions)
            bare: list[tuple[int, str]] = []
            lines = self.needs.entity_lines(number)
            # These tests are fast and exclude most sources.
            near = [each for text, found in lines.by_text.items() if text in line for each in found]
            near += [
                each for tool, found in lines.by_tool.items() if tool in line for each in found
            ]
            for row, source in sorted(near, key=_ROW):
                if any(source.held_in(line, at, entity.text) for at in places):
                    first = row
                    break
                if any(source.matches(line, at) for at in places):
                    bare += [(row, pair) for pair in source.informative_pairs(entity.text)]
            self._line_rows[key] = first, bare
        return self._line_rows[key]

    def _lines_of(self, message: Message) -> Sequence[tuple[str, frozenset[int]]]:
        """Return the lines of a text that contain entities, with the indices of these."""
        key = id(message)
        if key not in self._lines:
            known, lines = self._line_entities, self._text_of(message).split("\n")
            for line in lines:
                if line not in known:
                    known[line] = self.needs.find_entities_in_text(line)
            self._lines[key] = [(line, known[line]) for line in lines if known[line]]
        return self._lines[key]

    def _text_of(self, message: Message) -> str:
        key = id(message)
        if key not in self._texts:
            self._texts[key] = message, searchable_text(message_segments(message))
        return self._texts[key][1]

    def _offsets(self, entity: Entity, text: str) -> list[int]:
        """Return the offsets of all mentions of an entity in a text."""
        found, at = [], self.needs.find_offset(entity, text)
        while at >= 0:
            found.append(at)
            at = self.needs.find_offset(entity, text, at + len(entity.text))
        return found
