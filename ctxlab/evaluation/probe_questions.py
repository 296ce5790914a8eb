"""A question about a recording is put as a message, and an oracle knows where its evidence stands."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ctxlab.context.context import Context
from ctxlab.messages.types import Message, Probe, message_text

__all__ = ["EvidenceOracleInfo", "ProbeFormatter", "probe_to_message"]

ProbeFormatter = Callable[[Probe], Message]
"""How a question is put: the user's message that stands at the end of what is sent."""


def probe_to_message(probe: Probe) -> Message:
    """The question alone, as the user's message.

    >>> probe_to_message(Probe("q1", "Where does she live?")).content
    'Where does she live?'
    """
    return Message("user", probe.question)


class EvidenceOracleInfo:
    """What an oracle knows of a question: its evidence, as much of it as there is room for.

    The shortest messages come first, so that no choice that fits holds more of them.
    """

    def __init__(self, context: Context, probe: Probe, question: Message) -> None:
        """``context``: in which it is ``question``, as it is before."""
        self._context, self._probe, self._question = context, probe, question

    def needed(self, position: int) -> Sequence[tuple[int, str]]:
        """Where the evidence stands that fits; the text is empty, for all of a message is needed."""
        context, history = self._context, self._context.history
        room = context.available - history.tokens_before[history.head_length]
        room -= history.counter.count_message(self._question)
        places = [
            p for p in self._probe.evidence if history.head_length <= p < context.history_length
        ]
        found = []
        for place in sorted(places, key=lambda place: history.entries[place].tokens):
            room -= history.entries[place].tokens
            if room < 0:
                break
            found.append((place, ""))
        return sorted(found)

    def passage(self, position: int, text: str) -> str:
        """The whole message."""
        return message_text(self._context.history[position]).strip()
