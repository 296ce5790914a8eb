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

from ctxlab.formats.codex.items import content_texts, item_key, message_keys
from ctxlab.formats.common.stitch import match_repeated
from ctxlab.formats.fields import get_nested
from ctxlab.messages.types import Message

__all__ = ["IndexedItem", "match_history", "newest_user_messages"]

IndexedItem: TypeAlias = tuple[int, tuple[Message, ...]]
"""The index of an item and its messages."""

_MAX_USER_TOKENS = 20_000


def match_history(
    visible: Iterable[IndexedItem], history: Sequence[Any]
) -> tuple[frozenset[int], list[str]]:
    """The items that a history says again whole, and what else it lets the user say."""
    before = [(index, k) for index, messages in visible for m in messages for k in message_keys(m)]
    found = match_repeated([k for _, k in before], [item_key(item) for item in history])
    matched_counts = Counter(before[old][0] for old in found.values())
    every = Counter(index for index, _ in before)
    stands_in = [
        said
        for index, item in enumerate(history)
        if index not in found and get_nested(item, "role") == "user"
        for said in content_texts(item.get("content"))
    ]
    return frozenset(
        index for index, count in matched_counts.items() if count == every[index]
    ), stands_in


def newest_user_messages(visible: Sequence[IndexedItem]) -> frozenset[int]:
    """Of the user's own messages in view, the newest ones that fit."""
    kept, left = set(), _MAX_USER_TOKENS
    for index, (message, *_) in reversed(visible):
        left -= -(-len(message.text.encode("utf-8", "replace")) // 4)
        if left < 0:
            break
        kept.add(index)
    return frozenset(kept)
