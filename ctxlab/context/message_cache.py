"""Cache of what a function returns for each message, shared by a history and its copies.

A closed loop and the preview of a question copy the history of a recording. What depends only on a
message is computed once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from ctxlab.context.history import Entry, History
from ctxlab.messages.types import Message

T = TypeVar("T")


class MessageCache(Generic[T]):
    """Results of a function of one message, kept as long as the history with the message.

    A copy uses the results of its original for all messages that both contain.

    Parameters
    ----------
    function : callable
        Function of a message. What it returns must not refer to a history.

    Examples
    --------
    >>> from ctxlab import History, TokenCounter
    >>> history = History(TokenCounter("gpt-4o"), [Message("user", "Which port?")])
    >>> lengths = MessageCache(lambda message: print("computed") or len(message.text))
    >>> copied = history.with_question(1, Message("user", "Why?"))
    >>> lengths.reader(history)(0), lengths.reader(copied)(0)
    computed
    (11, 11)
    """

    def __init__(self, function: Callable[[Message], T]) -> None:
        self._function = function
        self._known: WeakKeyDictionary[History, dict[int, T]] = WeakKeyDictionary()

    def reader(self, history: History) -> Callable[[int], T]:
        """Return a function that returns the result for the message at a position of a history.

        Parameters
        ----------
        history : History
            History with the messages.

        Returns
        -------
        callable
            Function of a position. Keep it no longer than the history.
        """
        known = self._known.setdefault(history, {})
        read_original = None if history.parent is None else self.reader(history.parent)

        def find(entry: Entry) -> T:
            if read_original is not None and (same := history.entry_in_parent(entry)) is not None:
                return read_original(same.start)
            return self._function(entry.message)

        def read(position: int) -> T:
            if position not in known:
                known[position] = find(history.entries[position])
            return known[position]

        return read
