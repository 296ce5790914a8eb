"""Compare the counted tokens of recorded requests with the tokens that the provider billed.

The bill of a request is the number of input tokens that the provider billed for it. The bill is
higher than the count of the recorded messages, because many logs do not contain the system prompt
and the tool definitions. Their number of tokens, called the fixed part, is the same in each request
of a recording. It is estimated from the first bills, so that later bills can be compared with the
counts. If the difference between bill and count jumps although no compaction is recorded, the
recorded product changed its context without recording the change.

A bill also contains tokens that no log contains: the hidden reasoning of the model and the results of
the provider's own searches. Providers drop them later without an entry in the log, usually at the next
message of the user. Such a fall of the bill does not mean that messages of the log were cleared. The
tokens of hidden content are known from the billed reasoning and from earlier rises of the bill. A fall
is therefore explained if it is not larger than these tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ctxlab.messages.types import Message, Recording
from ctxlab.tokens.counter import TokenCounter

FloatArray: TypeAlias = NDArray[np.float64]

ChangeCause: TypeAlias = Literal["added", "hidden", "shortened", "cleared"]
"""Probable cause of an unrecorded context change:

- ``"added"``: the request contained content that is not in the log.
- ``"hidden"``: content that is not in the log, such as hidden reasoning, was dropped.
- ``"shortened"``: the bill rose by less than the count of the new messages, because one of them was
  shortened before it was sent, or older messages were cleared.
- ``"cleared"``: messages of the log were cleared, so that the bill fell.
"""

_MAX_PLAUSIBLE_TOKENS = 1 << 40
_FIRST_BILLS = 10
"the fixed part is estimated from at most this number of bills at the start of a recording"
_JUMP_SHARE = 0.05
"a change of billed minus counted tokens by more than this share of the bill is a jump"


@dataclass(frozen=True)
class BilledSession:
    """Comparison of billed and counted tokens for the requests of one recording."""

    recording: str
    "id of the recording"
    cluster: str
    "cluster of the recording; the id of the recording if it names no cluster"
    requests: int
    "number of billed requests"
    billed: int
    "billed input tokens of the request with the highest bill"
    counted: int
    "counted tokens of the request with the highest bill, including ``fixed``"
    fixed: int
    "estimated tokens per request that are missing from the log: a median over the first bills"
    error: float
    "median of |counted - billed| / billed over requests, with the fixed part from the first bill"
    error_after: float | None
    """median of |counted - billed| / billed over the first requests after recorded compactions, with
    ``fixed``; None if there are none, or if the log begins in the middle of a session"""
    unsaid: tuple[tuple[int, int], ...]
    """unrecorded context changes; for each, the position of the first reply after the change, and the
    number of tokens by which the difference between bill and count changed"""
    causes: tuple[ChangeCause, ...]
    "the probable cause of each change in ``unsaid``"


def compare_counts_with_bills(
    recording: Recording, message_tokens: Sequence[int], counter: TokenCounter
) -> BilledSession | None:
    """Compare the billed tokens of a recording's requests with their counted tokens.

    Parameters
    ----------
    recording : Recording
        Recording with billed usage.
    message_tokens : sequence of int
        Tokens of each message of the recording, as counted by ``counter``.
    counter : TokenCounter
        Counter for the recording's model.

    Returns
    -------
    BilledSession or None
        Billed and counted tokens and their difference; None if fewer than two requests are billed.
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
    """Sum amounts over the messages that the recorded product sent in each billed request.

    The product may have compacted its context. The recorded compactions are applied, so that cleared
    or summarised messages are not counted in full.

    Parameters
    ----------
    recording : Recording
        Recording with billed usage.
    amounts : numpy.ndarray of shape (n_messages, n_amounts)
        Amounts of each message, such as its characters. The first amount is its number of tokens.
    measure_message : callable
        Function that returns the amounts of a message. It is called for the messages that compactions
        put into the context, such as summaries and cleared tool results.

    Returns
    -------
    tuple of (numpy.ndarray of shape (n_bills, n_amounts), numpy.ndarray of shape (n_bills,))
        Sums for each billed request; and a boolean array that is True for each billed request with a
        compaction between it and the previous billed request.
    """
    waiting = sorted(recording.compactions, key=lambda c: c.position)[::-1]
    billed = billed_input_tokens(recording)
    measured: dict[Message, Sequence[float]] = {}
    total = np.zeros(amounts.shape[1])
    rows, compacted, since = [], [], False
    for position in range(len(recording.messages)):
        while waiting and waiting[-1].position <= position:
            compaction, since = waiting.pop(), True
            total = amounts[list(compaction.kept)].sum(axis=0)
            for each in compaction.substitutes:
                if each.message not in measured:
                    measured[each.message] = measure_message(each.message)
                total += measured[each.message]
            total += amounts[compaction.position : position].sum(axis=0)
            total[0] += compaction.hidden_tokens
        if position in billed:
            rows.append(total.copy())
            compacted.append(since)
            since = False
        total += amounts[position]
    return np.array(rows).reshape(-1, amounts.shape[1]), np.array(compacted, bool)


