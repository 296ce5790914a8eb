"""Ask a probe as a message, and tell an oracle where its evidence is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ctxlab.context.context import Context
from ctxlab.messages.types import Message, Probe, message_text

ProbeFormatter = Callable[[Probe], Message]
"""Turns a probe into the user message that is appended to the request."""


def probe_to_message(probe: Probe) -> Message:
    """Return the question of a probe as a user message.

    Parameters
    ----------
    probe : Probe
        The probe.

    Returns
    -------
    Message
        A message with the question only.

    Examples
    --------
    >>> probe_to_message(Probe("q1", "Where does she live?")).content
    'Where does she live?'
    """
    return Message("user", probe.question)


class EvidenceOracleInfo:
    """Oracle information about a probe: as much of its evidence as fits the budget.

    The shortest messages are chosen first, so no other choice that fits contains more of them.

    Parameters
    ----------
    context : Context
        The context before the probe.
    probe : Probe
        The probe.
    question : Message
        The message that asks it.
    """

    def __init__(self, context: Context, probe: Probe, question: Message) -> None:
        self._context, self._probe, self._question = context, probe, question

    def needed(self, position: int) -> Sequence[tuple[int, str]]:
        """Return the positions of the evidence that fits.

        Parameters
        ----------
        position : int
            Position of the request; not used.

        Returns
        -------
        list of (int, str)
            Positions in order; the text is empty because the whole message is needed.
        """
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
        """Return the text of a whole message.

        Parameters
        ----------
        position : int
            Position of the message.
        text : str
            Not used.

        Returns
        -------
        str
            The text.
        """
        return message_text(self._context.history[position]).strip()
