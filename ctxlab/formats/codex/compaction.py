"""What Codex kept when it compacted is read from the history that it wrote, or put together again.

A compaction with ``replacement_history`` kept what that says again; the summary is what else it lets the
user say. One that the provider made is encrypted, and then there is none. A compaction without a history
kept what Codex itself puts together when it resumes: the context before the first turn, and the newest
of the user's own messages that fit 20,000 tokens of four bytes. The one that is cut to fit did not
stay as it was and is not kept.

Source: github.com/openai/codex, ``codex-rs/core/src/compact.rs`` (``build_compacted_history``) and
``codex-rs/core/src/codex/rollout_reconstruction.rs``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from ctxlab.formats.codex.items import (
    key,
    keys,
    texts,
)
from ctxlab.formats.common.compaction_match import found_again
from ctxlab.formats.optional_fields import within
from ctxlab.messages.types import Message

__all__ = ["Item", "newest_own", "said_again"]

Item: TypeAlias = tuple[int, tuple[Message, ...]]
"""The index of an item and its messages."""

_BUDGET = 20_000


def said_again(view: Iterable[Item], history: Sequence[Any]) -> tuple[frozenset[int], list[str]]:
    """The items that a history says again whole, and what else it lets the user say."""
    before = [(index, k) for index, messages in view for m in messages for k in keys(m)]
    found = found_again([k for _, k in before], [key(item) for item in history])
    again = Counter(before[old][0] for old in found.values())
    every = Counter(index for index, _ in before)
    stands_in = [
        said
        for index, item in enumerate(history)
        if index not in found and within(item, "role") == "user"
        for said in texts(item.get("content"))
    ]
    return frozenset(index for index, count in again.items() if count == every[index]), stands_in


def newest_own(view: Sequence[Item]) -> frozenset[int]:
    """Of the user's own messages in view, the newest ones that fit."""
    kept, left = set(), _BUDGET
    for index, (message, *_) in reversed(view):
        left -= -(-len(message.text.encode("utf-8", "replace")) // 4)
        if left < 0:
            break
        kept.add(index)
    return frozenset(kept)
