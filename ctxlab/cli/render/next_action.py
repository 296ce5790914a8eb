"""The table of ``ctxlab next-action``: how often the next call is the recorded one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from rich.text import Text

from ctxlab._utils.humanize import pluralize
from ctxlab.cli.render import format as show
from ctxlab.cli.render.leaderboard import leaderboard_json, rows_by_limit, short_strategy
from ctxlab.evaluation.probing.results import FULL_HISTORY, NextActionResults

__all__ = ["next_action_json", "next_action_text"]

_DROP_ORDER = (
    "values\nequal %",
    "entities\nnamed %",
    "no call\n%",
    "same\nargs %",
    "self-\nagree %",
)
"heads of the columns that a narrow terminal does without, what is missed least first"
_EXTRA_NAME_WIDTH = 4
"columns that a strategy has beyond what a name must have"


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
"""Heads, columns of the leaderboard, and whether they are shown whatever they hold."""


_LEGEND = (
    ("same\nargs %", "same args: the recorded arguments, whatever the tool"),
    ("values\nequal %", "values equal: recorded argument values that the made calls have too"),
    (
        "entities\nnamed %",
        "entities named: paths, ids, numbers … of the recorded arguments that are named",
    ),
    ("no call\n%", "no call: text alone"),
    ("no-call\nagree %", "no-call agreement: no call where none was recorded"),
    ("self-\nagree %", "self-agreement: two answers to one request make the same calls"),
    ("invalid\n%", "invalid: a provider would refuse the request, so it was not asked"),
    ("no\nanswer %", "no answer: no reply came"),
)


def next_action_json(results: NextActionResults) -> str:
    """The leaderboard as one JSON array of objects."""
    return leaderboard_json(results)


def next_action_text(results: NextActionResults) -> str:
    """The table, then what it rests on and what it does not say."""
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
    """Cells by head, in the order in which they stand."""
    found = {
        "\nanswers": [show.format_count(float(count)) for count in board["answered"]],
        "tokens\nmean": [show.format_count(float(tokens)) for tokens in board["tokens_mean"]],
    }
    for head, column, wanted in _SHARE_COLUMNS:
        if not wanted and not board[column].fillna(0).any():
            continue  # nothing to tell: it was not asked, or there was none
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
    """A difference of shares with its interval; full history itself has none."""
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
    """A difference of shares.

    >>> [_format_signed_share(value) for value in (-0.123, 0.05, 0.001, -1)]
    ['−.12', '+.05', '.00', '−1.0']
    """
    size = show.format_share(abs(value) if abs(value) > 0.995 else round(abs(value), 2))
    return size if size == ".00" else f"{'−' if value < 0 else '+'}{size}"


def _notes(results: NextActionResults, board: pd.DataFrame, heads: list[str]) -> Iterator[str]:
    """What is behind the figures, and what they do not say."""
    manifest = results.manifest
    settings = manifest["agreement"]
    sampled = [each for each in manifest["recordings"] if each["drawn"]]
    drawn, eligible = (sum(each[key] for each in sampled) for key in ("drawn", "eligible"))
    kind = "turns" if settings["texts"] else "recorded calls"
    only = " from which some strategy leaves something out" if settings["differing"] else ""
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
            "Vs full: same call, less that of full history on the same requests, over clusters."
        )
    else:
        beside = (
            "Full history is not among them, so nothing says how often this model agrees at best."
        )
    noise = "" if times else "; --replicates shows how often the model agrees with itself"
    yield (
        f"{beside} Off-policy: another call than the recorded one may be as good, so a figure by "
        f"itself says little{noise}."
    )
    yield from _missing_context_sentences(sampled)
    if unsound := sum(each["unsound"] for each in manifest["recordings"]):
        calls = pluralize(unsound, "call")
        yield f"Left out: {calls} before which the recording itself would be refused."
    for column, words in (
        ("unanswered_rate", "stayed unanswered and count in no share: strategies may then be compared "
         "on different requests"),
        ("cut_rate", "were cut at the most tokens that a reply may take (--max-tokens)"),
    ):  # fmt: skip
        if (most := board[column].max()) > 0:
            yield f"Up to {show.format_percent(most)} % of a strategy's questions {words}."


def _missing_context_sentences(sampled: list[dict[str, Any]]) -> Iterator[str]:
    """What the recorded agent was told, and the model is not."""
    if derived := [each for each in sampled if each["tools"] == "derived"]:
        names, tokens = (
            sum(each[key] for each in derived) / len(derived)
            for key in ("tool_names", "tool_tokens")
        )
        yield (
            f"{pluralize(len(derived), 'recording')} without tool definitions: those offered are "
            f"derived from the calls ({names:.1f} tools, {show.format_count(tokens)} tokens a request, "
            "mean, beyond the limit). A tool that was never called is not offered: the choice is easier "
            "than it was."
        )
    if bare := [each for each in sampled if not each["system"]]:
        yield (
            f"{pluralize(len(bare), 'recording')} without a system prompt: the model is not told what "
            "the agent was."
        )
