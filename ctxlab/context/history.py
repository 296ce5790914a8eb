"""The history of a conversation: all its messages, with their token counts.

Edits of a context do not change the history.
If several strategies are replayed on the same recording, their contexts use one history. The token
counts, units and rewrites of its messages are therefore computed only once.
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
from ctxlab.tokens.reasoning import ReasoningRule

Rewrite: TypeAlias = Callable[[Message, ToolCall | None], Message | None]
"""Function that takes a message and returns a new message, or None to keep the message.

The second argument is the tool call that the message answers; None if the message is not a tool result
or if its call is unknown. The function must be pure and hashable, such as a method of a frozen strategy.
"""

NEVER = 1 << 60
"""Value of ``Entry.until`` and ``Context.dropped_at`` for messages that are still in the context."""


class Form(StrEnum):
    """Form in which a context contains a message of the history, such as verbatim or as a stub.

    Examples
    --------
    >>> [form.value for form in Form]
    ['verbatim', 'truncated', 'stub', 'pointer', 'summary', 'rewritten']
    """

    VERBATIM = "verbatim"
    "the message is unchanged"
    TRUNCATED = "truncated"
    "the message is shortened; repeating its tool call would return the full text"
    STUB = "stub"
    "a short text describes the tool result, and the agent can repeat the tool call"
    POINTER = "pointer"
    """a line of a table of contents names the step, or a text names the tool result, and the agent can
    read the message with a tool"""
    SUMMARY = "summary"
    "a summary of several messages"
    REWRITTEN = "rewritten"
    "the message is changed in another way"

    @property
    def fetchable(self) -> bool:
        """True for ``STUB`` and ``POINTER``: a tool call can fetch the original message again."""
        return self is Form.STUB or self is Form.POINTER


class Entry:
    """A message in a context, with the range of history messages that it replaces.

    A verbatim entry covers the position of its own message. A summary covers the positions of all
    messages that it replaces, and an inserted message covers none. ``is_aggregate`` is True if the
    entry covers several positions or none, and ``is_verbatim`` if its form is ``Form.VERBATIM``.

    The entry was in the context from request ``since`` up to, but not including, request ``until``.
    The two are set only for entries that are not verbatim, because all contexts of a history share
    the verbatim entries.

    Parameters
    ----------
    message : Message
        Message to send.
    tokens : int
        Number of tokens of the message.
    form : Form
        Form of the message, compared with the history.
    start : int
        First position in the history that the entry covers.
    stop : int
        Position after the last position that the entry covers; equal to ``start`` for an inserted
        message.
    since : int, default 0
        Index of the first request that contains the entry.
    """

    __slots__ = (
        "form",
        "is_aggregate",
        "is_verbatim",
        "message",
        "since",
        "start",
        "stop",
        "tokens",
        "until",
    )

    def __init__(
        self, message: Message, tokens: int, form: Form, start: int, stop: int, since: int = 0
    ) -> None:
        self.message, self.tokens, self.form = message, tokens, form
        self.start, self.stop, self.since, self.until = start, stop, since, NEVER
        self.is_aggregate = stop - start != 1
        # Stored, because metrics ask it of each message of each request, and the lookup of an enum
        # member costs more than the rest of such a loop.
        self.is_verbatim = form is Form.VERBATIM

    def __deepcopy__(self, memo: dict[int, Any]) -> Entry:
        """Return the entry itself, because strategies identify entries by ``id()``."""
        return self

    def __repr__(self) -> str:
        """Return the form, the role, the positions in the history and the number of tokens."""
        stood = f"{self.start}" if self.stop == self.start + 1 else f"{self.start}–{self.stop - 1}"
        return f"<{self.form.value} {self.message.role} {stood}, {self.tokens} tokens>"


class OracleInfo(Protocol):
    """Protocol of objects that tell the control ``oracle`` what the next action will use."""

    def needed(self, position: int) -> Sequence[tuple[int, str]]:
        """Return the paths, ids and names that a recorded action uses, with their last mentions.

        If the request asks a probe instead, the pairs name the messages of the probe's evidence.

        Parameters
        ----------
        position : int
            Position in the history of the recorded assistant message, which contains the action.

        Returns
        -------
        sequence of (int, str)
            One pair for each path, id or name: the position of the last earlier message that
            mentions it, and its text. The text is empty if the whole message is needed.
        """

    def needed_messages(self, position: int) -> Sequence[tuple[float, Sequence[int]]]:
        """Return the messages that mention what a recorded action uses.

        If the request asks a probe instead, these are the messages of the probe's evidence.

        Parameters
        ----------
        position : int
            Position in the history of the recorded assistant message, which contains the action.

        Returns
        -------
        sequence of (float, sequence of int)
            One pair for each path, id or name: its weight, and the positions of all earlier messages
            that mention it, in ascending order.
        """

    def passage(self, position: int, text: str) -> str:
        """Return the line of a message that contains a path, id or name.

        Parameters
        ----------
        position : int
            Position of the message in the history.
        text : str
            Path, id or name that ``needed`` returned. If it is empty, the text of the whole message
            is returned.

        Returns
        -------
        str
            Line with the text, or the text of the whole message.
        """


class History(Sequence[Message]):
    """All messages of a conversation, with their token counts, units and cached rewrites.

    A unit is an assistant message with tool calls, together with the results of these calls. Any other
    message is a unit of its own. A request must contain all messages of a unit or none.

    Parameters
    ----------
    counter : TokenCounter
        Counter of the tokens of the messages.
    messages : iterable of Message, optional
        First messages of the history.
    model : Model, optional
        Model with the prices, cache rules and context window that strategies use. By default, the
        model of the counter.
    reasoning : {"keep", "current_turn", "clear"}, default "clear"
        Hidden reasoning that the tokens of messages include; see ``ctxlab.tokens.reasoning``.

    Examples
    --------
    >>> from ctxlab import Message, TokenCounter
    >>> talk = [Message("user", "Which port?"), Message("assistant", "8080.")]
    >>> history = History(TokenCounter("gpt-5"), talk)
    >>> history.append(Message("user", "Thanks."))
    >>> len(history), history[1].text
    (3, '8080.')
    """

    def __init__(
        self,
        counter: TokenCounter,
        messages: Iterable[Message] = (),
        model: Model | None = None,
        reasoning: ReasoningRule = "clear",
    ) -> None:
        self.counter = counter
        self._model = model
        self.reasoning = reasoning
        "hidden reasoning that the tokens of messages include"
        self.entries: list[Entry] = []
        "verbatim entry of each message"
        self.tokens_before: list[int] = [0]
        "number of tokens of all messages before position ``i``, for each ``i`` up to the length"
        self.reasoning_before: list[int] = [0]
        "number of these tokens that are hidden reasoning"
        self._without_reasoning: dict[int, Entry] = {}
        self.result_positions: list[int] = []
        "positions of the tool results, ascending"
        self.user_positions: list[int] = []
        "positions of the user messages, ascending"
        self.head_length = 0
        """number of messages of the head, which strategies never drop: the leading system messages and
        the user message that directly follows them"""
        self.oracle_info: OracleInfo | None = None
        "needs of future requests, for the control ``oracle``; set by a replay, otherwise None"
        self.compactions: tuple[Compaction, ...] = ()
        "compactions that the recorded agent made, in order; set by a replay"
        self.message_offset = 0
        """number of earlier messages of the conversation that the history does not contain; set if a
        conversation is resumed with its newest messages only"""
        self.client: Client | None = None
        "client for strategies that call a model; None if no client was given"
        self._units = UnitTracker()
        self.unit_starts = self._units.starts
        """for each position ``i``: position of the first message of the unit that contains message
        ``i``; if the two are equal, a cut before ``i`` separates no call from its results"""
        self.calls_by_result = self._units.calls_by_result
        "position of a tool result → tool call that the result answers"
        self._head_open = True
        self._rewrite_caches: dict[tuple[Any, Any], RewriteCache] = {}
        self.parent: History | None = None
        "history from which this one was copied; None if it is no copy"
        for message in messages:
            self.append(message)

    @property
    def model(self) -> Model:
        """Model with the prices, cache rules and context window that strategies use."""
        if self._model is None:
            self._model = find_model_without_warning(self.counter.model)
        return self._model

    def append(self, message: Message, tokens: int | None = None) -> None:
        """Append the next message of the conversation.

        Parameters
        ----------
        message : Message
            Message to append.
        tokens : int, optional
            Number of tokens of the message, if it is known. None counts them.
        """
        position = len(self.entries)
        hidden = 0
        if self.reasoning != "clear" and message.role == "assistant":
            hidden = self.counter.estimate_reasoning(message)
        if tokens is None:
            tokens = self.counter.count_message(message) + hidden
        self.entries.append(Entry(message, tokens, Form.VERBATIM, position, position + 1))
        self.tokens_before.append(self.tokens_before[-1] + tokens)
        self.reasoning_before.append(self.reasoning_before[-1] + hidden)
        self._units.add(message)
        if message.role == "tool":
            self.result_positions.append(position)
        elif message.role == "user":
            self.user_positions.append(position)
        if self._head_open:
            self._head_open = message.role == "system"
            self.head_length += message.role in ("system", "user")

    def turn_start(self, length: int) -> int:
        """Return the position before which a request contains no hidden reasoning.

        Parameters
        ----------
        length : int
            Number of messages before the request.

        Returns
        -------
        int
            Position of the last message of the user if ``reasoning`` is ``current_turn``, otherwise 0.
        """
        if self.reasoning != "current_turn":
            return 0
        number = bisect_left(self.user_positions, length)
        return self.user_positions[number - 1] if number else 0

    def full_tokens(self, length: int) -> int:
        """Return the number of tokens of a request that contains all of the first messages.

        Parameters
        ----------
        length : int
            Number of messages.

        Returns
        -------
        int
            Number of tokens of the messages, without hidden reasoning that the provider drops.
        """
        return self.tokens_before[length] - self.reasoning_before[self.turn_start(length)]

    def entry_without_reasoning(self, position: int) -> Entry:
        """Return the entry of a message, without its hidden reasoning.

        Parameters
        ----------
        position : int
            Position of the message.

        Returns
        -------
        Entry
            Verbatim entry. The one in ``entries`` if its tokens include no hidden reasoning.
        """
        entry, before = self.entries[position], self.reasoning_before
        if not (hidden := before[position + 1] - before[position]):
            return entry
        known = self._without_reasoning.get(position)
        if known is None:
            # Without its reasoning and its bill, the message differs from the one that was sent before.
            bare = entry.message.replace(reasoning=None, usage=None)
            known = Entry(bare, entry.tokens - hidden, entry.form, entry.start, entry.stop)
            self._without_reasoning[position] = known
        return known

    def get_rewrite_cache(self, function: Rewrite) -> RewriteCache:
        """Return the cache with the results of a rewrite function; create it on first use.

        Parameters
        ----------
        function : Rewrite
            Function that rewrites messages.

        Returns
        -------
        RewriteCache
            Cache that all contexts of the history share. Equal functions, such as methods of equal
            strategies, use the same cache.
        """
        # Bound methods compare their objects by identity; equal strategies must share a cache.
        owner = getattr(function, "__self__", None)
        key = (getattr(function, "__func__", function), owner)
        known = self._rewrite_caches.get(key)
        if known is None:
            shared = None if self.parent is None else self.parent.get_rewrite_cache(function)
            known = self._rewrite_caches[key] = RewriteCache(function, self, shared)
        return known

    def with_question(self, length: int, question: Message) -> History:
        """Return a copy of the history with only the first messages, followed by a user's question.

        The copy reuses the token counts, units and rewrites of this history. This history does not
        change.

        Parameters
        ----------
        length : int
            Number of messages to copy.
        question : Message
            User message with the question.

        Returns
        -------
        History
            History of ``length + 1`` messages.
        """
        other = copy(self)
        other.entries, other.tokens_before = self.entries[:length], self.tokens_before[: length + 1]
        other.reasoning_before = self.reasoning_before[: length + 1]
        other._without_reasoning = {}
        other.result_positions = self.result_positions[: bisect_left(self.result_positions, length)]
        other.user_positions = self.user_positions[: bisect_left(self.user_positions, length)]
        other.head_length = min(self.head_length, length)
        other._head_open = all(entry.message.role == "system" for entry in other.entries)
        other.compactions = tuple(c for c in self.compactions if c.position <= length)
        other._units = self._units.copy_prefix(length)
        other.unit_starts, other.calls_by_result = other._units.starts, other._units.calls_by_result
        other._rewrite_caches, other.parent = {}, self
        other.append(question)
        return other

    def entry_in_parent(self, entry: Entry) -> Entry | None:
        """Return the entry of the same message in the history from which this one was copied.

        Parameters
        ----------
        entry : Entry
            Entry of a context of this history.

        Returns
        -------
        Entry or None
            Entry with positions of the other history; None if the other history does not contain the
            message.
        """
        # A copy is made by with_question, which appends one message.
        return entry if entry.start < len(self) - 1 else None

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self.entries)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        """Return the message at a position, or a list of the messages of a slice."""
        if isinstance(index, slice):
            return [entry.message for entry in self.entries[index]]
        return self.entries[index].message


class RewriteCache:
    """Cached results of one rewrite function for the messages of a history.

    Parameters
    ----------
    function : Rewrite
        Function that rewrites messages.
    history : History
        History of the messages.
    parent : RewriteCache or None
        Cache of the original history if ``history`` is a copy of it, else None. It is used for all
        messages that both contain.
    """

    def __init__(self, function: Rewrite, history: History, parent: RewriteCache | None) -> None:
        self._function, self._history, self._parent = function, history, parent
        self._known: dict[int, tuple[Message, Message | None, int]] = {}

    def apply(self, entry: Entry) -> tuple[Message | None, int]:
        """Return the rewritten message of an entry. The result for each message is computed only once.

        Parameters
        ----------
        entry : Entry
            Entry of the message to rewrite. It is not changed.

        Returns
        -------
        tuple of (Message or None, int)
            New message and its number of tokens. If the function keeps the message: None and the
            number of tokens of the message.
        """
        message = entry.message
        # The same message can answer different tool calls, so a verbatim entry's key is its position.
        key = entry.start if entry.is_verbatim else -id(message)
        known = self._known.get(key)
        if known is None:
            # Keep a reference to the message, so that its id is not reused for another object.
            known = self._known[key] = (message, *self._rewrite(entry))
        return known[1], known[2]

    def _rewrite(self, entry: Entry) -> tuple[Message | None, int]:
        if self._parent is not None and (same := self._history.entry_in_parent(entry)) is not None:
            return self._parent.apply(same)
        made = self._function(entry.message, self._history.calls_by_result.get(entry.start))
        return made, entry.tokens if made is None else self._history.counter.count_message(made)
