"""Align the messages of a logged request with the messages of the previous request.

Two successive requests of a conversation usually start with the same messages, and the later one
repeats the last messages of the earlier one. If the agent compacted its context in between, some
messages in the middle are missing, new or changed. Two messages match if they have the same
``SentMessage.key``: the ids of their tool calls, the id of the call that they answer, or their text.
``stitch`` uses the alignments to build conversations.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, NamedTuple, TypeAlias

from ctxlab.messages.types import Message

MessageKey: TypeAlias = tuple[Any, ...]
"""Identifier of a message. A message has the same identifier in all requests that contain it."""
SYSTEM_KEY: MessageKey = ("system",)
"""The key of all system prompts. It does not contain the text, which may include the current time."""


class SentMessage(NamedTuple):
    """A message of a logged request, or the model's answer, with keys to compare it with others."""

    key: MessageKey
    "identifies the message; equal for all its copies, even if a tool result was cleared"
    exact_key: MessageKey
    "identifies the message and its text; equal only for unchanged copies"
    text: str
    "text of the message"
    position: int | None = None
    "index of the message in the conversation; None for a message that replaces others"

    @classmethod
    def from_message(cls, message: Message, position: int | None = None) -> SentMessage:
        """Compute the keys of a message.

        Parameters
        ----------
        message : Message
            A message of a request, or an answer.
        position : int, optional
            Index of the message in the conversation, if known.

        Returns
        -------
        SentMessage
            The keys, text and position of the message.
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
        """Ids of the tool calls of the message, or the id of the call that the message answers."""
        if self.key[0] == "tool":
            return (self.key[1],)
        return tuple(each[0] for each in self.key[1:] if isinstance(each, tuple))


SentMessages: TypeAlias = Sequence[SentMessage]


class Alignment(NamedTuple):
    """An alignment of a request with the previous request and its answer.

    ``matched`` and ``altered`` map the index of a message of the request to the index of the
    corresponding previous message. ``matched`` contains repeated messages, and ``altered`` contains
    user messages with changed text. Both the keys and the values are in ascending order.
    """

    matched: dict[int, int]
    "messages that were sent again, possibly cleared or slightly changed"
    altered: dict[int, int]
    "user messages whose text was changed, each between two matched messages"
    extends_previous: bool
    "True if the request starts with all messages of the previous request, unchanged"
    last_match: tuple[int, int] | None
    """(index in the request, index in the previous messages) of the answer, if it is repeated
    unchanged, otherwise of the message before the answer; None if neither is repeated"""

    def count_shared_tail(self, previous: SentMessages, current: SentMessages) -> int:
        """Count up to two messages of the request that repeat messages of ``previous``.

        Counting starts at ``last_match``: the message that repeats the answer to the previous request,
        or the message before this answer if the answer is not repeated. It goes backwards and stops
        at the first message without a counterpart in ``previous``. System prompts and cleared tool
        results are skipped. A user message with a different text is counted if ``is_similar`` returns
        True.

        Parameters
        ----------
        previous : sequence of SentMessage
            The messages of the previous request and its answer.
        current : sequence of SentMessage
            The messages of the request.

        Returns
        -------
        int
            The number of repeated messages: 0, 1 or 2.
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
        """Check whether only user messages, such as temporary reminders, are missing in the request.

        Parameters
        ----------
        previous : sequence of SentMessage
            The messages of the previous request and its answer.

        Returns
        -------
        bool
            True if the request repeats all previous messages that are not user messages, and has no
            new message between them.
        """
        if self.last_match is None or self.last_match[1] < len(previous) - 1:
            return False
        there = {*self.matched.values(), *self.altered.values()}
        missing = (each for place, each in enumerate(previous) if place not in there)
        nothing_else = len(there) == self.last_match[0] + 1
        return nothing_else and all(each.key[0] == "user" for each in missing)


def align_messages(previous: SentMessages, current: SentMessages, has_answer: bool) -> Alignment:
    """Align the messages of a request with those of the previous request and its answer.

    Parameters
    ----------
    previous : sequence of SentMessage
        The messages of the previous request and its answer.
    current : sequence of SentMessage
        The messages of the request.
    has_answer : bool
        True if the last message of ``previous`` is the answer to the previous request.

    Returns
    -------
    Alignment
        The pairs of corresponding messages.
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
            matched[after] = len(previous) - 1  # the answer was repeated with changes
    matched = dict(sorted(matched.items()))
    whole = start >= len(previous) - has_answer
    return Alignment(matched, _find_altered(previous, current, matched), whole, newest)


def is_similar(one: SentMessage, other: SentMessage) -> bool:
    """Check whether two messages have similar texts: one text contains the other.

    White space and letter case are ignored. A message with tool calls, or a tool result, is similar
    to another message only if the attributes ``key`` of both are equal.

    Parameters
    ----------
    one, other : SentMessage
        The messages to compare.

    Returns
    -------
    bool
        True if the messages are similar. Messages without text are not similar to any other.

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
        The messages of a request.

    Returns
    -------
    tuple or None
        The ``exact_key`` of the message, or None if there are only system prompts.
    """
    return next((each.exact_key for each in messages if each.key != SYSTEM_KEY), None)


def _find_last_match(
    previous: SentMessages, current: SentMessages, start: int, has_answer: bool
) -> tuple[int, int] | None:
    """Find the last message of ``previous`` in ``current``, if it is repeated unchanged.

    If this message is an answer and is not repeated, the message before it is searched for. In both
    requests, messages before index ``start`` are ignored. Return the index of the found message in
    ``current`` and its index in ``previous``, or None.
    """
    for place in range(len(previous) - 1, max(start, len(previous) - 1 - has_answer) - 1, -1):
        for index in range(len(current) - 1, start - 1, -1):
            if current[index].exact_key == previous[place].exact_key:
                return index, place
    return None


def _match_middle(
    previous: SentMessages, current: SentMessages, places: range, indices: range
) -> dict[int, int]:
    """Match messages of two requests that have equal keys and the same order.

    Only the middle of each request is matched, after the common beginning and before the common end:
    the messages of ``previous`` with the indices ``places``, and the messages of ``current`` with the
    indices ``indices``. The result maps an index in ``current`` to an index in ``previous``.
    """
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
