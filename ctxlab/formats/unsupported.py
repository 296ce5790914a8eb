"""What a format has no place for is told by the same names, whichever format it is.

A name is of a thing (``compaction``) or of a side of one (``time of a message``), so that a number of
them can be said. The writers of formats tell so.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from ctxlab.formats.base import Lost
from ctxlab.messages.types import (
    Message,
    Recording,
)

__all__ = ["counted", "tell"]

_OF_A_MESSAGE = {
    "name": "name of a message",
    "reasoning": "reasoning of a message",
    "usage": "usage of a message",
    "time": "time of a message",
    "file": "active file of a message",
    "extra": "extra of a message",
}
_OF_A_RECORDING = {"cluster": "cluster of a recording", "meta": "meta of a recording"}
_SEVERAL = {"probes": "probe", "compactions": "compaction"}


def tell(recording: Recording, lost: Lost, carried: Collection[str] = ()) -> None:
    """Tells what is set of a recording beyond its messages, tools and model, each thing by itself.

    ``carried``: fields of messages and recordings that the format has a place for. What says where a
    recording is from and how it was read is not told: id, format, source, skipped.
    """
    for key, name in _SEVERAL.items():
        if key not in carried:
            for _ in getattr(recording, key):
                lost(name)
    for key, name in _OF_A_RECORDING.items():
        if key not in carried and getattr(recording, key) not in (None, {}):
            lost(name)
    if not recording.messages:
        lost("recording without messages")
    for message in recording.messages:
        _tell(message, lost, carried)


def counted(name: str, count: int) -> str:
    """A number of things that were lost.

    >>> counted("time of a message", 40), counted("compaction", 3), counted("compaction", 1)
    ('time of 40 messages', '3 compactions', '1 compaction')
    """
    if re.search(r"\bof an? ", name):
        return name if count == 1 else re.sub(r"\bof an? (.*)", rf"of {count:,} \1s", name)
    noun, *rest = name.split(" ", 1)
    return " ".join([f"{count:,}", noun if count == 1 else f"{noun}s", *rest])


def _tell(message: Message, lost: Lost, carried: Collection[str]) -> None:
    for key, name in _OF_A_MESSAGE.items():
        if key not in carried and getattr(message, key) not in (None, {}):
            lost(name)
