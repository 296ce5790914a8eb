"""Needs: entities that a tool call uses and that an earlier message mentioned.

Entities are names and values such as paths, identifiers and numbers. The index of a recording's
needs is built once and shared by all configurations. For each request it contains the entities that
the recorded tool calls use, the positions of earlier mentions, and the number of tokens since the
last mention.

These are not needs, because they cannot be lost or say nothing: entities that the system prompt or a
tool definition contains, names of tools and of their parameters, and values such as a person's name
that the agent itself was the first to write.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ctxlab.context.history import History
from ctxlab.messages.entities import (
    Entity,
    ascii_words,
    find_entities,
    find_entities_in_value,
    find_entity_offset,
    find_path_offset,
    folder_and_name,
    normalize_path,
)
from ctxlab.messages.source_lines import (
    Segment,
    SourceLine,
    find_source_lines,
    message_segments,
    searchable_text,
)
from ctxlab.messages.types import Message, find_request_positions

_Ints = npt.NDArray[np.int64]
_Use: TypeAlias = tuple[int, int, int]
"""Use of an entity: number of the request, index of the argument, index of the entity."""

ORIGINS = ("user", "tool", "assistant")
"""Roles that can be the first to mention an entity. ``NeedIndex.origin`` contains indices into it."""

_CHANGE_FOLDER = re.compile(r"(?:^|[\s;&|(])cd\s+(/[^\s;&|)'\"]+)")
_KEY = re.compile(r"[\w-]+")


class ToolArgument(NamedTuple):
    """Place where the agent uses entities: one argument of a recorded tool call.

    The text of an assistant message is treated as an argument too.
    """

    request: int
    "number of the request whose reply contains the tool call or the text"
    tool: str
    "name of the tool; empty for the assistant's text"
    path: str
    "path of the value in the tool call's arguments; ``text`` for the assistant's text"


class Need(NamedTuple):
    """One need in readable form: the entity, its use, and facts about its earlier mentions."""

    argument: ToolArgument
    "argument that uses the entity"
    entity: Entity
    "entity that is used"
    origin_role: str
    "role of the first message that mentioned the entity: ``user``, ``tool`` or ``assistant``"
    last_mention: int
    "position of the last message before the use that mentions the entity"
    gap_tokens: int
    "number of tokens between the last mention and the use"


class EntityLines(NamedTuple):
    """Lines that mention one entity, each with its mention (an index into ``NeedIndex.mentions``)."""

    by_text: dict[str, list[tuple[int, SourceLine]]]
    "lines by their text, in order of the mentions"
    by_tool: dict[str, list[tuple[int, SourceLine]]]
    "those that are a whole argument of a tool call, by the name of the tool"


class NeedIndex:
    """All needs of a recording, as arrays with one element per need.

    For need ``i``, ``request[i]`` is the number of the request, ``argument[i]`` is an index into
    ``arguments``, ``entity[i]`` is an index into ``entities``, and ``origin[i]`` is an index into
    ``ORIGINS``. ``gap_tokens[i]`` is the number of tokens between the last mention and the use, and
    ``last_mention_row[i]`` is the index of this mention in ``mentions``. ``mentions`` contains the
    positions of all mentions, grouped by entity and oldest first. The group of an entity starts at
    ``mention_offsets[entity]``.

    A path in the workspace equals its relative form. The entities that follow the needed ones in
    ``entities`` are the weaker form of a path: its folder and name, at the end of any longer path.
    ``similar_row[i]`` is the index in ``mentions`` of the last mention of this form, or -1.

    Parameters
    ----------
    history : History
        Recorded messages with their token counts.
    tool_definitions : str, default ""
        Tool definitions as a string. Entities that occur in them are not needs, because tool
        definitions are never dropped.
    include_text : bool, optional
        Also count entities in the assistant's text as used. None does so only if the recording has
        no tool call.
    workspace : str, optional
        Absolute path of the folder in which the agent works. None takes the first folder that a
        recorded shell command changes to (``cd /folder``).
    """

    def __init__(
        self,
        history: History,
        tool_definitions: str = "",
        include_text: bool | None = None,
        workspace: str | None = None,
    ) -> None:
        self.history = history
        messages = [entry.message for entry in history.entries]
        self.request_positions = find_request_positions(messages)
        self._texts = texts = [_MessageText(message) for message in messages]
        if include_text is None:
            include_text = not any(message.tool_calls for message in messages)
        if workspace is None:
            workspace = _find_workspace(texts)
        self.workspace = workspace.rstrip("/")
        "folder in which the agent works; empty if it is unknown"
        self.arguments: list[ToolArgument] = []
        self.uses: list[_Use] = []
        "all uses of entities, also of new ones: number of the request, argument, index of the entity"
        schema = _schema_words(messages, texts)
        self.used_entities = self._collect_uses(texts, include_text, schema)
        "entities that recorded model calls use, also those that no earlier message mentions"
        self._build_arrays(*self._find_mentions(texts, tool_definitions))

    def _collect_uses(
        self, texts: Sequence[_MessageText], include_text: bool, schema: Collection[str]
    ) -> list[Entity]:
        """Store each use of an entity by a recorded model call. Return the distinct entities."""
        entities: dict[str, tuple[int, Entity]] = {}
        for request, position in enumerate(self.request_positions):
            text = texts[position]
            actions: list[tuple[str, str, Iterable[Entity]]] = [
                (tool, path, find_entities_in_value(leaf)) for tool, path, leaf in text.arguments
            ]
            if include_text:
                actions.append(("", "text", find_entities(text.segments[0].text)))
            for tool, path, used in actions:
                named = dict.fromkeys(self.normalize(entity) for entity in used)
                for entity in named:
                    if entity.kind == "identifier" and entity.text in schema:
                        continue
                    number, _ = entities.setdefault(entity.text, (len(entities), entity))
                    self.uses.append((request, len(self.arguments), number))
                self.arguments.append(ToolArgument(request, tool, path))
        return [entity for _, entity in entities.values()]

    def normalize(self, entity: Entity) -> Entity:
        """Return the entity in the form that the index uses.

        Parameters
        ----------
        entity : Entity
            Entity as it was written.

        Returns
        -------
        Entity
            For a path, its form relative to the workspace; otherwise the entity.
        """
        if entity.kind != "path":
            return entity
        return Entity("path", normalize_path(entity.text, self.workspace) or entity.text)

    def _find_mentions(
        self, texts: Sequence[_MessageText], tool_definitions: str
    ) -> tuple[list[list[int]], dict[str, list[int]]]:
        """List the positions of the messages that mention an entity before its last use.

        Return one list per used entity, and one list per folder with name, by its text. The list of
        an entity that the tool definitions contain is empty, because they are never dropped.
        """
        ends = [0] * len(self.used_entities)
        for request, _, number in self.uses:
            ends[number] = self.request_positions[request]
        short: dict[str, int] = {}
        for entity, end in zip(self.used_entities, ends, strict=True):
            if entity.kind == "path" and (text := folder_and_name(entity.text)):
                short[text] = max(end, short.get(text, 0))
        # As identifiers, they are also found at the end of a longer path.
        added = [Entity("identifier", text) for text in short]
        found = self._search(texts, [*self.used_entities, *added], [*ends, *short.values()])
        if tool_definitions:
            words = ascii_words(tool_definitions)
            for number, entity in enumerate(self.used_entities):
                own = ascii_words(entity.text)
                if own <= words and self.find_offset(entity, tool_definitions) >= 0:
                    found[number] = []
        return found[: len(ends)], dict(zip(short, found[len(ends) :], strict=True))

    def _search(
        self, texts: Sequence[_MessageText], entities: Sequence[Entity], ends: Sequence[int]
    ) -> list[list[int]]:
        """For each entity, list the positions before its end of the messages that mention it."""
        words = [ascii_words(entity.text) for entity in entities]
        wanted = set().union(*words) if words else set()
        postings: dict[bytes, list[int]] = {}
        foreign = []
        for position, text in enumerate(texts):
            for word in wanted & ascii_words(text.full_text):
                postings.setdefault(word, []).append(position)
            if not text.full_text.isascii():
                foreign.append(position)
        found = []
        for entity, own, end in zip(entities, words, ends, strict=True):
            # Search by the entity's rarest word. Without ASCII words, search all non-ASCII messages.
            places = min((postings.get(word, []) for word in own), key=len, default=foreign)
            places = places[: bisect_left(places, end)]
            is_word = entity.text.encode("ascii", "replace") in own
            if entity.kind == "path" or not is_word:
                # An indexed word is not enough: a path must not be the end of a longer one.
                places = [p for p in places if self.find_offset(entity, texts[p].full_text) >= 0]
            found.append(places)
        return found

    def _build_arrays(
        self, found: Sequence[list[int]], found_short: Mapping[str, list[int]]
    ) -> None:
        roles = [entry.message.role for entry in self.history.entries]
        before, positions = self.history.tokens_before, self.request_positions
        numbers: dict[int, int] = {}  # keep only entities that are needed
        after: dict[tuple[int, int], int] = {}
        rows = []
        for request, argument, number in self.uses:
            places, here = found[number], positions[request]
            count = bisect_left(places, here)
            if not count or roles[places[0]] == "system":
                continue  # new, or mentioned in the system prompt, which is never dropped
            if self.used_entities[number].kind == "value" and roles[places[0]] == "assistant":
                continue  # the agent introduced the value: it is wording of its own, not a needed fact
            last = number, places[count - 1]
            if last not in after:
                after[last] = self._tokens_after_mention(self.used_entities[number], last[1])
            gap = before[here] - before[last[1] + 1] + after[last]
            origin = ORIGINS.index(roles[places[0]])
            kept = numbers.setdefault(number, len(numbers))
            rows.append((request, argument, kept, gap, count, origin))
        table = np.array(rows, dtype=np.int64).reshape(-1, 6).T
        self.request, self.argument, self.entity, self.gap_tokens, counts, self.origin = table
        self.entities: list[Entity] = [self.used_entities[number] for number in numbers]
        self.needed_entities = len(numbers)
        "number of entities that are needed; the rest of ``entities`` are folders with names"
        mentions = [found[number] for number in numbers]
        similar: dict[int, int] = {}
        for number, entity in enumerate(self.entities[: self.needed_entities]):
            short = folder_and_name(entity.text) if entity.kind == "path" else None
            if short is not None:
                similar[number] = len(self.entities)
                self.entities.append(Entity("identifier", short))
                mentions.append(found_short[short])
        self.mention_offsets: _Ints = np.cumsum([0, *map(len, mentions)])
        self.mentions: _Ints = np.array([p for places in mentions for p in places], dtype=np.int64)
        self.last_mention_row: _Ints = self.mention_offsets[self.entity] + counts - 1
        self.similar_row: _Ints = np.full(len(rows), -1)
        for i, number in enumerate(self.entity.tolist()):
            if group := similar.get(number):
                earlier = bisect_left(mentions[group], positions[self.request[i]])
                self.similar_row[i] = self.mention_offsets[group] + earlier - 1

    def _tokens_after_mention(self, entity: Entity, position: int) -> int:
        """Estimate the number of tokens after the last mention in a message, by its characters."""
        text = self._texts[position].full_text
        at = text.rfind(entity.text)
        if self.find_offset(entity, text, at) != at:
            found = self.find_offset(entity, text)
            while found >= 0:
                at, found = found, self.find_offset(entity, text, found + 1)
        rest = len(text) - at - len(entity.text)
        return self.history.entries[position].tokens * rest // max(len(text), 1)

    def find_offset(self, entity: Entity, text: str, start: int = 0) -> int:
        """Return the offset of the next mention of an entity in a text, or -1.

        Parameters
        ----------
        entity : Entity
            Entity of the index.
        text : str
            Text to search.
        start : int, default 0
            Offset at which the search starts.

        Returns
        -------
        int
            Offset of the mention, or -1 if there is none.
        """
        if entity.kind == "path":
            return find_path_offset(text, entity.text, self.workspace, start)
        return find_entity_offset(text, entity.text, start)

    def __len__(self) -> int:
        """Return the number of needs."""
        return len(self.request)

    @cached_property
    def request_offsets(self) -> _Ints:
        """Index of the first need of each request, followed by the total number of needs."""
        return np.searchsorted(self.request, np.arange(len(self.request_positions) + 1))

    @cached_property
    def mention_entity(self) -> _Ints:
        """Index into ``entities`` of the mentioned entity, for each element of ``mentions``."""
        return np.repeat(np.arange(len(self.entities)), np.diff(self.mention_offsets))

    def get_need(self, i: int) -> Need:
        """Return a need in readable form.

        Parameters
        ----------
        i : int
            Index of the need, from 0 to ``len(self) - 1``.

        Returns
        -------
        Need
            The need with its entity, its use, and facts about its earlier mentions.
        """
        entity = self.entities[self.entity[i]]
        last = int(self.mentions[self.last_mention_row[i]])
        origin = ORIGINS[self.origin[i]]
        return Need(self.arguments[self.argument[i]], entity, origin, last, int(self.gap_tokens[i]))

    def find_entities(
        self, message: Message, candidates: Collection[int] | None = None
    ) -> frozenset[int]:
        """Find the needed entities that occur in a message, for example in a stub or a summary.

        Parameters
        ----------
        message : Message
            Message to search.
        candidates : collection of int, optional
            Indices of the entities to look for. None looks for all entities of the index.

        Returns
        -------
        frozenset of int
            Indices into ``entities`` of the entities that were found.
        """
        body = searchable_text(message_segments(message))
        return self.find_entities_in_text(body, candidates)

    def find_entities_in_text(
        self, text: str, candidates: Collection[int] | None = None
    ) -> frozenset[int]:
        """Find the needed entities that occur in a text.

        Parameters
        ----------
        text : str
            Text to search.
        candidates : collection of int, optional
            Indices of the entities to look for. None looks for all entities of the index.

        Returns
        -------
        frozenset of int
            Indices into ``entities`` of the entities that were found.
        """
        if candidates is None:
            index = self._entities_by_word
            words = ascii_words(text) & self._indexed_words
            candidates = [n for word in (*words, b"") for n in index.get(word, ())]
        entities = ((n, self.entities[n]) for n in candidates)
        # The substring test is fast and excludes most candidates.
        return frozenset(
            [n for n, each in entities if each.text in text and self.find_offset(each, text) >= 0]
        )

    @cached_property
    def _entities_by_word(self) -> dict[bytes, list[int]]:
        index: dict[bytes, list[int]] = {}
        for number, entity in enumerate(self.entities):
            word = max(ascii_words(entity.text), key=len, default=b"")
            index.setdefault(word, []).append(number)
        return index

    @cached_property
    def _indexed_words(self) -> frozenset[bytes]:
        return frozenset(self._entities_by_word) - {b""}

    def needed(self, position: int) -> list[tuple[int, str]]:
        """Return the entities that a recorded model call uses and that were mentioned before.

        Parameters
        ----------
        position : int
            Position of the recorded model call.

        Returns
        -------
        list of (int, str)
            For each entity: the position of its last mention, and its text. Empty if there is no
            model call at the position.
        """
        request = bisect_left(self.request_positions, position)
        if request == len(self.request_positions) or self.request_positions[request] != position:
            return []
        rows = slice(self.request_offsets[request], self.request_offsets[request + 1])
        last = self.mentions[self.last_mention_row[rows]].tolist()
        return [(p, self.entities[n].text) for p, n in zip(last, self.entity[rows], strict=True)]

    def passage(self, position: int, text: str) -> str:
        """Return the line of a message that contains an entity, such as a path or an id.

        Parameters
        ----------
        position : int
            Position of the message.
        text : str
            Text of the entity.

        Returns
        -------
        str
            Line with the entity; only the characters around the entity if the line is long. A line
            that contains little else is returned with a neighbour, or with the name of its tool.
        """
        group = self._numbers[text]
        first, last = self.mention_offsets[group : group + 2]
        row = int(np.searchsorted(self.mentions[first:last], position)) + int(first)
        lines = self.source_lines(row)
        return lines[0].quote(text) if lines else text

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {e.text: i for i, e in enumerate(self.entities[: self.needed_entities])}

    def source_lines(self, row: int) -> Sequence[SourceLine]:
        """Return the lines of one message that mention an entity.

        Parameters
        ----------
        row : int
            Index into ``mentions``.

        Returns
        -------
        list of SourceLine
            Lines, in order.
        """
        if row not in self._source_lines:
            entity = self.entities[self.mention_entity[row]]
            segments = self._texts[self.mentions[row]].segments
            lines = find_source_lines(segments, entity.text, partial(self.find_offset, entity))
            self._source_lines[row] = list(lines)
        return self._source_lines[row]

    @cached_property
    def _source_lines(self) -> dict[int, list[SourceLine]]:
        return {}

    def entity_lines(self, number: int) -> EntityLines:
        """Return the lines that mention an entity.

        Parameters
        ----------
        number : int
            Index into ``entities``.

        Returns
        -------
        EntityLines
            Lines with the mention of each.
        """
        if number not in self._entity_lines:
            found = self._entity_lines[number] = EntityLines({}, {})
            for row in range(*self.mention_offsets[number : number + 2].tolist()):
                for line in self.source_lines(row):
                    found.by_text.setdefault(line.text, []).append((row, line))
                    if tool := line.tool:
                        found.by_tool.setdefault(tool, []).append((row, line))
        return self._entity_lines[number]

    @cached_property
    def _entity_lines(self) -> dict[int, EntityLines]:
        return {}

    @cached_property
    def requests_by_use(self) -> Mapping[str, Sequence[int]]:
        """Numbers of the requests whose reply uses an entity, ascending, by text of the entity."""
        found: dict[str, list[int]] = {}
        for request, _, number in self.uses:
            found.setdefault(self.used_entities[number].text, []).append(request)
        return found


class _MessageText:
    """Text of a message, with the arguments of its tool calls decoded once."""

    __slots__ = ("arguments", "full_text", "segments")

    def __init__(self, message: Message) -> None:
        self.segments: list[Segment] = message_segments(message)
        self.arguments: list[tuple[str, str, Any]] = [
            (call.name, path, leaf)
            for call in message.tool_calls
            for path, leaf in call.argument_leaves()
        ]
        self.full_text = searchable_text(self.segments)


def _find_workspace(texts: Iterable[_MessageText]) -> str:
    """Return the first absolute folder that a shell command changes to, or an empty string."""
    for text in texts:
        for _, _, leaf in text.arguments:
            if isinstance(leaf, str) and (found := _CHANGE_FOLDER.search(leaf)):
                return found[1]
    return ""


def _schema_words(messages: Iterable[Message], texts: Iterable[_MessageText]) -> frozenset[str]:
    """Return the names of the tools that are called and of their parameters."""
    words = {call.name for message in messages for call in message.tool_calls}
    paths = {path for text in texts for _, path, _ in text.arguments}
    return frozenset(words.union(*map(_KEY.findall, paths)))
