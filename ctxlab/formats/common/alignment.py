"""Alignment of the messages of a logged request with those of an earlier one.

Two requests of a conversation usually have the same beginning and the same end, and differ in
between if the system compacted. Messages in between are matched by ``SentMessage.key``: the calls
they make, the call they answer, or their text. ``stitch`` builds conversations from these
alignments.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, NamedTuple, TypeAlias

from ctxlab.messages.types import Message

MessageKey: TypeAlias = tuple[Any, ...]
"""Identifies a message in requests that repeat it."""
SYSTEM_KEY: MessageKey = ("system",)
"""The key of every system prompt, whatever its text, because prompts may contain the time of day."""


class SentMessage(NamedTuple):
    """A message of a request, or the answer to it."""

    key: MessageKey
    "stays the same if the message is sent again, even if its result was cleared"
    exact_key: MessageKey
    "stays the same if the message is sent again unchanged"
    text: str
    "the text of the message"
    position: int | None = None
    "its position in the conversation; None for a message that the system put in place of others"

    @classmethod
    def from_message(cls, message: Message, position: int | None = None) -> SentMessage:
        """Build the comparable form of a message.

        Parameters
        ----------
        message : Message
            The message.
        position : int, optional
            Its position in the conversation.

        Returns
        -------
        SentMessage
            The comparable form.
        """
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
        """Ids of the calls that the message makes, or the id of the call that it answers."""
        if self.key[0] == "tool":
            return (self.key[1],)
        return tuple(each[0] for each in self.key[1:] if isinstance(each, tuple))


SentMessages: TypeAlias = Sequence[SentMessage]


class Alignment(NamedTuple):
    """An alignment of a request with the previous request and its answer.

    ``matched`` and ``altered`` map indices of the request to indices of the previous messages. Both
    increase.
    """

    matched: dict[int, int]
    "messages that are the same, even if cleared or reworded"
    altered: dict[int, int]
    "user messages with a different text between matched neighbours"
    extends_previous: bool
    "the request begins with everything that was sent before, unchanged"
    last_match: tuple[int, int] | None
    "index in both of the answer, or of what it answers, if repeated unchanged; request index first"

    def count_shared_tail(self, previous: SentMessages, current: SentMessages) -> int:
        """Count the newest messages that are adjacent in both requests and the same.

        Parameters
        ----------
        previous : sequence of SentMessage
            The previous messages.
        current : sequence of SentMessage
            The messages of the request.

        Returns
        -------
        int
            The count, at most 2.
        """
        if self.last_match is None:
            return 0
        (index, place), count = self.last_match, 0
        while index >= 0 and place >= 0 and count < 2:
            here = current[index]
            if self.matched.get(index) == place:
                count += here.key != SYSTEM_KEY and previous[place].exact_key == here.exact_key
            elif self.altered.get(index) == place:
                count += is_similar(previous[place], here)
            else:
                break
            index, place = index - 1, place - 1
        return count

    def omits_only_user_messages(self, previous: SentMessages) -> bool:
        """Check whether only user messages, such as temporary reminders, are missing from the request.

        Parameters
        ----------
        previous : sequence of SentMessage
            The previous messages.

        Returns
        -------
        bool
            True if the request contains everything else up to the answer.
        """
        if self.last_match is None or self.last_match[1] < len(previous) - 1:
            return False
        there = {*self.matched.values(), *self.altered.values()}
        missing = (each for place, each in enumerate(previous) if place not in there)
        nothing_else = len(there) == self.last_match[0] + 1
        return nothing_else and all(each.key[0] == "user" for each in missing)


def align_messages(previous: SentMessages, current: SentMessages, has_answer: bool) -> Alignment:
    """Align a request with the previous one of the same conversation.

    Parameters
    ----------
    previous : sequence of SentMessage
        The messages of the previous request and its answer.
    current : sequence of SentMessage
        The messages of the request.
    has_answer : bool
        The last of ``previous`` is the answer.

    Returns
    -------
    Alignment
        The alignment.
    """
    same = (one.exact_key == other.exact_key for one, other in zip(previous, current, strict=False))
    start = sum(1 for _ in takewhile(bool, same))
    matched = {index: index for index in range(start)}
    newest = (start - 1, start - 1) if start >= len(previous) - has_answer > 0 else None
    if start < len(previous) and (later := _find_last_match(previous, current, start, has_answer)):
        newest = index, place = later
        while min(index, place) >= start and previous[place].exact_key == current[index].exact_key:
            matched[index] = place
            index, place = index - 1, place - 1
        between = range(start, place + 1), range(start, index + 1)
        matched |= _match_middle(previous, current, *between)
    if has_answer and newest and newest[1] == len(previous) - 2:
        after = newest[0] + 1
        if after < len(current) and current[after].key[0] == "assistant":
            matched[after] = len(previous) - 1  # the answer was reworded, such as stripped
    matched = dict(sorted(matched.items()))
    whole = start >= len(previous) - has_answer
    return Alignment(matched, _find_altered(previous, current, matched), whole, newest)


def is_similar(one: SentMessage, other: SentMessage) -> bool:
    """Check whether one message contains the text of the other.

    White space and letter case are ignored. Messages with tool calls must have the same key.

    Parameters
    ----------
    one, other : SentMessage
        The messages to compare.

    Returns
    -------
    bool
        True if they are similar.

    Examples
    --------
    >>> reminded = SentMessage.from_message(Message("user", "Go on. <reminder>"))
    >>> is_similar(reminded, SentMessage.from_message(Message("user", "go on.")))
    True
    """
    if one.call_ids or other.call_ids:
        return one.key == other.key
    short, long = sorted(("".join(each.text.split()).casefold() for each in (one, other)), key=len)
    return bool(short) and short in long


def first_message_key(messages: SentMessages) -> MessageKey | None:
    """Return the key of the first message that is not a system prompt.

    Parameters
    ----------
    messages : sequence of SentMessage
        The messages.

    Returns
    -------
    tuple or None
        Its ``exact_key``, or None if there is no such message.
    """
    return next((each.exact_key for each in messages if each.key != SYSTEM_KEY), None)


def _find_last_match(
    previous: SentMessages, current: SentMessages, start: int, has_answer: bool
) -> tuple[int, int] | None:
    """Return indices of the answer after ``start``, or else of the message that it answers."""
    for place in range(len(previous) - 1, max(start, len(previous) - 1 - has_answer) - 1, -1):
        for index in range(len(current) - 1, start - 1, -1):
            if current[index].exact_key == previous[place].exact_key:
                return index, place
    return None


def _match_middle(
    previous: SentMessages, current: SentMessages, places: range, indices: range
) -> dict[int, int]:
    """Match messages between a common beginning and end by key, in order."""
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
    previous: SentMessages, current: SentMessages, matched: dict[int, int]
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
