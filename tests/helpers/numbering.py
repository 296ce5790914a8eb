"""Check that a library finds turns and steps where the counter places them."""

from __future__ import annotations

from collections.abc import Sequence

from ctxlab.context.turns import TurnCounter, TurnLabel
from ctxlab.messages.types import Message
from ctxlab.sessions.base import SessionLibrary


def assert_numbers_agree(library: SessionLibrary, id: str, messages: Sequence[Message]) -> None:
    """Read every turn and every step of a session, and compare them with ``TurnCounter``."""
    counter = TurnCounter()
    labels = [counter.add(message) for message in messages]
    assert library.count_turns(id) == counter.turn
    steps = [max([0, *(each.step for each in labels if each.turn == turn)]) for turn in range(99)]
    for turn in range(counter.turn + 2):
        assert library.count_steps(id, turn) == (steps[turn] if turn else 0)
        for step in range(steps[turn] + 2):
            wanted = TurnLabel(turn, step)
            own = [
                position
                for position, label in enumerate(labels)
                if turn and wanted in (label, TurnLabel(label.turn))
            ]
            first = own[0] if own else len(messages)
            read = library.read_turn(id, turn, step)
            assert read == (first, tuple(messages[position] for position in own))
