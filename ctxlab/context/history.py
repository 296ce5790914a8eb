"""The history is what was appended, counted once and grouped into units; nothing edits it.

All configurations of an experiment share the history of a recording: its counts, its units and the
rewrites that any of them asked for are made once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any, Protocol, TypeAlias, overload

from ctxlab.llm.base import Client
from ctxlab.messages.types import Compaction, Message, ToolCall
from ctxlab.messages.validation import UnitTracker
from ctxlab.tokens.counter import TokenCounter
from ctxlab.tokens.models import Model, find_model_without_warning

__all__ = ["NEVER", "Entry", "Form", "History", "OracleInfo", "Rewrite", "RewriteCache"]

Rewrite: TypeAlias = Callable[[Message, ToolCall | None], Message | None]
"""Makes another message of one, given the call that it answers; None leaves it as it is.

It must be a pure, hashable function: a method of a frozen strategy, or a function of a module.
"""

NEVER = 1 << 60
"""A request number that is never reached: the end of what has not ended."""


class Form(StrEnum):
    """What a message in a context is, compared with what was appended."""

    VERBATIM = "verbatim"
    "as it was appended"
    TRUNCATED = "truncated"
    "a part of it; asking again would give the same"
    STUB = "stub"
    "a line in its place, from which a tool can be called again"
    POINTER = "pointer"
    "a line of contents, from which it can be fetched"
    SUMMARY = "summary"
    "one message for many"
    REWRITTEN = "rewritten"
    "changed by a function that does not say how"

    @property
    def fetchable(self) -> bool:
        """Whether the agent is told enough to get the message back."""
        return self is Form.STUB or self is Form.POINTER


class Entry:
    """A message in a context, its tokens, its form, and the history ``[start, stop)`` it stands for.

    It is ``is_aggregate`` unless it stands for exactly one message. ``since`` and ``until`` are the
    requests between which it stood there; only a message that is not verbatim has them, since
    verbatim entries are shared by all contexts of a history.
    """

    __slots__ = ("form", "is_aggregate", "message", "since", "start", "stop", "tokens", "until")

    def __init__(
        self, message: Message, tokens: int, form: Form, start: int, stop: int, since: int = 0
    ) -> None:
        self.message, self.tokens, self.form = message, tokens, form
        self.start, self.stop, self.since, self.until = start, stop, since, NEVER
        self.is_aggregate = stop - start != 1

    def __deepcopy__(self, memo: dict[int, Any]) -> Entry:
        """Itself: strategies keep entries by identity, and a preview changes none."""
        return self

    def __repr__(self) -> str:
        stood = f"{self.start}" if self.stop == self.start + 1 else f"{self.start}–{self.stop - 1}"
        return f"<{self.form.value} {self.message.role} {stood}, {self.tokens} tokens>"


class OracleInfo(Protocol):
    """What an oracle may know: what the next action will use, and where that had stood."""

    def needed(self, position: int) -> Sequence[tuple[int, str]]:
        """``(mentioned last at, text)`` of everything that the message at ``position`` will use."""

    def passage(self, position: int, text: str) -> str:
        """The line of the message at ``position`` that holds the text."""


class History(Sequence[Message]):
    """Messages in the order in which they were appended, with what never changes about them."""

    def __init__(
        self,
        counter: TokenCounter,
        messages: Iterable[Message] = (),
        model: Model | None = None,
    ) -> None:
        self.counter = counter
        self._model = model
        self.entries: list[Entry] = []
        "each message as a verbatim entry"
        self.tokens_before: list[int] = [0]
        "``tokens_before[i]``: tokens of the messages before position ``i``"
        self.result_positions: list[int] = []
        "positions of the tool results"
        self.user_positions: list[int] = []
        "positions of the user's messages"
        self.head_length = 0
        "how many messages at the beginning no strategy drops: system prompt and first user message"
        self.oracle_info: OracleInfo | None = None
        "set by a replay for controls that know the future"
        self.compactions: tuple[Compaction, ...] = ()
        "set by a replay: what the recording system did itself, in order"
        self.client: Client | None = None
        "whom strategies ask that call a model; None where no model may be called"
        self._units = UnitTracker()
        self.unit_starts = self._units.starts
        "``unit_starts[i]``: where the unit of message ``i`` begins; it is a safe cut if that is ``i``"
        self.calls_by_result = self._units.calls_by_result
        "position of a tool result → the call that it answers"
        self._head_open = True
        self._rewrite_caches: dict[tuple[Any, Any], RewriteCache] = {}
        self._parent: History | None = None
        for message in messages:
            self.append(message)

    @property
    def model(self) -> Model:
        """Whose prices, cache rules and window apply: the counter's, where none was given."""
        if self._model is None:
            self._model = find_model_without_warning(self.counter.model)
        return self._model

    def append(self, message: Message) -> None:
        """The next message; it is counted here and never again."""
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
        """What a rewrite makes of the messages, worked out once for all contexts."""
        # Bound methods of equal strategies are not equal by themselves.
        owner = getattr(function, "__self__", None)
        key = (getattr(function, "__func__", function), owner)
        known = self._rewrite_caches.get(key)
        if known is None:
            first = self._parent
            shared = None if first is None else first.get_rewrite_cache(function)
            known = self._rewrite_caches[key] = RewriteCache(function, self, shared)
        return known

    def with_question(self, length: int, question: Message) -> History:
        """A history of its own: the first ``length`` messages of this one, and a question after them.

        What was worked out for those messages is shared; this one is not changed. ``question`` is the
        user's.
        """
        other = History.__new__(History)
        other.__dict__.update(self.__dict__)
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
        return len(self.entries)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        if isinstance(index, slice):
            return [entry.message for entry in self.entries[index]]
        return self.entries[index].message


class RewriteCache:
    """What one rewrite makes of the messages of a history, each worked out when it is first asked."""

    def __init__(
        self, function: Rewrite, history: History, parent: RewriteCache | None = None
    ) -> None:
        self._function, self._history, self._parent = function, history, parent
        self._known: dict[int, tuple[Message, Message | None, int]] = {}

    def apply(self, entry: Entry) -> tuple[Message | None, int]:
        """The new message and its tokens; None and the old tokens where it stays as it is."""
        if self._parent is not None and entry.start < len(self._history) - 1:
            return self._parent.apply(entry)  # it is no question: see ``History.with_question``
        message = entry.message
        # One message may be said twice, in answer to different calls: its position tells them apart.
        key = entry.start if entry.form is Form.VERBATIM else -id(message)
        known = self._known.get(key)
        if known is None:
            made = self._function(message, self._history.calls_by_result.get(entry.start))
            tokens = entry.tokens if made is None else self._history.counter.count_message(made)
            # The message is kept beside the answer, so that its id is not given to another.
            known = self._known[key] = (message, made, tokens)
        return known[1], known[2]
