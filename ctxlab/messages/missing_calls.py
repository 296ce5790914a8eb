"""Warn about recordings whose tool calls were probably not read.

A long conversation without any tool call is usual for a chat, but not for an agent. If the
recording also contains content parts of unknown types, these parts probably hold the tool calls.
"""

from __future__ import annotations

import itertools
from collections import Counter

from ctxlab.messages.content_parts import describe_type, is_known_type, part_type
from ctxlab.messages.types import Recording

_MIN_ANSWERS = 10
_SKIPPED_PREFIX = "block of type "


def missing_calls_warning(recording: Recording) -> str | None:
    """Return a warning if the tool calls of a recording were probably not read.

    Parameters
    ----------
    recording : Recording
        The recording, as returned by a reader.

    Returns
    -------
    str or None
        The warning, without the name of the recording. None if the recording has a tool call, fewer
        than 10 answers, or no content part of unknown type.

    Examples
    --------
    >>> from ctxlab.messages.types import Message
    >>> chat = (Message("user", "hi"), Message("assistant", "ho")) * 10
    >>> missing_calls_warning(Recording("a", chat, skipped={"block of type hologram": 7}))
    '10 answers, no tool call, and 7 content parts of unknown type: hologram (7)'
    >>> missing_calls_warning(Recording("a", chat)) is None
    True
    """
    answers = len(recording.request_positions)
    if answers < _MIN_ANSWERS or any(message.tool_calls for message in recording.messages):
        return None
    unknown: Counter[str] = Counter()
    for reason, count in recording.skipped.items():
        kind = reason.removeprefix(_SKIPPED_PREFIX).partition(" (")[0].partition(",")[0]
        if reason.startswith(_SKIPPED_PREFIX) and not is_known_type(kind.removeprefix("redacted ")):
            unknown[kind] += count
    # Some readers keep unknown parts in the messages instead of skipping them.
    unknown = unknown or _count_unknown_types(recording)
    if not unknown:
        return None
    types = ", ".join(f"{kind} ({count})" for kind, count in unknown.most_common(3))
    count = unknown.total()
    return f"{answers} answers, no tool call, and {count} content parts of unknown type: {types}"


def _count_unknown_types(recording: Recording) -> Counter[str]:
    """Return how often each unknown type of content part occurs in the messages."""
    listed = (m.content for m in recording.messages if isinstance(m.content, tuple))
    parts = itertools.chain.from_iterable(listed)
    return Counter(describe_type(part) for part in parts if not is_known_type(part_type(part)))
