"""The context: the messages of the next request, and all edits made to them.

Strategies change a context only with ``replace``, ``drop``, ``fold`` and ``insert``. These edits
keep the number of tokens up to date, record which entry represents which part of the history and
since when, and determine how much of the previous request is unchanged, which a prompt cache can
serve.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from operator import attrgetter, is_, is_not
from typing import Any

from ctxlab.context.history import NEVER, Entry, Form, History, Rewrite
from ctxlab.errors import EditError, ModelUnavailable, SpecError
from ctxlab.llm.base import ModelCall, Reply, Request
from ctxlab.messages.types import Message
from ctxlab.tokens.counter import TokenCounter


@dataclass(frozen=True)
class Budget:
    """Tokens that a request may take.

    Examples
    --------
    >>> Budget(8000, reserve=1000, fixed=503).available
    6497
    """

    limit: int
    "tokens of the model's context window"
    reserve: int = 0
    "tokens kept for the reply"
    fixed: int = TokenCounter.REPLY_TOKENS
    "tokens of every request outside of its messages: tool definitions and the opening of the reply"

    @property
    def available(self) -> int:
        """Tokens that the messages may take; 0 if the fixed part alone exceeds the limit."""
        return max(0, self.limit - self.reserve - self.fixed)


class Ledger:
    """Events and model calls of a context; all forks of a context share them.

    Parameters
    ----------
    history : History
        All appended messages.
    """

    def __init__(self, history: History) -> None:
        self.history = history
        "all appended messages; may contain more messages than this context"
        self.request_index = 0
        "number of requests sent so far"
        self.events: list[tuple[int, str]] = []
        "events that strategies reported: ``(request_index, event)``"
        self.model_calls: list[ModelCall] = []
        "model calls that strategies made"

    def report(self, event: str) -> None:
        """Record an event that a reader of the results should know, such as a panic.

        Parameters
        ----------
        event : str
            Description of the event.
        """
        self.events.append((self.request_index, event))

    def ask(self, request: Request) -> Reply:
        """Send a request to a model and record the call.

        Parameters
        ----------
        request : Request
            The request.

        Returns
        -------
        Reply
            The reply.

        Raises
        ------
        ModelError
            If the model does not answer.
        SpecError
            If no client was given.
        """
        (reply,) = self.ask_all([request])
        if isinstance(reply, ModelUnavailable):
            raise reply
        return reply

    def ask_all(self, requests: Sequence[Request]) -> list[Reply | ModelUnavailable]:
        """Send several requests to models at once and record the calls.

        Parameters
        ----------
        requests : sequence of Request
            The requests.

        Returns
        -------
        list of Reply or ModelUnavailable
            The reply to each request, or its error.

        Raises
        ------
        ModelRequestRejected
            If a request or the key is rejected.
        SpecError
            If no client was given.
        """
        if self.history.client is None:
            models = ", ".join(sorted({request.model for request in requests}))
            raise SpecError(f"a strategy calls {models}, but there is no client; pass a client")
        replies = self.history.client.complete_all(requests)
        for request, reply in zip(requests, replies, strict=True):
            self.record_call(request.model, reply)
        return replies

    def record_call(self, model: str, reply: Reply | ModelUnavailable) -> None:
        """Add a call, answered or not, to ``model_calls``.

        Parameters
        ----------
        model : str
            Name of the model.
        reply : Reply or ModelUnavailable
            The reply or the error.
        """
        self.model_calls.append(ModelCall.from_reply(self.request_index, model, reply))


_START = attrgetter("start")


class Context(Ledger):
    """The messages of the next request, with their token counts and positions in the history.

    Parameters
    ----------
    budget : Budget
        Tokens that a request may take.
    history : History
        All appended messages.

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
        "a strategy has read the budget, so its edits may differ under another budget"
        self._budget, self._available = budget, budget.available
        self.history_length = 0
        "number of messages of the history that were appended here"
        self.entries: list[Entry] = []
        "the messages of the next request, as entries"
        self.tokens = 0
        "tokens of ``messages``"
        self.strategy_state: dict[Hashable, Any] = {}
        "what strategies remember between requests, by strategy; a fork starts with a copy"
        self.dropped_at: list[int] = []
        "``dropped_at[i]``: index of the first request without message ``i`` in verbatim form"
        self.edited_entries: list[Entry] = []
        "all entries that edits created, in order"
        self.maybe_invalid = False
        "an edit may have made the request invalid, even if the history is valid"
        self.version = 0
        "number of edits; appending is not an edit"
        self.is_fork = False
        "this is a fork: its edits last for one request and are not recorded"
        self.is_persistent = False
        "this is a fork that is kept for later requests: see ``Branch``"
        # entries[:_prefix_length] are unchanged since the previous request; _prefix_tokens counts them.
        self._prefix_length = 0
        self._prefix_tokens = 0
        self._sent: list[Entry] | None = None  # the previous request, if it was sent from a fork

    # --- queries -------------------------------------------------------------------------------

    @property
    def messages(self) -> list[Message]:
        """The messages of the next request."""
        return [entry.message for entry in self.entries]

    @property
    def budget(self) -> Budget:
        """Limit, reserve and fixed tokens of a request."""
        self.budget_read = True
        return self._budget

    def set_budget(self, budget: Budget) -> None:
        """Set the budget from this request on.

        Parameters
        ----------
        budget : Budget
            The new budget.
        """
        self._budget, self._available = budget, budget.available

    @property
    def available(self) -> int:
        """Tokens that the messages may take."""
        self.budget_read = True
        return self._available

    @property
    def excess(self) -> int:
        """Tokens over the budget; negative if there is room left."""
        self.budget_read = True
        return self.tokens - self._available

    @property
    def unchanged_tokens(self) -> int:
        """Tokens of the leading messages that are the same as in the previous request."""
        if self._sent is None:
            return self._prefix_tokens
        sent, entries = self._sent, self.entries
        same = list(map(is_, sent, entries))
        count = same.index(False) if False in same else len(same)
        # A strategy may create all messages anew with the same content, so compare by value too.
        while count < len(same) and sent[count].message == entries[count].message:
            count += 1
        return sum([entry.tokens for entry in entries[:count]])

    @property
    def first_droppable(self) -> int:
        """Index of the first entry that a strategy may drop."""
        return self.index_at_or_after(self.history.head_length)

    @property
    def system_tokens(self) -> int:
        """Tokens of the system messages at the beginning."""
        leading = takewhile(lambda entry: entry.message.role == "system", self.entries)
        return sum([entry.tokens for entry in leading])

    @property
    def last_unit_start(self) -> int:
        """Index at which the newest unit begins; it must stay, because the model answers it."""
        if not self.history_length:
            return 0
        return self.index_at_or_after(self.history.unit_starts[self.history_length - 1])

    def index_at_or_after(self, position: int) -> int:
        """Return the index of the first entry that represents a position of the history or a later one.

        Messages inserted at the position come before this entry.

        Parameters
        ----------
        position : int
            Position in the history.

        Returns
        -------
        int
            Index of the entry; the number of entries if there is none.
        """
        entries = self.entries
        if position < len(entries) and entries[position].start == position < entries[position].stop:
            return position  # fast path: nothing before it was dropped or folded
        index = bisect_right(entries, position, key=_START)
        if index and entries[index - 1].stop > position:
            return index - 1
        return index

    def find_index(self, position: int) -> int | None:
        """Return the index of the entry that represents a position of the history.

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
        """Check if dropping all entries before an index leaves calls and results together.

        Parameters
        ----------
        index : int
            Index of an entry.

        Returns
        -------
        bool
            True if no tool call is separated from its results.
        """
        entries = self.entries
        return index >= len(entries) or self._is_unit_boundary(entries[index].start)

    def next_safe_cut(self, index: int) -> int:
        """Return the first safe cut at or after an index.

        Parameters
        ----------
        index : int
            Index of an entry.

        Returns
        -------
        int
            Index of the cut.
        """
        while not self.is_safe_cut(index):
            index += 1
        return index

    # --- edits ---------------------------------------------------------------------------------

    def append(self, message: Message) -> None:
        """Append the next message of the conversation.

        Parameters
        ----------
        message : Message
            The message. It is added to the history if this context contains all of the history.

        Raises
        ------
        EditError
            If the context is a fork, or if the message is not the next one of the history.
        """
        self._check_not_fork()
        if self.history_length == len(self.history):
            self.history.append(message)
        elif self.history[self.history_length] is not message:
            expected = f"expected message {self.history_length} of the replayed history"
            raise EditError(f"{expected}, got another message; append messages in order")
        self.advance(self.history_length + 1)

    def advance(self, length: int) -> None:
        """Append messages that the history already contains.

        Parameters
        ----------
        length : int
            Number of messages of the history that the context contains afterwards.

        Raises
        ------
        EditError
            If the context is a fork, or if the length is out of range.
        """
        self._check_not_fork()
        history, old = self.history, self.history_length
        if not old <= length <= len(history):
            raise EditError(f"expected a length from {old} to {len(history)}, got {length}")
        self.entries += history.entries[old:length]
        self.tokens += history.tokens_before[length] - history.tokens_before[old]
        self.dropped_at += [NEVER] * (length - old)
        self.history_length = length

    def replace(self, index: int, message: Message, form: Form = Form.REWRITTEN) -> None:
        """Replace the message of an entry, for example by a shortened one or a stub.

        Parameters
        ----------
        index : int
            Index of the entry.
        message : Message
            The new message.
        form : Form, optional
            Form of the new message.

        Raises
        ------
        EditError
            If the index is out of range.
        """
        self._replace(index, message, self.history.counter.count_message(message), form)

    def rewrite(self, index: int, function: Rewrite, form: Form) -> bool:
        """Replace a message by the result of a function, which is computed once per history.

        Parameters
        ----------
        index : int
            Index of the entry.
        function : Rewrite
            Returns the new message, or None to keep the old one.
        form : Form
            Form of the new message.

        Returns
        -------
        bool
            True if the message was replaced.

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
        """Drop the entries ``[start, stop)``.

        Parameters
        ----------
        start : int
            Index of the first entry.
        stop : int
            Index after the last entry.

        Raises
        ------
        EditError
            If the range is empty or out of range.
        """
        self._remove(start, stop, None)

    def fold(self, start: int, stop: int, message: Message, form: Form = Form.SUMMARY) -> None:
        """Replace the entries ``[start, stop)`` by one message.

        Parameters
        ----------
        start : int
            Index of the first entry.
        stop : int
            Index after the last entry.
        message : Message
            The message that replaces these entries.
        form : Form, optional
            Form of the new message.

        Raises
        ------
        EditError
            If the range is empty or out of range.
        """
        entries = self.entries[start:stop]
        if not entries:
            n = len(self.entries)
            raise EditError(f"expected a range of the entries 0 to {n}, got {start} to {stop}")
        tokens = self.history.counter.count_message(message)
        first, last = entries[0].start, entries[-1].stop
        self._remove(start, stop, Entry(message, tokens, form, first, last, self.request_index))

    def insert(self, index: int, message: Message, form: Form = Form.SUMMARY) -> None:
        """Insert a message that represents no part of the history.

        Parameters
        ----------
        index : int
            Index of the entry before which it is inserted.
        message : Message
            The message.
        form : Form, optional
            Form of the new message.

        Raises
        ------
        EditError
            If the index is out of range.
        """
        if not 0 <= index <= len(self.entries):
            raise EditError(f"no place {index} to insert at: there are {len(self.entries)} entries")
        here = self.entries[index].start if index < len(self.entries) else self.history_length
        tokens = self.history.counter.count_message(message)
        self._invalidate_from(index)
        if index < len(self.entries) and self.entries[index].message.role == "system":
            self.maybe_invalid = True  # it comes before the system prompt
        self.entries.insert(index, Entry(message, tokens, form, here, here, self.request_index))
        self._add_own_message(self.entries[index])

    def fork(self) -> Context:
        """Return a copy whose edits last for one request; a fork of a fork keeps the edits made so far.

        Returns
        -------
        Context
            The fork.
        """
        return self._make_fork(self.entries.copy())

    def fork_with(self, start: int, stop: int, entries: Sequence[Entry]) -> Context:
        """Return a fork in which fewer or other entries replace the entries ``[start, stop)``.

        The given entries replace the last ones of the range; the others are dropped. The cost
        depends on the length of the result, not on the number of dropped entries.

        Parameters
        ----------
        start : int
            Index of the first entry of the range.
        stop : int
            Index after the last entry of the range.
        entries : sequence of Entry
            The new entries, at most ``stop - start``. Each is the old entry, or represents the same
            part of the history.

        Returns
        -------
        Context
            The fork.

        Raises
        ------
        EditError
            If the range is out of range, or if there are more new entries than old ones.
        """
        going = stop - start - len(entries)
        if not 0 <= start <= stop <= len(self.entries) or going < 0:
            where = f"the entries {start} to {stop} of {len(self.entries)}"
            raise EditError(f"expected at most {stop - start} for {where}, got {len(entries)}")
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

    def _make_fork(self, entries: list[Entry]) -> Context:
        self.budget_read = True  # reads of the budget by the fork are not recorded here
        fork = Context.__new__(Context)
        fork.__dict__.update(self.__dict__)
        fork.entries = entries
        fork.strategy_state = self.strategy_state.copy()
        fork.is_fork, fork.is_persistent = True, False
        return fork

    def run_with_budget_share(self, share: float, run: Callable[[Context], Context]) -> Context:
        """Run a strategy with a share of the budget, so that it cuts deeper.

        Parameters
        ----------
        share : float
            Share of the available tokens, from 0 to 1.
        run : callable
            The strategy: a function from a context to the context to send.

        Returns
        -------
        Context
            The context that the strategy returns, with the full budget again.
        """
        whole = self._available
        self._available = int(share * whole)
        try:
            sent = run(self)
        finally:
            self._available = whole
        sent._available = whole  # it may be a fork made with the reduced budget
        return sent

    def commit_request(self, sent: Context) -> None:
        """Record that a request was sent; the next request begins.

        Parameters
        ----------
        sent : Context
            This context, or a fork of it.
        """
        if sent is self:
            self._prefix_length, self._prefix_tokens = len(self.entries), self.tokens
            self._sent = None
        else:
            self._sent = sent.entries.copy() if sent.is_persistent else sent.entries
        self.request_index += 1

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
            raise EditError(f"no entries between {start} and {stop}: there are {len(entries)}")
        removed = entries[start:stop]
        # An identical summary in the same place does not invalidate the prompt cache.
        self._invalidate_from(start + (entry is not None and entry.message == removed[0].message))
        if len(removed) * 2 > len(entries):
            self.tokens = sum([kept.tokens for kept in (*entries[:start], *entries[stop:])])
        else:
            self.tokens -= sum([old.tokens for old in removed])
        begin, end = removed[0].start, removed[-1].stop
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
        """Count and record a message of a strategy; between units, plain text is always valid."""
        self.tokens += entry.tokens
        self._record_edit(entry)
        message = entry.message
        plain = message.role in ("user", "assistant") and message.content and not message.tool_calls
        if not plain or not self._is_unit_boundary(entry.start):
            self.maybe_invalid = True

    def _check_not_fork(self) -> None:
        if self.is_fork:
            raise EditError("a fork lasts for one request; append to the context that it came from")

    def _check_index(self, index: int) -> None:
        if not 0 <= index < len(self.entries):
            raise EditError(f"no entry {index}: there are {len(self.entries)}")

    def _record_edit(self, entry: Entry) -> None:
        if not self.is_fork:
            self.edited_entries.append(entry)

    def _record_removal(self, old: Entry) -> None:
        if old.form is not Form.VERBATIM:
            old.until = self.request_index
        if old.is_aggregate:
            return  # ``dropped_at`` of its messages was set when they were folded
        position = old.start
        self.dropped_at[position] = min(self.dropped_at[position], self.request_index)

    def _invalidate_from(self, index: int) -> None:
        mark = self._prefix_length
        if index < mark and self._sent is None:
            # The prefix now ends at index. Sum its tokens from the side with fewer entries.
            if index < mark - index:
                self._prefix_tokens = sum([entry.tokens for entry in self.entries[:index]])
            else:
                self._prefix_tokens -= sum([entry.tokens for entry in self.entries[index:mark]])
            self._prefix_length = index
        self.version += 1

    def _is_unit_boundary(self, position: int) -> bool:
        """Check if a cut before a position of the history leaves calls and results together."""
        starts = self.history.unit_starts
        return position >= self.history_length or starts[position] == position
