"""Run a strategy that neither sees nor edits some of the messages of a request.

The hidden messages are taken out of the context, the strategy runs with the rest of the budget, and the
messages are put back at their places. A summary may then cover messages on both sides of a hidden
message. The hidden message follows it, and lookups by position still find the summary for the other
messages that it covers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter

from ctxlab.context.context import Context
from ctxlab.context.history import NEVER, Entry
from ctxlab.errors import EditError

_START = attrgetter("start")


def run_without(
    context: Context,
    hidden: Sequence[Entry],
    run: Callable[[Context], Context],
    reserve: int = 0,
) -> Context:
    """Run a strategy on a context without some entries, and put these entries back.

    For the strategy, the tokens of the hidden entries are part of ``budget.fixed``. Hidden entries that
    are missing in the context, or that are there in another form, are put back too. If no other entry
    remains, the strategy is not called.

    Parameters
    ----------
    context : Context
        Context to edit.
    hidden : sequence of Entry
        Entries to hide, in order of position: verbatim entries of the history, or entries that the
        caller has inserted. All entries of a unit must be hidden together.
    run : callable
        The strategy: a function that takes the context and returns the context to send.
    reserve : int, default 0
        Number of tokens to keep free in addition.

    Returns
    -------
    Context
        The given context if the strategy returned it, otherwise a copy of what it returned. Both
        contain all hidden entries.

    Raises
    ------
    EditError
        If the hidden entries are not in order of position.

    Examples
    --------
    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.context.history import History
    >>> from ctxlab.messages.types import Message
    >>> from ctxlab.strategies.windows import sliding_window
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> said = [Message("user", text) for text in ("Go", "Never do this", "one", "two", "three")]
    >>> context = Context(Budget(21), History(TokenCounter("gpt-4o"), said))
    >>> context.advance(5)
    >>> rule = context.history.entries[1]
    >>> sent = run_without(context, [rule], sliding_window(messages=1))
    >>> [message.content for message in sent.messages], context.dropped_at[1] == NEVER
    (['Go', 'Never do this', 'three'], True)
    """
    view = _View(context, hidden, _put_back_missing(context, hidden), reserve)
    try:
        sent = run(context) if context.entries else context
    finally:
        view.restore()
    return context if sent is context else view.merged_copy(sent)


class _View:
    """A context without its hidden entries, and what is needed to restore it."""

    def __init__(
        self, context: Context, hidden: Sequence[Entry], indexes: list[int], reserve: int
    ) -> None:
        self._context, self._hidden = context, hidden
        self._keys = {_key(entry) for entry in hidden}
        self._tokens = sum([entry.tokens for entry in hidden])
        self._before = before = context.entries
        self._indexes = indexes
        self._budget, self._available = context._budget, context._available
        self._prefix = context._prefix_length, context._prefix_tokens
        self._replaced, self._sent = context._replaced, context._sent
        context.entries = _without(before, self._indexes)
        context.tokens -= self._tokens
        taken = self._tokens + reserve
        context._budget = replace(context._budget, fixed=context._budget.fixed + taken)
        context._available = max(0, context._available - taken)
        context.version += 1  # version 0 means that indexes equal positions, which is no longer so
        if self._sent is not None:
            context._sent = self._seen_by_strategy(self._sent)
        else:
            inside = bisect_left(self._indexes, context._prefix_length)
            context._prefix_length -= inside
            context._prefix_tokens -= sum([entry.tokens for entry in hidden[:inside]])
            context._replaced = tuple([self._seen_by_strategy(part) for part in self._replaced])
        self._visible_prefix = context._prefix_length

    def _seen_by_strategy(self, entries: Sequence[Entry]) -> list[Entry]:
        return [entry for entry in entries if _key(entry) not in self._keys]

    def restore(self) -> None:
        """Put the hidden entries back into the context, and restore its budget."""
        context = self._context
        _merge(context, self._hidden)
        context.tokens += self._tokens
        context._budget, context._available = self._budget, self._available
        context.version -= 1
        if self._sent is not None:
            context._sent = self._sent
        elif context._prefix_length == self._visible_prefix:
            context._prefix_length, context._prefix_tokens = self._prefix
            context._replaced = self._replaced
        else:
            first = context._prefix_length  # the first visible entry that an edit has changed
            inside = sum(index - rank <= first for rank, index in enumerate(self._indexes))
            context._prefix_length += inside
            context._prefix_tokens += sum([entry.tokens for entry in self._hidden[:inside]])
            changed = self._before[context._prefix_length : self._prefix[0]]
            context._replaced = (changed, *self._replaced)

    def merged_copy(self, sent: Context) -> Context:
        """Return a copy of a context, such as a fork or a ``Branch``, with the hidden entries."""
        taken = self._indexes_of_hidden_messages(sent.entries)
        fork = sent._make_fork(_without(sent.entries, taken))
        _merge(fork, self._hidden)
        fork.tokens += self._tokens - sum([sent.entries[index].tokens for index in taken])
        fork._budget, fork._available = self._budget, self._available
        fork._sent = self._sent
        if fork._sent is None:
            fork._sent = [*self._before[: self._prefix[0]], *chain(*self._replaced)]
        fork.version = sent.version + 1
        fork.is_persistent = sent.is_persistent
        return fork

    def _indexes_of_hidden_messages(self, entries: list[Entry]) -> list[int]:
        """Return the indexes of hidden messages that a strategy took from the history, in any form."""
        found = []
        for hidden in self._hidden:
            if hidden.is_aggregate:
                continue
            at = _indexes_at(entries, hidden.start)
            found += [index for index in at if entries[index].stop == hidden.stop]
        return found


def find_inserted(context: Context, entry: Entry) -> Entry | None:
    """Return the entry of a context with the same message and position as another entry.

    Parameters
    ----------
    context : Context
        Context to search.
    entry : Entry
        Entry of any context of the same history.

    Returns
    -------
    Entry or None
        The entry; None if there is none.
    """
    index = _find(context.entries, entry)
    return None if index < 0 else context.entries[index]


def insert_entry(context: Context, position: int, entry: Entry) -> Entry:
    """Insert a message before a position of the history, where later calls of this module expect it.

    ``Context.insert`` takes an index. After messages were dropped, an index belongs to another position.

    Parameters
    ----------
    context : Context
        Context to edit.
    position : int
        Position in the history.
    entry : Entry
        Entry with the message and its tokens.

    Returns
    -------
    Entry
        The new entry.
    """
    made = Entry(entry.message, entry.tokens, entry.form, position, position, context.request_index)
    index = _place(context.entries, made)
    context._covering = _covering_entries(context, [made], [index])
    context._invalidate_from(index)
    context.entries.insert(index, made)
    context._add_own_message(made)
    return made


def _put_back_missing(context: Context, hidden: Sequence[Entry]) -> list[int]:
    """Put hidden entries into a context that an earlier strategy has dropped or rewritten.

    Return the indexes of all hidden entries.
    """
    indexes: list[int] = []
    for number, entry in enumerate(hidden):
        if number and hidden[number - 1].start > entry.start:
            raise EditError(f"expected entries in order of position, got {entry!r} too late")
        indexes.append(_find(context.entries, entry))
        if indexes[-1] >= 0:
            continue
        entries = context.entries
        same = [i for i in _indexes_at(entries, entry.start) if entries[i].stop == entry.stop]
        if same and not entry.is_aggregate:
            index = same[0]
            old = entries[index]
            context._invalidate_from(index)
            entries[index] = entry
            context.tokens -= old.tokens
            if not context.is_fork:
                context._record_removal(old)
        else:
            index = _place(entries, entry)
            context._invalidate_from(index)
            entries.insert(index, entry)
        indexes[-1] = index
        context.tokens += entry.tokens
        dropped = entry.is_verbatim and not context.is_fork
        if dropped and context.dropped_at[entry.start] == context.request_index:
            context.dropped_at[entry.start] = NEVER  # no request was sent without the message
    return indexes


def _key(entry: Entry) -> tuple[int, int]:
    """Return what identifies an entry in all requests: its position and its message."""
    return entry.start, id(entry.message)


def _indexes_at(entries: Sequence[Entry], position: int) -> Iterator[int]:
    """Yield the indexes of the entries that start at a position."""
    index = bisect_left(entries, position, key=_START)
    while index < len(entries) and entries[index].start == position:
        yield index
        index += 1


def _find(entries: Sequence[Entry], entry: Entry) -> int:
    """Return the index of an entry with the position and the message of another one; -1 if none."""
    here = _indexes_at(entries, entry.start)
    found = (i for i in here if entries[i].message is entry.message)
    return next((i for i in found if entries[i].stop == entry.stop), -1)


def _without(entries: list[Entry], indexes: Sequence[int]) -> list[Entry]:
    kept: list[Entry] = []
    last = 0
    for index in indexes:
        kept += entries[last:index]
        last = index + 1
    kept += entries[last:]
    return kept


def _merge(context: Context, hidden: Sequence[Entry]) -> None:
    """Put the hidden entries into a context that contains none of them."""
    entries, merged, last = context.entries, list[Entry](), 0
    places = [_place(entries, entry) for entry in hidden]
    context._covering = _covering_entries(context, hidden, places)
    for entry, place in zip(hidden, places, strict=True):
        index = max(last, place)
        merged += entries[last:index]
        merged.append(entry)
        last = index
    merged += entries[last:]
    context.entries = merged


def _place(entries: Sequence[Entry], entry: Entry) -> int:
    """Return the index before which an entry is inserted into others.

    Entries are in order of their first position. At one position, inserted messages come first, then
    the message itself, then a summary of several messages.
    """
    if entry.start == entry.stop:
        return bisect_left(entries, entry.start, key=_START)
    index = bisect_right(entries, entry.start, key=_START)
    while (
        index and entries[index - 1].start == entry.start and entries[index - 1].stop > entry.stop
    ):
        index -= 1
    return index


def _covering_entries(
    context: Context, hidden: Sequence[Entry], places: Sequence[int]
) -> tuple[Entry, ...]:
    """Return the summaries that cover the position of an entry which is hidden or not yet inserted."""
    entries = context.entries
    found = {id(e): e for e in context._covering if _find(entries, e) >= 0}
    for entry, index in zip(hidden, places, strict=True):
        for near in entries[max(0, index - 1) : index + 1]:
            if near.is_aggregate and near.start <= entry.start < near.stop:
                found[id(near)] = near
    return tuple(sorted(found.values(), key=_START))
