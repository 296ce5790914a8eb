"""Split a context into the message groups of Microsoft Agent Framework, and estimate their tokens.

A group is a single message, or a tool call with its results. Agent Framework keeps or drops each
group as a whole. The estimated number of tokens of a group is the number of characters of its
messages as JSON, divided by four.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ctxlab.context.context import Context
from ctxlab.context.history import Entry, Form
from ctxlab.messages.types import Message
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.baselines.common.parts import split_parts
from ctxlab.strategies.helpers.message_blocks import block_end


class MessageGroup(NamedTuple):
    """Entries ``[start, stop)`` of a context that are kept or dropped together."""

    start: int
    "index of the first entry"
    stop: int
    "index after the last entry"
    kind: str
    "``system``, ``user``, ``text`` (of the assistant) or ``step`` (a tool call with its results)"
    blocks: int
    "number of messages as the package counts them; all tool results of a step count as one message"


def split_groups(entries: Sequence[Entry], index: int = 0) -> list[MessageGroup]:
    """Split the entries of a context into groups.

    Parameters
    ----------
    entries : sequence of Entry
        Entries of a context.
    index : int, default 0
        Index of the entry at which the first group begins.

    Returns
    -------
    list of MessageGroup
        Groups in the order of their entries.
    """
    groups = []
    while index < len(entries):
        groups.append(group_at(entries, index))
        index = groups[-1].stop
    return groups


def group_at(entries: Sequence[Entry], index: int) -> MessageGroup:
    """Return the group that begins at an index.

    Parameters
    ----------
    entries : sequence of Entry
        Entries of a context.
    index : int
        Index of the first entry of the group.

    Returns
    -------
    MessageGroup
        A single message, or a tool call with its results.
    """
    message, stop, blocks = entries[index].message, block_end(entries, index), 1
    kind: str = message.role if message.role in ("system", "user") else "text"
    if message.role == "tool" or message.tool_calls:
        kind = "step"
        if message.tool_calls and stop < len(entries) and entries[stop].message.role == "tool":
            stop, blocks = block_end(entries, stop), 2
    return MessageGroup(index, stop, kind, blocks)


def iter_blocks(entries: Sequence[Entry], group: MessageGroup) -> Iterator[list[Entry]]:
    """Yield the entries of a group, as one list for each message of Agent Framework.

    Agent Framework stores all tool results of a step in one message.

    Parameters
    ----------
    entries : sequence of Entry
        Entries of a context.
    group : MessageGroup
        A group of these entries.

    Yields
    ------
    list of Entry
        Entries that form one message of Agent Framework.
    """
    index = group.start
    while index < group.stop:
        stop = block_end(entries, index)
        yield list(entries[index:stop])
        index = stop


def pop_older_steps(context: Context, strategy: BaseStrategy, keep: int) -> list[MessageGroup]:
    """Return the steps older than the newest ``keep`` steps. Each step is returned only once.

    A step is a message with tool calls, and the results of these calls. Because the function does not
    return a step again for a later request, the caller must drop or replace the returned steps.

    Parameters
    ----------
    context : Context
        Context to search.
    strategy : BaseStrategy
        Key in ``context.strategy_state`` for the steps that may be returned later.
    keep : int
        Number of newest steps to keep.

    Returns
    -------
    list of MessageGroup
        Older steps in the order of their entries.
    """
    entries = context.entries
    # Positions of the newest group seen so far, and of the steps kept so far.
    seen, left = context.strategy_state.get(strategy, (0, ()))
    there = [index for position in left if (index := context.find_index(position)) is not None]
    groups = split_groups(entries, context.index_at_or_after(seen))
    starts = sorted({*there, *(group.start for group in groups)})
    steps = [step for start in starts if (step := group_at(entries, start)).kind == "step"]
    older = max(0, len(steps) - keep)
    if groups:
        seen = entries[groups[-1].start].start
    kept = tuple([entries[step.start].start for step in steps[older:]])
    context.strategy_state[strategy] = seen, kept
    return steps[:older]


def select_oldest_groups(
    groups: Sequence[MessageGroup],
    sizes: Sequence[int],
    target: int,
    keep_system: bool,
    keep_first_user: bool,
) -> list[MessageGroup]:
    """Return the oldest groups to drop so that the total size is at most ``target``.

    The newest group is always kept.

    Parameters
    ----------
    groups : sequence of MessageGroup
        All groups of a context, in order.
    sizes : sequence of int
        Size of each group, in messages or in tokens.
    target : int
        Maximum total size of the remaining groups. It may be exceeded by groups that must be kept.
    keep_system : bool
        If True, keep all system messages.
    keep_first_user : bool
        If True, keep the first user message.

    Returns
    -------
    list of MessageGroup
        Groups to drop, in order.
    """
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
    """Return the entry ranges of groups; adjacent groups are merged into one range.

    Parameters
    ----------
    groups : sequence of MessageGroup
        Groups in the order of their entries.

    Returns
    -------
    list of tuple of int and int
        Ranges ``(start, stop)`` of entry indices.
    """
    rows: list[tuple[int, int]] = []
    for group in groups:
        if rows and rows[-1][1] == group.start:
            rows[-1] = rows[-1][0], group.stop
        else:
            rows.append((group.start, group.stop))
    return rows


def drop_groups(context: Context, groups: Sequence[MessageGroup]) -> None:
    """Drop the entries of groups from a context.

    Parameters
    ----------
    context : Context
        The context to edit.
    groups : sequence of MessageGroup
        Groups to drop, in the order of their entries.
    """
    for start, stop in reversed(group_ranges(groups)):
        context.drop(start, stop)


_IMAGE_LINK = {"type": "uri", "media_type": "image/png"}


class TokenEstimates:
    """Cache of the estimated tokens of a context, valid as long as entries are only appended.

    Parameters
    ----------
    version : int
        Version of the context to which the estimates apply.
    by_start : dict of int to tuple of Entry and int
        First entry and estimated tokens of each message of Agent Framework. The keys are the history
        positions of the first entries.
    """

    def __init__(self, version: int, by_start: dict[int, tuple[Entry, int]]) -> None:
        self.version, self.by_start, self.total, self._next_index = version, by_start, 0, 0

    def extend(self, entries: Sequence[Entry]) -> None:
        """Add the estimates of the entries that were appended since the last call.

        Parameters
        ----------
        entries : sequence of Entry
            All entries of the context.
        """
        while self._next_index < len(entries):
            self.total += self._estimate(entries, self._next_index)
            self._next_index = block_end(entries, self._next_index)

    def group_tokens(self, entries: Sequence[Entry], group: MessageGroup) -> int:
        """Return the estimated tokens of one group.

        Parameters
        ----------
        entries : sequence of Entry
            All entries of the context.
        group : MessageGroup
            A group of these entries.

        Returns
        -------
        int
            Estimated number of tokens.
        """
        index, total = group.start, 0
        while index < group.stop:
            total += self._estimate(entries, index)
            index = block_end(entries, index)
        return total

    def _estimate(self, entries: Sequence[Entry], index: int) -> int:
        first = entries[index]
        entry, tokens = self.by_start.get(first.start, (None, 0))
        if entry is not first:
            tokens = estimate_tokens(_message_json(entries[index : block_end(entries, index)]))
            self.by_start[first.start] = first, tokens
        return tokens


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a string at four characters per token.

    Parameters
    ----------
    text : str
        String to measure.

    Returns
    -------
    int
        Estimated number of tokens, at least 1.
    """
    return max(1, len(text) // 4)


def _message_json(block: Sequence[Entry]) -> str:
    """Return a block as the JSON of the single message that it is in Agent Framework.

    Agent Framework estimates tokens from the length of this JSON.
    """
    first = block[0]
    message_id = f"msg_{first.start}"
    if first.form is Form.SUMMARY:
        message_id = f"tool_summary_group_{message_id}"
    contents = [content for entry in block for content in _iter_contents(entry.message)]
    whole = {"contents": contents, "message_id": message_id, "role": first.message.role}
    return json.dumps(whole, ensure_ascii=False, sort_keys=True)


def _iter_contents(message: Message) -> Iterator[dict[str, Any]]:
    if message.role == "tool":
        result = {"type": "function_result", "result": message.text}
        yield {**result, "call_id": message.tool_call_id or "", "additional_properties": {}}
        return
    for part in split_parts(message):
        if part.is_image:
            kind, _, data = part.value.removeprefix("data:").partition(";base64,")
            made = {"type": "data", "media_type": kind} if data else _IMAGE_LINK
            yield {**made, "uri": part.value, "additional_properties": {}}
        else:
            yield {"type": "text", "text": part.value, "additional_properties": {}}
    for call in message.tool_calls:
        made = {"type": "function_call", "name": call.name, "arguments": call.arguments}
        yield {**made, "call_id": call.id, "hosted": False, "additional_properties": {}}


def format_for_summary(number: int, block: Sequence[Entry]) -> str:
    """Format one message of Agent Framework as it appears in the summariser's input.

    Parameters
    ----------
    number : int
        Number of the message in the summariser's input, from 1.
    block : sequence of Entry
        Entries that form one message of Agent Framework.

    Returns
    -------
    str
        Number, role and text of the message, such as ``3. [user] Hello``.
    """
    parts: list[str] = []
    for entry in block:
        message = entry.message
        suffix = f" [call_id={message.tool_call_id}]" if message.tool_call_id else ""
        if message.role == "tool":
            parts.append(f"function_result: {message.text}{suffix}")
            continue
        texts = [part.value for part in split_parts(message) if part.value and not part.is_image]
        parts += [" ".join(texts)] if texts else []
        for call in message.tool_calls:
            suffix = f" [call_id={call.id}]" if call.id else ""
            parts.append(f"function_call {call.name}({call.arguments}){suffix}")
    kinds = (str(content["type"]) for entry in block for content in _iter_contents(entry.message))
    return f"{number}. [{block[0].message.role}] {'; '.join(parts) or ', '.join(kinds)}"
