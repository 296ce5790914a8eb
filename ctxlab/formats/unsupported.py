"""Common names for content that a format cannot store, and their plural forms.

All writers report with these names. A name is a thing (``compaction``) or a property of one (``time
of a message``), so that ``format_count`` can form the plural.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import product

from ctxlab.formats.base import UnsupportedCallback
from ctxlab.messages.types import Recording

_MESSAGE_KEYS = ("name", "reasoning", "usage", "time", "file", "extra")
_MESSAGE_FIELDS = {key: f"{key} of a message" for key in _MESSAGE_KEYS}
_MESSAGE_FIELDS["file"] = "active file of a message"
_RECORDING_FIELDS = {"cluster": "cluster of a recording", "meta": "meta of a recording"}
_LIST_FIELDS = {"probes": "probe", "compactions": "compaction"}


def report_unsupported_fields(
    recording: Recording, report: UnsupportedCallback, supported: Collection[str] = ()
) -> None:
    """Report each field of a recording, beyond messages, tools and model, that a format cannot store.

    The fields that say where a recording comes from (``id``, ``format``, ``source``, ``skipped``)
    are not reported.

    Parameters
    ----------
    recording : Recording
        The recording to write.
    report : Callable
        Called with the name of each field that is set, once per occurrence.
    supported : collection of str
        Fields of messages and recordings that the format can store.
    """
    for key, name in _LIST_FIELDS.items():
        for _ in getattr(recording, key) if key not in supported else ():
            report(name)
    own, of_messages = (_RECORDING_FIELDS, [recording]), (_MESSAGE_FIELDS, recording.messages)
    for fields, holders in (own, of_messages):
        for holder, (key, name) in product(holders, fields.items()):
            if key not in supported and getattr(holder, key) not in (None, {}):
                report(name)
    if not recording.messages:
        report("recording without messages")


def format_count(name: str, count: int) -> str:
    """Format the number of items that were lost.

    Parameters
    ----------
    name : str
        The name of one item.
    count : int
        The number of items.

    Returns
    -------
    str
        The text, in the plural if ``count`` is not 1.

    Examples
    --------
    >>> format_count("time of a message", 40)
    'time of 40 messages'
    >>> format_count("compaction", 3), format_count("compaction", 1)
    ('3 compactions', '1 compaction')
    """
    if re.search(r"\bof an? ", name):
        return name if count == 1 else re.sub(r"\bof an? (.*)", rf"of {count:,} \1s", name)
    noun, *rest = name.split(" ", 1)
    return " ".join([f"{count:,}", noun if count == 1 else f"{noun}s", *rest])
