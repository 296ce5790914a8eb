"""Blocks: groups of messages that many packages count as one message.

Many packages keep all results of one step in one message. A block is a single message, or a run of
consecutive tool results.
"""

from __future__ import annotations

from collections.abc import Sequence

from ctxlab.context.history import Entry
from ctxlab.messages.types import Message


def group_blocks(messages: Sequence[Message]) -> list[tuple[Message, ...]]:
    """Group messages into blocks.

    Parameters
    ----------
    messages : sequence of Message
        Messages of a conversation.

    Returns
    -------
    list of tuple of Message
        The blocks in order.

    Examples
    --------
    >>> said = Message("user", "hi"), Message("tool", "1"), Message("tool", "2")
    >>> [len(block) for block in group_blocks(said)]
    [1, 2]
    """
    blocks: list[tuple[Message, ...]] = []
    for message in messages:
        if message.role == "tool" and blocks and blocks[-1][0].role == "tool":
            blocks[-1] += (message,)
        else:
            blocks.append((message,))
    return blocks


def system_prompt_end(entries: Sequence[Entry]) -> int:
    """Return the number of leading system messages, which packages store apart from the rest.

    Parameters
    ----------
    entries : sequence of Entry
        Entries of a context.

    Returns
    -------
    int
        Index after the last leading system message. Later system messages that moved to the front
        do not count.
    """
    # A moved system message has another start.
    for end, entry in enumerate(entries):
        if entry.start != end or entry.message.role != "system":
            return end
    return len(entries)


def block_end(entries: Sequence[Entry], start: int) -> int:
    """Return the end of the block that begins at an index.

    Parameters
    ----------
    entries : sequence of Entry
        Entries of a context.
    start : int
        Index of the first entry of the block.

    Returns
    -------
    int
        Index after the last entry of the block.
    """
    stop = start + 1
    if entries[start].message.role == "tool":
        while stop < len(entries) and entries[stop].message.role == "tool":
            stop += 1
    return stop


def block_start(entries: Sequence[Entry], stop: int, lowest: int = 0) -> int:
    """Return the start of the block that ends before an index.

    Parameters
    ----------
    entries : sequence of Entry
        Entries of a context.
    stop : int
        Index after the last entry of the block.
    lowest : int, default 0
        Smallest index to consider.

    Returns
    -------
    int
        Index of the first entry of the block.
    """
    start = stop - 1
    if entries[start].message.role == "tool":
        while start > lowest and entries[start - 1].message.role == "tool":
            start -= 1
    return start


def newest_blocks_start(entries: Sequence[Entry], lowest: int, count: int) -> int:
    """Return the start of the newest blocks.

    Parameters
    ----------
    entries : sequence of Entry
        Entries of a context.
    lowest : int
        Smallest index to consider.
    count : int
        Number of blocks.

    Returns
    -------
    int
        Index of the first entry of the newest ``count`` blocks; ``lowest`` if there are fewer.
    """
    start = len(entries)
    while count > 0 and start > lowest:
        start = block_start(entries, start, lowest)
        count -= 1
    return start
