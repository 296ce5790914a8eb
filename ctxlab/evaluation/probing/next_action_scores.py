"""Agreement of a model's calls with the recorded ones, as columns and scores of the results.

Shares are over the answers that came. Unanswered requests, and requests that the provider would
reject, count only in their own rates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

from ctxlab.errors import ModelUnavailable
from ctxlab.evaluation.metrics.base import Score
from ctxlab.evaluation.probing.call_matching import match_calls
from ctxlab.llm.base import Reply
from ctxlab.messages.types import ToolCall

COUNTED = (
    *("asked", "answered", "unanswered", "calls", "name", "arguments", "both", "leaves", "naming"),
    *("entities", "text_only", "text_turns", "text_kept", "cut", "prompt", "usd"),
)
"""""Columns of an answer, summed over the replicates of a request.""" ""

NEXT_ACTION_COLUMNS: tuple[str, ...] = (
    *("position", "invalid", "differs", "tokens", "overflow"),
    *(*COUNTED, "pairs", "alike"),
)
"""Columns of each sampled request and configuration."""


NEXT_ACTION_SCORES: tuple[Score, ...] = (
    Score.share("agrees_name", "calls of the recorded tool", "name / calls"),
    Score.share("agrees_arguments", "calls with the recorded arguments", "arguments / calls"),
    Score.share("agrees_both", "calls of the recorded tool with its arguments", "both / calls"),
    Score.share(
        "agrees_leaves", "values in the recorded arguments that are equal", "leaves / calls"
    ),
    Score.share(
        "agrees_entities",
        "paths, ids, numbers … of the recorded arguments that are used",
        "entities / naming",
    ),
    Score.share(
        "agrees_text",
        "requests without a recorded call at which none is made",
        "text_kept / text_turns",
    ),
    Score.share(
        "agrees_self", "pairs of answers to one request that make the same calls", "alike / pairs"
    ),
    Score.rate(
        "text_only_rate", "answers without a call where one was recorded", "text_only / calls"
    ),
    Score.rate("unanswered_rate", "requests without an answer", "unanswered / asked"),
    Score.rate("cut_rate", "answers cut off at the maximum length", "cut / answered"),
    Score.rate("invalid_rate", "requests that the provider would reject; not sent", "invalid"),
    Score.rate("overflow_rate", "requests that are too large", "overflow"),
    Score.rate("differs_rate", "requests that differ from the recorded ones", "differs", better=""),
    Score.mean("tokens_mean", "mean tokens of a request as it is sent", "tokens", "tokens"),
    Score.total("answered", "answers that are compared", "answers", better=""),
    Score.total("answers_usd", "price of the answers, including cached ones", "USD", "usd"),
)


def compare_answer(
    recorded: Sequence[ToolCall], reply: Reply | ModelUnavailable | None
) -> dict[str, Any]:
    """Compare an answer with the recorded calls.

    Parameters
    ----------
    recorded : sequence of ToolCall
        The recorded calls.
    reply : Reply or ModelUnavailable or None
        The answer; None if the request was not sent.

    Returns
    -------
    dict
        ``COUNTED``, the ``outcome`` and what was ``said``. Shares are nan if they do not apply, for
        example without an answer.
    """
    found: dict[str, Any] = dict.fromkeys(COUNTED, math.nan)
    found |= dict.fromkeys(
        ("asked", "answered", "unanswered", "calls", "naming", "text_turns", "usd"), 0.0
    )
    found |= {"said": "", "finish": None}
    if reply is None:
        return {**found, "outcome": "invalid", "why": "the provider would reject the request"}
    if isinstance(reply, ModelUnavailable):
        found |= {"asked": 1.0, "unanswered": 1.0}
        return {**found, "outcome": "unanswered", "why": str(reply)}
    said = reply.message.tool_calls
    found |= {
        "outcome": "answered",
        "why": "",
        "asked": 1.0,
        "answered": 1.0,
        "cut": float(reply.finish == "length"),
        "prompt": float(reply.usage.total_input),
        "usd": reply.usd,
        "finish": reply.finish,
        "said": format_calls(said) or reply.text,
    }
    if not recorded:
        return {**found, "text_turns": 1.0, "text_kept": float(not said)}
    shares = match_calls(recorded, said)._asdict()
    named = float(not math.isnan(shares["entities"]))
    return {**found, **shares, "calls": 1.0, "naming": named, "text_only": float(not said)}


def count_equal_pairs(replies: Sequence[Reply | ModelUnavailable]) -> tuple[float, float]:
    """Count the pairs of replicates, and those that make the same calls.

    Parameters
    ----------
    replies : sequence of Reply or ModelUnavailable
        The replicates of one request.

    Returns
    -------
    pairs : float
        Number of pairs that were answered.
    alike : float
        Number of those that make the same calls.
    """
    said = [reply.message.tool_calls for reply in replies if isinstance(reply, Reply)]
    found = [match_calls(one, other).both for one, other in combinations(said, 2)]
    return float(len(found)), sum(found)


def format_calls(calls: Sequence[ToolCall]) -> str:
    """Format calls for the table of answers.

    Parameters
    ----------
    calls : sequence of ToolCall
        The calls.

    Returns
    -------
    str
        One call per line.
    """
    return "\n".join(f"{call.name}({call.arguments})" for call in calls)
