"""What a format has no place for is told by the same names, whichever format it is.

A name is of a thing (``compaction``) or of a side of one (``time of a message``), so that a number of
them can be said. The writers of formats tell so.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from ctxlab.formats.base import UnsupportedCallback
from ctxlab.messages.types import Message, Recording

__all__ = ["format_count", "report_unsupported_fields"]

_MESSAGE_FIELDS = {
    "name": "name of a message",
    "reasoning": "reasoning of a message",
    "usage": "usage of a message",
    "time": "time of a message",
    "file": "active file of a message",
    "extra": "extra of a message",
}
_RECORDING_FIELDS = {"cluster": "cluster of a recording", "meta": "meta of a recording"}
_LIST_FIELDS = {"probes": "probe", "compactions": "compaction"}


def report_unsupported_fields(
    recording: Recording, on_unsupported: UnsupportedCallback, supported: Collection[str] = ()
) -> None:
    """Tells what is set of a recording beyond its messages, tools and model, each thing by itself.

    ``supported``: fields of messages and recordings that the format has a place for. What says where a
    recording is from and how it was read is not told: id, format, source, skipped.
    """
    for key, name in _LIST_FIELDS.items():
        if key not in supported:
            for _ in getattr(recording, key):
                on_unsupported(name)
    for key, name in _RECORDING_FIELDS.items():
        if key not in supported and getattr(recording, key) not in (None, {}):
            on_unsupported(name)
    if not recording.messages:
        on_unsupported("recording without messages")
    for message in recording.messages:
        _report_message_fields(message, on_unsupported, supported)


def format_count(name: str, count: int) -> str:
    """A number of things that were lost.

    >>> format_count("time of a message", 40)
    'time of 40 messages'
    >>> format_count("compaction", 3), format_count("compaction", 1)
    ('3 compactions', '1 compaction')
    """
    if re.search(r"\bof an? ", name):
        return name if count == 1 else re.sub(r"\bof an? (.*)", rf"of {count:,} \1s", name)
    noun, *rest = name.split(" ", 1)
    return " ".join([f"{count:,}", noun if count == 1 else f"{noun}s", *rest])


def _report_message_fields(
    message: Message, on_unsupported: UnsupportedCallback, supported: Collection[str]
) -> None:
    for key, name in _MESSAGE_FIELDS.items():
        if key not in supported and getattr(message, key) not in (None, {}):
            on_unsupported(name)
