"""A question about a recording is put as a message, and an oracle knows where its evidence stands."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ctxlab.context.context import Context
from ctxlab.messages.types import (
    Message,
    Probe,
    text_of,
)

__all__ = ["Ask", "Evidence", "question"]

Ask = Callable[[Probe], Message]
"""How a question is put: the user's message that stands at the end of what is sent."""


def question(probe: Probe) -> Message:
    """The question alone, as the user's message.

    >>> question(Probe("q1", "Where does she live?")).content
    'Where does she live?'
    """
    return Message("user", probe.question)


class Evidence:
    """What an oracle knows of a question: its evidence, as much of it as there is room for.

    The shortest messages come first, so that no choice that fits holds more of them.
    """

    def __init__(self, context: Context, probe: Probe, asked: Message) -> None:
        """``context``: in which it is ``asked``, as it is before."""
        self._context, self._probe, self._asked = context, probe, asked

    def needed(self, position: int) -> Sequence[tuple[int, str]]:
        """Where the evidence stands that fits; the text is empty, for all of a message is needed."""
        context, history = self._context, self._context.history
        room = context.available - history.before[history.head]
        room -= history.counter.message(self._asked)
        places = [p for p in self._probe.evidence if history.head <= p < context.length]
        found = []
        for place in sorted(places, key=lambda place: history.entries[place].tokens):
            room -= history.entries[place].tokens
            if room < 0:
                break
            found.append((place, ""))
        return sorted(found)

    def passage(self, position: int, text: str) -> str:
        """The whole message."""
        return text_of(self._context.history[position]).strip()
