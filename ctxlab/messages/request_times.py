"""Find out from the recorded times of messages when a request was sent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from ctxlab.messages.types import Message


def request_time(messages: Sequence[Message], position: int) -> datetime | None:
    """Return the time of the request that follows the first messages of a conversation.

    An agent sends a request as soon as its last input is there: the user's message or the last tool
    result. The request therefore has the latest time of the messages since the previous reply. The
    time of its own reply would come from the future, because a strategy runs before the reply. The
    time of the previous reply is used only if no message follows that reply. Otherwise, in a log that
    has times only for replies, each pause would be noticed one request too late.

    Parameters
    ----------
    messages : sequence of Message
        Messages of the conversation.
    position : int
        Number of messages that precede the request.

    Returns
    -------
    datetime or None
        Time in UTC; None if the messages have no usable time.

    Examples
    --------
    >>> said = [("user", 60.0), ("assistant", 90.0), ("tool", 120.0), ("assistant", 150.0)]
    >>> messages = [Message(role, time=time) for role, time in said]
    >>> [request_time(messages, position).timestamp() for position in (1, 3, 4)]
    [60.0, 120.0, 150.0]
    """
    start = position
    while start and messages[start - 1].role != "assistant":
        start -= 1
    inputs = messages[start:position] or messages[max(0, position - 1) : position]
    times = [message.time for message in inputs if message.time is not None]
    try:
        return datetime.fromtimestamp(max(times), UTC) if times else None
    except (ValueError, OverflowError, OSError):  # not a time, such as milliseconds
        return None
