"""A branch: a context with selected messages of a conversation, kept between requests."""

from __future__ import annotations

from copy import copy, deepcopy
from typing import Any

from ctxlab.context.context import Context
from ctxlab.context.history import Entry
from ctxlab.errors import EditError


class Branch(Context):
    """A context with selected messages of a history, which keeps its messages and edits.

    A strategy that routes a conversation keeps branches in ``strategy_state`` and returns the
    branch to send. Model calls and events are recorded in the trunk.

    Parameters
    ----------
    trunk : Context
        Context of the whole conversation.

    Examples
    --------
    >>> from ctxlab.context.context import Budget
    >>> from ctxlab.messages.types import Message
    >>> from ctxlab.context.history import History
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> trunk = Context(Budget(1000), History(TokenCounter("gpt-4o")))
    >>> for text in ("one", "two", "three"):
    ...     trunk.append(Message("user", text))
    >>> branch = Branch(trunk)
    >>> branch.add_from_history(0), branch.add_from_history(2), [m.content for m in branch.messages]
    (None, None, ['one', 'three'])
    """

    def __init__(self, trunk: Context) -> None:
        super().__init__(trunk._budget, trunk.history)
        self.is_fork = self.is_persistent = True
        self.events, self.model_calls = trunk.events, trunk.model_calls
        self.positions: list[int] = []
        "positions of the added messages in the history"
        self.result_positions: list[int] = []
        "positions of the added tool results"
        self.head_end: int | None = None
        """position after the messages that are never dropped from it; None: that of the whole
        conversation"""
        self.version = 1  # not 0: its entries are a selection of the history's entries
        self._sent = []
        self.sync(trunk)

    @property
    def first_droppable(self) -> int:
        """Index of the first entry that a strategy may drop."""
        if self.head_end is None:
            return super().first_droppable
        return self.index_at_or_after(self.head_end)

    def sync(self, trunk: Context) -> None:
        """Update the branch to the current request of the trunk and to the request sent last.

        Parameters
        ----------
        trunk : Context
            Context of the whole conversation.
        """
        trunk.budget_read = True  # reads of the budget by the branch are not recorded there
        self.history_length, self.request_index = trunk.history_length, trunk.request_index
        self.maybe_invalid = self.maybe_invalid or trunk.maybe_invalid
        self._budget, self._available = trunk._budget, trunk._available
        self._sent = trunk.entries[: trunk._prefix_length] if trunk._sent is None else trunk._sent

    def __deepcopy__(self, memo: dict[int, Any]) -> Branch:
        """Copy the branch; a preview provides the copies of history and ledger in ``memo``."""
        other = memo[id(self)] = copy(self)
        other.history, other.events = deepcopy(self.history, memo), deepcopy(self.events, memo)
        other.model_calls = deepcopy(self.model_calls, memo)
        other.entries, other.positions = self.entries.copy(), self.positions.copy()
        other.result_positions = self.result_positions.copy()
        states = self.strategy_state.items()
        other.strategy_state = {owner: deepcopy(note, memo) for owner, note in states}
        return other

    def add_from_history(self, position: int, entry: Entry | None = None) -> None:
        """Add a message of the history at the end; positions must be ascending.

        Parameters
        ----------
        position : int
            Position of the message in the history.
        entry : Entry, optional
            Entry to add for the message. None: the verbatim entry.

        Raises
        ------
        EditError
            If the message at this position or a later one was already added.
        """
        if self.entries and self.entries[-1].stop > position:
            raise EditError(f"message {position} was already added, or would be out of order")
        entry = entry or self.history.entries[position]
        self.entries.append(entry)
        self.tokens += entry.tokens
        self.positions.append(position)
        if entry.message.role == "tool":
            self.result_positions.append(position)
