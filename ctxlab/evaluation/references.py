"""Needs: entities that a tool call uses and that an earlier message mentioned.

Entities are names and values such as paths, identifiers and numbers. The index of a recording's
needs is built once and shared by all configurations. For each request it contains the entities that
the recorded tool calls use, the positions of earlier mentions, and the number of tokens since the
last mention.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ctxlab.context.history import History
from ctxlab.messages.entities import (
    Entity,
    ascii_words,
    contains_entity,
    find_entities,
    find_entities_in_value,
    find_entity_offset,
)
from ctxlab.messages.types import Message, find_request_positions, message_text

_Ints = npt.NDArray[np.int64]
_Use: TypeAlias = tuple[int, int, int]
"""Use of an entity: number of the request, index of the argument, index of the entity."""

_MAX_PASSAGE_CHARS = 160


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


class NeedIndex:
    """All needs of a recording, as arrays with one element per need.

    For need ``i``, ``request[i]`` is the number of the request, ``argument[i]`` is an index into
    ``arguments``, and ``entity[i]`` is an index into ``entities``. ``gap_tokens[i]`` is the number of
    tokens since the last mention of the entity, and ``last_mention_row[i]`` is the index of this
    mention in ``mentions``. ``mentions`` contains the positions of all mentions, grouped by entity
    and oldest first. The group of an entity starts at ``mention_offsets[entity]``.

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
    """

    def __init__(
        self, history: History, tool_definitions: str = "", include_text: bool | None = None
    ) -> None:
        self.history = history
        messages = [entry.message for entry in history.entries]
        self.request_positions = find_request_positions(messages)
        self._texts = texts = [_MessageText(message) for message in messages]
        if include_text is None:
            include_text = not any(text.arguments for text in texts)
        self.arguments: list[ToolArgument] = []
        uses, entities = self._collect_uses(texts, include_text)
        found = _find_mentions(texts, entities, uses, self.request_positions, tool_definitions)
        self._build_arrays(uses, entities, found)

    def _collect_uses(
        self, texts: Sequence[_MessageText], include_text: bool
    ) -> tuple[list[_Use], list[Entity]]:
        """Return each use of an entity by a recorded model call, and the distinct entities."""
        entities: dict[str, tuple[int, Entity]] = {}
        uses = []
        for request, position in enumerate(self.request_positions):
            text = texts[position]
            actions: list[tuple[str, str, Iterable[Entity]]] = [
                (tool, path, find_entities_in_value(leaf)) for tool, path, leaf in text.arguments
            ]
            if include_text:
                actions.append(("", "text", find_entities(text.content)))
            for tool, path, used in actions:
                for entity in used:
                    number, _ = entities.setdefault(entity.text, (len(entities), entity))
                    uses.append((request, len(self.arguments), number))
                self.arguments.append(ToolArgument(request, tool, path))
        return uses, [entity for _, entity in entities.values()]

    def _build_arrays(
        self, uses: Sequence[_Use], entities: Sequence[Entity], found: Sequence[list[int]]
    ) -> None:
        roles = [entry.message.role for entry in self.history.entries]
        before, positions = self.history.tokens_before, self.request_positions
        numbers: dict[int, int] = {}  # keep only entities that are needed
        rows = []
        for request, argument, number in uses:
            places, here = found[number], positions[request]
            count = bisect_left(places, here)
            if not count or roles[places[0]] == "system":
                continue  # new, or mentioned in the system prompt, which is never dropped
            if entities[number].kind == "value" and roles[places[0]] == "assistant":
                continue  # the agent introduced the value: it is wording of its own, not a needed fact
            gap = before[here] - before[places[count - 1] + 1]
            rows.append((request, argument, numbers.setdefault(number, len(numbers)), gap, count))
        table = np.array(rows, dtype=np.int64).reshape(-1, 5).T
        self.request, self.argument, self.entity, self.gap_tokens, counts = table
        self.entities: list[Entity] = [entities[number] for number in numbers]
        mentions = [found[number] for number in numbers]
        self.mention_offsets: _Ints = np.cumsum([0, *map(len, mentions)])
        self.mentions: _Ints = np.array([p for places in mentions for p in places], dtype=np.int64)
        self.last_mention_row: _Ints = self.mention_offsets[self.entity] + counts - 1

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
        first = int(self.mentions[self.mention_offsets[self.entity[i]]])
        origin = self.history[first].role
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
        body = message_text(message)
        if candidates is None:
            words = (*ascii_words(body), b"")
            candidates = [n for word in words for n in self._entities_by_word.get(word, ())]
        texts = ((n, self.entities[n].text) for n in candidates)
        # The substring test is fast and excludes most candidates.
        return frozenset([n for n, text in texts if text in body and contains_entity(body, text)])

    @cached_property
    def _entities_by_word(self) -> dict[bytes, list[int]]:
        index: dict[bytes, list[int]] = {}
        for number, entity in enumerate(self.entities):
            word = max(ascii_words(entity.text), key=len, default=b"")
            index.setdefault(word, []).append(number)
        return index

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
            Line with the entity; only the characters around the entity if the line is long.
        """
        body = self._texts[position].full_text
        at = find_entity_offset(body, text)
        start = max(body.rfind("\n", 0, at) + 1, at - _MAX_PASSAGE_CHARS // 2)
        stop = body.find("\n", at)
        stop = len(body) if stop < 0 else stop
        return body[start : max(at + len(text), min(stop, start + _MAX_PASSAGE_CHARS))]


class _MessageText:
    """Text of a message, with the arguments of its tool calls decoded once."""

    __slots__ = ("arguments", "content", "full_text")

    def __init__(self, message: Message) -> None:
        self.content = message.text
        self.arguments: list[tuple[str, str, Any]] = [
            (call.name, path, leaf)
            for call in message.tool_calls
            for path, leaf in call.argument_leaves()
        ]
        self.full_text = self.content
        if message.tool_calls:
            names = (call.name for call in message.tool_calls)
            values = (str(leaf) for _, _, leaf in self.arguments if leaf is not None)
            self.full_text = "\n".join((self.content, *names, *values))


def _find_mentions(
    texts: Sequence[_MessageText],
    entities: Sequence[Entity],
    uses: Iterable[_Use],
    positions: Sequence[int],
    tool_definitions: str,
) -> list[list[int]]:
    """For each entity, list the positions of the messages that mention it before its last use.

    The list of an entity that occurs in the tool definitions is empty, because tool definitions are
    never dropped.
    """
    last_use = [0] * len(entities)
    for request, _, number in uses:
        last_use[number] = positions[request]
    words = [ascii_words(entity.text) for entity in entities]
    wanted = set().union(*words) if words else set()
    postings: dict[bytes, list[int]] = {}
    foreign = []
    for position, text in enumerate(texts):
        for word in wanted & ascii_words(text.full_text):
            postings.setdefault(word, []).append(position)
        if not text.full_text.isascii():
            foreign.append(position)
    tool_words = ascii_words(tool_definitions) if tool_definitions else set()
    found = []
    for entity, own, end in zip(entities, words, last_use, strict=True):
        # Search by the entity's rarest word. Without ASCII words, search all non-ASCII messages.
        places = min((postings.get(word, []) for word in own), key=len, default=foreign)
        places = places[: bisect_left(places, end)]
        if len(own) > 1 or entity.text.encode("ascii", "replace") not in own:
            # The entity is not exactly one indexed word, so check that the messages contain it.
            places = [p for p in places if contains_entity(texts[p].full_text, entity.text)]
        if places and own <= tool_words and contains_entity(tool_definitions, entity.text):
            places = []
        found.append(places)
    return found
