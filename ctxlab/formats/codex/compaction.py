"""Find the items that Codex kept in a compaction.

If a compaction has a ``replacement_history``, the items repeated there were kept, and the remaining
user text there is the summary. A summary by the provider is encrypted and is not read. Without a
history, Codex keeps what it restores when it resumes: the context before the first turn, and the
newest user messages that fit 20,000 tokens of four bytes. A message that Codex truncates to fit has
changed and does not count as kept.

References
----------
github.com/openai/codex, ``codex-rs/core/src/compact.rs`` (``build_compacted_history``) and
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

IndexedItem: TypeAlias = tuple[int, tuple[Message, ...]]
"""The index of an item and its messages."""

_MAX_USER_TOKENS = 20_000


def match_history(
    visible: Iterable[IndexedItem], history: Sequence[Any]
) -> tuple[frozenset[int], list[str]]:
    """Find the items that a replacement history repeats.

    Parameters
    ----------
    visible : iterable of IndexedItem
        The items that the model saw before the compaction.
    history : sequence of dict
        The replacement history.

    Returns
    -------
    kept : frozenset of int
        Indices of items that are repeated completely.
    remaining : list of str
        User texts of the history that match no item.
    """
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
    """Select the newest user messages that fit the limit of Codex.

    Parameters
    ----------
    visible : sequence of IndexedItem
        The user messages that the model saw, in order.

    Returns
    -------
    frozenset of int
        Indices of the selected items.
    """
    kept, left = set(), _MAX_USER_TOKENS
    for index, (message, *_) in reversed(visible):
        left -= -(-len(message.text.encode("utf-8", "replace")) // 4)
        if left < 0:
            break
        kept.add(index)
    return frozenset(kept)
