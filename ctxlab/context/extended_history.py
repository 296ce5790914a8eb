"""A recorded history with messages added between the recorded ones.

The closed loop (``ctxlab.evaluation.closed_loop``) adds the tool calls by which an agent fetches again
what it forgot. The history grows during the replay, as in a live conversation.
"""

from __future__ import annotations

from typing import Final

from msgspec import structs
from typing_extensions import override

from ctxlab.context.history import Entry, History
from ctxlab.messages.types import Compaction, Message, Substitute

ADDED: Final = -1
"""Recorded position of a message that no recorded message corresponds to."""


class ExtendedHistory(History):
    """A history that is built anew from a recorded one, with other messages added between.

    It uses the token counts and the cached rewrites of the recorded history.

    Parameters
    ----------
    recorded : History
        History of the recording. It does not change.

    Examples
    --------
    >>> from ctxlab.tokens.counter import TokenCounter
    >>> said = [Message("user", "a"), Message("assistant", "b")]
    >>> longer = ExtendedHistory(History(TokenCounter("gpt-4o"), said))
    >>> longer.append_recorded(1)
    >>> longer.add(Message("user", "new"), 5)
    >>> longer.append_recorded(2)
    >>> longer.recorded_positions, longer.positions
    ([0, -1, 1], [0, 2])
    """

    def __init__(self, recorded: History) -> None:
        super().__init__(recorded.counter, model=recorded.model, reasoning=recorded.reasoning)
        self.client = recorded.client
        self.parent: History = recorded
        self.recorded_positions: list[int] = []
        """position in the recorded history, for each message; for a message that was added, the
        position of the recorded message that it repeats, or ``ADDED``"""
        self.positions: list[int] = []
        "position in this history, for each recorded message that was appended so far"
        self._is_added: list[bool] = []

    def append_recorded(self, length: int) -> None:
        """Append recorded messages until the first ``length`` of them are in this history.

        Parameters
        ----------
        length : int
            Number of recorded messages.
        """
        for entry in self.parent.entries[len(self.positions) : length]:
            self.positions.append(len(self))
            self.recorded_positions.append(entry.start)
            self._is_added.append(False)
            self.append(entry.message, entry.tokens)
        for compaction in self.parent.compactions[len(self.compactions) :]:
            if compaction.position > length:
                break
            self.compactions += (self._translate(compaction),)

    def add(self, message: Message, tokens: int, repeats: int = ADDED) -> None:
        """Append a message that the recording does not contain.

        Parameters
        ----------
        message : Message
            Message to append.
        tokens : int
            Number of tokens of the message.
        repeats : int, optional
            Position in the recorded history of a message with the same content.
        """
        self.recorded_positions.append(repeats)
        self._is_added.append(True)
        self.append(message, tokens)

    def _translate(self, compaction: Compaction) -> Compaction:
        """Return a compaction of the recording with positions of this history."""
        places = [*self.positions, len(self)]

        def translate(item: int | Substitute) -> int | Substitute:
            if isinstance(item, int):
                return places[item]
            source = None if item.source is None else places[item.source]
            return Substitute(item.message, source)

        context = tuple(map(translate, compaction.context))
        return structs.replace(compaction, position=places[compaction.position], context=context)

    @override
    def entry_in_parent(self, entry: Entry) -> Entry | None:
        if entry.start >= len(self) or self._is_added[entry.start]:
            return None
        place = self.recorded_positions[entry.start]
        if entry.is_verbatim:
            return self.parent.entries[place]
        if place == entry.start:
            return entry
        return Entry(entry.message, entry.tokens, entry.form, place, place + 1)
