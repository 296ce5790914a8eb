"""Compare the counted tokens of recorded requests with the tokens that the provider billed.

The bill of a request is higher than its count, because many logs do not contain the system prompt
and the tool definitions. This fixed part is constant in a session, so it follows from the first
bill, and the counts of all later requests can be compared with their bills. If the difference jumps
and no compaction is recorded, the product changed its context without recording it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ctxlab.messages.types import CLEARED_RESULT_TEXT, Message, Recording
from ctxlab.tokens.counter import TokenCounter

FloatArray: TypeAlias = NDArray[np.float64]

_MAX_PLAUSIBLE_TOKENS = 1 << 40
_FIRST_BILLS = 10
"number of bills from which the fixed part is estimated"
_JUMP_SHARE = 0.05
"share of a bill; a larger change of its difference from the count is an unrecorded context change"


@dataclass(frozen=True)
class BilledSession:
    """Comparison of the bills of one recording with the counts of its requests."""

    recording: str
    "id of the recording"
    cluster: str
    "cluster of the recording"
    requests: int
    "number of billed requests"
    billed: int
    "billed input tokens of the largest request"
    counted: int
    "counted tokens of the same request, including the fixed part"
    fixed: int
    "tokens of each request that are not in the log: the median of the first bills"
    error: float
    "median over requests of |counted - billed| / billed, with the fixed part from the first bill"
    unsaid: tuple[tuple[int, int], ...]
    "jumps of a bill without a recorded compaction: (position of the message, tokens)"


def compare_counts_with_bills(
    recording: Recording, message_tokens: Sequence[int], counter: TokenCounter
) -> BilledSession | None:
    """Compare the bills of a recording with the counts of its requests.

    Parameters
    ----------
    recording : Recording
        The recording.
    message_tokens : sequence of int
        Tokens of its messages, as counted by ``counter``.
    counter : TokenCounter
        Counter of the recording's model.

    Returns
    -------
    BilledSession or None
        The comparison; None if the recording has fewer than two bills.
    """
    billed = billed_input_tokens(recording)
    if len(billed) < 2:
        return None
    thoughts = map(counter.count_reasoning, recording.messages)
    amounts = np.array([message_tokens, list(thoughts)], np.float64).T
    totals, compacted = sum_recorded_context(
        recording, amounts, lambda message: [counter.count_message(message), 0]
    )
    known = counter.count_tools(recording.tools) + counter.REPLY_TOKENS
    return build_billed_session(recording, totals.sum(axis=1) + known, compacted)


def sum_recorded_context(
    recording: Recording, amounts: FloatArray, measure_message: Callable[[Message], Sequence[float]]
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Sum amounts over the messages in the recording system's own context, at each billed request.

    Recorded compactions are applied.

    Parameters
    ----------
    recording : Recording
        The recording.
    amounts : numpy.ndarray of shape (n_messages, n_amounts)
        Amounts of each message.
    measure_message : callable
        Returns the amounts of a message that a compaction put in the place of others.

    Returns
    -------
    tuple of (numpy.ndarray of shape (n_bills, n_amounts), numpy.ndarray of shape (n_bills,))
        Sums at each billed request, and True if a compaction happened since the previous one.
    """
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
                for place in (p for p in held if messages[p].tool_call_id in cleared):
                    text = messages[place].replace(content=CLEARED_RESULT_TEXT)
                    amounts[place] = measure_message(text)
            else:
                kept = frozenset(compaction.kept)
                held = [p for p in held if p in kept or messages[p].role == "system"]
                summary = compaction.summary_message
                stands_in = np.array(measure_message(summary)) if summary else np.zeros_like(total)
            total = amounts[held].sum(axis=0) + stands_in
        if position in billed:
            rows.append(total.copy())
            compacted.append(since)
            since = False
        held.append(position)
        total += amounts[position]
    return np.array(rows).reshape(-1, amounts.shape[1]), np.array(compacted, bool)


def billed_input_tokens(recording: Recording) -> dict[int, int]:
    """Return the billed input tokens of each request with a bill.

    Parameters
    ----------
    recording : Recording
        The recording.

    Returns
    -------
    dict of int to int
        Position of the assistant message → input tokens.
    """
    said = enumerate(recording.messages)
    bills = {i: m.usage.total_input for i, m in said if m.role == "assistant" and m.usage}
    return {i: tokens for i, tokens in bills.items() if 0 < tokens < _MAX_PLAUSIBLE_TOKENS}


def relative_errors(expected: FloatArray, billed: FloatArray) -> FloatArray:
    """Return |counted - billed| / billed of each request after the first, which gives the fixed part.

    Parameters
    ----------
    expected : numpy.ndarray of shape (n_bills,)
        Expected tokens of each billed request, with or without the fixed part.
    billed : numpy.ndarray of shape (n_bills,)
        Billed tokens.

    Returns
    -------
    numpy.ndarray of shape (n_bills - 1,)
        The errors.
    """
    off: FloatArray = abs(expected + (billed[0] - expected[0]) - billed)[1:] / billed[1:]
    return off


def build_billed_session(
    recording: Recording, expected: FloatArray, compacted: NDArray[np.bool_]
) -> BilledSession:
    """Compare the bills of a recording with the expected tokens of each billed request.

    Parameters
    ----------
    recording : Recording
        The recording.
    expected : numpy.ndarray of shape (n_bills,)
        Expected tokens of each billed request, without the fixed part.
    compacted : numpy.ndarray of shape (n_bills,)
        True if a compaction happened since the previous billed request.

    Returns
    -------
    BilledSession
        The comparison.
    """
    known = billed_input_tokens(recording)
    places, billed = list(known), np.array(list(known.values()), np.float64)
    offset = billed - expected
    moved = np.diff(offset)
    jumps = np.flatnonzero((np.abs(moved) > _JUMP_SHARE * billed[1:]) & ~compacted[1:])
    first = next(iter(np.flatnonzero(compacted[1:]) + 1), len(billed))
    calm = offset[: min(first, jumps[0] + 1 if len(jumps) else first)]
    largest = int(billed.argmax())
    fixed = float(np.median(calm[:_FIRST_BILLS]))  # later differences include errors of the counts
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
