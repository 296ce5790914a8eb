"""References to earlier messages: entities that the agent's next action needs.

A need is an entity that a tool call uses and that was mentioned before. The index of a recording's
needs is built once and shared by every configuration. It records which entities each request's
calls use, where they were mentioned before, and how many tokens ago.
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
"""Request, argument and entity of a use."""

_MAX_PASSAGE_CHARS = 160


class ToolArgument(NamedTuple):
    """The place where an entity is used."""

    request: int
    "number of the request"
    tool: str
    "name of the tool that is called; empty for text"
    path: str
    "path of the argument"


class Need(NamedTuple):
    """One need in readable form: what is used where, and where it was mentioned."""

    argument: ToolArgument
    "the argument that uses the entity"
    entity: Entity
    "the entity"
    origin_role: str
    "role of the message that mentioned it first: ``user``, ``tool`` or ``assistant``"
    last_mention: int
    "position of the last earlier message that mentions it"
    gap_tokens: int
    "tokens between that message and the use"


class NeedIndex:
    """All needs of a recording, as arrays with one element per need.

    ``request[i]`` and ``argument[i]`` are the request and the argument that use it; ``entity[i]``
    is an index into ``entities``; ``gap_tokens[i]`` counts the tokens since its last mention;
    ``last_mention_row[i]`` is the index of that mention in ``mentions``. The mentions of an entity
    are adjacent, oldest first, from ``mention_offsets[entity]``.

    Parameters
    ----------
    history : History
        The recorded messages with their token counts.
    tool_definitions : str, default ""
        Tool definitions as text; entities in them are not needs.
    include_text : bool, optional
        Count the assistant's text as an action too. None does so if no tool is ever called.
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
        """Return the uses, and the distinct entities."""
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
                continue  # it is new, or in the system prompt and cannot be lost
            if entities[number].kind == "value" and roles[places[0]] == "assistant":
                continue  # the agent's own phrase is a habit, not a fact that it needs
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
        """``request_offsets[r]`` is the first need of request ``r``; the last element is the total."""
        return np.searchsorted(self.request, np.arange(len(self.request_positions) + 1))

    @cached_property
    def mention_entity(self) -> _Ints:
        """``mention_entity[m]`` is the entity of mention ``m``."""
        return np.repeat(np.arange(len(self.entities)), np.diff(self.mention_offsets))

    def get_need(self, i: int) -> Need:
        """Return a need in readable form.

        Parameters
        ----------
        i : int
            Index of the need.

        Returns
        -------
        Need
            The need.
        """
        entity = self.entities[self.entity[i]]
        last = int(self.mentions[self.last_mention_row[i]])
        first = int(self.mentions[self.mention_offsets[self.entity[i]]])
        origin = self.history[first].role
        return Need(self.arguments[self.argument[i]], entity, origin, last, int(self.gap_tokens[i]))

    def find_entities(
        self, message: Message, candidates: Collection[int] | None = None
    ) -> frozenset[int]:
        """Find which entities a message, such as a stub or a summary, contains.

        Parameters
        ----------
        message : Message
            The message.
        candidates : collection of int, optional
            Entities to look for. None looks for all.

        Returns
        -------
        frozenset of int
            Indices into ``entities``.
        """
        body = message_text(message)
        if candidates is None:
            words = (*ascii_words(body), b"")
            candidates = [n for word in words for n in self._entities_by_word.get(word, ())]
        texts = ((n, self.entities[n].text) for n in candidates)
        # The plain substring search is fast and excludes most candidates.
        return frozenset([n for n, text in texts if text in body and contains_entity(body, text)])

    @cached_property
    def _entities_by_word(self) -> dict[bytes, list[int]]:
        index: dict[bytes, list[int]] = {}
        for number, entity in enumerate(self.entities):
            word = max(ascii_words(entity.text), key=len, default=b"")
            index.setdefault(word, []).append(number)
        return index

    def needed(self, position: int) -> list[tuple[int, str]]:
        """Return everything that the message at a position will use.

        Parameters
        ----------
        position : int
            Position of a recorded model call.

        Returns
        -------
        list of (int, str)
            Position of the last mention and text of each entity.
        """
        request = bisect_left(self.request_positions, position)
        if request == len(self.request_positions) or self.request_positions[request] != position:
            return []
        rows = slice(self.request_offsets[request], self.request_offsets[request + 1])
        last = self.mentions[self.last_mention_row[rows]].tolist()
        return [(p, self.entities[n].text) for p, n in zip(last, self.entity[rows], strict=True)]

    def passage(self, position: int, text: str) -> str:
        """Return the line that contains a text, shortened around it if it is long.

        Parameters
        ----------
        position : int
            Position of the message.
        text : str
            The text to find.

        Returns
        -------
        str
            The line.
        """
        body = self._texts[position].full_text
        at = find_entity_offset(body, text)
        start = max(body.rfind("\n", 0, at) + 1, at - _MAX_PASSAGE_CHARS // 2)
        stop = body.find("\n", at)
        stop = len(body) if stop < 0 else stop
        return body[start : max(at + len(text), min(stop, start + _MAX_PASSAGE_CHARS))]


class _MessageText:
    """The text of a message, with its call arguments decoded once."""

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
    """Return for each entity the positions before its last use that mention it.

    The list is empty if the tool definitions mention it, because they are never lost.
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
        # Search by the entity's rarest word; one without ASCII words can only be in non-ASCII text.
        places = min((postings.get(word, []) for word in own), key=len, default=foreign)
        places = places[: bisect_left(places, end)]
        if len(own) > 1 or entity.text.encode("ascii", "replace") not in own:
            # It is more than one whole word of the index.
            places = [p for p in places if contains_entity(texts[p].full_text, entity.text)]
        if places and own <= tool_words and contains_entity(tool_definitions, entity.text):
            places = []
        found.append(places)
    return found
