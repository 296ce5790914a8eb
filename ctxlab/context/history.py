"""The history: all appended messages, counted once and grouped into units; it is never edited.

All configurations of an experiment share the history of a recording, so that counts, units and
rewrites of messages are computed only once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from enum import StrEnum
from typing import Any, Protocol, TypeAlias, overload

from ctxlab.llm.base import Client
from ctxlab.messages.types import Compaction, Message, ToolCall
from ctxlab.messages.validation import UnitTracker
from ctxlab.tokens.counter import TokenCounter
from ctxlab.tokens.models import Model, find_model_without_warning

Rewrite: TypeAlias = Callable[[Message, ToolCall | None], Message | None]
"""Function from a message, and the tool call that it answers, to its replacement, or None to keep it.

It must be pure and hashable: a method of a frozen strategy, or a function of a module.
"""

NEVER = 1 << 60
"""A request index that is never reached; marks what still applies."""


class Form(StrEnum):
    """Form of a message in a context, compared with the appended message."""

    VERBATIM = "verbatim"
    "as appended"
    TRUNCATED = "truncated"
    "a part of the message; repeating the tool call would return the full text"
    STUB = "stub"
    "a line in place of the message, from which the agent can repeat the tool call"
    POINTER = "pointer"
    "a line of a table of contents, by which the agent can fetch the message"
    SUMMARY = "summary"
    "one message in place of several"
    REWRITTEN = "rewritten"
    "changed by a function that does not tell how"

    @property
    def fetchable(self) -> bool:
        """True if the agent is told enough to fetch the original message."""
        return self is Form.STUB or self is Form.POINTER


class Entry:
    """A message in a context, and the part of the history that it represents.

    An entry is ``is_aggregate`` unless it represents exactly one message. ``since`` and ``until``
    are the request indexes between which the entry was in the context. Only entries that are not
    verbatim have them, because all contexts of a history share the verbatim entries.

    Parameters
    ----------
    message : Message
        The message.
    tokens : int
        Tokens of the message.
    form : Form
        Form of the message.
    start : int
        First position of the history that the entry represents.
    stop : int
        Position after the last one; equal to ``start`` if the entry represents no message.
    since : int, optional
        Index of the first request that contains the entry.
    """

    __slots__ = ("form", "is_aggregate", "message", "since", "start", "stop", "tokens", "until")

    def __init__(
        self, message: Message, tokens: int, form: Form, start: int, stop: int, since: int = 0
    ) -> None:
        self.message, self.tokens, self.form = message, tokens, form
        self.start, self.stop, self.since, self.until = start, stop, since, NEVER
        self.is_aggregate = stop - start != 1

    def __deepcopy__(self, memo: dict[int, Any]) -> Entry:
        """Return the entry itself: strategies keep entries by identity, and a preview changes none."""
        return self

    def __repr__(self) -> str:
        """Return the form, the role, the positions in the history and the tokens."""
        stood = f"{self.start}" if self.stop == self.start + 1 else f"{self.start}–{self.stop - 1}"
        return f"<{self.form.value} {self.message.role} {stood}, {self.tokens} tokens>"


class OracleInfo(Protocol):
    """Knowledge of the future for an oracle: what the next action uses, and where it was mentioned."""

    def needed(self, position: int) -> Sequence[tuple[int, str]]:
        """Return everything that the message at a position will use.

        Parameters
        ----------
        position : int
            Position in the history.

        Returns
        -------
        sequence of (int, str)
            Position of the last earlier mention, and text.
        """

    def passage(self, position: int, text: str) -> str:
        """Return the line of a message that contains a text.

        Parameters
        ----------
        position : int
            Position in the history.
        text : str
            The text.

        Returns
        -------
        str
            The line.
        """


class History(Sequence[Message]):
    """Appended messages with their tokens, units and rewrites.

    Parameters
    ----------
    counter : TokenCounter
        Counts the tokens of the messages.
    messages : iterable of Message, optional
        Messages to append at once.
    model : Model, optional
        Model whose prices, cache rules and limit apply. None: the model of the counter.
    """

    def __init__(
        self, counter: TokenCounter, messages: Iterable[Message] = (), model: Model | None = None
    ) -> None:
        self.counter = counter
        self._model = model
        self.entries: list[Entry] = []
        "the messages as verbatim entries"
        self.tokens_before: list[int] = [0]
        "``tokens_before[i]``: tokens of the messages before position ``i``"
        self.result_positions: list[int] = []
        "positions of the tool results"
        self.user_positions: list[int] = []
        "positions of the user's messages"
        self.head_length = 0
        """number of messages at the beginning that are never dropped: system prompt and first user
        message"""
        self.oracle_info: OracleInfo | None = None
        "knowledge of the future for oracles; set by a replay"
        self.compactions: tuple[Compaction, ...] = ()
        "compactions by the recording system, in order; set by a replay"
        self.client: Client | None = None
        "client for strategies that call a model; None if no model may be called"
        self._units = UnitTracker()
        self.unit_starts = self._units.starts
        "``unit_starts[i]``: where the unit of message ``i`` begins; a safe cut if this is ``i``"
        self.calls_by_result = self._units.calls_by_result
        "position of a tool result → the tool call that it answers"
        self._head_open = True
        self._rewrite_caches: dict[tuple[Any, Any], RewriteCache] = {}
        self._parent: History | None = None
        for message in messages:
            self.append(message)

    @property
    def model(self) -> Model:
        """Model whose prices, cache rules and limit apply."""
        if self._model is None:
            self._model = find_model_without_warning(self.counter.model)
        return self._model

    def append(self, message: Message) -> None:
        """Append and count the next message.

        Parameters
        ----------
        message : Message
            The message.
        """
        position = len(self.entries)
        tokens = self.counter.count_message(message)
        self.entries.append(Entry(message, tokens, Form.VERBATIM, position, position + 1))
        self.tokens_before.append(self.tokens_before[-1] + tokens)
        self._units.add(message)
        if message.role == "tool":
            self.result_positions.append(position)
        elif message.role == "user":
            self.user_positions.append(position)
        if self._head_open:
            self._head_open = message.role == "system"
            self.head_length += message.role in ("system", "user")

    def get_rewrite_cache(self, function: Rewrite) -> RewriteCache:
        """Return the cache of a rewrite, which all contexts of the history share.

        Parameters
        ----------
        function : Rewrite
            The rewrite.

        Returns
        -------
        RewriteCache
            The cache.
        """
        # Bound methods compare their objects by identity; equal strategies must share a cache.
        owner = getattr(function, "__self__", None)
        key = (getattr(function, "__func__", function), owner)
        known = self._rewrite_caches.get(key)
        if known is None:
            shared = None if self._parent is None else self._parent.get_rewrite_cache(function)
            known = self._rewrite_caches[key] = RewriteCache(function, self, shared)
        return known

    def with_question(self, length: int, question: Message) -> History:
        """Return a history of the first messages, followed by a question.

        The new history shares what was computed for these messages. This history is not changed.

        Parameters
        ----------
        length : int
            Number of messages to keep.
        question : Message
            Message of the user.

        Returns
        -------
        History
            The new history.
        """
        other = copy(self)
        other.entries, other.tokens_before = self.entries[:length], self.tokens_before[: length + 1]
        other.result_positions = self.result_positions[: bisect_left(self.result_positions, length)]
        other.user_positions = self.user_positions[: bisect_left(self.user_positions, length)]
        other.head_length = min(self.head_length, length)
        other._head_open = all(entry.message.role == "system" for entry in other.entries)
        other.compactions = tuple(c for c in self.compactions if c.position <= length)
        other._units = self._units.copy_prefix(length)
        other.unit_starts, other.calls_by_result = other._units.starts, other._units.calls_by_result
        other._rewrite_caches, other._parent = {}, self
        other.append(question)
        return other

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self.entries)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        """Return the message at a position, or those of a slice."""
        if isinstance(index, slice):
            return [entry.message for entry in self.entries[index]]
        return self.entries[index].message


class RewriteCache:
    """Results of one rewrite for the messages of a history, computed on first use.

    Parameters
    ----------
    function : Rewrite
        The rewrite.
    history : History
        The history.
    parent : RewriteCache or None
        Cache of the history that this one was copied from; used for the messages that both share.
    """

    def __init__(self, function: Rewrite, history: History, parent: RewriteCache | None) -> None:
        self._function, self._history, self._parent = function, history, parent
        self._known: dict[int, tuple[Message, Message | None, int]] = {}

    def apply(self, entry: Entry) -> tuple[Message | None, int]:
        """Return the rewritten message of an entry.

        Parameters
        ----------
        entry : Entry
            The entry.

        Returns
        -------
        tuple of (Message or None, int)
            New message and its tokens; None and the old tokens if the rewrite keeps the message.
        """
        if self._parent is not None and entry.start < len(self._history) - 1:
            # All messages but the question are those of the parent: see ``History.with_question``.
            return self._parent.apply(entry)
        message = entry.message
        # The same message can answer different tool calls, so a verbatim entry's key is its position.
        key = entry.start if entry.form is Form.VERBATIM else -id(message)
        known = self._known.get(key)
        if known is None:
            made = self._function(message, self._history.calls_by_result.get(entry.start))
            tokens = entry.tokens if made is None else self._history.counter.count_message(made)
            # Keep a reference to the message, so that its id is not reused for another object.
            known = self._known[key] = (message, made, tokens)
        return known[1], known[2]
