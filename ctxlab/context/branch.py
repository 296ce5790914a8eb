"""A branch holds a part of a conversation beside the others, and keeps it for when it is resumed."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from ctxlab.context.context import Context
from ctxlab.context.history import Entry
from ctxlab.errors import EditError

__all__ = ["Branch"]


class Branch(Context):
    """A context of its own over the same history: what it is given stays, and so do its edits.

    A strategy that routes a conversation keeps branches in ``notes`` and returns the one that is sent.
    Its spending and its events are the trunk's.

    >>> from ctxlab.context.budget import Budget
    >>> from ctxlab.messages.types import Message
    >>> from ctxlab.context.history import History
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> trunk = Context(Budget(1000), History(TokenCounter("gpt-4o")))
    >>> for text in ("one", "two", "three"):
    ...     trunk.append(Message("user", text))
    >>> branch = Branch(trunk)
    >>> branch.take(0), branch.take(2), [m.content for m in branch.messages]
    (None, None, ['one', 'three'])
    """

    def __init__(self, trunk: Context) -> None:
        super().__init__(trunk._budget, trunk.history)
        self.forked = self.lasting = True
        self.events, self.spent = trunk.events, trunk.spent
        self.taken: list[int] = []
        "positions of the messages that it was given"
        self.results: list[int] = []
        "of these, the tool results"
        self.begins: int | None = None
        "position behind what is never dropped of it; None: behind that of the whole conversation"
        self.version = 1  # its entries are not those of the history, one for one
        self._sent = []
        self.resume(trunk)

    @property
    def head(self) -> int:
        """Index of the first entry that a strategy may drop."""
        return super().head if self.begins is None else self.index_from(self.begins)

    def resume(self, trunk: Context) -> None:
        """The trunk has gone on: the branch is at the same request, and knows what was sent last."""
        trunk.looked = True  # what a branch asks would go unnoticed there
        self.length, self.turn = trunk.length, trunk.turn
        self.strange = self.strange or trunk.strange
        self._budget, self._available = trunk._budget, trunk._available
        self._sent = trunk.entries[: trunk._mark] if trunk._sent is None else trunk._sent

    def __deepcopy__(self, memo: dict[int, Any]) -> Branch:
        """A branch of its own; an aside says by ``memo`` which history and account are then its."""
        other = memo[id(self)] = Branch.__new__(Branch)
        other.__dict__.update(self.__dict__)
        other.history = deepcopy(self.history, memo)
        other.events, other.spent = deepcopy(self.events, memo), deepcopy(self.spent, memo)
        other.entries, other.taken = self.entries.copy(), self.taken.copy()
        other.results = self.results.copy()
        other.notes = {owner: deepcopy(note, memo) for owner, note in self.notes.items()}
        return other

    def take(self, position: int, entry: Entry | None = None) -> None:
        """The message at a position of the history stands at the end; positions must ascend.

        ``entry``: as which it stands; None: as it was appended.
        """
        if self.entries and self.entries[-1].stop > position:
            raise EditError(f"message {position} is here already, or would stand out of order")
        entry = entry or self.history.entries[position]
        self.entries.append(entry)
        self.tokens += entry.tokens
        self.taken.append(position)
        if entry.message.role == "tool":
            self.results.append(position)
