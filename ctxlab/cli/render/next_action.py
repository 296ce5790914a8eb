"""The board of ``ctxlab agree``: how often the next call is the recorded one, beside full history."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from rich.text import Text

from ctxlab._utils.humanize import many
from ctxlab.cli.render import format as show
from ctxlab.cli.render.leaderboard import (
    board_json,
    by_limit,
    short,
)
from ctxlab.evaluation.probing.next_action_results import (
    FULL,
    Agreement,
)

__all__ = ["agreement_json", "agreement_text"]

_SPARE = ("leaf\n%", "ents\n%", "text\n%", "args\n%", "self\n%")
"heads of the columns that a narrow terminal does without, what is missed least first"


_SHARES = (
    ("name\n%", "agrees_name", True),
    ("args\n%", "agrees_arguments", True),
    ("leaf\n%", "agrees_leaves", True),
    ("ents\n%", "agrees_entities", True),
    ("text\n%", "text_only_rate", True),
    ("quiet\n%", "agrees_text", False),
    ("self\n%", "agrees_self", False),
    ("inval\n%", "invalid_rate", False),
    ("none\n%", "unanswered_rate", False),
)
"""Heads, columns of the leaderboard, and whether they are shown whatever they hold."""


_LEGEND = (
    ("args", "args: with the recorded arguments, whatever the tool"),
    ("leaf", "leaf: their values that are equal"),
    ("ents", "ents: paths, ids, numbers … in them that are named"),
    ("text", "text: no call was made"),
    ("quiet", "quiet: nor was one where none was recorded"),
    ("self", "self: two answers to one request make the same calls"),
    ("inval", "inval: a provider would refuse the request, so it was not asked"),
    ("none", "none: no answer came"),
)


def agreement_json(found: Agreement) -> str:
    """The leaderboard as one JSON array of objects."""
    return board_json(found)


def agreement_text(found: Agreement) -> str:
    """The table, then what it rests on and what it does not say."""
    board = found.leaderboard()
    beside = found.beside_full().set_index(["strategy", "limit"])
    columns = _columns(board, beside)
    names = [short(name) for name in board["strategy"]]
    heads = show.fitting({"\nstrategy": names, **columns}, _SPARE)
    rows = list(by_limit(board, heads, columns, found.manifest["spec"]["limits"]))
    return show.drawn(
        show.table(heads, rows, {0, *(i for i, head in enumerate(heads) if "95" in head)}),
        Text(),
        *(Text(sentence, style="dim") for sentence in _notes(found, board, heads)),
    )


def _columns(board: pd.DataFrame, beside: pd.DataFrame) -> dict[str, list[str]]:
    """Cells by head, in the order in which they stand."""
    found = {
        "\nanswers": [show.compact(float(count)) for count in board["answered"]],
        "tokens\nmean": [show.compact(float(tokens)) for tokens in board["tokens_mean"]],
    }
    for head, column, wanted in _SHARES:
        if not wanted and not board[column].fillna(0).any():
            continue  # nothing to tell: it was not asked, or there was none
        found[head] = [show.percent(float(share)) for share in board[column]]
        if column == "agrees_arguments":
            bounds = (board[f"agrees_both{end}"] for end in ("", "_low", "_high"))
            found["both\n(95 %)"] = [
                show.span(*map(float, each)) for each in zip(*bounds, strict=True)
            ]
            if not beside.empty:
                keys = zip(board["strategy"], board["limit"], strict=True)
                found["less full\n(95 %)"] = [_difference(beside, key) for key in keys]
    return found


def _difference(beside: pd.DataFrame, key: tuple[str, float]) -> str:
    """A difference of shares with its interval; full history itself has none."""
    if key not in beside.index:
        return ""
    row = beside.to_dict("index")[key]
    value, low, high = (row[name] for name in ("difference", "low", "high"))
    if low != low:
        return f"{_signed(value)} (few)" if value == value else show.percent(value)
    return f"{_signed(value)} ({_signed(low)} to {_signed(high)})"


def _signed(value: float) -> str:
    """A difference of shares.

    >>> _signed(-0.123), _signed(0.05), _signed(0.001), _signed(-1)
    ('−.12', '+.05', '.00', '−1.0')
    """
    size = show.share(abs(value) if abs(value) > 0.995 else round(abs(value), 2))
    return size if size == ".00" else f"{'−' if value < 0 else '+'}{size}"


def _notes(found: Agreement, board: pd.DataFrame, heads: list[str]) -> Iterator[str]:
    """What is behind the figures, and what they do not say."""
    manifest = found.manifest
    settings = manifest["agreement"]
    asked = [each for each in manifest["recordings"] if each["drawn"]]
    drawn, eligible = (sum(each[key] for each in asked) for key in ("drawn", "eligible"))
    kind = "turns" if settings["texts"] else "recorded calls"
    only = " from which some strategy leaves something out" if settings["differing"] else ""
    times = f", {settings['replicates']} times each" if settings["replicates"] > 1 else ""
    yield (
        f"{settings['answer_model']} was asked at {drawn:,} of {eligible:,} {kind}{only}{times}, in "
        f"{many(len(asked), 'recording')} and {many(found.clusters, 'cluster')}."
    )
    told = [words for head, words in _LEGEND if any(head == each.strip("\n%") for each in heads)]
    yield f"Name: calls of the recorded tool; both: and with the recorded arguments; {'; '.join(told)}."
    if FULL in set(board["strategy"]):
        beside = "Less full: both, less that of full history on the same requests, over clusters."
    else:
        beside = (
            "Full history is not among them, so nothing says how often this model agrees at best."
        )
    noise = "" if times else "; --replicates shows how often the model agrees with itself"
    yield (
        f"{beside} Off-policy: another call than the recorded one may be as good, so a figure by "
        f"itself says little{noise}."
    )
    yield from _missing(asked)
    if unsound := sum(each["unsound"] for each in manifest["recordings"]):
        yield f"Left out: {many(unsound, 'call')} before which the recording itself would be refused."
    for column, words in (
        ("unanswered_rate", "stayed unanswered and count in no share: strategies may then be compared "
         "on different requests"),
        ("cut_rate", "were cut at the most tokens that a reply may take (--max-tokens)"),
    ):  # fmt: skip
        if (most := board[column].max()) > 0:
            yield f"Up to {show.percent(most)} % of a strategy's questions {words}."


def _missing(asked: list[dict[str, Any]]) -> Iterator[str]:
    """What the recorded agent was told, and the model is not."""
    if derived := [each for each in asked if each["tools"] == "derived"]:
        names, tokens = (
            sum(each[key] for each in derived) / len(derived)
            for key in ("tool_names", "tool_tokens")
        )
        yield (
            f"{many(len(derived), 'recording')} without tool definitions: those offered are derived "
            f"from the calls ({names:.1f} tools, {show.compact(tokens)} tokens a request, mean, beyond "
            "the limit). A tool that was never called is not offered: the choice is easier than it was."
        )
    if bare := [each for each in asked if not each["system"]]:
        yield (
            f"{many(len(bare), 'recording')} without a system prompt: the model is not told what the "
            "agent was."
        )
