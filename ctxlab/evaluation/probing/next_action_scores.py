"""Agreement of a model's calls with the recorded ones, as columns and scores of the results.

Shares are over the answers that came. Unanswered requests, and requests that the provider would
reject, count only in their own rates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any, Literal

import numpy as np

from ctxlab.errors import ModelUnavailable
from ctxlab.evaluation.metrics.base import FloatArray, Score
from ctxlab.evaluation.probing.call_matching import match_calls
from ctxlab.evaluation.probing.next_action_plan import NextActionRequests
from ctxlab.llm.base import Reply
from ctxlab.messages.types import ToolCall

_SUMMED_COLUMNS = (
    *("asked", "answered", "unanswered", "calls", "name", "arguments", "both", "leaves", "naming"),
    *("entities", "text_only", "text_turns", "text_kept", "cut", "prompt", "usd"),
)
"""columns of an answer, summed over the replicates of a request"""

NEXT_ACTION_COLUMNS: tuple[str, ...] = (
    *("position", "invalid", "differs", "tokens", "overflow"),
    *(*_SUMMED_COLUMNS, "pairs", "alike"),
)
"""Columns of each sampled request and configuration."""


def _share_score(name: str, meaning: str, column: str, per: str) -> Score:
    return Score(name, meaning, "share", "ratio", column, per, interval=True, better="higher")


def _rate_score(name: str, meaning: str, column: str, per: str = "") -> Score:
    better: Literal["lower", ""] = "" if column == "differs" else "lower"
    return Score(name, meaning, "share", "ratio", column, per, better=better)


NEXT_ACTION_SCORES: tuple[Score, ...] = (
    _share_score("agrees_name", "calls of the recorded tool", "name", "calls"),
    _share_score("agrees_arguments", "calls with the recorded arguments", "arguments", "calls"),
    _share_score("agrees_both", "calls of the recorded tool with its arguments", "both", "calls"),
    _share_score("agrees_leaves", "values in the recorded arguments that are equal", "leaves", "calls"),
    _share_score("agrees_entities", "paths, ids, numbers … of the recorded arguments that are used",
                 "entities", "naming"),
    _share_score("agrees_text", "requests without a recorded call at which none is made", "text_kept",
                 "text_turns"),
    _share_score("agrees_self", "pairs of answers to one request that make the same calls", "alike",
                 "pairs"),
    _rate_score("text_only_rate", "answers without a call where one was recorded", "text_only", "calls"),
    _rate_score("unanswered_rate", "requests without an answer", "unanswered", "asked"),
    _rate_score("cut_rate", "answers cut off at the maximum length", "cut", "answered"),
    _rate_score("invalid_rate", "requests that the provider would reject; not sent", "invalid"),
    _rate_score("overflow_rate", "requests that are too large", "overflow"),
    _rate_score("differs_rate", "requests that differ from the recorded ones", "differs"),
    Score("tokens_mean", "mean tokens of a request as it is sent", "tokens", "ratio", "tokens",
          better="lower"),
    Score("answered", "answers that are compared", "answers", "sum", "answered"),
    Score("answers_usd", "price of the answers, including cached ones", "USD", "sum", "usd",
          better="lower"),
)  # fmt: skip


def compare_answers(
    batch: NextActionRequests, replies: Sequence[Reply | ModelUnavailable], replicates: int
) -> Iterator[dict[str, Any]]:
    """Compare each answer with the recorded calls.

    Parameters
    ----------
    batch : NextActionRequests
        The requests of a recording.
    replies : sequence of Reply or ModelUnavailable
        Replies to ``batch.requests``.
    replicates : int
        How often each request was sent.

    Yields
    ------
    dict
        A row per configuration × request × replicate, in that order. Shares are nan if they do not
        apply, for example without an answer.
    """
    tokens = batch.tokens
    for c, (p, position) in product(range(len(batch.traces)), enumerate(batch.positions)):
        trace, number = batch.traces[c], batch.request_index[c][p]
        recorded = batch.recorded_calls(p)
        row: dict[str, Any] = {
            "configuration": c,
            "position": position,
            "differs": batch.is_changed[c][p],
            "tokens": tokens[c, p],
            "overflow": tokens[c, p] - batch.tool_tokens
            > trace.budget.limit - trace.budget.reserve,
            "recorded": _format_calls(recorded),
        }
        for replicate in range(replicates):
            reply = None if number < 0 else replies[number * replicates + replicate]
            yield {**row, "replicate": replicate, **_compare_answer(recorded, reply)}


def _compare_answer(
    recorded: Sequence[ToolCall], reply: Reply | ModelUnavailable | None
) -> dict[str, Any]:
    """Compare one answer; None if the request was not sent."""
    found: dict[str, Any] = dict.fromkeys(_SUMMED_COLUMNS, math.nan)
    found |= {"asked": 0.0, "answered": 0.0, "unanswered": 0.0, "calls": 0.0, "naming": 0.0}
    found |= {"text_turns": 0.0, "usd": 0.0, "said": "", "finish": None}
    if reply is None:
        return {**found, "outcome": "invalid", "why": "the provider would reject the request"}
    if isinstance(reply, ModelUnavailable):
        found |= {"asked": 1.0, "unanswered": 1.0}
        return {**found, "outcome": "unanswered", "why": str(reply)}
    said = reply.message.tool_calls
    found |= {"outcome": "answered", "why": "", "asked": 1.0, "answered": 1.0}
    found |= {"cut": float(reply.finish == "length")}
    found |= {"prompt": float(reply.usage.total_input), "usd": reply.usd, "finish": reply.finish}
    found |= {"said": _format_calls(said) or reply.text}
    if not recorded:
        return {**found, "text_turns": 1.0, "text_kept": float(not said)}
    shares = match_calls(recorded, said)._asdict()
    named = float(not math.isnan(shares["entities"]))
    return {**found, **shares, "calls": 1.0, "naming": named, "text_only": float(not said)}


def compute_next_action_columns(
    batch: NextActionRequests,
    rows: Sequence[Mapping[str, Any]],
    replies: Sequence[Reply | ModelUnavailable],
    replicates: int,
) -> dict[str, FloatArray]:
    """Compute ``NEXT_ACTION_COLUMNS`` from the rows of ``compare_answers``.

    Parameters
    ----------
    batch : NextActionRequests
        The requests of a recording.
    rows : sequence of mapping
        Rows of ``compare_answers``.
    replies : sequence of Reply or ModelUnavailable
        Replies to ``batch.requests``.
    replicates : int
        How often each request was sent.

    Returns
    -------
    dict of str to numpy.ndarray of shape (configurations, requests)
        Figures by column name.
    """
    shape = len(batch.traces), len(batch.positions), replicates

    def column(name: str) -> FloatArray:
        return np.array([row[name] for row in rows], dtype=np.float64).reshape(shape)

    found = {name: np.nansum(column(name), axis=2) for name in _SUMMED_COLUMNS if name != "usd"}
    found["usd"] = column("usd").sum(axis=2)  # an unknown price makes the sum nan
    for name in ("position", "differs", "tokens", "overflow"):
        found[name] = column(name)[:, :, 0]
    question = np.array(batch.request_index).reshape(shape[:2])
    alike = [
        _count_equal_pairs(replies[first : first + replicates])
        for first in range(0, len(replies), replicates)
    ] + [(0.0, 0.0)]  # the last entry is for index -1: no request
    found["pairs"], found["alike"] = np.moveaxis(np.array(alike)[question], -1, 0)
    found["invalid"] = (question < 0).astype(np.float64)
    return {name: found[name] for name in NEXT_ACTION_COLUMNS}


def _count_equal_pairs(replies: Sequence[Reply | ModelUnavailable]) -> tuple[float, float]:
    """Count the pairs of replicates, and those that make the same calls."""
    said = [reply.message.tool_calls for reply in replies if isinstance(reply, Reply)]
    found = [match_calls(one, other).both for one, other in combinations(said, 2)]
    return float(len(found)), sum(found)


def _format_calls(calls: Sequence[ToolCall]) -> str:
    return "\n".join(f"{call.name}({call.arguments})" for call in calls)
