"""A context is the list of messages that would be sent now, and every edit made to it.

Strategies change it only through ``replace``, ``drop``, ``fold`` and ``insert``. From the edits alone
follow the running total of tokens, what stands for which part of the history and since when, and how
much of the previous request is unchanged, which is what a prompt cache would serve. No text is looked
at again.
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

__all__ = ["Budget", "Context", "Ledger"]


@dataclass(frozen=True)
class Budget:
    """How many tokens a request may hold.

    >>> Budget(8000, reserve=1000, fixed=503).available
    6497
    """

    limit: int
    "tokens of the context window"
    reserve: int = 0
    "tokens kept free for the reply"
    fixed: int = TokenCounter.REPLY_TOKENS
    "tokens of every request that are no messages: tool definitions and the opening of the reply"

    @property
    def available(self) -> int:
        """Tokens left for messages; 0 where the fixed part alone is too large."""
        return max(0, self.limit - self.reserve - self.fixed)


class Ledger:
    """The part of a context that keeps the books; forks of a context share it."""

    def __init__(self, history: History) -> None:
        self.history = history
        "all that was appended; may reach further than this context does"
        self.request_index = 0
        "how many requests have been sent"
        self.events: list[tuple[int, str]] = []
        "what strategies reported: ``(request_index, event)``"
        self.model_calls: list[ModelCall] = []
        "a strategy's own model calls"

    def report(self, event: str) -> None:
        """Something happened that a reader of the results should know, such as a panic."""
        self.events.append((self.request_index, event))

    def ask(self, request: Request) -> Reply:
        """Asks a model and records the call; raises ``ModelError`` where there is no answer."""
        (reply,) = self.ask_all([request])
        if isinstance(reply, ModelUnavailable):
            raise reply
        return reply

    def ask_all(self, requests: Sequence[Request]) -> list[Reply | ModelUnavailable]:
        """Asks several at a time; what stayed unanswered stands as its error, in its place."""
        if self.history.client is None:
            models = ", ".join(sorted({request.model for request in requests}))
            raise SpecError(f"a strategy wants to ask {models}, and no client was given to ask it")
        replies = self.history.client.complete_all(requests)
        for request, reply in zip(requests, replies, strict=True):
            self.record_call(request.model, reply)
        return replies

    def record_call(self, model: str, reply: Reply | ModelUnavailable) -> None:
        """Adds a call, answered or not, to ``model_calls``."""
        self.model_calls.append(ModelCall.from_reply(self.request_index, model, reply))


_START = attrgetter("start")


class Context(Ledger):
    """The working list of messages, with running totals and provenance.

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
        "a strategy has asked how much room there is: another budget may have other consequences"
        self._budget, self._available = budget, budget.available
        self.history_length = 0
        "how much of the history has been appended here"
        self.entries: list[Entry] = []
        "what would be sent now, with provenance"
        self.tokens = 0
        "tokens of ``messages``"
        self.strategy_state: dict[Hashable, Any] = {}
        "what strategies remember between requests, by strategy; a fork starts with the same"
        self.dropped_at: list[int] = []
        "``dropped_at[i]``: from which request on message ``i`` is no longer there word for word"
        self.edited_entries: list[Entry] = []
        "every entry that an edit made, in order"
        self.maybe_invalid = False
        "an edit was made after which a valid history need no longer make a valid request"
        self.version = 0
        "how many edits were made; appending is none"
        self.is_fork = False
        "it is a fork: its edits last for one request, so nothing is noted of them"
        self.is_persistent = False
        "a fork that is kept for later requests: see ``Branch``"
        self._prefix_length = (
            0  # entries[:_prefix_length] stand as they did in the previous request …
        )
        self._prefix_tokens = 0  # … and these are their tokens
        self._sent: list[Entry] | None = None  # the previous request, where that was a fork

    # --- what it holds -------------------------------------------------------------------------

    @property
    def messages(self) -> list[Message]:
        """What would be sent now."""
        return [entry.message for entry in self.entries]

    @property
    def budget(self) -> Budget:
        """Limit and reserve."""
        self.budget_read = True
        return self._budget

    def set_budget(self, budget: Budget) -> None:
        """From this request on the budget is another."""
        self._budget, self._available = budget, budget.available

    @property
    def available(self) -> int:
        """Tokens that the messages may have."""
        self.budget_read = True
        return self._available

    @property
    def excess(self) -> int:
        """Tokens over the budget; negative where there is room."""
        self.budget_read = True
        return self.tokens - self._available

    @property
    def unchanged_tokens(self) -> int:
        """Tokens at the beginning that are the same messages as in the previous request."""
        if self._sent is None:
            return self._prefix_tokens
        sent, entries = self._sent, self.entries
        same = list(map(is_, sent, entries))
        count = same.index(False) if False in same else len(same)
        # A strategy that makes every message anew may still have sent the same.
        while count < len(same) and sent[count].message == entries[count].message:
            count += 1
        return sum([entry.tokens for entry in entries[:count]])

    @property
    def first_droppable(self) -> int:
        """Index of the first entry that a strategy may drop."""
        return self.index_at_or_after(self.history.head_length)

    @property
    def system_tokens(self) -> int:
        """Tokens of the system messages that it begins with."""
        spoken = takewhile(lambda entry: entry.message.role == "system", self.entries)
        return sum([entry.tokens for entry in spoken])

    @property
    def last_unit_start(self) -> int:
        """Index where the newest unit begins: without it there is nothing to answer."""
        return (
            self.index_at_or_after(self.history.unit_starts[self.history_length - 1])
            if self.history_length
            else 0
        )

    def index_at_or_after(self, position: int) -> int:
        """Index of the first entry that stands for ``position`` of the history or for what follows.

        What was inserted there stands before it.
        """
        entries = self.entries
        if position < len(entries) and entries[position].start == position < entries[position].stop:
            return position  # as many entries as messages before it: the usual case
        index = bisect_right(entries, position, key=_START)
        if index and entries[index - 1].stop > position:
            return index - 1
        return index

    def find_index(self, position: int) -> int | None:
        """Index of the entry that stands for ``position`` of the history; None if it was dropped."""
        index = self.index_at_or_after(position)
        entries = self.entries
        return index if index < len(entries) and entries[index].start <= position else None

    def is_safe_cut(self, index: int) -> bool:
        """Whether everything before ``index`` can go without parting a call from its results."""
        if index >= len(self.entries):
            return True
        return self._is_unit_boundary(self.entries[index].start)

    def next_safe_cut(self, index: int) -> int:
        """The first safe cut at or after ``index``."""
        while not self.is_safe_cut(index):
            index += 1
        return index

    # --- edits ---------------------------------------------------------------------------------

    def append(self, message: Message) -> None:
        """The next message of the conversation."""
        self._check_not_fork()
        if self.history_length == len(self.history):
            self.history.append(message)
        elif self.history[self.history_length] is not message:
            raise EditError("this message is not the next one of the history that is replayed")
        self.advance(self.history_length + 1)

    def advance(self, length: int) -> None:
        """The messages that the history already holds, up to its first ``history_length``."""
        self._check_not_fork()
        history, old = self.history, self.history_length
        if not old <= length <= len(history):
            raise EditError(f"the history holds {len(history)} messages, and {old} are here")
        self.entries += history.entries[old:length]
        self.tokens += history.tokens_before[length] - history.tokens_before[old]
        self.dropped_at += [NEVER] * (length - old)
        self.history_length = length

    def replace(self, index: int, message: Message, form: Form = Form.REWRITTEN) -> None:
        """Another message stands in the place of one: shortened, stubbed, masked."""
        self._replace(index, message, self.history.counter.count_message(message), form)

    def rewrite(self, index: int, function: Rewrite, form: Form) -> bool:
        """``replace`` with what the function makes of it, worked out once a history.

        Returns whether it made anything.
        """
        self._check_index(index)
        message, tokens = self.history.get_rewrite_cache(function).apply(self.entries[index])
        if message is None:
            return False
        self._replace(index, message, tokens, form)
        return True

    def drop(self, start: int, stop: int) -> None:
        """Entries ``[start, stop)`` are not sent any more."""
        self._remove(start, stop, None)

    def fold(self, start: int, stop: int, message: Message, form: Form = Form.SUMMARY) -> None:
        """One message stands for entries ``[start, stop)``."""
        entries = self.entries[start:stop]
        if not entries:
            raise EditError(f"nothing to fold between {start} and {stop}")
        tokens = self.history.counter.count_message(message)
        first, last = entries[0].start, entries[-1].stop
        self._remove(start, stop, Entry(message, tokens, form, first, last, self.request_index))

    def insert(self, index: int, message: Message, form: Form = Form.SUMMARY) -> None:
        """A message that stands for no part of the history."""
        here = self.entries[index].start if index < len(self.entries) else self.history_length
        tokens = self.history.counter.count_message(message)
        entry = Entry(message, tokens, form, here, here, self.request_index)
        self._invalidate_from(index)
        if index < len(self.entries) and self.entries[index].message.role == "system":
            self.maybe_invalid = True  # it speaks before the system prompt
        self.entries.insert(index, entry)
        self.tokens += tokens
        self._record_edit(entry)
        self._check_own_message(entry)

    def fork(self) -> Context:
        """A copy whose edits last for one request; a fork of a fork keeps the edits so far."""
        return self._make_fork(self.entries.copy())

    def fork_with(self, start: int, stop: int, entries: Sequence[Entry]) -> Context:
        """A fork in which the last of ``[start, stop)`` stand as ``entries`` and the others are gone.

        Each of ``entries`` is the old one or stands for the same part of the history. Its price is the
        length of what is left, not of what there was.
        """
        going = stop - start - len(entries)
        if not 0 <= start <= stop <= len(self.entries) or going < 0:
            raise EditError(
                f"{len(entries)} entries cannot stand in the place of {start} to {stop}"
            )
        first = start
        if not going:  # the first that is another; none where nothing is
            changed = list(map(is_not, self.entries[start:stop], entries))
            first = start + changed.index(True) if True in changed else len(self.entries)
        fork = self._make_fork(self.entries)
        fork._invalidate_from(first)
        fork.entries = [*self.entries[:start], *entries, *self.entries[stop:]]
        fork.tokens = sum([entry.tokens for entry in fork.entries])
        if going:
            begin, end = self.entries[start].start, self.entries[start + going - 1].stop
            fork.maybe_invalid |= not (
                self._is_unit_boundary(begin) and self._is_unit_boundary(end)
            )
        return fork

    def _make_fork(self, entries: list[Entry]) -> Context:
        self.budget_read = True  # what a fork asks would go unnoticed here
        fork = Context.__new__(Context)
        fork.__dict__.update(self.__dict__)
        fork.entries = entries
        fork.strategy_state = self.strategy_state.copy()
        fork.is_fork, fork.is_persistent = True, False
        return fork

    def run_with_budget_share(
        self, share: float, strategy: Callable[[Context], Context]
    ) -> Context:
        """What a strategy sends that is told of a share of the budget, so that it cuts deeper."""
        whole = self._available
        self._available = int(share * whole)
        try:
            sent = strategy(self)
        finally:
            self._available = whole
        sent._available = whole  # what comes after a fork of its own has the whole budget
        return sent

    def commit_request(self, sent: Context) -> None:
        """The request was sent, from this context or from a fork of it; the next one begins."""
        if sent is self:
            self._prefix_length, self._prefix_tokens, self._sent = (
                len(self.entries),
                self.tokens,
                None,
            )
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
        # A summary that says what the one before said is no change to a prompt cache.
        self._invalidate_from(start + (entry is not None and entry.message == removed[0].message))
        if len(removed) * 2 > len(entries):
            self.tokens = sum([kept.tokens for kept in (*entries[:start], *entries[stop:])])
        else:
            self.tokens -= sum([old.tokens for old in removed])
        if not (
            self._is_unit_boundary(removed[0].start) and self._is_unit_boundary(removed[-1].stop)
        ):
            self.maybe_invalid = True
        if not self.is_fork:
            for old in removed:
                self._record_removal(old)
        if entry is None:
            del entries[start:stop]
            return
        entries[start:stop] = (entry,)
        self.tokens += entry.tokens
        self._record_edit(entry)
        self._check_own_message(entry)

    def _check_own_message(self, entry: Entry) -> None:
        """A message of the strategy's own may stand anywhere if it is plain text between units."""
        message = entry.message
        plain = message.role in ("user", "assistant") and message.content and not message.tool_calls
        if not plain or not self._is_unit_boundary(entry.start):
            self.maybe_invalid = True

    def _check_not_fork(self) -> None:
        if self.is_fork:
            raise EditError("a fork lasts for one request: append to the context it came from")

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
            return  # what was folded ended when it was folded
        position = old.start
        self.dropped_at[position] = min(self.dropped_at[position], self.request_index)

    def _invalidate_from(self, index: int) -> None:
        if not 0 <= index <= len(self.entries):
            raise EditError(f"no entry {index}: there are {len(self.entries)}")
        mark = self._prefix_length
        if index < mark and self._sent is None:
            # The prefix ends here now; its tokens are summed from whichever side is nearer.
            if index < mark - index:
                self._prefix_tokens = sum([entry.tokens for entry in self.entries[:index]])
            else:
                self._prefix_tokens -= sum([entry.tokens for entry in self.entries[index:mark]])
            self._prefix_length = index
        self.version += 1

    def _is_unit_boundary(self, position: int) -> bool:
        """Whether the history can be cut before ``position`` with every call and result together."""
        starts = self.history.unit_starts
        return position >= self.history_length or starts[position] == position
