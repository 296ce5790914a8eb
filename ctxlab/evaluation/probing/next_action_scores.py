"""What a model's calls share with the recorded ones, counted by request so that shares can be compared.

Shares are over the answers that came: a question that stayed unanswered, and a request that a provider
would refuse, count in no share but their own.
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

__all__ = [
    "NEXT_ACTION_COLUMNS",
    "NEXT_ACTION_SCORES",
    "compare_answers",
    "compute_next_action_columns",
]

_SUMMED_COLUMNS = (
    *("asked", "answered", "unanswered", "calls", "name", "arguments", "both", "leaves", "naming"),
    *("entities", "text_only", "text_turns", "text_kept", "cut", "prompt", "usd"),
)
"""Of an answer, and added up over the replicates of a request."""

NEXT_ACTION_COLUMNS: tuple[str, ...] = (
    *("position", "invalid", "differs", "tokens", "overflow"),
    *(*_SUMMED_COLUMNS, "pairs", "alike"),
)
"""Of every request that was drawn, in every configuration."""


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
    _share_score("agrees_entities", "paths, ids, numbers … in the recorded arguments that are named",
                 "entities", "naming"),
    _share_score("agrees_text", "turns without a recorded call at which none is made", "text_kept",
                 "text_turns"),
    _share_score("agrees_self", "pairs of answers to one request that make the same calls", "alike",
                 "pairs"),
    _rate_score("text_only_rate", "answers without a call where one was recorded", "text_only", "calls"),
    _rate_score("unanswered_rate", "questions that stayed unanswered", "unanswered", "asked"),
    _rate_score("cut_rate", "answers that were cut at the most that they may take", "cut", "answered"),
    _rate_score("invalid_rate", "requests that a provider would refuse; they are not asked", "invalid"),
    _rate_score("overflow_rate", "requests that are too large", "overflow"),
    _rate_score("differs_rate", "requests that are not sent as they were recorded", "differs"),
    Score("tokens_mean", "tokens a request as it is sent, mean", "tokens", "ratio", "tokens",
          better="lower"),
    Score("answered", "answers that are compared", "answers", "sum", "answered"),
    Score("answers_usd", "price of the answers, those from disk too", "USD", "sum", "usd",
          better="lower"),
)  # fmt: skip


def compare_answers(
    batch: NextActionRequests, replies: Sequence[Reply | ModelUnavailable], replicates: int
) -> Iterator[dict[str, Any]]:
    """A row a configuration × request × replicate, in that order; ``replies`` are to ``batch.requests``.

    What does not apply is nan: the shares of an answer that never came, or at a turn without a call.
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
    """What came of one question; None: it was not asked, since a provider would refuse it."""
    found: dict[str, Any] = dict.fromkeys(_SUMMED_COLUMNS, math.nan)
    found |= {"asked": 0.0, "answered": 0.0, "unanswered": 0.0, "calls": 0.0, "naming": 0.0}
    found |= {"text_turns": 0.0, "usd": 0.0, "said": "", "finish": None}
    if reply is None:
        return {**found, "outcome": "invalid", "why": "a provider would refuse the request"}
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
    """``NEXT_ACTION_COLUMNS``, each of shape ``(configurations, requests)``, from the rows of
    ``compare_answers``.
    """
    shape = len(batch.traces), len(batch.positions), replicates

    def column(name: str) -> FloatArray:
        return np.array([row[name] for row in rows], dtype=np.float64).reshape(shape)

    found = {name: np.nansum(column(name), axis=2) for name in _SUMMED_COLUMNS if name != "usd"}
    found["usd"] = column("usd").sum(axis=2)  # a price that is not known leaves the sum unknown
    for name in ("position", "differs", "tokens", "overflow"):
        found[name] = column(name)[:, :, 0]
    question = np.array(batch.request_index).reshape(shape[:2])
    alike = [
        _count_equal_pairs(replies[first : first + replicates])
        for first in range(0, len(replies), replicates)
    ] + [(0.0, 0.0)]  # the last is that of no question, which is -1
    found["pairs"], found["alike"] = np.moveaxis(np.array(alike)[question], -1, 0)
    found["invalid"] = (question < 0).astype(np.float64)
    return {name: found[name] for name in NEXT_ACTION_COLUMNS}


def _count_equal_pairs(replies: Sequence[Reply | ModelUnavailable]) -> tuple[float, float]:
    """How many pairs of replicates there are, and how many of them make the same calls."""
    said = [reply.message.tool_calls for reply in replies if isinstance(reply, Reply)]
    found = [match_calls(one, other).both for one, other in combinations(said, 2)]
    return float(len(found)), sum(found)


def _format_calls(calls: Sequence[ToolCall]) -> str:
    return "\n".join(f"{call.name}({call.arguments})" for call in calls)
