"""Memory of the entities of a conversation, and the probability that the agent will use each again.

A context is a cache: what an agent will use next is unknown, and it must be decided what to keep. For
each entity, such as a path or an id, the memory counts how often and by whom it was mentioned. A
logistic model predicts from these counts if the agent will use the entity next. Its weights were
fitted on recorded conversations, see ``evals/fit_excerpts.py``.
"""

from __future__ import annotations

import math
import posixpath
import tomllib
from collections.abc import Sequence
from copy import copy
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ctxlab.context.history import History
from ctxlab.context.message_cache import MessageCache
from ctxlab.messages.entities import find_entities, find_entities_in_value
from ctxlab.messages.file_access import is_tool_error, parse_file_access
from ctxlab.messages.types import Message

Weights: TypeAlias = tuple[float, ...]
"""Weights of the logistic model: the intercept, followed by one weight per name in ``FEATURES``."""

FEATURES = ("short_uses", "age", "assistant", "crowd", "path")
"""Names of the features of an entity.

- ``short_uses``: ln(1 + number of uses in arguments of fewer than 200 characters)
- ``age``: ln(thousands of tokens since the last mention)
- ``assistant``: 1 if a message of the assistant ever mentioned the entity
- ``crowd``: ln(1 + number of entities in the message of the last mention)
- ``path``: 1 if the entity contains a slash
"""

_DATA = tomllib.loads((files("ctxlab.strategies.helpers") / "entity_memory.toml").read_text())
WEIGHTS: Weights = tuple(float(_DATA["weights"][name]) for name in ("intercept", *FEATURES))
"Weights that were fitted on all recordings at hand, see ``entity_memory.toml``."

MAX_SCANNED_CHARS = 40_000
"number of characters of a message that are searched for entities"
_MAX_ENTITIES = 6000
_PRUNE_AT = 7500
_SHORT_CHARS = 200
_MIN_AGE = 0.05
_KEPT_MENTIONS = 3


class EntityRecord(NamedTuple):
    """Mentions of one entity so far. A record is replaced and never changed."""

    mentions: tuple[int, ...]
    "positions of the newest messages that mention the entity, newest first, at most three"
    by_assistant: bool
    "True if a message of the assistant ever mentioned the entity"
    short_uses: int
    "number of uses in short arguments"
    crowd: int
    "number of entities in the message of the last mention"


class _MessageEntities(NamedTuple):
    """Entities of one message."""

    mentioned: tuple[str, ...]
    short_uses: dict[str, int]


