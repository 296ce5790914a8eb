"""Group messages into blocks. Many agent packages count a block as one message.

Many packages store the results of parallel tool calls in one message, while ctxlab has one message
per result. A block is a sequence of consecutive tool results, or a single message of another role.
"""

from __future__ import annotations

from collections.abc import Sequence

from ctxlab.context.history import Entry
from ctxlab.messages.types import Message


def group_blocks(messages: Sequence[Message]) -> list[tuple[Message, ...]]:
    """Group consecutive tool results into blocks; every other message is a block of its own.

    Parameters
    ----------
    messages : sequence of Message
        Messages of a conversation, in order.

    Returns
    -------
    list of tuple of Message
        Messages of each block, in order.

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
    """Return the index after the system messages at the beginning of a context.

    Many packages store these messages separately from the rest of the conversation.

    Parameters
    ----------
    entries : sequence of Entry
        Entries of a context.

    Returns
    -------
    int
        Index after the last leading system message. System messages from later in the conversation
        are not counted, even if edits moved them to the beginning.
    """
    # The start of a moved system message differs from its index.
    for end, entry in enumerate(entries):
        if entry.start != end or entry.message.role != "system":
            return end
    return len(entries)


def block_end(entries: Sequence[Entry], start: int) -> int:
    """Return the end index of the block that begins at a given index.

    A block is a sequence of consecutive tool results, or a single message of another role.

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
    """Return the start index of the block that ends before a given index.

    A block is a sequence of consecutive tool results, or a single message of another role.

    Parameters
    ----------
    entries : sequence of Entry
        Entries of a context.
    stop : int
        Index after the last entry of the block.
    lowest : int, default 0
        Smallest index that may be returned.

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
    """Return the index of the first entry of the ``count`` newest blocks.

    A block is a sequence of consecutive tool results, or a single message of another role. Entries
    before ``lowest`` are ignored.

    Parameters
    ----------
    entries : sequence of Entry
        Entries of a context.
    lowest : int
        Smallest index that may be returned.
    count : int
        Number of blocks, counted from the end of the context.

    Returns
    -------
    int
        Index of the entry; ``lowest`` if there are at most ``count`` blocks from ``lowest`` on.
    """
    start = len(entries)
    while count > 0 and start > lowest:
        start = block_start(entries, start, lowest)
        count -= 1
    return start
