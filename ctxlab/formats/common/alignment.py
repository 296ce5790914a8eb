"""What a request holds of an earlier one is found by what stays the same of a message sent again.

Both begin alike and end alike, as a rule, and what the system compacted lies between. There a message
is known by its ``SentMessage.key`` alone: the calls that it makes, the call that it answers, or
what it says.
``stitch`` puts conversations together by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from ctxlab.messages.types import Message

__all__ = [
    "SYSTEM_KEY",
    "Alignment",
    "MessageKey",
    "SentMessage",
    "align_messages",
    "first_message_key",
    "is_similar",
]

MessageKey: TypeAlias = tuple[Any, ...]
SYSTEM_KEY: MessageKey = ("system",)
"""A system prompt is one, whatever it says: it may hold the time of day."""


class SentMessage(NamedTuple):
    """A message of a request, or the answer to it."""

    key: MessageKey
    "what stays the same when it is sent again, also where its result was cleared"
    exact_key: MessageKey
    "what stays the same when it is sent again as it was"
    text: str
    position: int | None = None
    "where it stands in the conversation; None for what the system put in place of others"

    @classmethod
    def from_message(cls, message: Message, position: int | None = None) -> SentMessage:
        """The message as it is compared with others."""
        text = message.text
        if message.tool_call_id:
            key: MessageKey = "tool", message.tool_call_id
        elif message.tool_calls:
            calls = ((c.id, c.name, "".join(c.arguments.split())) for c in message.tool_calls)
            key = "assistant", *calls
        elif message.role == "system":
            return cls(SYSTEM_KEY, SYSTEM_KEY, text, position)
        else:
            parts = 0 if isinstance(message.content, str) else len(message.content or ())
            key = message.role, text.strip(), parts
            return cls(key, key, text, position)
        return cls(key, (key, text.strip()), text, position)

    @property
    def call_ids(self) -> tuple[str, ...]:
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
    extends_previous: bool
    "whether the request begins with all that was sent before, as it was"
    last_match: tuple[int, int] | None
    "the answer, or what it answers, where the request says it as it was"

    def count_shared_tail(
        self, previous: Sequence[SentMessage], current: Sequence[SentMessage]
    ) -> int:
        """How many of the newest messages stand together in both and say the same; 2 is the most."""
        if self.last_match is None:
            return 0
        (index, place), count = self.last_match, 0
        while index >= 0 and place >= 0 and count < 2:
            if self.matched.get(index) == place:
                count += (
                    previous[place].key != SYSTEM_KEY
                    and previous[place].exact_key == current[index].exact_key
                )
            elif self.altered.get(index) == place:
                count += is_similar(previous[place], current[index])
            else:
                break
            index, place = index - 1, place - 1
        return count

    def omits_only_user_messages(self, previous: Sequence[SentMessage]) -> bool:
        """Whether all up to the answer is there but user messages, such as a reminder said once."""
        if self.last_match is None or self.last_match[1] < len(previous) - 1:
            return False
        there = {*self.matched.values(), *self.altered.values()}
        nothing_else = len(there) == self.last_match[0] + 1
        return nothing_else and all(
            p in there or e.key[0] == "user" for p, e in enumerate(previous)
        )


def align_messages(
    previous: Sequence[SentMessage], current: Sequence[SentMessage], has_answer: bool
) -> Alignment:
    """What a request holds of the one before it; ``has_answer``: the last of ``previous`` is the
    answer.
    """
    shorter = min(len(previous), len(current))
    start = next(
        (i for i in range(shorter) if previous[i].exact_key != current[i].exact_key), shorter
    )
    matched = {index: index for index in range(start)}
    newest = (start - 1, start - 1) if start >= len(previous) - has_answer > 0 else None
    if start < len(previous) and (later := _find_last_match(previous, current, start, has_answer)):
        newest = index, place = later
        while (
            index >= start
            and place >= start
            and previous[place].exact_key == current[index].exact_key
        ):
            matched[index] = place
            index, place = index - 1, place - 1
        matched |= _match_middle(
            previous, current, range(start, place + 1), range(start, index + 1)
        )
    if has_answer and newest and newest[1] == len(previous) - 2:
        after = newest[0] + 1
        if after < len(current) and current[after].key[0] == "assistant":
            matched[after] = (
                len(previous) - 1
            )  # the answer in other words, such as without white space
    matched = dict(sorted(matched.items()))
    whole = start >= len(previous) - has_answer
    return Alignment(matched, _find_altered(previous, current, matched), whole, newest)


def is_similar(one: SentMessage, other: SentMessage) -> bool:
    """Whether one says what the other does, and perhaps more.

    >>> reminded = SentMessage.from_message(Message("user", "Go on. <reminder>"))
    >>> is_similar(reminded, SentMessage.from_message(Message("user", "go on.")))
    True
    """
    if one.call_ids or other.call_ids:
        return one.key == other.key
    short, long = sorted(("".join(each.text.split()).casefold() for each in (one, other)), key=len)
    return bool(short) and short in long


def first_message_key(messages: Sequence[SentMessage]) -> MessageKey | None:
    """What the first message that is no system prompt says."""
    return next((each.exact_key for each in messages if each.key != SYSTEM_KEY), None)


def _find_last_match(
    previous: Sequence[SentMessage], current: Sequence[SentMessage], start: int, has_answer: bool
) -> tuple[int, int] | None:
    """Where the answer stands behind ``start``, or else what it answers."""
    for place in range(len(previous) - 1, max(start, len(previous) - 1 - has_answer) - 1, -1):
        for index in range(len(current) - 1, start - 1, -1):
            if current[index].exact_key == previous[place].exact_key:
                return index, place
    return None


def _match_middle(
    previous: Sequence[SentMessage], current: Sequence[SentMessage], places: range, indices: range
) -> dict[int, int]:
    """Of what lies between a beginning and an end, each message with the first of its key."""
    waiting: dict[MessageKey, list[int]] = {}
    for place in reversed(places):
        waiting.setdefault(previous[place].key, []).append(place)
    matched: dict[int, int] = {}
    last = -1
    for index in indices:
        found = waiting.get(current[index].key, [])
        while found and found[-1] <= last:
            found.pop()
        if found:
            last = matched[index] = found.pop()
    return matched


def _find_altered(
    previous: Sequence[SentMessage], current: Sequence[SentMessage], matched: dict[int, int]
) -> dict[int, int]:
    altered: dict[int, int] = {}
    index, place = -1, -1
    for later_index, later_place in matched.items():
        if later_index - index == later_place - place > 1:
            pairs = zip(range(index + 1, later_index), range(place + 1, later_place), strict=True)
            users = ((i, p) for i, p in pairs if current[i].key[0] == previous[p].key[0] == "user")
            altered.update(users)
        index, place = later_index, later_place
    return altered
