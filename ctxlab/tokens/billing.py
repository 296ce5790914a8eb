"""A recorded request counts here, and was billed there: the two stand side by side.

What the provider billed is more than what a log holds: the system prompt and tool definitions of many
products are in no log. That part is fixed all session, so the first bill tells it, and the counts of
all later requests can be held against their bills. Where they part ways all at once and no compaction
is recorded, the product changed its context without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ctxlab.messages.types import CLEARED_RESULT_TEXT, Message, Recording
from ctxlab.tokens.counter import TokenCounter

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    FloatArray: TypeAlias = NDArray[np.float64]

__all__ = [
    "BilledSession",
    "billed_input_tokens",
    "build_billed_session",
    "compare_counts_with_bills",
    "relative_errors",
    "sum_recorded_context",
]

_MAX_PLAUSIBLE_TOKENS = 1 << 40
_FIRST_BILLS = 10
"bills, which tell the fixed part"
_JUMP_SHARE = 0.05
"of a bill: where counts part further from it than a request before, something unsaid happened"


@dataclass(frozen=True)
class BilledSession:
    """How the bills of one recording compare with the counts of its requests."""

    recording: str
    cluster: str
    requests: int
    "that were billed"
    billed: int
    "tokens of its largest request, by the provider"
    counted: int
    "the same request as it counts here, its fixed part included"
    fixed: int
    "tokens of each request that the log does not hold: the median of its first bills"
    error: float
    "median over its requests of |counted - billed| / billed, its fixed part from the first bill"
    unsaid: tuple[tuple[int, int], ...]
    "where the bill departed from the counts with no compaction recorded: (message, tokens)"


def compare_counts_with_bills(
    recording: Recording, message_tokens: Sequence[int], counter: TokenCounter
) -> BilledSession | None:
    """How the bills of a recording compare with its counts; None where it carries fewer than two.

    ``message_tokens`` are the tokens of its messages by ``counter``, which need not be counted again.
    """
    import numpy as np

    billed = billed_input_tokens(recording)
    if len(billed) < 2:
        return None
    thoughts = [counter.count_reasoning(message) for message in recording.messages]
    amounts = np.array([message_tokens, thoughts], np.float64).T

    def of_message(message: Message) -> list[float]:
        return [counter.count_message(message), 0]

    totals, compacted = sum_recorded_context(recording, amounts, of_message)
    known = counter.count_tools(recording.tools) + counter.REPLY_TOKENS
    return build_billed_session(recording, totals.sum(axis=1) + known, compacted)


def sum_recorded_context(
    recording: Recording, amounts: FloatArray, measure_message: Callable[[Message], Sequence[float]]
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Sums over what the recording system itself had in view, at each request that was billed.

    ``amounts`` has a row a message; ``measure_message`` gives the row of a message that a compaction
    put in the place of others. Also returned: whether a compaction came since the request before.
    """
    import numpy as np

    messages, amounts = recording.messages, amounts.copy()
    waiting = sorted(recording.compactions, key=lambda c: c.position)[::-1]
    billed = billed_input_tokens(recording)
    held: list[int] = []
    total, stands_in = np.zeros(amounts.shape[1]), np.zeros(amounts.shape[1])
    rows, compacted, since = [], [], False
    for position in range(len(messages)):
        while waiting and waiting[-1].position <= position:
            compaction, since = waiting.pop(), True
            if compaction.kind == "clear":
                cleared = frozenset(compaction.cleared)
                for place in held:
                    if messages[place].tool_call_id in cleared:
                        amounts[place] = measure_message(
                            messages[place].replace(content=CLEARED_RESULT_TEXT)
                        )
            else:
                kept = frozenset(compaction.kept)
                held = [p for p in held if p in kept or messages[p].role == "system"]
                summary = compaction.summary_message
                stands_in = np.array(
                    measure_message(summary) if summary else [0] * amounts.shape[1]
                )
            total = amounts[held].sum(axis=0) + stands_in
        if position in billed:
            rows.append(total.copy())
            compacted.append(since)
            since = False
        held.append(position)
        total += amounts[position]
    return np.array(rows).reshape(-1, amounts.shape[1]), np.array(compacted, bool)


def billed_input_tokens(recording: Recording) -> dict[int, int]:
    """Position of each answer whose request was billed → its input tokens, by the provider."""
    said = ((i, m.usage) for i, m in enumerate(recording.messages) if m.role == "assistant")
    return {
        i: usage.total_input
        for i, usage in said
        if usage is not None and 0 < usage.total_input < _MAX_PLAUSIBLE_TOKENS
    }


def relative_errors(expected: FloatArray, billed: FloatArray) -> FloatArray:
    """|counted - billed| / billed of each request after the first, whose bill tells the fixed part."""
    off: FloatArray = abs(expected + (billed[0] - expected[0]) - billed)[1:] / billed[1:]
    return off


def build_billed_session(
    recording: Recording, expected: FloatArray, compacted: NDArray[np.bool_]
) -> BilledSession:
    """How the bills of a recording compare with what was expected of each billed request."""
    import numpy as np

    known = billed_input_tokens(recording)
    places, billed = list(known), np.array(list(known.values()), np.float64)
    offset = billed - expected
    moved = np.diff(offset)
    jumps = np.flatnonzero((np.abs(moved) > _JUMP_SHARE * billed[1:]) & ~compacted[1:])
    first = next(iter(np.flatnonzero(compacted[1:]) + 1), len(billed))
    calm = offset[: min(first, jumps[0] + 1 if len(jumps) else first)]
    largest = int(billed.argmax())
    fixed = float(np.median(calm[:_FIRST_BILLS]))  # later ones drift with every error of the counts
    return BilledSession(
        recording=recording.id,
        cluster=recording.cluster or recording.id,
        requests=len(billed),
        billed=int(billed[largest]),
        counted=round(expected[largest] + fixed),
        fixed=round(fixed),
        error=float(np.median(relative_errors(expected, billed))),
        unsaid=tuple((places[i + 1], round(moved[i])) for i in jumps),
    )
