"""Columns and notes of the table that shows how often a model makes the recorded tool call."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean
from typing import Any

import pandas as pd

from ctxlab._utils.humanize import pluralize
from ctxlab._utils.numbers import format_count, format_percent, format_signed_share
from ctxlab._utils.tables import Column
from ctxlab.evaluation.columns import Figure, frame_columns
from ctxlab.evaluation.probing.results import FULL_HISTORY, NextActionResults

_SAME_TOOL = "same tool: calls of the recorded tool; same call: same tool and same arguments"
_SAME_ARGUMENTS = "same args: calls with the recorded arguments, of any tool"
_SAME_VALUES = "values equal: recorded argument values that are equal in the model's calls"
_ENTITIES = "entities named: recorded paths, ids, numbers … that occur in the model's calls"
_NO_CALL = "no call: replies with text only"
_NO_CALL_AGREES = "no-call agree: requests without a recorded call where the model makes no call"
_SELF = "self-agree: repeated answers to a request that make the same calls"
_INVALID = "invalid: requests that were not sent because a provider would reject them"
_NO_ANSWER = "no answer: requests without a reply of the model"
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


def next_action_columns(results: NextActionResults, board: pd.DataFrame) -> list[Column]:
    """Create the columns of the table; columns without values are left out.

    Parameters
    ----------
    results : NextActionResults
        Results of the next-action run.
    board : pandas.DataFrame
        Leaderboard of the results.

    Returns
    -------
    list of Column
        Columns with one cell per row of the leaderboard.
    """
    columns = frame_columns(board, _FIRST)
    beside = results.difference_to_full().set_index(["strategy", "limit"])
    if not beside.empty:
        keys = zip(board["strategy"], board["limit"], strict=True)
        cells = [_difference_cell(beside, key) for key in keys]
        columns.append(Column("vs full\n(95 %)", cells, left=True))
    return [*columns, *frame_columns(board, _LAST)]


def _difference_cell(beside: pd.DataFrame, key: tuple[str, float]) -> str:
    """Format the share of calls equal to the recorded ones, minus the share of ``full``.

    The cell of ``full`` itself is empty.
    """
    if key not in beside.index:
        return ""
    row = beside.to_dict("index")[key]
    value, low, high = (row[name] for name in ("difference", "low", "high"))
    if value != value:
        return "–"
    bounds = "too few" if low != low else " to ".join(map(format_signed_share, (low, high)))
    return f"{format_signed_share(value)} ({bounds})"


def next_action_notes(
    results: NextActionResults, board: pd.DataFrame, legend: str
) -> Iterator[str]:
    """Yield the notes below the table: the sample, the legend, and how to read the scores.

    Parameters
    ----------
    results : NextActionResults
        Results of the next-action run.
    board : pandas.DataFrame
        Leaderboard of the results.
    legend : str
        Explanation of the headings that are shown.

    Yields
    ------
    str
        Next note.
    """
    manifest = results.manifest
    settings = manifest["agreement"]
    sampled = [each for each in results.recordings if each["drawn"]]
    drawn, eligible = (sum(each[key] for each in sampled) for key in ("drawn", "eligible"))
    kind = "requests" if settings["texts"] else "recorded calls"
    only = " with a context that at least one strategy changes" if settings["differing"] else ""
    times = f", {settings['replicates']} times each" if settings["replicates"] > 1 else ""
    yield (
        f"{settings['answer_model']} was asked for the next action at {drawn:,} of {eligible:,} "
        f"{kind}{only}{times}, in {pluralize(len(sampled), 'recording')} and "
        f"{pluralize(results.cluster_count, 'cluster')}."
    )
    yield legend
    if FULL_HISTORY in set(board["strategy"]):
        beside = "Vs full: 'same call' minus the 'same call' of full history, on the same requests."
    else:
        beside = "Full history was not evaluated for comparison; add -s full."
    noise = "" if times else "; --replicates measures how often the model agrees with itself"
    yield (
        f"{beside} Off-policy: a different call may be as good as the recorded one, so compare "
        f"strategies with each other instead of judging single figures{noise}."
    )
    yield from _missing_context_sentences(sampled)
    if unsound := sum(each["unsound"] for each in results.recordings):
        calls = pluralize(unsound, "call")
        yield f"Excluded: {calls} that follow messages which a provider would reject."
    for column, words in (
        ("unanswered_rate", "requests got no answer and are not scored, so strategies may be compared "
         "on different requests"),
        ("cut_rate", "replies were cut off at the maximum length of a reply (--max-tokens)"),
    ):  # fmt: skip
        if (most := board[column].max()) > 0:
            yield f"Up to {format_percent(most)} % of a strategy's {words}."


def _missing_context_sentences(sampled: list[dict[str, Any]]) -> Iterator[str]:
    """Yield sentences about inputs that the recorded agent had and the model does not get."""
    if derived := [each for each in sampled if each["tools"] == "derived"]:
        keys = ("tool_names", "tool_tokens")
        names, tokens = (mean(each[key] for each in derived) for key in keys)
        yield (
            f"{pluralize(len(derived), 'recording')} without tool definitions: tools are derived from "
            f"the recorded calls (mean: {names:.1f} tools, {format_count(tokens)} tokens per "
            "request, in addition to the limit). Tools that were never called are missing, so the "
            "choice of a tool is easier than it was for the recorded agent."
        )
    if bare := [each for each in sampled if not each["system"]]:
        yield (
            f"{pluralize(len(bare), 'recording')} without a system prompt: the model does not get the "
            "instructions of the recorded agent."
        )
