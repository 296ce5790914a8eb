"""Groups of messages that stay or go together, as Microsoft Agent Framework forms them.

A group is a message, or a call with its results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ctxlab.context.context import Context
from ctxlab.context.history import Entry
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.helpers.message_blocks import block_end

__all__ = [
    "MessageGroup",
    "drop_groups",
    "group_at",
    "group_ranges",
    "iter_blocks",
    "pop_older_steps",
    "select_oldest_groups",
    "split_groups",
]


class MessageGroup(NamedTuple):
    """Entries ``[start, stop)`` that stay or go together."""

    start: int
    stop: int
    kind: str
    "system, user, text or step"
    blocks: int
    "messages of the package: the results of a step are one"


def split_groups(entries: Sequence[Entry], index: int = 0) -> list[MessageGroup]:
    """The groups from an index on, at which one begins."""
    groups = []
    while index < len(entries):
        groups.append(group_at(entries, index))
        index = groups[-1].stop
    return groups


def group_at(entries: Sequence[Entry], index: int) -> MessageGroup:
    """The group that begins at an index."""
    message, stop, blocks = entries[index].message, block_end(entries, index), 1
    kind: str = message.role if message.role in ("system", "user") else "text"
    if message.role == "tool" or message.tool_calls:
        kind = "step"
        if message.tool_calls and stop < len(entries) and entries[stop].message.role == "tool":
            stop, blocks = block_end(entries, stop), 2
    return MessageGroup(index, stop, kind, blocks)


def iter_blocks(entries: Sequence[Entry], group: MessageGroup) -> Iterator[list[Entry]]:
    """The package's messages of a group: a call, and its results as one."""
    index = group.start
    while index < group.stop:
        stop = block_end(entries, index)
        yield list(entries[index:stop])
        index = stop


def pop_older_steps(context: Context, strategy: BaseStrategy, keep: int) -> list[MessageGroup]:
    """The steps with calls before the newest ``keep``, each given once: they do not stay."""
    entries = context.entries
    # Where the newest group began, and where the steps began that were left.
    seen, left = context.strategy_state.get(strategy, (0, ()))
    there = [index for position in left if (index := context.find_index(position)) is not None]
    groups = split_groups(entries, context.index_at_or_after(seen))
    starts = sorted({*there, *(group.start for group in groups)})
    steps = [step for start in starts if (step := group_at(entries, start)).kind == "step"]
    older = max(0, len(steps) - keep)
    if groups:
        seen = entries[groups[-1].start].start
    context.strategy_state[strategy] = (
        seen,
        tuple([entries[step.start].start for step in steps[older:]]),
    )
    return steps[:older]


def select_oldest_groups(
    groups: Sequence[MessageGroup],
    sizes: Sequence[int],
    target: int,
    keep_system: bool,
    keep_first_user: bool,
) -> list[MessageGroup]:
    """The oldest groups without which the others have the target size, some protected."""
    protected = {group for group in groups if keep_system and group.kind == "system"}
    if keep_first_user:
        protected.update([group for group in groups if group.kind == "user"][:1])
    others = [group for group in groups if group.kind != "system"]
    protected.update((others or list(groups))[-1:])
    gone, total = [], sum(sizes)
    for group, size in zip(groups, sizes, strict=True):
        if total <= target:
            break
        if group not in protected:
            gone.append(group)
            total -= size
    return gone


def group_ranges(groups: Sequence[MessageGroup]) -> list[tuple[int, int]]:
    """The groups as ranges, neighbours in one."""
    rows: list[tuple[int, int]] = []
    for group in groups:
        if rows and rows[-1][1] == group.start:
            rows[-1] = rows[-1][0], group.stop
        else:
            rows.append((group.start, group.stop))
    return rows


def drop_groups(context: Context, groups: Sequence[MessageGroup]) -> None:
    """The groups, in their order, go."""
    for start, stop in reversed(group_ranges(groups)):
        context.drop(start, stop)