def billed_input_tokens(recording: Recording) -> dict[int, int]:
    """Return the billed input tokens of each request with billed usage.

    Requests with 0 or implausibly many billed tokens are left out.

    Parameters
    ----------
    recording : Recording
        Recording with billed usage.

    Returns
    -------
    dict of int to int
        Billed input tokens, by position of the assistant message with the reply.
    """
    said = enumerate(recording.messages)
    bills = {i: m.usage.total_input for i, m in said if m.role == "assistant" and m.usage}
    return {i: tokens for i, tokens in bills.items() if 0 < tokens < _MAX_PLAUSIBLE_TOKENS}


def relative_errors(expected: FloatArray, billed: FloatArray) -> FloatArray:
    """Return the relative error |expected - billed| / billed of each request after the first.

    A constant is added to all expected tokens, so that the first request has no error.

    Parameters
    ----------
    expected : numpy.ndarray of shape (n_bills,)
        Expected tokens of each billed request, with or without the fixed part.
    billed : numpy.ndarray of shape (n_bills,)
        Billed input tokens of each request.

    Returns
    -------
    numpy.ndarray of shape (n_bills - 1,)
        Relative errors.
    """
    off: FloatArray = abs(expected + (billed[0] - expected[0]) - billed)[1:] / billed[1:]
    return off


def build_billed_session(
    recording: Recording, expected: FloatArray, compacted: NDArray[np.bool_]
) -> BilledSession:
    """Compare the billed tokens of a recording's requests with their expected tokens.

    Parameters
    ----------
    recording : Recording
        Recording with billed usage.
    expected : numpy.ndarray of shape (n_bills,)
        Expected tokens of each billed request, without the fixed part.
    compacted : numpy.ndarray of shape (n_bills,)
        True for each request with a compaction between it and the previous billed request.

    Returns
    -------
    BilledSession
        Highest bill, fixed part, error and unrecorded context changes.
    """
    known = billed_input_tokens(recording)
    places, billed = list(known), np.array(list(known.values()), np.float64)
    offset = billed - expected
    moved = np.diff(offset)
    jumps = np.flatnonzero((np.abs(moved) > _JUMP_SHARE * billed[1:]) & ~compacted[1:])
    first = next(iter(np.flatnonzero(compacted[1:]) + 1), len(billed))
    calm = offset[: min(first, jumps[0] + 1 if len(jumps) else first)]
    hidden = _hidden_tokens(recording, places, moved, billed)
    largest = int(billed.argmax())
    fixed = float(np.median(calm[:_FIRST_BILLS]))  # later differences include errors of the counts
    after = (abs(expected + fixed - billed) / billed)[1:][compacted[1:]]
    is_whole = (
        "starts_after" not in recording.meta
    )  # otherwise ``fixed`` includes the missing start
    return BilledSession(
        recording=recording.id,
        cluster=recording.cluster or recording.id,
        requests=len(billed),
        billed=int(billed[largest]),
        counted=round(expected[largest] + fixed),
        fixed=round(fixed),
        error=float(np.median(relative_errors(expected, billed))),
        error_after=float(np.median(after)) if len(after) and is_whole else None,
        unsaid=tuple((places[i + 1], round(moved[i])) for i in jumps),
        causes=tuple(
            _find_cause(moved[i], hidden[i], billed[i], billed[i + 1]) for i in jumps.tolist()
        ),
    )


def _hidden_tokens(
    recording: Recording, places: Sequence[int], moved: FloatArray, billed: FloatArray
) -> list[float]:
    """Return the tokens of hidden content that each request but the first can lose.

    Hidden content is the billed reasoning, and the content that earlier jumps upwards added. A fall of
    the bill removes a part of it.
    """
    held, hidden = 0.0, []
    for place, change, before, after in zip(places, moved, billed, billed[1:], strict=False):
        usage = recording.messages[place].usage
        held += usage.reasoning if usage else 0
        hidden.append(held)
        if after < before:
            held = max(held + min(change, 0), 0)
        elif change > _JUMP_SHARE * after:
            held += change
    return hidden


def _find_cause(moved: float, hidden: float, before: float, after: float) -> ChangeCause:
    """Return the probable cause of a jump of the difference between bill and count."""
    if moved > 0:
        return "added"
    if -moved - hidden <= _JUMP_SHARE * after:
        return "hidden"
    return "shortened" if after >= before else "cleared"
