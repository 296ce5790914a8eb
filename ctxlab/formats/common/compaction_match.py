"""What a product sends again in place of a history is found in that history by what it says.

Readers whose logs hold a history twice (Codex, Gemini CLI, Inspect) tell by it what a compaction kept.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

__all__ = ["found_again"]


def found_again(before: Sequence[Hashable], now: Sequence[Hashable]) -> dict[int, int]:
    """Index in ``now`` → index in ``before`` of what is the same, each taken once, the newest first.

    The order does not matter: products put what they keep in an order of their own.

    >>> found_again(["hi", "go on", "go on"], ["in short", "go on"])
    {1: 2}
    """
    places: dict[Hashable, list[int]] = {}
    for index, key in enumerate(before):
        places.setdefault(key, []).append(index)
    found = {}
    for index in range(len(now) - 1, -1, -1):
        if waiting := places.get(now[index]):
            found[index] = waiting.pop()
    return found
