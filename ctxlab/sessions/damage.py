"""Record which parts of a session store are damaged, and stand in for messages that are lost.

A store reads what it can. A message that cannot be read is replaced by a placeholder, so that all other
messages keep their positions, turns and steps. Each damage is logged once.
"""

from __future__ import annotations

import logging
import re
from difflib import get_close_matches
from typing import NamedTuple, cast

from ctxlab.context.turns import TurnCounter
from ctxlab.messages.types import Message, Role

LOST_KEY = "lost"
"""Key of ``Message.extra`` that marks a placeholder. Its value is the reason of the loss."""

_LOG = logging.getLogger("ctxlab.sessions")
_ROLES = ("system", "user", "assistant", "tool")
_ROLE_VALUE = re.compile(r'".{3,5}":"([^"]{3,10})"')
_ROLE_WORD = re.compile("|".join(_ROLES))
_ROLE_CHARS = 40  # the role is at the beginning of a row


class Damage(NamedTuple):
    """Damage of a store: where it is, what is wrong, and which session it belongs to."""

    place: str
    "file, with the line or the table and row"
    reason: str
    "what is wrong, and what was lost"
    session: str | None = None
    "session id; None if the damage does not belong to one session"

    def __str__(self) -> str:
        """Return place and reason, on one line."""
        return f"{self.place}: {self.reason}"


class DamageLog:
    """Damage that was noticed while a store was read. Each damage is logged once as a warning.

    Parameters
    ----------
    store : object
        Folder of the store, for the command that mends it.
    """

    def __init__(self, store: object) -> None:
        self._store = store
        self.found: dict[Damage, None] = {}
        "damage in the order in which it was noticed"

    def tell(self, place: object, reason: str, session: str | None = None) -> None:
        """Record damage, and log it unless it is known.

        Parameters
        ----------
        place : object
            File, with the line or the table and row.
        reason : str
            What is wrong, and what was lost.
        session : str, optional
            Session that the damage belongs to.
        """
        damage = Damage(str(place), reason, session)
        if damage not in self.found:
            self.found[damage] = None
            _LOG.warning("%s; to mend it: %s", damage, self.remedy)

    @property
    def remedy(self) -> str:
        """Command that mends the store."""
        return f"ctxlab sessions doctor --repair {self._store}"


def lost_message(role: Role, reason: str) -> Message:
    """Return the placeholder of a message that cannot be read.

    Parameters
    ----------
    role : {'system', 'user', 'assistant', 'tool'}
        Role of the lost message. A lost tool result is replaced by a system message, because a result
        needs the id of its call.
    reason : str
        Why the message is lost.

    Returns
    -------
    Message
        Placeholder with the reason as its text.

    Examples
    --------
    >>> lost_message("user", "line 3 is not JSON").text
    '[Lost message: line 3 is not JSON]'
    """
    kept: Role = "system" if role == "tool" else role
    return Message(kept, f"[Lost message: {reason}]", extra={LOST_KEY: reason})


def is_lost(message: Message) -> bool:
    """Return True if a message is a placeholder of a lost message.

    Parameters
    ----------
    message : Message
        Message to check.

    Returns
    -------
    bool
        True for a message of ``lost_message``.
    """
    return LOST_KEY in message.extra


def find_role(text: str | bytes) -> Role:
    """Return the role in the stored row of a message that cannot be parsed.

    Parameters
    ----------
    text : str or bytes
        Stored row.

    Returns
    -------
    {'system', 'user', 'assistant', 'tool'}
        Role in the row. If it is illegible, ``system``, which begins neither a turn nor a step.

    Examples
    --------
    >>> find_role('{"role":"user","content":"Fix'), find_role('{"role":"usar","content":"Fix"}')
    ('user', 'user')
    """
    head = text[:_ROLE_CHARS]
    said = head.decode(errors="replace") if isinstance(head, bytes) else head
    value = _ROLE_VALUE.search(said)
    near = get_close_matches(value[1], _ROLES, 1) if value else []
    word = _ROLE_WORD.search(said)
    return cast(Role, near[0] if near else word[0] if word else "system")


def fill_gap(count: int, before: TurnCounter, after: TurnCounter) -> list[Role] | None:
    """Choose roles for lost messages, so that the messages after them keep their turns and steps.

    Parameters
    ----------
    count : int
        Number of lost messages.
    before : TurnCounter
        Turn and step of the message before the gap.
    after : TurnCounter
        Turn and step of the last lost message.

    Returns
    -------
    list of {'user', 'assistant', 'system'} or None
        Roles of the lost messages. None if ``count`` messages cannot lead from one step to the other.

    Examples
    --------
    >>> fill_gap(4, TurnCounter(1, 1), TurnCounter(2, 2))
    ['system', 'user', 'assistant', 'assistant']
    """
    turns = after.turn - before.turn
    roles: list[Role] = ["user"] * turns
    if turns > 0:
        roles += ["assistant"] * (after.step if after.replied else after.step - 1)
    elif turns == 0:
        steps = after.step - before.step + (after.replied and not before.replied)
        roles += ["assistant"] * steps
    filler = count - len(roles)
    fillers: list[Role] = ["system"] * filler
    if filler < 0 or turns < 0:
        return None
    roles = [*fillers, *roles]
    counter = TurnCounter(before.turn, before.step, before.replied)
    for role in roles:
        counter.add(Message(role))
    return roles if counter == after else None
