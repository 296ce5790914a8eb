"""Render the table of ``ctxlab next-action``: how often a model makes the recorded tool call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from rich.text import Text

from ctxlab._utils.humanize import pluralize
from ctxlab.cli.render import format as show
from ctxlab.cli.render.leaderboard import leaderboard_json, rows_by_limit, short_strategy
from ctxlab.evaluation.probing.results import FULL_HISTORY, NextActionResults

_DROP_ORDER = (
    "values\nequal %",
    "entities\nnamed %",
    "no call\n%",
    "same\nargs %",
    "self-\nagree %",
)
"headings of the columns that a narrow terminal leaves out, least important first"
_EXTRA_NAME_WIDTH = 4
"added to the least width of strategies"


_SHARE_COLUMNS = (
    ("same\ntool %", "agrees_name", True),
    ("same\nargs %", "agrees_arguments", True),
    ("values\nequal %", "agrees_leaves", True),
    ("entities\nnamed %", "agrees_entities", True),
    ("no call\n%", "text_only_rate", True),
    ("no-call\nagree %", "agrees_text", False),
    ("self-\nagree %", "agrees_self", False),
    ("invalid\n%", "invalid_rate", False),
    ("no\nanswer %", "unanswered_rate", False),
)
"""Headings, columns of the leaderboard, and True if shown even without values."""


_LEGEND = (
    ("same\nargs %", "same args: the recorded arguments, with any tool"),
    ("values\nequal %", "values equal: recorded argument values that the model's calls also have"),
    (
        "entities\nnamed %",
        "entities named: paths, ids, numbers … of the recorded arguments that the model's calls name",
    ),
    ("no call\n%", "no call: the model replied with text only"),
    ("no-call\nagree %", "no-call agreement: no call where none was recorded"),
    ("self-\nagree %", "self-agreement: two answers to the same request make the same calls"),
    ("invalid\n%", "invalid: a provider would reject the request, so it was not sent"),
    ("no\nanswer %", "no answer: the model did not reply"),
)


def next_action_json(results: NextActionResults) -> str:
    """Return the leaderboard as a JSON array of objects.

    Parameters
    ----------
    results : NextActionResults
        The results.

    Returns
    -------
    str
        The array.
    """
    return leaderboard_json(results)


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
    beside = results.difference_to_full().set_index(["strategy", "limit"])
    columns = _columns(board, beside)
    names = [short_strategy(name) for name in board["strategy"]]
    room = show.output_width() - _EXTRA_NAME_WIDTH
    heads = show.fit_columns({"\nstrategy": names, **columns}, _DROP_ORDER, room)
    rows = list(rows_by_limit(board, heads, columns, results.manifest["spec"]["limits"]))
    return show.render_to_text(
        show.make_table(heads, rows, {0, *(i for i, head in enumerate(heads) if "95" in head)}),
        Text(),
        *(Text(sentence, style="dim") for sentence in _notes(results, board, heads)),
    )


def _columns(board: pd.DataFrame, beside: pd.DataFrame) -> dict[str, list[str]]:
    """Return cells by heading, in the order of the table."""
    found = {
        "\nanswers": [show.format_count(float(count)) for count in board["answered"]],
        "tokens\nmean": [show.format_count(float(tokens)) for tokens in board["tokens_mean"]],
    }
    for head, column, wanted in _SHARE_COLUMNS:
        if not wanted and not board[column].fillna(0).any():
            continue  # not measured, or never happened
        found[head] = [show.format_percent(float(share)) for share in board[column]]
        if column == "agrees_arguments":
            bounds = (board[f"agrees_both{end}"] for end in ("", "_low", "_high"))
            found["same call\n(95 %)"] = [
                show.format_share_interval(*map(float, each)) for each in zip(*bounds, strict=True)
            ]
            if not beside.empty:
                keys = zip(board["strategy"], board["limit"], strict=True)
                found["vs full\n(95 %)"] = [_difference_cell(beside, key) for key in keys]
    return found


def _difference_cell(beside: pd.DataFrame, key: tuple[str, float]) -> str:
    """Format a difference to full history with its interval; full history itself has none."""
    if key not in beside.index:
        return ""
    row = beside.to_dict("index")[key]
    value, low, high = (row[name] for name in ("difference", "low", "high"))
    if low != low:
        return (
            f"{_format_signed_share(value)} (too few)"
            if value == value
            else show.format_percent(value)
        )
    return f"{_format_signed_share(value)} ({_format_signed_share(low)} to {_format_signed_share(high)})"


def _format_signed_share(value: float) -> str:
    """Format a difference of shares with its sign.

    >>> [_format_signed_share(value) for value in (-0.123, 0.05, 0.001, -1)]
    ['−.12', '+.05', '.00', '−1.0']
    """
    size = show.format_share(abs(value) if abs(value) > 0.995 else round(abs(value), 2))
    return size if size == ".00" else f"{'−' if value < 0 else '+'}{size}"


def _notes(results: NextActionResults, board: pd.DataFrame, heads: list[str]) -> Iterator[str]:
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
    legend = [words for head, words in _LEGEND if head in heads]
    first = "Same tool: calls of the recorded tool; same call: with the recorded arguments too"
    yield f"{'; '.join([first, *legend])}."
    if FULL_HISTORY in set(board["strategy"]):
        beside = (
            "Vs full: same call minus that of full history on the same requests, over clusters."
        )
    else:
        beside = (
            "Full history was not evaluated, so the best agreement of this model is unknown; add "
            "-s full."
        )
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
        names, tokens = (
            sum(each[key] for each in derived) / len(derived)
            for key in ("tool_names", "tool_tokens")
        )
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
