"""Strategy that repeats the compactions that a recording's log contains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ctxlab.context.context import Context
from ctxlab.context.history import Entry, Form
from ctxlab.messages.types import CLEARED_RESULT_TEXT, Compaction, Message, ToolCall
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.helpers.text import with_text


@dataclass(frozen=True, repr=False)
class recorded(BaseStrategy):
    """Repeats the compactions that the recorded product wrote into its log.

    Many coding agents, such as Claude Code and Codex, log their compactions. Each compaction drops,
    summarises or clears messages. The strategy applies a compaction, with the recorded summary, before
    the next request. The limit has no effect. A recording without compactions is sent in full.

    The requests approximate those of the recorded agent. Content that the product restored after a
    compaction, or cleared without logging it, is not known. Where the product sent an invalid
    request, the repeated request is invalid too.

    Source: the recordings themselves.

    Examples
    --------
    >>> from ctxlab import Compaction, Message, Recording, replay
    >>> said = tuple(Message(r, f"{r} {i}") for i in range(3) for r in ("user", "assistant"))
    >>> log = Recording("a", said, compactions=(Compaction(4, summary="two rounds"),))
    >>> [entry.message.content for entry in replay(log, recorded(), 9000).trace.context.entries]
    ['two rounds', 'user 2', 'assistant 2']
    """

    supports_live: ClassVar[bool] = False
    "False: the strategy needs the compactions of a recording"

    def __call__(self, context: Context, /) -> Context:
        """Apply the recorded compactions that took place since the last request."""
        done: int = context.strategy_state.get(self, 0)
        for compaction in context.history.compactions[done:]:
            if compaction.position > context.history_length:
                break
            done += 1
            (_apply_clearing if compaction.kind == "clear" else _apply_summary)(context, compaction)
        context.strategy_state[self] = done
        return context


def _apply_clearing(context: Context, compaction: Compaction) -> None:
    cleared = frozenset(compaction.cleared)
    for index in range(_compacted_end(context, compaction)):
        if context.entries[index].message.tool_call_id in cleared:
            context.rewrite(index, _clear_text, Form.STUB)


def _clear_text(message: Message, call: ToolCall | None) -> Message:
    return with_text(message, CLEARED_RESULT_TEXT)


def _apply_summary(context: Context, compaction: Compaction) -> None:
    """Drop the messages that a compaction dropped, and put its summary in their place.

    Ranges of messages are replaced from the newest to the oldest, so that earlier indices stay
    valid.
    """
    kept, summary = frozenset(compaction.kept), compaction.summary_message
    stop = _compacted_end(context, compaction)
    spoken = [(i, e) for i, e in enumerate(context.entries[:stop]) if e.message.role != "system"]
    going = [i for i, entry in spoken if _is_summary(entry) or entry.start not in kept]
    for start, end in reversed(_consecutive_ranges(going)):
        if start == going[0] and summary is not None:
            context.fold(start, end, summary)
        else:
            context.drop(start, end)
    if not going and summary is not None:
        context.insert(spoken[0][0] if spoken else stop, summary)


def _is_summary(entry: Entry) -> bool:
    """Return True if an entry is a summary or replaces several messages."""
    return entry.is_aggregate or entry.form is Form.SUMMARY


def _compacted_end(context: Context, compaction: Compaction) -> int:
    """Return the index of the first entry whose message was recorded after a compaction.

    If there is no such entry, return the number of entries.
    """
    for index, entry in enumerate(context.entries):
        if entry.start >= compaction.position and not entry.is_aggregate:
            return index
    return len(context.entries)


def _consecutive_ranges(indices: list[int]) -> list[tuple[int, int]]:
    """Group consecutive indices into ranges, such as ``[1, 2, 5]`` into ``[(1, 3), (5, 6)]``."""
    runs: list[tuple[int, int]] = []
    for index in indices:
        if runs and runs[-1][1] == index:
            runs[-1] = runs[-1][0], index + 1
        else:
            runs.append((index, index + 1))
    return runs
