"""Short descriptions of compactions, for tests of readers and of the strategy ``recorded``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from ctxlab.formats.common.compactions import CompactionBuilder
from ctxlab.messages.types import Compaction, Message, Recording


class Summary(NamedTuple):
    """A compaction that removed messages."""

    position: int
    summary: str | None = None
    kept: tuple[int, ...] = ()
    trigger: str | None = None
    tokens_before: int | None = None


class Cleared(NamedTuple):
    """A compaction that cleared the results of calls."""

    position: int
    calls: tuple[str | None, ...]
    trigger: str | None = None
    tokens_before: int | None = None


def described(recording: Recording) -> tuple[Summary | Cleared, ...]:
    """Describe the compactions of a recording; of a clearing, only the newly cleared results."""
    found: list[Summary | Cleared] = []
    before: set[int | None] = set()
    for each in recording.compactions:
        about = each.trigger, each.tokens_before
        changed = {s.source for s in each.substitutes}
        if each.kind == "clear":
            calls = (
                recording.messages[p].tool_call_id for p in sorted(filter(None, changed - before))
            )
            found.append(Cleared(each.position, tuple(calls), *about))
        else:
            found.append(Summary(each.position, each.summary, each.kept, *about))
        before = changed
    return tuple(found)


def summarised(
    messages: Sequence[Message],
    position: int,
    summary: str | None = None,
    kept: Iterable[int] = (),
    **fields: Any,
) -> Compaction:
    """Build a compaction that removed messages."""
    builder = CompactionBuilder(messages)
    builder.add_summary(position, summary, kept, **fields)
    return builder.compactions[0]


def cleared(messages: Sequence[Message], position: int, calls: Collection[str]) -> Compaction:
    """Build a compaction that cleared the results of calls."""
    builder = CompactionBuilder(messages)
    builder.add_clearing(position, calls)
    return builder.compactions[0]
