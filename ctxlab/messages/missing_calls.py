"""Warn of a recording whose tool calls were probably not read.

A long conversation without a single call is usual for a chat and odd for an agent. Where parts of
unknown types stand beside it, the calls are likely to be in them.
"""

from __future__ import annotations

from collections import Counter

from ctxlab.messages.content_parts import describe_type, is_known_type, part_type
from ctxlab.messages.types import Recording

__all__ = ["missing_calls_warning"]

_MIN_ANSWERS = 10
_SKIPPED_PREFIX = "block of type "


def missing_calls_warning(recording: Recording) -> str | None:
    """Return a warning where the calls of a recording were probably not read.

    Parameters
    ----------
    recording : Recording
        As a reader gave it.

    Returns
    -------
    str or None
        The warning, without the name of the recording. None where it holds a call, fewer than
        10 answers, or no part of an unknown type.

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
    # Those that a reader kept in the messages are counted there.
    unknown = unknown or _count_unknown_types(recording)
    if not unknown:
        return None
    types = ", ".join(f"{kind} ({count})" for kind, count in unknown.most_common(3))
    count = unknown.total()
    return f"{answers} answers, no tool call, and {count} content parts of unknown type: {types}"


def _count_unknown_types(recording: Recording) -> Counter[str]:
    """Return the unknown types of the parts that stand in the messages, with how many there are."""
    parts = (
        part
        for message in recording.messages
        if isinstance(message.content, tuple)
        for part in message.content
    )
    return Counter(describe_type(part) for part in parts if not is_known_type(part_type(part)))
