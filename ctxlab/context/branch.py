"""A branch: a context that contains only some messages of a conversation, for several requests."""

from __future__ import annotations

from copy import copy, deepcopy
from itertools import chain
from typing import Any

from ctxlab.context.context import Context
from ctxlab.context.history import Entry
from ctxlab.errors import EditError


class Branch(Context):
    """A context that contains only some messages of a conversation, for several requests.

    A strategy can split a conversation into branches, for example one per file. The strategy keeps
    the branches in ``strategy_state`` and returns the branch to send. The context of the whole
    conversation is called the trunk. Events and model calls of a branch are recorded in the trunk.

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
        "positions in the history of all messages added to the branch"
        self.result_positions: list[int] = []
        "positions in the history of the tool results added to the branch"
        self.head_end: int | None = None
        """position in the history after the messages that strategies never drop from the branch;
        None: after the first user message of the conversation"""
        self.version = 1  # not 0, because the entries differ from those of the history
        self._sent = []
        self.sync(trunk)

    @property
    def first_droppable(self) -> int:
        """Index of the first entry of the branch that strategies may drop."""
        if self.head_end is None:
            return super().first_droppable
        return self.index_at_or_after(self.head_end)

    def sync(self, trunk: Context) -> None:
        """Copy budget, request index, times, history length and previous request from the trunk.

        Call this method before each request. No messages are added to the branch.

        Parameters
        ----------
        trunk : Context
            Context of the whole conversation.
        """
        trunk.budget_read = True  # the trunk cannot tell whether the branch reads the budget
        self.history_length, self.request_index = trunk.history_length, trunk.request_index
        self.maybe_invalid = self.maybe_invalid or trunk.maybe_invalid
        self._budget, self._available = trunk._budget, trunk._available
        self.now, self.last_request_time = trunk.now, trunk.last_request_time
        self._sent = trunk._sent
        if self._sent is None:
            self._sent = [*trunk.entries[: trunk._prefix_length], *chain(*trunk._replaced)]
        self.drop_earlier_reasoning()

    def __deepcopy__(self, memo: dict[int, Any]) -> Branch:
        """Return an independent copy of the branch. The entries are shared and not copied.

        ``memo`` already contains the copies of the history, the events and the model calls:
        ``preview_question`` puts them there.
        """
        other = memo[id(self)] = copy(self)
        other.history, other.events = deepcopy(self.history, memo), deepcopy(self.events, memo)
        other.model_calls = deepcopy(self.model_calls, memo)
        other.entries, other.positions = self.entries.copy(), self.positions.copy()
        other.result_positions = self.result_positions.copy()
        states = self.strategy_state.items()
        other.strategy_state = {owner: deepcopy(note, memo) for owner, note in states}
        return other

    def add_from_history(self, position: int, entry: Entry | None = None) -> None:
        """Append a message of the history to the branch. Positions must be added in ascending order.

        Parameters
        ----------
        position : int
            Position of the message in the history.
        entry : Entry, optional
            Entry of the message, for example with a shortened message. By default, the message is
            added verbatim.

        Raises
        ------
        EditError
            If the branch already contains the message or a later one.
        """
        if self.entries and self.entries[-1].stop > position:
            raise EditError(f"message {position} is out of order; add messages in ascending order")
        entry = entry or self.verbatim_entry(position)
        self.entries.append(entry)
        self.tokens += entry.tokens
        self.positions.append(position)
        if entry.message.role == "tool":
            self.result_positions.append(position)
