"""The context: the messages of the next request to the model, and the methods that edit them.

Strategies edit a context only through its methods, such as ``replace``, ``drop``, ``fold`` and
``insert``. Each edit updates the token count and records which messages of the history were replaced
or dropped, and before which request. The context also counts the tokens of the leading messages that
are unchanged since the previous request, because a prompt cache can serve these tokens.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from operator import attrgetter, is_, is_not
from typing import Any

from ctxlab.context.history import NEVER, Entry, Form, History, Rewrite
from ctxlab.errors import EditError, ModelUnavailable, SpecError
from ctxlab.llm.base import ModelCall, Reply, Request
from ctxlab.messages.types import Message
from ctxlab.tokens.counter import TokenCounter


@dataclass(frozen=True)
class Budget:
    """Limit of a request and its reply in tokens, and the parts of it that messages cannot use.

    These parts are ``reserve``, for the reply, ``fixed``, for example for tool definitions, and
    ``unlogged``.

    Examples
    --------
    >>> budget = Budget(8000, reserve=1000, fixed=503, unlogged=2000)
    >>> budget.available, budget.overhead, budget.room
    (4497, 2503, 5000)
    """

    limit: int
    "maximum number of tokens of a request and its reply, such as the model's context window"
    reserve: int = 0
    "number of tokens kept free for the reply"
    fixed: int = TokenCounter.REPLY_TOKENS
    "tokens of each request outside of its messages: tool definitions and the start of the reply"
    unlogged: int = 0
    """tokens of each request that the recording does not contain, such as a system prompt that the
    client does not log. They take room, but they are not part of the tokens that ctxlab counts"""

    @property
    def overhead(self) -> int:
        """Number of tokens of each request outside of its messages: ``fixed + unlogged``."""
        return self.fixed + self.unlogged

    @property
    def room(self) -> int:
        """Maximum number of counted tokens of a request: ``limit - reserve - unlogged``."""
        return self.limit - self.reserve - self.unlogged

    @property
    def available(self) -> int:
        """Maximum number of tokens of the messages: ``limit - reserve - overhead``, but at least 0."""
        return max(0, self.limit - self.reserve - self.overhead)


class Ledger:
    """Base class of ``Context``: it records the events and the model calls of strategies.

    A fork, which is a copy of a context for one request, records its events and model calls in the
    same lists as the original context.

    Parameters
    ----------
    history : History
        All messages of the conversation.
    """

    def __init__(self, history: History) -> None:
        self.history = history
        "all messages of the conversation; in a replay also those after the next request"
        self.request_index = 0
        "number of requests sent so far"
        self.events: list[tuple[int, str]] = []
        "events that strategies reported, as pairs ``(request_index, event)``"
        self.model_calls: list[ModelCall] = []
        "calls that strategies made to a model"

    def report(self, event: str) -> None:
        """Record an event of the current request, such as ``panic``, for the results of a replay.

        Parameters
        ----------
        event : str
            Name or description of the event.
        """
        self.events.append((self.request_index, event))

    def ask(self, request: Request) -> Reply:
        """Send a request of a strategy to a model, and record the call in ``model_calls``.

        Parameters
        ----------
        request : Request
            Request with the name of the model.

        Returns
        -------
        Reply
            Reply of the model.

        Raises
        ------
        ModelError
            If the model does not answer, or if the provider rejects the request.
        SpecError
            If ``history.client`` is None.
        """
        (reply,) = self.ask_all([request])
        if isinstance(reply, ModelUnavailable):
            raise reply
        return reply

    def ask_all(self, requests: Sequence[Request]) -> list[Reply | ModelUnavailable]:
        """Send several requests to models concurrently, and record the calls in ``model_calls``.

        Parameters
        ----------
        requests : sequence of Request
            Requests, each with the name of its model.

        Returns
        -------
        list of Reply or ModelUnavailable
            For each request the reply, or the error if the model did not answer.

        Raises
        ------
        ModelRequestRejected
            If the provider rejects a request or the API key.
        SpecError
            If ``history.client`` is None.
        """
        if self.history.client is None:
            models = ", ".join(sorted({request.model for request in requests}))
            raise SpecError(f"a strategy calls {models}, but no client was given; pass a client")
        replies = self.history.client.complete_all(requests)
        for request, reply in zip(requests, replies, strict=True):
            self.record_call(request.model, reply)
        return replies

    def record_call(self, model: str, reply: Reply | ModelUnavailable) -> None:
        """Record a model call in ``model_calls``, whether the model answered or not.

        Parameters
        ----------
        model : str
            Name of the model.
        reply : Reply or ModelUnavailable
            Reply of the model, or the error if the model did not answer.
        """
        self.model_calls.append(ModelCall.from_reply(self.request_index, model, reply))


_START = attrgetter("start")


class Context(Ledger):
    """The messages of the next request, with their token counts and positions in the history.

    Each message is stored in an ``Entry``. In the methods, an index refers to the list ``entries``,
    and a position refers to the history. The index and the position of a message differ if an earlier
    message was dropped. A fork is a copy of a context for one request. Edits of a fork apply only to
    this request and are not recorded in ``edited_entries``.

    Parameters
    ----------
    budget : Budget
        Maximum number of tokens of a request.
    history : History
        All messages of the conversation.

    Examples
    --------
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> context = Context(Budget(1000), History(TokenCounter("gpt-4o")))
    >>> for role, text in (("user", "hello world"), ("assistant", "hi"), ("user", "bye")):
    ...     context.append(Message(role, text))
    >>> context.tokens
    16
    >>> context.drop(0, 2)
    >>> context.tokens, context.messages[0].content
    (5, 'bye')
    """

    def __init__(self, budget: Budget, history: History) -> None:
        super().__init__(history)
        self.budget_read = False
        "True if a strategy has read the budget, so that its edits may differ for another budget"
        self._budget, self._available = budget, budget.available
        self.history_length = 0
        "number of messages of the history that were appended to the context so far"
        self.entries: list[Entry] = []
        "entries of the messages of the next request, in order"
        self.tokens = 0
        "number of tokens of all messages of the next request"
        self.strategy_state: dict[Hashable, Any] = {}
        """strategy → data that the strategy keeps between requests; a fork has a shallow copy of this
        dict"""
        self.dropped_at: list[int] = []
        """index of the first request that does not contain message ``i`` in verbatim form, for each
        position ``i`` of the history"""
        self.edited_entries: list[Entry] = []
        "all entries that edits created, in the order of the edits"
        self.maybe_invalid = False
        "True if an edit may have made the request invalid, even if the history is valid"
        self.version = 0
        "number of edits; appended messages do not count as edits"
        self.is_fork = False
        "True for a fork: its edits apply to one request only and are not recorded in ``edited_entries``"
        self.is_persistent = False
        "True for a ``Branch``, which is a fork that is kept for later requests"
        self.now: datetime | None = None
        "time of the next request; None if it is unknown"
        self.last_request_time: datetime | None = None
        "time of the previous request; None if there was none or if its time is unknown"
        # entries[:_prefix_length], with _prefix_tokens tokens, are unchanged since the previous request.
        self._prefix_length = 0
        self._prefix_tokens = 0
        self._replaced: tuple[list[Entry], ...] = ()  # the other entries of the previous request
        self._sent: list[Entry] | None = None  # previous request; None unless a fork was sent
        self._turn_start = 0  # earlier messages contain no hidden reasoning
        # Summaries that cover the position of a message that was hidden from their strategy and is
        # still present; see ``ctxlab.context.hidden_entries``.
        self._covering: tuple[Entry, ...] = ()

    # --- queries -------------------------------------------------------------------------------

    @property
    def messages(self) -> list[Message]:
        """Messages of the next request, in order. Each access creates a new list."""
        return [entry.message for entry in self.entries]

    @property
    def budget(self) -> Budget:
        """Budget of the next request.

        Reading it sets ``budget_read``, which records that the strategy may depend on the budget.
        """
        self.budget_read = True
        return self._budget

    def set_budget(self, budget: Budget) -> None:
        """Set the budget of the next request and of all later ones.

        Parameters
        ----------
        budget : Budget
            Token budget of a request.
        """
        self._budget, self._available = budget, budget.available

    @property
    def available(self) -> int:
        """Maximum number of tokens of the messages of a request."""
        self.budget_read = True
        return self._available

    @property
    def excess(self) -> int:
        """Number of tokens by which the messages exceed ``available``; negative if they fit."""
        self.budget_read = True
        return self.tokens - self._available

    @property
    def idle(self) -> timedelta | None:
        """Time from the previous request to the next one; None if one of the times is unknown."""
        if self.now is None or self.last_request_time is None:
            return None
        return self.now - self.last_request_time

    def set_time(self, now: datetime | None) -> None:
        """Set the time of the next request.

        Parameters
        ----------
        now : datetime or None
            Time with a time zone; None if it is unknown. A time before that of the previous request
            is replaced by that time, because the clocks of a log can differ.

        Raises
        ------
        EditError
            If the time has no time zone.

        Examples
        --------
        >>> from datetime import UTC
        >>> from ctxlab.tokens.counter import TokenCounter
        >>> context = Context(Budget(1000), History(TokenCounter("gpt-4o")))
        >>> for hour in (9, 11):
        ...     context.set_time(datetime(2025, 5, 1, hour, tzinfo=UTC))
        ...     print(context.idle)
        ...     context.commit_request(context)
        None
        2:00:00
        """
        if now is not None and now.tzinfo is None:
            raise EditError(
                f"expected a time with a time zone, got {now!r}; pass datetime.now(UTC)"
            )
        last = self.last_request_time
        self.now = last if now is not None and last is not None and now < last else now

    @property
    def unchanged_tokens(self) -> int:
        """Number of tokens of the leading messages that are unchanged since the previous request."""
        if self._sent is None:
            return self._prefix_tokens + (self._moved_tokens() if self._replaced else 0)
        sent, entries = self._sent, self.entries
        length, count, size = min(len(sent), len(entries)), 0, 16
        while count < length:  # growing parts, because the first difference often comes early
            same = list(map(is_, sent[count : count + size], entries[count : count + size]))
            if False in same:
                count += same.index(False)
                break
            count, size = count + len(same), size * 4
        # A strategy may create new messages with the same content, so compare by value too.
        while count < length and sent[count].message == entries[count].message:
            count += 1
        return sum([entry.tokens for entry in entries[:count]])

    def _moved_tokens(self) -> int:
        """Return the tokens of the messages after the prefix that equal those of the previous request.

        If a message is dropped, an equal one may have taken its place.
        """
        entries, index, tokens = self.entries, self._prefix_length, 0
        for old in chain.from_iterable(self._replaced):
            if index == len(entries) or entries[index].message != old.message:
                break
            tokens += entries[index].tokens
            index += 1
        return tokens

    @property
    def first_droppable(self) -> int:
        """Index of the first entry after the head.

        The head is the system prompt and the first user message. Strategies never drop the head.
        """
        return self.index_at_or_after(self.history.head_length)

    @property
    def system_tokens(self) -> int:
        """Number of tokens of the system messages at the beginning of the request."""
        tokens = 0
        for entry in self.entries:
            if entry.message.role != "system":
                break
            tokens += entry.tokens
        return tokens

    @property
    def last_unit_start(self) -> int:
        """Index of the first entry of the newest unit.

        A unit is an assistant message with tool calls, together with the results of these calls. Any
        other message is a unit of its own. The newest unit must be kept, because the model replies
        to it.
        """
        if not self.history_length:
            return 0
        return self.index_at_or_after(self.history.unit_starts[self.history_length - 1])

    def index_at_or_after(self, position: int) -> int:
        """Return the index of the first entry for a message at or after a position of the history.

        Entries of messages that a strategy inserted at this position are skipped.

        Parameters
        ----------
        position : int
            Position in the history.

        Returns
        -------
        int
            Index of the entry, or the number of entries if there is no such entry.
        """
        entries = self.entries
        if position < len(entries) and entries[position].start == position < entries[position].stop:
            return position  # fast path: no earlier message was dropped or folded
        index = bisect_right(entries, position, key=_START)
        if not self._covering:
            return index - (index > 0 and entries[index - 1].stop > position)
        while index > 1 and entries[index - 2].start == position < entries[index - 2].stop:
            index -= 1  # the message itself precedes a summary that begins with it
        if index and entries[index - 1].stop > position:
            return index - 1
        around = [e for e in self._covering if e.start <= position < e.stop and e in entries]
        return min([index, *map(entries.index, around)])

    def find_index(self, position: int) -> int | None:
        """Return the index of the entry for the message at a position of the history.

        If a summary has replaced the message, return the index of the summary's entry.

        Parameters
        ----------
        position : int
            Position in the history.

        Returns
        -------
        int or None
            Index of the entry; None if the message was dropped.
        """
        index = self.index_at_or_after(position)
        entries = self.entries
        return index if index < len(entries) and entries[index].start <= position else None

    def is_safe_cut(self, index: int) -> bool:
        """Return whether a cut before an entry keeps all tool calls together with their results.

        Parameters
        ----------
        index : int
            Index of the first entry after the cut.

        Returns
        -------
        bool
            True if no tool call before the cut has a result after the cut.
        """
        entries = self.entries
        return index >= len(entries) or self._is_unit_boundary(entries[index].start)

    def next_safe_cut(self, index: int) -> int:
        """Return the first safe cut at a given index or later: see ``is_safe_cut``.

        Parameters
        ----------
        index : int
            Index at which the search begins.

        Returns
        -------
        int
            Index of the first entry after the cut; the number of entries if the only safe cut is at
            the end.
        """
        while not self.is_safe_cut(index):
            index += 1
        return index

    # --- edits ---------------------------------------------------------------------------------

    def append(self, message: Message) -> None:
        """Append the next message of the conversation.

        If the history already contains later messages, as in a replay, the message must be the next
        message of the history. Otherwise it is also appended to the history.

        Parameters
        ----------
        message : Message
            Message to append.

        Raises
        ------
        EditError
            If the context is a fork, which is a copy for one request, or if the history has a different
            message at this position.
        """
        self._check_not_fork()
        if self.history_length == len(self.history):
            self.history.append(message)
        elif self.history[self.history_length] is not message:
            expected = f"expected message {self.history_length} of the replayed history"
            raise EditError(f"{expected}, got a different message; append all messages in order")
        self.advance(self.history_length + 1)

    def advance(self, length: int) -> None:
        """Append the next messages of the history until ``history_length`` is ``length``.

        Parameters
        ----------
        length : int
            New value of ``history_length``, which counts all messages that were ever appended.

        Raises
        ------
        EditError
            If ``length`` is below ``history_length`` or above the number of messages in the history,
            or if the context is a fork (a copy for one request).
        """
        self._check_not_fork()
        history, old = self.history, self.history_length
        if not old <= length <= len(history):
            raise EditError(f"expected a length of {old} to {len(history)} messages, got {length}")
        self.entries += history.entries[old:length]
        self.tokens += history.tokens_before[length] - history.tokens_before[old]
        self.dropped_at += [NEVER] * (length - old)
        self.history_length = length
        if history.reasoning == "current_turn":
            self.drop_earlier_reasoning()

    def drop_earlier_reasoning(self) -> None:
        """Leave out the hidden reasoning of earlier turns, as the provider does.

        The messages stay verbatim. It is called for each message of the user if ``history.reasoning``
        is ``current_turn``, and does nothing otherwise.
        """
        old, self._turn_start = self._turn_start, self.history.turn_start(self.history_length)
        for position in range(old, self._turn_start):
            entry = self.history.entries[position]
            bare = self.history.entry_without_reasoning(position)
            index = None if bare is entry else self.find_index(position)
            if index is not None and self.entries[index] is entry:
                self._invalidate_from(index)
                self.entries[index] = bare
                self.tokens += bare.tokens - entry.tokens

    def verbatim_entry(self, position: int) -> Entry:
        """Return the entry by which a context contains a message of the history verbatim.

        Parameters
        ----------
        position : int
            Position in the history.

        Returns
        -------
        Entry
            Entry of the message, without hidden reasoning that the provider no longer counts.
        """
        if position < self._turn_start:
            return self.history.entry_without_reasoning(position)
        return self.history.entries[position]

    def replace(self, index: int, message: Message, form: Form = Form.REWRITTEN) -> None:
        """Replace one message, for example by a shortened message or a stub.

        Parameters
        ----------
        index : int
            Index of the entry of the message.
        message : Message
            New message.
        form : Form, default Form.REWRITTEN
            Form of the new message, such as ``Form.STUB``.

        Raises
        ------
        EditError
            If the index is out of range.
        """
        self._replace(index, message, self.history.counter.count_message(message), form)

    def rewrite(self, index: int, function: Rewrite, form: Form) -> bool:
        """Replace one message by the result of a function.

        The history caches the result. All contexts of the history use the same cache.

        Parameters
        ----------
        index : int
            Index of the entry of the message.
        function : Rewrite
            Function that returns the new message, or None to keep the message. Its arguments are
            the message and the tool call that the message answers (None for other messages).
        form : Form
            Form of the new message, such as ``Form.STUB``.

        Returns
        -------
        bool
            True if the message was replaced, False if the function returned None.

        Raises
        ------
        EditError
            If the index is out of range.
        """
        self._check_index(index)
        message, tokens = self.history.get_rewrite_cache(function).apply(self.entries[index])
        if message is None:
            return False
        self._replace(index, message, tokens, form)
        return True

    def drop(self, start: int, stop: int) -> None:
        """Remove the messages of ``entries[start:stop]`` from the context.

        Parameters
        ----------
        start : int
            Index of the first entry to remove.
        stop : int
            Index after the last entry to remove.

        Raises
        ------
        EditError
            If the range is empty or out of range.
        """
        self._remove(start, stop, None)

    def fold(
        self,
        start: int,
        stop: int,
        message: Message,
        form: Form = Form.SUMMARY,
        tokens: int | None = None,
    ) -> None:
        """Replace the messages of ``entries[start:stop]`` by one message, such as a summary.

        Parameters
        ----------
        start : int
            Index of the first entry to replace.
        stop : int
            Index after the last entry to replace.
        message : Message
            New message.
        form : Form, default Form.SUMMARY
            Form of the new message.
        tokens : int, optional
            Number of tokens of the new message, if it is known. None counts them.

        Raises
        ------
        EditError
            If the range is empty or out of range.
        """
        entries = self.entries[start:stop]
        if not entries:
            n = len(self.entries)
            raise EditError(f"expected 0 <= start < stop <= {n}, got {start} and {stop}")
        if tokens is None:
            tokens = self.history.counter.count_message(message)
        first, last = entries[0].start, max([entry.stop for entry in entries])
        self._remove(start, stop, Entry(message, tokens, form, first, last, self.request_index))

    def insert(self, index: int, message: Message, form: Form = Form.SUMMARY) -> None:
        """Insert a message that replaces no message of the history.

        Parameters
        ----------
        index : int
            Index of the entry before which the message is inserted. Pass the number of entries to
            insert at the end.
        message : Message
            Message to insert.
        form : Form, default Form.SUMMARY
            Form of the message.

        Raises
        ------
        EditError
            If the index is out of range.
        """
        if not 0 <= index <= len(self.entries):
            raise EditError(f"expected 0 <= index <= {len(self.entries)}, got {index}")
        here = self.entries[index].start if index < len(self.entries) else self.history_length
        tokens = self.history.counter.count_message(message)
        self._invalidate_from(index)
        if index < len(self.entries) and self.entries[index].message.role == "system":
            self.maybe_invalid = True  # the new message would precede a system message
        self.entries.insert(index, Entry(message, tokens, form, here, here, self.request_index))
        self._add_own_message(self.entries[index])

    def adopt(
        self, before: Sequence[Entry], entries: Sequence[Entry], maybe_invalid: bool = False
    ) -> bool:
        """Install the edits that a strategy prepared on a copy of this context some requests ago.

        The messages that were appended since stay as they are. A message that the strategy kept
        unchanged keeps the form that it has now, if it was rewritten since. The edits are permanent
        and count as edits of the next request, also if the strategy returned a fork.

        Parameters
        ----------
        before : sequence of Entry
            Entries of this context when it was copied.
        entries : sequence of Entry
            Entries of the context that the strategy returned for the copy.
        maybe_invalid : bool, default False
            Value of ``maybe_invalid`` of the context that the strategy returned.

        Returns
        -------
        bool
            False if some of the copied entries were dropped or folded since; nothing is changed then.

        Examples
        --------
        >>> from ctxlab.tokens.counter import TokenCounter
        >>> said = [Message("user", text) for text in ("one", "two", "three")]
        >>> context = Context(Budget(1000), History(TokenCounter("gpt-4o"), said))
        >>> context.advance(2)
        >>> before, copy = context.entries.copy(), context.fork()
        >>> copy.drop(0, 1)
        >>> context.advance(3)
        >>> context.adopt(before, copy.entries), [message.content for message in context.messages]
        (True, ['two', 'three'])
        """
        count, old = len(before), self.entries[: len(before)]
        if [(e.start, e.stop) for e in old] != [(e.start, e.stop) for e in before]:
            return False
        now = {id(then): entry for then, entry in zip(before, old, strict=True)}
        entries = [now.get(id(entry), entry) for entry in entries]
        changed = list(map(is_not, old, entries))
        same = changed.index(True) if True in changed else len(changed)
        if same == count == len(entries):
            return True
        self._invalidate_from(same)
        self.entries[:count] = entries
        self.tokens = sum([entry.tokens for entry in self.entries])
        self.maybe_invalid = self.maybe_invalid or maybe_invalid
        if not self.is_fork:
            kept, known = set(map(id, entries)), set(map(id, old))
            for entry in old:
                if id(entry) not in kept:
                    self._record_removal(entry)
            for entry in entries:
                if id(entry) not in known:
                    entry.since = self.request_index
                    self._record_edit(entry)
        return True

    def fork(self) -> Context:
        """Return a fork: a copy of the context for one request.

        The fork contains all edits made so far. Edits of the fork apply only to this request and do
        not change the original context.

        Returns
        -------
        Context
            Fork of the context. It shares the history, the events and the model calls.
        """
        return self._make_fork(self.entries.copy())

    def fork_with(self, start: int, stop: int, entries: Sequence[Entry]) -> Context:
        """Return a fork of the context with other entries in place of ``entries[start:stop]``.

        A fork is a copy for one request. ``n`` new entries replace the last ``n`` entries of the
        range, and the other entries of the range are dropped. The run time depends on the length of
        the result and not on the number of dropped entries.

        Parameters
        ----------
        start : int
            Index of the first entry to replace.
        stop : int
            Index after the last entry to replace.
        entries : sequence of Entry
            New entries, at most ``stop - start``. Each new entry must have the same positions in
            the history as the entry that it replaces.

        Returns
        -------
        Context
            Fork of the context, with the new entries.

        Raises
        ------
        EditError
            If ``start`` or ``stop`` is out of range, or if there are more than ``stop - start`` new
            entries.
        """
        going = stop - start - len(entries)
        if not 0 <= start <= stop <= len(self.entries) or going < 0:
            where = f"start {start}, stop {stop} and {len(entries)} new entries"
            raise EditError(
                f"expected 0 <= start <= stop <= {len(self.entries)} and at most stop - start new "
                f"entries, got {where}"
            )
        first = start
        if not going:  # find the first entry that differs
            changed = list(map(is_not, self.entries[start:stop], entries))
            first = start + changed.index(True) if True in changed else len(self.entries)
        fork = self._make_fork(self.entries)
        fork._invalidate_from(first)
        fork.entries = [*self.entries[:start], *entries, *self.entries[stop:]]
        fork.tokens = sum([entry.tokens for entry in fork.entries])
        if going:
            begin, end = self.entries[start].start, self.entries[start + going - 1].stop
            if not (self._is_unit_boundary(begin) and self._is_unit_boundary(end)):
                fork.maybe_invalid = True
        return fork

    def fork_selecting(self, entries: list[Entry], tokens: int) -> Context:
        """Return a fork of the context that contains only some of its units.

        A fork is a copy for one request. This method does not look at dropped entries, so it is fast
        enough to choose the units of each request anew from a long history.

        Parameters
        ----------
        entries : list of Entry
            Entries of this context to keep, in the same order. The entries of a unit, which is a tool
            call with its results or any other message, must be kept or dropped together.
        tokens : int
            Number of tokens of these entries.

        Returns
        -------
        Context
            Fork of the context, with only these entries.
        """
        fork = self._make_fork(self.entries)
        if self._sent is None:  # otherwise, the fork is compared with the previous request
            pairs = enumerate(zip(self.entries, entries, strict=False))
            same = (index for index, (old, new) in pairs if old is not new)
            fork._invalidate_from(next(same, len(entries)))
        fork.entries, fork.tokens, fork.version = entries, tokens, self.version + 1
        return fork

    def _make_fork(self, entries: list[Entry]) -> Context:
        self.budget_read = True  # reads of the budget by the fork are not recorded here
        fork = Context.__new__(Context)
        fork.__dict__.update(self.__dict__)
        fork.entries = entries
        fork.strategy_state = self.strategy_state.copy()
        fork.is_fork, fork.is_persistent = True, False
        return fork

    def run_with_budget_share(self, share: float, run: Callable[[Context], Context]) -> Context:
        """Run a strategy with a reduced budget, so that it removes more tokens.

        Parameters
        ----------
        share : float
            Share of ``available``, from 0 to 1, that the strategy gets as its budget.
        run : callable
            The strategy: a function that takes this context and returns the context to send.

        Returns
        -------
        Context
            The context that the strategy returned, with the whole budget restored.
        """
        whole = self._available
        self._available = int(share * whole)
        try:
            sent = run(self)
        finally:
            self._available = whole
        sent._available = whole  # a fork was created with the reduced budget
        return sent

    def commit_request(self, sent: Context) -> None:
        """Record that a request was sent, and increase ``request_index``.

        Parameters
        ----------
        sent : Context
            The context that was sent: this context, or a copy made by ``fork`` or ``fork_with``.
        """
        if sent is self:
            self._prefix_length, self._prefix_tokens = len(self.entries), self.tokens
            self._replaced, self._sent = (), None
        else:
            self._sent = sent.entries.copy() if sent.is_persistent else sent.entries
        self.request_index += 1
        self.last_request_time, self.now = self.now, None

    # --- bookkeeping ---------------------------------------------------------------------------

    def _replace(self, index: int, message: Message, tokens: int, form: Form) -> None:
        self._check_index(index)
        old = self.entries[index]
        entry = Entry(message, tokens, form, old.start, old.stop, self.request_index)
        self._invalidate_from(index + (message == old.message))
        self.entries[index] = entry
        self.tokens += tokens - old.tokens
        if not self.is_fork:
            self._record_removal(old)
        was = old.message
        if (message.role, message.tool_call_id) != (was.role, was.tool_call_id) or (
            [call.id for call in message.tool_calls] != [call.id for call in was.tool_calls]
            or not (message.content or was.tool_calls)
        ):
            self.maybe_invalid = True
        self._record_edit(entry)

    def _remove(self, start: int, stop: int, entry: Entry | None) -> None:
        entries = self.entries
        if not 0 <= start < stop <= len(entries):
            raise EditError(f"expected 0 <= start < stop <= {len(entries)}, got {start} and {stop}")
        removed = entries[start:stop]
        # If the new summary equals the first removed message, this message stays in the prompt cache.
        self._invalidate_from(start + (entry is not None and entry.message == removed[0].message))
        if len(removed) * 2 > len(entries):
            self.tokens = sum([kept.tokens for kept in (*entries[:start], *entries[stop:])])
        else:
            self.tokens -= sum([old.tokens for old in removed])
        begin, end = removed[0].start, removed[-1].stop
        if self._covering:
            end = max([old.stop for old in removed])
        if not (self._is_unit_boundary(begin) and self._is_unit_boundary(end)):
            self.maybe_invalid = True
        if not self.is_fork:
            for old in removed:
                self._record_removal(old)
        if entry is None:
            del entries[start:stop]
            return
        entries[start:stop] = (entry,)
        self._add_own_message(entry)

    def _add_own_message(self, entry: Entry) -> None:
        """Add the tokens of a message that was inserted or replaces others, and record the edit.

        Set ``maybe_invalid``, unless the message is plain text of the user or the assistant and does
        not separate a tool call from its result.
        """
        self.tokens += entry.tokens
        self._record_edit(entry)
        message = entry.message
        plain = message.role in ("user", "assistant") and message.content and not message.tool_calls
        if not plain or not self._is_unit_boundary(entry.start):
            self.maybe_invalid = True

    def _check_not_fork(self) -> None:
        if self.is_fork:
            raise EditError("cannot append to a fork; append to the context that was forked")

    def _check_index(self, index: int) -> None:
        if not 0 <= index < len(self.entries):
            raise EditError(f"expected 0 <= index < {len(self.entries)}, got {index}")

    def _record_edit(self, entry: Entry) -> None:
        if not self.is_fork:
            self.edited_entries.append(entry)

    def _record_removal(self, old: Entry) -> None:
        if not old.is_verbatim:
            old.until = self.request_index
        if old.is_aggregate:
            return  # dropped_at of the messages was set when they were folded
        position = old.start
        self.dropped_at[position] = min(self.dropped_at[position], self.request_index)

    def _invalidate_from(self, index: int) -> None:
        mark = self._prefix_length
        if index < mark and self._sent is None:
            self._replaced = (self.entries[index:mark], *self._replaced)
            # The prefix now ends at index. Add or subtract tokens, whichever sums fewer entries.
            if index < mark - index:
                self._prefix_tokens = sum([entry.tokens for entry in self.entries[:index]])
            else:
                self._prefix_tokens -= sum([entry.tokens for entry in self.entries[index:mark]])
            self._prefix_length = index
        self.version += 1

    def _is_unit_boundary(self, position: int) -> bool:
        """Return True if a cut before a position of the history keeps calls and results together."""
        starts = self.history.unit_starts
        return position >= self.history_length or starts[position] == position
