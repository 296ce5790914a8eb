"""Render the table of ``ctxlab next-action``: how often a model makes the recorded tool call."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean
from typing import Any

import pandas as pd

from ctxlab._utils.humanize import pluralize
from ctxlab.cli.render import format as show
from ctxlab.cli.render.leaderboard import board_table
from ctxlab.cli.render.table import Column, Figure, frame_columns
from ctxlab.evaluation.probing.results import FULL_HISTORY, NextActionResults

_SAME_TOOL = "same tool: calls of the recorded tool; same call: with the recorded arguments too"
_SAME_ARGUMENTS = "same args: the recorded arguments, with any tool"
_SAME_VALUES = "values equal: recorded argument values that the model's calls also have"
_ENTITIES = "entities named: recorded paths, ids, numbers … that the model's calls name too"
_NO_CALL = "no call: the model replied with text only"
_NO_CALL_AGREES = "no-call agreement: no call where none was recorded"
_SELF = "self-agreement: two answers to the same request make the same calls"
_INVALID = "invalid: a provider would reject the request, so it was not sent"
_NO_ANSWER = "no answer: the model did not reply"
_FIRST = (
    Figure("answers", "answered", "count"),
    Figure("tokens\nmean", "tokens_mean", "count"),
    Figure("same\ntool %", "agrees_name", "percent", _SAME_TOOL),
    Figure("same\nargs %", "agrees_arguments", "percent", _SAME_ARGUMENTS, 2),
    Figure("same call\n(95 %)", "agrees_both", "interval"),
)
_LAST = (
    Figure("values\nequal %", "agrees_leaves", "percent", _SAME_VALUES, 5),
    Figure("entities\nnamed %", "agrees_entities", "percent", _ENTITIES, 4),
    Figure("no call\n%", "text_only_rate", "percent", _NO_CALL, 3),
    Figure("no-call\nagree %", "agrees_text", "percent", _NO_CALL_AGREES, hide="empty"),
    Figure("self-\nagree %", "agrees_self", "percent", _SELF, 1, "empty"),
    Figure("invalid\n%", "invalid_rate", "percent", _INVALID, hide="empty"),
    Figure("no\nanswer %", "unanswered_rate", "percent", _NO_ANSWER, hide="empty"),
)


def next_action_text(results: NextActionResults) -> str:
    """Return the table, its legend and notes on how to read it.

    Parameters
    ----------
    results : NextActionResults
        The results.

    Returns
    -------
    str
        The text.
    """
    board = results.leaderboard()
    columns = frame_columns(board, _FIRST)
    beside = results.difference_to_full().set_index(["strategy", "limit"])
    if not beside.empty:
        keys = zip(board["strategy"], board["limit"], strict=True)
        cells = [_difference_cell(beside, key) for key in keys]
        columns.append(Column("vs full\n(95 %)", cells, left=True))
    table = board_table(results, board, [*columns, *frame_columns(board, _LAST)])
    return table.render(*_notes(results, board, table.legend))


def _difference_cell(beside: pd.DataFrame, key: tuple[str, float]) -> str:
    """Format a difference to full history with its interval; full history itself has none."""
    if key not in beside.index:
        return ""
    row = beside.to_dict("index")[key]
    value, low, high = (row[name] for name in ("difference", "low", "high"))
    if value != value:
        return "–"
    bounds = "too few" if low != low else " to ".join(map(show.format_signed_share, (low, high)))
    return f"{show.format_signed_share(value)} ({bounds})"


def _notes(results: NextActionResults, board: pd.DataFrame, legend: str) -> Iterator[str]:
    """Yield what the figures are based on, the legend and the limits of the method."""
    manifest = results.manifest
    settings = manifest["agreement"]
    sampled = [each for each in manifest["recordings"] if each["drawn"]]
    drawn, eligible = (sum(each[key] for each in sampled) for key in ("drawn", "eligible"))
    kind = "turns" if settings["texts"] else "recorded calls"
    only = " whose context at least one strategy changes" if settings["differing"] else ""
    times = f", {settings['replicates']} times each" if settings["replicates"] > 1 else ""
    yield (
        f"{settings['answer_model']} was asked at {drawn:,} of {eligible:,} {kind}{only}{times}, in "
        f"{pluralize(len(sampled), 'recording')} and {pluralize(results.cluster_count, 'cluster')}."
    )
    yield legend
    if FULL_HISTORY in set(board["strategy"]):
        beside = "Vs full: same call minus full history's on the same requests, over clusters."
    else:
        beside = "Full history was not evaluated, so the model's best is unknown; add -s full."
    noise = "" if times else "; --replicates measures how often the model agrees with itself"
    yield (
        f"{beside} Off-policy: a different call may be as good as the recorded one, so compare "
        f"strategies rather than single figures{noise}."
    )
    yield from _missing_context_sentences(sampled)
    if unsound := sum(each["unsound"] for each in manifest["recordings"]):
        calls = pluralize(unsound, "call")
        yield f"Left out: {calls}, since a provider would reject the recording up to there."
    for column, words in (
        ("unanswered_rate", "requests got no answer and are in no share, so strategies may be compared "
         "on different requests"),
        ("cut_rate", "replies were cut at the token limit for replies (--max-tokens)"),
    ):  # fmt: skip
        if (most := board[column].max()) > 0:
            yield f"Up to {show.format_percent(most)} % of a strategy's {words}."


def _missing_context_sentences(sampled: list[dict[str, Any]]) -> Iterator[str]:
    """Yield what the recorded agent was given and the model is not."""
    if derived := [each for each in sampled if each["tools"] == "derived"]:
        keys = ("tool_names", "tool_tokens")
        names, tokens = (mean(each[key] for each in derived) for key in keys)
        yield (
            f"{pluralize(len(derived), 'recording')} without tool definitions: tools are derived from "
            f"the recorded calls (mean: {names:.1f} tools, {show.format_count(tokens)} tokens per "
            "request, in addition to the limit). Tools that were never called are missing, so the "
            "choice is easier than it was for the agent."
        )
    if bare := [each for each in sampled if not each["system"]]:
        yield (
            f"{pluralize(len(bare), 'recording')} without a system prompt: the model does not see the "
            "instructions that the agent had."
        )
