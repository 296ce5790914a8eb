"""A context is the list of messages that would be sent now, and every edit made to it.

Strategies change it only through ``replace``, ``drop``, ``fold`` and ``insert``. From the edits alone
follow the running total of tokens, what stands for which part of the history and since when, and how
much of the previous request is unchanged, which is what a prompt cache would serve. No text is looked
at again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence
from itertools import takewhile
from operator import attrgetter, is_, is_not
from typing import Any

from ctxlab.context.budget import Budget
from ctxlab.context.history import (
    NEVER,
    Entry,
    Form,
    History,
    Rewrite,
)
from ctxlab.context.ledger import Account
from ctxlab.errors import EditError
from ctxlab.messages.types import Message

_START = attrgetter("start")

__all__ = ["Context"]


class Context(Account):
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
        self.looked = False
        "a strategy has asked how much room there is: another budget may have other consequences"
        self._budget, self._available = budget, budget.available
        self.length = 0
        "how much of the history has been appended here"
        self.entries: list[Entry] = []
        "what would be sent now, with provenance"
        self.tokens = 0
        "tokens of ``messages``"
        self.notes: dict[Hashable, Any] = {}
        "what strategies remember between requests, by strategy; a fork starts with the same"
        self.died: list[int] = []
        "``died[i]``: from which request on message ``i`` is no longer there word for word"
        self.edited: list[Entry] = []
        "every entry that an edit made, in order"
        self.strange = False
        "an edit was made after which a valid history need no longer make a valid request"
        self.version = 0
        "how many edits were made; appending is none"
        self.forked = False
        "it is a fork: its edits last for one request, so nothing is noted of them"
        self.lasting = False
        "a fork that is kept for later requests: see ``Branch``"
        self._mark = 0  # entries[:_mark] stand as they did in the previous request …
        self._prefix = 0  # … and these are their tokens
        self._sent: list[Entry] | None = None  # the previous request, where that was a fork

    # --- what it holds -------------------------------------------------------------------------

    @property
    def messages(self) -> list[Message]:
        """What would be sent now."""
        return [entry.message for entry in self.entries]

    @property
    def budget(self) -> Budget:
        """Limit and reserve."""
        self.looked = True
        return self._budget

    def rebudget(self, budget: Budget) -> None:
        """From this request on the budget is another."""
        self._budget, self._available = budget, budget.available

    @property
    def available(self) -> int:
        """Tokens that the messages may have."""
        self.looked = True
        return self._available

    @property
    def excess(self) -> int:
        """Tokens over the budget; negative where there is room."""
        self.looked = True
        return self.tokens - self._available

    @property
    def unchanged(self) -> int:
        """Tokens at the beginning that are the same messages as in the previous request."""
        if self._sent is None:
            return self._prefix
        sent, entries = self._sent, self.entries
        same = list(map(is_, sent, entries))
        count = same.index(False) if False in same else len(same)
        # A strategy that makes every message anew may still have sent the same.
        while count < len(same) and sent[count].message == entries[count].message:
            count += 1
        return sum([entry.tokens for entry in entries[:count]])

    @property
    def head(self) -> int:
        """Index of the first entry that a strategy may drop."""
        return self.index_from(self.history.head)

    @property
    def opening(self) -> int:
        """Tokens of the system messages that it begins with."""
        spoken = takewhile(lambda entry: entry.message.role == "system", self.entries)
        return sum([entry.tokens for entry in spoken])

    @property
    def tail(self) -> int:
        """Index where the newest unit begins: without it there is nothing to answer."""
        return self.index_from(self.history.starts[self.length - 1]) if self.length else 0

    def index_from(self, position: int) -> int:
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

    def find(self, position: int) -> int | None:
        """Index of the entry that stands for ``position`` of the history; None if it was dropped."""
        index = self.index_from(position)
        entries = self.entries
        return index if index < len(entries) and entries[index].start <= position else None

    def is_cut(self, index: int) -> bool:
        """Whether everything before ``index`` can go without parting a call from its results."""
        if index >= len(self.entries):
            return True
        return self._parts_nothing(self.entries[index].start)

    def next_cut(self, index: int) -> int:
        """The first safe cut at or after ``index``."""
        while not self.is_cut(index):
            index += 1
        return index

    # --- edits ---------------------------------------------------------------------------------

    def append(self, message: Message) -> None:
        """The next message of the conversation."""
        self._refuse_fork()
        if self.length == len(self.history):
            self.history.append(message)
        elif self.history[self.length] is not message:
            raise EditError("this message is not the next one of the history that is replayed")
        self.advance(self.length + 1)

    def advance(self, length: int) -> None:
        """The messages that the history already holds, up to its first ``length``."""
        self._refuse_fork()
        history, old = self.history, self.length
        if not old <= length <= len(history):
            raise EditError(f"the history holds {len(history)} messages, and {old} are here")
        self.entries += history.entries[old:length]
        self.tokens += history.before[length] - history.before[old]
        self.died += [NEVER] * (length - old)
        self.length = length

    def replace(self, index: int, message: Message, form: Form = Form.REWRITTEN) -> None:
        """Another message stands in the place of one: shortened, stubbed, masked."""
        self._replace(index, message, self.history.counter.message(message), form)

    def rewrite(self, index: int, function: Rewrite, form: Form) -> bool:
        """``replace`` with what the function makes of it, worked out once a history.

        Returns whether it made anything.
        """
        self._refuse_outside(index)
        message, tokens = self.history.rewrites(function).of(self.entries[index])
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
        tokens = self.history.counter.message(message)
        first, last = entries[0].start, entries[-1].stop
        self._remove(start, stop, Entry(message, tokens, form, first, last, self.turn))

    def insert(self, index: int, message: Message, form: Form = Form.SUMMARY) -> None:
        """A message that stands for no part of the history."""
        here = self.entries[index].start if index < len(self.entries) else self.length
        tokens = self.history.counter.message(message)
        entry = Entry(message, tokens, form, here, here, self.turn)
        self._touch(index)
        if index < len(self.entries) and self.entries[index].message.role == "system":
            self.strange = True  # it speaks before the system prompt
        self.entries.insert(index, entry)
        self.tokens += tokens
        self._made(entry)
        self._judge(entry)

    def fork(self) -> Context:
        """A copy whose edits last for one request; a fork of a fork keeps the edits so far."""
        return self._forked(self.entries.copy())

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
        fork = self._forked(self.entries)
        fork._touch(first)
        fork.entries = [*self.entries[:start], *entries, *self.entries[stop:]]
        fork.tokens = sum([entry.tokens for entry in fork.entries])
        if going:
            begin, end = self.entries[start].start, self.entries[start + going - 1].stop
            fork.strange |= not (self._parts_nothing(begin) and self._parts_nothing(end))
        return fork

    def _forked(self, entries: list[Entry]) -> Context:
        self.looked = True  # what a fork asks would go unnoticed here
        fork = Context.__new__(Context)
        fork.__dict__.update(self.__dict__)
        fork.entries = entries
        fork.notes = self.notes.copy()
        fork.forked, fork.lasting = True, False
        return fork

    def within(self, share: float, strategy: Callable[[Context], Context]) -> Context:
        """What a strategy sends that is told of a share of the budget, so that it cuts deeper."""
        whole = self._available
        self._available = int(share * whole)
        try:
            sent = strategy(self)
        finally:
            self._available = whole
        sent._available = whole  # what comes after a fork of its own has the whole budget
        return sent

    def settle(self, sent: Context) -> None:
        """The request was sent, from this context or from a fork of it; the next one begins."""
        if sent is self:
            self._mark, self._prefix, self._sent = len(self.entries), self.tokens, None
        else:
            self._sent = sent.entries.copy() if sent.lasting else sent.entries
        self.turn += 1

    # --- bookkeeping ---------------------------------------------------------------------------

    def _replace(self, index: int, message: Message, tokens: int, form: Form) -> None:
        self._refuse_outside(index)
        old = self.entries[index]
        entry = Entry(message, tokens, form, old.start, old.stop, self.turn)
        self._touch(index + (message == old.message))
        self.entries[index] = entry
        self.tokens += tokens - old.tokens
        if not self.forked:
            self._end(old)
        was = old.message
        if (message.role, message.tool_call_id) != (was.role, was.tool_call_id) or (
            [call.id for call in message.tool_calls] != [call.id for call in was.tool_calls]
            or not (message.content or was.tool_calls)
        ):
            self.strange = True
        self._made(entry)

    def _remove(self, start: int, stop: int, entry: Entry | None) -> None:
        entries = self.entries
        if not 0 <= start < stop <= len(entries):
            raise EditError(f"no entries between {start} and {stop}: there are {len(entries)}")
        removed = entries[start:stop]
        # A summary that says what the one before said is no change to a prompt cache.
        self._touch(start + (entry is not None and entry.message == removed[0].message))
        if len(removed) * 2 > len(entries):
            self.tokens = sum([kept.tokens for kept in (*entries[:start], *entries[stop:])])
        else:
            self.tokens -= sum([old.tokens for old in removed])
        if not (self._parts_nothing(removed[0].start) and self._parts_nothing(removed[-1].stop)):
            self.strange = True
        if not self.forked:
            for old in removed:
                self._end(old)
        if entry is None:
            del entries[start:stop]
            return
        entries[start:stop] = (entry,)
        self.tokens += entry.tokens
        self._made(entry)
        self._judge(entry)

    def _judge(self, entry: Entry) -> None:
        """A message of the strategy's own may stand anywhere if it is plain text between units."""
        message = entry.message
        plain = message.role in ("user", "assistant") and message.content and not message.tool_calls
        if not plain or not self._parts_nothing(entry.start):
            self.strange = True

    def _refuse_fork(self) -> None:
        if self.forked:
            raise EditError("a fork lasts for one request: append to the context it came from")

    def _refuse_outside(self, index: int) -> None:
        if not 0 <= index < len(self.entries):
            raise EditError(f"no entry {index}: there are {len(self.entries)}")

    def _made(self, entry: Entry) -> None:
        if not self.forked:
            self.edited.append(entry)

    def _end(self, old: Entry) -> None:
        if old.form is not Form.VERBATIM:
            old.until = self.turn
        if old.wide:
            return  # what was folded ended when it was folded
        position = old.start
        self.died[position] = min(self.died[position], self.turn)

    def _touch(self, index: int) -> None:
        if not 0 <= index <= len(self.entries):
            raise EditError(f"no entry {index}: there are {len(self.entries)}")
        mark = self._mark
        if index < mark and self._sent is None:
            # The prefix ends here now; its tokens are summed from whichever side is nearer.
            if index < mark - index:
                self._prefix = sum([entry.tokens for entry in self.entries[:index]])
            else:
                self._prefix -= sum([entry.tokens for entry in self.entries[index:mark]])
            self._mark = index
        self.version += 1

    def _parts_nothing(self, position: int) -> bool:
        """Whether the history can be cut before ``position`` with every call and result together."""
        starts = self.history.starts
        return position >= self.length or starts[position] == position
