"""Many packages keep all results of one step in one message; a block is what they count as one.

A block is a message, or tool results that stand next to each other.
"""

from __future__ import annotations

from collections.abc import Sequence

from ctxlab.context.history import Entry
from ctxlab.messages.types import Message

__all__ = ["block_end", "block_start", "group_blocks", "newest_blocks_start", "system_prompt_end"]


def group_blocks(messages: Sequence[Message]) -> list[tuple[Message, ...]]:
    """The messages in blocks.

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
    """How many system messages stand at the beginning: packages keep them apart from the rest."""
    end = 0
    while end < len(entries) and entries[end].start == end and _is_system(entries[end]):
        end += 1  # one that came late may stand there by now, and is none of them
    return end


def block_end(entries: Sequence[Entry], start: int) -> int:
    """Where the block ends that begins at ``start``."""
    stop = start + 1
    if entries[start].message.role == "tool":
        while stop < len(entries) and entries[stop].message.role == "tool":
            stop += 1
    return stop


def block_start(entries: Sequence[Entry], stop: int, lowest: int = 0) -> int:
    """Where the block begins that ends before ``stop``; ``lowest`` is the earliest place to look at."""
    start = stop - 1
    if entries[start].message.role == "tool":
        while start > lowest and entries[start - 1].message.role == "tool":
            start -= 1
    return start


def newest_blocks_start(entries: Sequence[Entry], lowest: int, count: int) -> int:
    """Where the newest ``count`` blocks begin; ``lowest`` where there are not more."""
    start = len(entries)
    while count > 0 and start > lowest:
        start = block_start(entries, start, lowest)
        count -= 1
    return start


def _is_system(entry: Entry) -> bool:
    return entry.message.role == "system"
