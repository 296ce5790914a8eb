"""Replay of one recording as plain JSON: the document that ``context_map.js`` draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ctxlab._utils.humanize import pluralize
from ctxlab._utils.numbers import format_share
from ctxlab.evaluation.engine import PreparedRecording
from ctxlab.evaluation.grid import measure_metrics
from ctxlab.evaluation.metrics import METRICS
from ctxlab.evaluation.metrics.recall import FAR_TOKENS
from ctxlab.evaluation.replay import Replay
from ctxlab.messages.types import Message
from ctxlab.strategies.base import seeded_strategies

NO_FAR_NEEDS = f"No reply needs anything from more than {FAR_TOKENS:,} tokens earlier"
"beginning of a sentence about recordings without far needs"
RANKED = 3
"number of the largest losses that a map names"
_ORIGINS = {"user": "the user", "tool": "a tool", "assistant": "the agent", "system": "the prompt"}
_LEDGER = ("cached", "cache_write_5m", "cache_write_1h", "plain_input")
"columns of the metric cost whose sum is the priced tokens of a request"


def describe_replay(replay: Replay, with_text: bool) -> dict[str, Any]:
    """Return the states, sizes, costs and missing needs of a replay.

    Parameters
    ----------
    replay : Replay
        Replay of a recording with at least one request.
    with_text : bool
        True to include the texts of needs.

    Returns
    -------
    dict
        Document for ``contextMap`` of ``context_map.js``.
    """
    prepared = replay.prepared
    last = prepared.request_positions[-1]
    metrics = [METRICS["cost"], METRICS["recall"]]
    figures = {n: v[0] for n, v in measure_metrics(metrics, prepared, [replay.trace]).items()}
    usd = figures["cost_usd"]
    ledger = [[int(each) for each in figures[name]] for name in _LEDGER]
    rows = replay.needs
    held = rows.loc[rows["tier"] == "held", "request"]
    missed = rows[rows["tier"] != "held"]
    rank = {row: i + 1 for i, row in enumerate(replay.losses.index[:RANKED])}
    return {
        "requests": len(prepared.request_positions),
        "messages": last,
        "limit": replay.trace.budget.limit,
        "room": replay.trace.budget.room,
        "tokens": [int(each) for each in replay.trace.tokens],
        "usd": None if np.isnan(usd).any() else [float(f"{each:.4g}") for each in usd],
        "ledger": ledger,
        "compactions": [int(each) for each in replay.compactions["request"]],
        "states": [_run_lengths(column) for column in replay.states[:, :last].T],
        "held": np.bincount(held, minlength=len(usd)).tolist(),
        "needs": [
            {**_describe_need(need, with_text), "rank": rank.get(row, 0)}
            for row, need in zip(missed.index, missed.to_dict("records"), strict=True)
        ],
        "summary": _summarize(replay, {name: float(each.sum()) for name, each in figures.items()}),
    }


def _run_lengths(values: np.ndarray[Any, Any]) -> list[tuple[int, int]]:
    starts = np.flatnonzero(np.diff(values, prepend=values[0] - 1))
    lengths = np.diff(starts, append=len(values))
    return [(int(values[i]), int(n)) for i, n in zip(starts, lengths, strict=True)]


def _describe_need(need: Mapping[Any, Any], with_text: bool) -> dict[str, Any]:
    origin = _ORIGINS.get(need["origin"], need["origin"])
    what = f"{need['kind']} for {need['tool']}, first said by {origin}"
    named = {"entity": need["entity"], "kind": need["kind"]} if with_text else {}
    argument = f".{need['argument']}" if need["argument"] else ""
    return {
        "request": int(need["request"]),
        "last": int(need["last"]),
        "reply": int(need["position"]),
        "used": f"{need['tool']}{argument}",
        "gap": int(need["gap"]),
        "far": bool(need["far"]),
        "tier": need["tier"],
        "what": need["entity"] if with_text else what,
        **named,
    }


def _summarize(replay: Replay, sums: Mapping[str, float]) -> str:
    """Return what became of the far needs, by the same measure as the columns of the leaderboard."""
    count = sums["far_arguments"]
    if not count:
        return f"{NO_FAR_NEEDS}."
    held, seen, pointed = sums["far_held"], sums["far_seen"], sums["far_pointed"]
    tiers = {"held": held, "named": seen - held, "pointer": pointed, "lost": count - seen - pointed}
    parts = ", ".join(
        f"{format_share(max(0.0, part) / count)} {tier}" for tier, part in tiers.items()
    )
    arguments = pluralize(int(count), "argument")
    said = f"Far needs of {arguments}, said first by the user or a tool: {parts}."
    draws = len(seeded_strategies(replay.trace.strategy))
    if draws > 1:
        said += f" The map shows one draw; the figures are means over {draws} seeds."
    return said


def describe_messages(prepared: PreparedRecording) -> list[dict[str, Any]]:
    """Return the label and the tokens of each message of a recording.

    Parameters
    ----------
    prepared : PreparedRecording
        Recording.

    Returns
    -------
    list of dict
        Messages for ``contextMap`` of ``context_map.js``.
    """
    entries = prepared.history.entries
    names = {call.id: call.name for m in prepared.recording.messages for call in m.tool_calls}
    return [{"label": _label(entry.message, names), "tokens": entry.tokens} for entry in entries]


def _label(message: Message, names: Mapping[str, str]) -> str:
    tool = message.name or names.get(message.tool_call_id or "", "")
    if message.role == "tool":
        return f"tool result of {tool}" if tool else "tool result"
    called = ", ".join(dict.fromkeys(call.name for call in message.tool_calls))
    return f"{message.role}, calls {called}" if called else message.role