class EntityMemory:
    """Entities of the messages that a context has received so far.

    The memory is updated with each new message and keeps a bounded number of entities, so that its
    cost per request does not depend on the length of the conversation.

    Parameters
    ----------
    history : History
        Messages of the conversation.
    """

    def __init__(self, history: History) -> None:
        self.history = history
        self.records: dict[str, EntityRecord] = {}
        "records by text of the entity"
        self._last_edits: dict[str, dict[str, int]] = {}
        # name of a file → path → position of the result of the last call that writes or edits it
        self.length = 0
        "number of messages that were added"

    def __deepcopy__(self, memo: dict[int, Any]) -> EntityMemory:
        """Return an independent copy. Records are shared, because they are never changed."""
        other = copy(self)
        other.history = memo.get(id(self.history), self.history)
        other.records = self.records.copy()
        other._last_edits = {name: paths.copy() for name, paths in self._last_edits.items()}
        return other

    def add(self, positions: Sequence[int], weights: Weights = WEIGHTS) -> None:
        """Add the messages that are new since the last call.

        Parameters
        ----------
        positions : sequence of int
            Positions in the history of all messages that the context ever received, ascending.
        weights : tuple of float, optional
            Weights of the model that decides which entities are forgotten first.
        """
        entities_at = _ENTITIES.reader(self.history)
        for position in positions[self.length :]:
            self._add_message(position, entities_at(position))
            if len(self.records) > _PRUNE_AT:
                self._forget(position, weights)
        self.length = len(positions)

    def mentioned_at(self, position: int) -> Sequence[str]:
        """Return the entities that a message mentions.

        Parameters
        ----------
        position : int
            Position of the message in the history.

        Returns
        -------
        sequence of str
            Distinct entities.
        """
        return _ENTITIES.reader(self.history)(position).mentioned

    def _add_message(self, position: int, found: _MessageEntities) -> None:
        records, crowd = self.records, len(found.mentioned)
        by_assistant = self.history[position].role == "assistant"
        for text in found.mentioned:
            uses, by = found.short_uses.get(text, 0), by_assistant
            mentions: tuple[int, ...] = (position,)
            if (old := records.get(text)) is not None:
                mentions = (position, *old.mentions[: _KEPT_MENTIONS - 1])
                uses, by = uses + old.short_uses, by or old.by_assistant
            records[text] = EntityRecord(mentions, by, uses, crowd)
        if (path := _edited_path(self.history, position)) is not None:
            self._last_edits.setdefault(posixpath.basename(path), {})[path] = position

    def is_edited_after(self, path: str, position: int) -> bool:
        """Return whether a file was written or edited after a message.

        An absolute and a relative path are the same file if the one ends with the other.

        Parameters
        ----------
        path : str
            Normalized path of the file.
        position : int
            Position of the message in the history.

        Returns
        -------
        bool
            True if a later tool call changed the file, unless its result reports an error.
        """
        edits = self._last_edits.get(posixpath.basename(path), {})
        return any(at > position and _is_same_file(path, each) for each, at in edits.items())

    def _forget(self, position: int, weights: Weights) -> None:
        """Forget the entities that are least likely to be used again."""
        texts = list(self.records)
        chances = self.predict(texts, self.history.tokens_before[position + 1], weights)
        kept = np.sort(np.argsort(-chances, kind="stable")[:_MAX_ENTITIES])
        self.records = {texts[i]: self.records[texts[i]] for i in kept.tolist()}

    def predict(
        self, texts: Sequence[str], tokens: int, weights: Weights = WEIGHTS
    ) -> npt.NDArray[np.float64]:
        """Return the probability that the agent will use each entity next.

        Parameters
        ----------
        texts : sequence of str
            Entities of the memory.
        tokens : int
            Number of tokens of all messages so far.
        weights : tuple of float, optional
            Weights of the logistic model.

        Returns
        -------
        ndarray of float, shape (len(texts),)
            Probabilities.
        """
        odds = weights[0] + self.features(texts, tokens) @ np.array(weights[1:])
        return np.asarray(1 / (1 + np.exp(-np.clip(odds, -500, 500))))  # exp must not overflow

    def features(self, texts: Sequence[str], tokens: int) -> npt.NDArray[np.float64]:
        """Return the features of entities, from which their reuse is predicted.

        Parameters
        ----------
        texts : sequence of str
            Entities of the memory.
        tokens : int
            Number of tokens of all messages so far.

        Returns
        -------
        ndarray of float, shape (len(texts), len(FEATURES))
            Values in the order of ``FEATURES``.
        """
        rows = np.empty((len(texts), len(FEATURES)))
        if texts:
            records = map(self.records.__getitem__, texts)
            mentions, by_assistant, short_uses, crowds = zip(*records, strict=True)
            last, before = [each[0] for each in mentions], self.history.tokens_before
            ages = {at: max((tokens - before[at + 1]) / 1000, _MIN_AGE) for at in set(last)}
            logs = {at: math.log(age) for at, age in ages.items()}
            # Not np.log: its last digit depends on the processor.
            rows[:, 0] = list(map(_log1p, short_uses))
            rows[:, 1] = [logs[at] for at in last]
            rows[:, 2] = by_assistant
            rows[:, 3] = list(map(_log1p, crowds))
            rows[:, 4] = ["/" in text for text in texts]
        return rows


_log1p = lru_cache(maxsize=4096)(math.log1p)


def _message_entities(message: Message) -> _MessageEntities:
    """Return the entities that a message mentions, and those that its tool calls use."""
    mentioned = dict.fromkeys(each.text for each in find_entities(message.text[:MAX_SCANNED_CHARS]))
    used: dict[str, None] = {}
    short: dict[str, int] = {}
    for call in message.tool_calls:
        for _, leaf in call.argument_leaves():
            value = leaf[:MAX_SCANNED_CHARS] if isinstance(leaf, str) else leaf
            is_short = not isinstance(leaf, str) or len(leaf) < _SHORT_CHARS
            for entity in find_entities_in_value(value):
                used[entity.text] = None
                if is_short:
                    short[entity.text] = short.get(entity.text, 0) + 1
    return _MessageEntities(tuple(mentioned | used), short)


_ENTITIES = MessageCache(_message_entities)


def _edited_path(history: History, position: int) -> str | None:
    """Return the file that a tool call changed, if the message is a result that reports no error."""
    call = history.calls_by_result.get(position)
    access = parse_file_access(call) if call is not None else None
    if access is None or access.operation not in ("write", "edit"):
        return None
    return None if is_tool_error(history[position]) else access.path


def _is_same_file(path: str, other: str) -> bool:
    if path.startswith("/") == other.startswith("/"):
        return path == other
    short, long = sorted((path, other), key=lambda each: each.startswith("/"))
    return long.endswith(f"/{short}")
