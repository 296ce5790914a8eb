"""A need is an entity that the agent uses in its next action and that stood in the conversation before.

The index of a recording's needs is made once and shared by every configuration: which entity each
request's tool calls use, where that entity had stood until then, and how many tokens back.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

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

__all__ = ["Need", "NeedIndex", "ToolArgument"]

_Ints = npt.NDArray[np.int64]

_MAX_PASSAGE_CHARS = 160


class ToolArgument(NamedTuple):
    """Where an entity is used: the request, the tool that is called, and the path of the argument."""

    request: int
    tool: str
    path: str


class Need(NamedTuple):
    """One need, readable: what is used where, and where it had stood."""

    argument: ToolArgument
    entity: Entity
    origin_role: str
    "role of the message that mentioned it first: ``user``, ``tool`` or ``assistant``"
    last_mention: int
    "position of the last message before that mentions it"
    gap_tokens: int
    "tokens between that message and the use"


class NeedIndex:
    """All needs of a recording, as arrays; a need is a row in each of them.

    ``request[i]``, ``argument[i]``: the request's number and the argument that uses it;
    ``entity[i]``: row in ``entities``; ``gap[i]``: tokens since its last mention;
    ``last_mention_row[i]``: row in ``mentions`` of that last mention. Mentions of an entity stand
    together there, oldest first, from ``mention_offsets[entity]``.
    """

    def __init__(
        self, history: History, tool_definitions: str = "", include_text: bool | None = None
    ) -> None:
        """``tools``: the definitions as text; what they say is no need.

        ``include_text``: whether the assistant's text counts as an action too; None: where no tool
        is ever called.
        """
        self.history = history
        self.request_positions = find_request_positions(
            [entry.message for entry in history.entries]
        )
        texts = [_MessageText(entry.message) for entry in history.entries]
        if include_text is None:
            include_text = not any(text.arguments for text in texts)
        self.arguments: list[ToolArgument] = []
        uses, entities = self._collect_uses(texts, include_text)
        self._texts = texts
        found = _find_mentions(texts, entities, uses, self.request_positions, tool_definitions)
        self._build_arrays(uses, entities, found)

    def _collect_uses(
        self, texts: Sequence[_MessageText], include_text: bool
    ) -> tuple[list[tuple[int, int, int]], list[Entity]]:
        """``(request, argument, entity)`` of every use, and the distinct entities."""
        numbers: dict[str, int] = {}
        entities: list[Entity] = []
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
                    number = numbers.setdefault(entity.text, len(entities))
                    if number == len(entities):
                        entities.append(entity)
                    uses.append((request, len(self.arguments), number))
                self.arguments.append(ToolArgument(request, tool, path))
        return uses, entities

    def _build_arrays(
        self,
        uses: Sequence[tuple[int, int, int]],
        entities: Sequence[Entity],
        found: Sequence[list[int]],
    ) -> None:
        roles = [entry.message.role for entry in self.history.entries]
        before, positions = self.history.tokens_before, self.request_positions
        numbers: dict[int, int] = {}  # only entities that are needed somewhere are kept
        rows = []
        for request, argument, number in uses:
            places = found[number]
            here = positions[request]
            count = bisect_left(places, here)
            if not count or roles[places[0]] == "system":
                continue  # it is new, or it is given and cannot be lost
            if entities[number].kind == "value" and roles[places[0]] == "assistant":
                continue  # a phrase of the agent's own is a habit, not a fact that it needs
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
        return len(self.request)

    @cached_property
    def request_offsets(self) -> _Ints:
        """``request_offsets[r]``: the first need of request ``r``; one more at the end."""
        return np.searchsorted(self.request, np.arange(len(self.request_positions) + 1))

    @cached_property
    def mention_entity(self) -> _Ints:
        """``mention_entity[m]``: the entity of mention ``m``."""
        return np.repeat(np.arange(len(self.entities)), np.diff(self.mention_offsets))

    def mention_positions(self, need: int) -> list[int]:
        """Positions that mention a need's entity before its use, oldest first."""
        first = self.mention_offsets[self.entity[need]]
        return [int(place) for place in self.mentions[first : self.last_mention_row[need] + 1]]

    def get_need(self, i: int) -> Need:
        """Need ``i`` in words."""
        entity = self.entities[self.entity[i]]
        last = int(self.mentions[self.last_mention_row[i]])
        first = int(self.mentions[self.mention_offsets[self.entity[i]]])
        origin = self.history[first].role
        return Need(self.arguments[self.argument[i]], entity, origin, last, int(self.gap_tokens[i]))

    def find_entities(
        self, message: Message, candidates: Collection[int] | None = None
    ) -> frozenset[int]:
        """The entities, of those ``candidates``, that a message such as a stub or a summary contains."""
        body = message_text(message)
        if candidates is None:
            words = (*ascii_words(body), b"")
            candidates = [
                number for word in words for number in self._entities_by_word.get(word, ())
            ]
        entities = self.entities
        # Most are not there at all, which the plain search says soonest.
        return frozenset(
            [
                n
                for n in candidates
                if entities[n].text in body and contains_entity(body, entities[n].text)
            ]
        )

    @cached_property
    def _entities_by_word(self) -> dict[bytes, list[int]]:
        index: dict[bytes, list[int]] = {}
        for number, entity in enumerate(self.entities):
            word = max(ascii_words(entity.text), key=len, default=b"")
            index.setdefault(word, []).append(number)
        return index

    def needed(self, position: int) -> list[tuple[int, str]]:
        """``(mentioned last at, text)`` of everything that the message at ``position`` will use."""
        request = bisect_left(self.request_positions, position)
        if request == len(self.request_positions) or self.request_positions[request] != position:
            return []
        rows = range(self.request_offsets[request], self.request_offsets[request + 1])
        return [
            (int(self.mentions[self.last_mention_row[i]]), self.entities[self.entity[i]].text)
            for i in rows
        ]

    def passage(self, position: int, text: str) -> str:
        """The line that holds the text, or what fits of it."""
        body = self._texts[position].full_text
        at = find_entity_offset(body, text)
        start = max(body.rfind("\n", 0, at) + 1, at - _MAX_PASSAGE_CHARS // 2)
        stop = body.find("\n", at)
        stop = len(body) if stop < 0 else stop
        return body[start : max(at + len(text), min(stop, start + _MAX_PASSAGE_CHARS))]


class _MessageText:
    """What a message says, with its arguments decoded once."""

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
    uses: Iterable[tuple[int, int, int]],
    positions: Sequence[int],
    tool_definitions: str,
) -> list[list[int]]:
    """For each entity the positions before its last use that mention it.

    Empty where the tool definitions mention it: what they say cannot be lost.
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
    found: list[list[int]] = []
    nowhere: list[int] = []
    for entity, own, end in zip(entities, words, last_use, strict=True):
        needle = entity.text
        # The rarest word of an entity sieves best; one with no ASCII word can be in foreign text only.
        places = min((postings.get(word, nowhere) for word in own), key=len, default=foreign)
        places = places[: bisect_left(places, end)]
        if len(own) == 1 and needle.encode("ascii", "replace") in own:
            kept = places  # it is a word, and words have been found whole
        else:
            kept = [place for place in places if contains_entity(texts[place].full_text, needle)]
        if own <= tool_words and kept and contains_entity(tool_definitions, needle):
            kept = []
        found.append(kept)
    return found
