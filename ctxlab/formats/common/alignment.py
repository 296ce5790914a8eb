"""What a request holds of an earlier one is found by what stays the same of a message sent again.

Both begin alike and end alike, as a rule, and what the system compacted lies between. There a message
is known by its ``Sent.key`` alone: the calls that it makes, the call that it answers, or what it says.
``stitch`` puts conversations together by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from ctxlab.messages.types import Message

__all__ = ["SYSTEM", "Alignment", "Key", "Sent", "align", "alike", "opening"]

Key: TypeAlias = tuple[Any, ...]
SYSTEM: Key = ("system",)
"""A system prompt is one, whatever it says: it may hold the time of day."""


class Sent(NamedTuple):
    """A message of a request, or the answer to it."""

    key: Key
    "what stays the same when it is sent again, also where its result was cleared"
    form: Key
    "what stays the same when it is sent again as it was"
    text: str
    position: int | None = None
    "where it stands in the conversation; None for what the system put in place of others"

    @classmethod
    def of(cls, message: Message, position: int | None = None) -> Sent:
        """The message as it is compared with others."""
        text = message.text
        if message.tool_call_id:
            key: Key = "tool", message.tool_call_id
        elif message.tool_calls:
            calls = ((c.id, c.name, "".join(c.arguments.split())) for c in message.tool_calls)
            key = "assistant", *calls
        elif message.role == "system":
            return cls(SYSTEM, SYSTEM, text, position)
        else:
            parts = 0 if isinstance(message.content, str) else len(message.content or ())
            key = message.role, text.strip(), parts
            return cls(key, key, text, position)
        return cls(key, (key, text.strip()), text, position)

    @property
    def calls(self) -> tuple[str, ...]:
        """Ids of the calls that it makes, or of the one that it answers."""
        if self.key[0] == "tool":
            return (self.key[1],)
        return tuple(each[0] for each in self.key[1:] if isinstance(each, tuple))


class Alignment(NamedTuple):
    """Index in a request → index in the one before it, with its answer; both rise."""

    matched: dict[int, int]
    "the same message, be it cleared or said in other words"
    altered: dict[int, int]
    "user messages of another text, between neighbours that are matched"
    whole: bool
    "whether the request begins with all that was sent before, as it was"
    newest: tuple[int, int] | None
    "the answer, or what it answers, where the request says it as it was"

    def last_shared(self, held: Sequence[Sent], sent: Sequence[Sent]) -> int:
        """How many of the newest messages stand together in both and say the same; 2 is the most."""
        if self.newest is None:
            return 0
        (index, place), count = self.newest, 0
        while index >= 0 and place >= 0 and count < 2:
            if self.matched.get(index) == place:
                count += held[place].key != SYSTEM and held[place].form == sent[index].form
            elif self.altered.get(index) == place:
                count += alike(held[place], sent[index])
            else:
                break
            index, place = index - 1, place - 1
        return count

    def lacks_only_users(self, held: Sequence[Sent]) -> bool:
        """Whether all up to the answer is there but user messages, such as a reminder said once."""
        if self.newest is None or self.newest[1] < len(held) - 1:
            return False
        there = {*self.matched.values(), *self.altered.values()}
        nothing_else = len(there) == self.newest[0] + 1
        return nothing_else and all(p in there or e.key[0] == "user" for p, e in enumerate(held))


def align(held: Sequence[Sent], sent: Sequence[Sent], answered: bool) -> Alignment:
    """What a request holds of the one before it; ``answered``: the last of ``held`` is the answer."""
    shorter = min(len(held), len(sent))
    start = next((i for i in range(shorter) if held[i].form != sent[i].form), shorter)
    matched = {index: index for index in range(start)}
    newest = (start - 1, start - 1) if start >= len(held) - answered > 0 else None
    if start < len(held) and (later := _later_end(held, sent, start, answered)):
        newest = index, place = later
        while index >= start and place >= start and held[place].form == sent[index].form:
            matched[index] = place
            index, place = index - 1, place - 1
        matched |= _between(held, sent, range(start, place + 1), range(start, index + 1))
    if answered and newest and newest[1] == len(held) - 2:
        after = newest[0] + 1
        if after < len(sent) and sent[after].key[0] == "assistant":
            matched[after] = len(held) - 1  # the answer in other words, such as without white space
    matched = dict(sorted(matched.items()))
    whole = start >= len(held) - answered
    return Alignment(matched, _altered(held, sent, matched), whole, newest)


def alike(one: Sent, other: Sent) -> bool:
    """Whether one says what the other does, and perhaps more.

    >>> reminded = Sent.of(Message("user", "Go on. <reminder>"))
    >>> alike(reminded, Sent.of(Message("user", "go on.")))
    True
    """
    if one.calls or other.calls:
        return one.key == other.key
    short, long = sorted(("".join(each.text.split()).casefold() for each in (one, other)), key=len)
    return bool(short) and short in long


def opening(sent: Sequence[Sent]) -> Key | None:
    """What the first message that is no system prompt says."""
    return next((each.form for each in sent if each.key != SYSTEM), None)


def _later_end(
    held: Sequence[Sent], sent: Sequence[Sent], start: int, answered: bool
) -> tuple[int, int] | None:
    """Where the answer stands behind ``start``, or else what it answers."""
    for place in range(len(held) - 1, max(start, len(held) - 1 - answered) - 1, -1):
        for index in range(len(sent) - 1, start - 1, -1):
            if sent[index].form == held[place].form:
                return index, place
    return None


def _between(
    held: Sequence[Sent], sent: Sequence[Sent], places: range, indices: range
) -> dict[int, int]:
    """Of what lies between a beginning and an end, each message with the first of its key."""
    waiting: dict[Key, list[int]] = {}
    for place in reversed(places):
        waiting.setdefault(held[place].key, []).append(place)
    matched: dict[int, int] = {}
    last = -1
    for index in indices:
        found = waiting.get(sent[index].key, [])
        while found and found[-1] <= last:
            found.pop()
        if found:
            last = matched[index] = found.pop()
    return matched


def _altered(held: Sequence[Sent], sent: Sequence[Sent], matched: dict[int, int]) -> dict[int, int]:
    altered: dict[int, int] = {}
    index, place = -1, -1
    for later_index, later_place in matched.items():
        if later_index - index == later_place - place > 1:
            pairs = zip(range(index + 1, later_index), range(place + 1, later_place), strict=True)
            users = ((i, p) for i, p in pairs if sent[i].key[0] == held[p].key[0] == "user")
            altered.update(users)
        index, place = later_index, later_place
    return altered
