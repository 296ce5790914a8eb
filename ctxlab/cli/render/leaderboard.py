"""The leaderboard as text says what is behind it and ends with one sentence that recommends."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

import pandas as pd
from rich.text import Text

from ctxlab._utils.humanize import many
from ctxlab._utils.tables import markdown
from ctxlab.cli.render import format as show
from ctxlab.evaluation.metrics import FAR
from ctxlab.evaluation.recommendation import control_in
from ctxlab.evaluation.results import Results

__all__ = [
    "basis",
    "board_json",
    "board_markdown",
    "board_text",
    "by_limit",
    "limit_words",
    "short",
]


class _Figure(NamedTuple):
    head: str
    needs: str
    "the column of the leaderboard without which it is not shown"
    cell: Callable[[Any], str]


_FIGURES = (
    _Figure("tokens\nmean", "tokens_mean", lambda row: show.compact(row.tokens_mean)),
    _Figure("\npeak", "tokens_peak", lambda row: show.compact(row.tokens_peak)),
    _Figure("over\n%", "overflow_rate", lambda row: show.percent(row.overflow_rate)),
    _Figure("inval\n%", "invalid_rate", lambda row: show.percent(row.invalid_rate)),
    _Figure("cache\n%", "cached_share", lambda row: show.percent(row.cached_share)),
    _Figure("cost\n$", "cost_usd", lambda row: show.dollars(row.cost_usd)),
    _Figure("own\n$", "strategy_usd", lambda row: show.dollars(row.strategy_usd)),
    _Figure("recall\nall", "recall", lambda row: show.share(row.recall)),
    _Figure("\nfar (95 %)", "recall_far", lambda row: _span(row, "recall_far")),
    _Figure("point\n%", "pointer_rate", lambda row: show.percent(row.pointer_rate)),
    _Figure("lost\n%", "lost_rate", lambda row: show.percent(row.lost_rate)),
    _Figure(
        "asked\ntokens", "question_tokens_mean", lambda row: show.compact(row.question_tokens_mean)
    ),
    _Figure(
        "\nover %",
        "question_overflow_rate",
        lambda row: show.percent(row.question_overflow_rate),
    ),
    _Figure(
        "fetch\n%", "evidence_pointer_rate", lambda row: show.percent(row.evidence_pointer_rate)
    ),
    _Figure("\nevidence (95 %)", "evidence_recall", lambda row: _span(row, "evidence_recall")),
    _Figure("\nanswer (95 %)", "answer_containment", lambda row: _span(row, "answer_containment")),
    _Figure("chance\n%", "answer_chance", lambda row: show.percent(row.answer_chance)),
    _Figure("\ncanaries (95 %)", "survival_end", lambda row: _span(row, "survival_end")),
)

_SPARE = (
    "\ncanaries (95 %)",
    *("\npeak", "lost\n%", "point\n%", "recall\nall", "cache\n%", "inval\n%", "fetch\n%"),
    "chance\n%",
    *("asked\ntokens", "\nover %"),
)
"heads of the columns that a narrow terminal does without, what is missed least first"
_NAMES = 12  # more than the least that names take, where there are so many columns to leave out
_ASKED = (
    *("question_tokens_mean", "question_overflow_rate"),
    *("evidence_pointer_rate", "evidence_recall", "answer_containment", "answer_chance"),
    "survival_end",
)
"columns that only recordings with questions, or with canaries, have"
_SOME = ("strategy_usd", "evidence_pointer_rate")
"columns that are shown where there is anything"
_HEADS = {
    "tokens_mean": "tokens mean",
    "tokens_peak": "tokens peak",
    "question_overflow_rate": "asked over %",
}
"heads that need the one beside them, as they are where there is none"
_KINDS = {"summary": "summaries", "contents": "contents"}


def board_json(results: Results) -> str:
    """The leaderboard as one JSON array of objects keyed by its columns, limits as given."""
    board, given = results.leaderboard(), _given(results)
    columns = {str(name): list(board[name]) for name in board}
    columns["limit"] = [given.get(limit, limit) for limit in columns["limit"]]
    rows = zip(*columns.values(), strict=True)
    return show.as_json(dict(zip(columns, row, strict=True)) for row in rows)


def board_text(results: Results, floor: float) -> str:
    """The table, what its columns mean, what is behind it, and the verdict as the last line."""
    board = results.leaderboard()
    known = {figure.head: figure for figure in _FIGURES if _told(figure.needs, board)}
    told = {
        head: [figure.cell(row) for row in board.itertuples()] for head, figure in known.items()
    }
    names = [*board["strategy"].map(short)]
    room = show.width() - (_NAMES if _told("question_tokens_mean", board) else 0)
    shown = show.fitting({"\nstrategy": names, **told}, _SPARE, room)
    figures = [known[head] for head in shown[1:]]
    heads = ["\nstrategy", *(figure.head for figure in figures)]
    rows = by_limit(board, heads, told, results.manifest["spec"]["limits"])
    left = {0, *(i for i, head in enumerate(heads) if "(95 %)" in head)}
    told_of = {figure.needs for figure in figures}
    notes = [Text(sentence, style="dim") for sentence in _notes(results, board, told_of)]
    text = show.drawn(show.table(heads, rows, left), Text(), *notes)
    verdict = results.verdict(floor)
    # In a pipe the verdict stays on one line, so that `tail -n 1` has it.
    last = show.drawn(Text(verdict, style="bold")) if sys.stdout.isatty() else verdict
    return f"{text}\n\n{last}"


def board_markdown(results: Results) -> str:
    """A table for each limit, every column that was measured, controls last, and what they mean."""
    board, given = results.leaderboard(), _given(results)
    figures = [figure for figure in _FIGURES if _told(figure.needs, board)]
    heads = ["strategy", *(_HEADS.get(f.needs, " ".join(f.head.split())) for f in figures)]
    parts = []
    for limit in dict.fromkeys(board["limit"]):
        rows = [*board[board["limit"] == limit].itertuples()]
        cells = [
            [_named(str(row.strategy)), *(figure.cell(row) for figure in figures)]
            for row in sorted(rows, key=lambda row: bool(control_in(str(row.strategy))))
        ]
        parts += [f"Within {limit_words(given.get(limit, limit))}:", markdown(heads, cells)]
    return "\n\n".join([*parts, *_notes(results, board, {f.needs for f in figures})])


def short(strategy: str) -> str:
    """A strategy as it may be typed: no empty parentheses.

    >>> short("tool_stubs(keep=3) | panic()")
    'tool_stubs(keep=3) | panic'
    """
    return re.sub(r"(?<=\w)\(\)(?= \||$)", "", strategy)


def limit_words(limit: float) -> str:
    """A limit in words.

    >>> limit_words(8000), limit_words(0.25)
    ('8,000 tokens', '25 % of each recording')
    """
    if isinstance(limit, float) and limit <= 1:
        return f"{limit * 100:.3g} % of each recording"
    return f"{limit:,.0f} tokens"


def by_limit(
    board: pd.DataFrame, heads: list[str], columns: dict[str, list[str]], limits: list[int | float]
) -> Iterator[show.Row]:
    """The strategies of each limit, then the controls that bound them."""
    given = {float(limit): limit for limit in limits}
    sizes = [
        max(len(line) for text in (h, *columns[h]) for line in text.split("\n")) for h in heads[1:]
    ]
    room = show.width() - sum(sizes) - len(sizes)
    for number, limit in enumerate(dict.fromkeys(board["limit"])):
        if number:
            yield [""], ""
        yield [f"within {limit_words(given.get(limit, limit))}"], "bold"
        here = [i for i, each in enumerate(board["limit"]) if each == limit]
        told = {i: bool(control_in(board["strategy"][i])) for i in here}
        for control in (False, True):
            if control and any(told.values()):
                yield ["  controls"], "dim italic"
            for i in here:
                if told[i] == control:
                    name = show.fold(short(board["strategy"][i]), room)
                    yield (
                        [name, *(columns[head][i] for head in heads[1:])],
                        "dim" if control else "",
                    )


def _told(column: str, board: pd.DataFrame) -> bool:
    """Whether a column is shown: it was measured, and there was something to measure.

    A strategy's own cost is somebody's, questions were put, evidence can be fetched.
    """
    if column not in board or (column in _ASKED and board[column].isna().all()):
        return False
    return column not in _SOME or not (board[column] == 0).all()


def _named(strategy: str) -> str:
    """A strategy in Markdown."""
    return f"`{short(strategy)}`{' (control)' if control_in(strategy) else ''}"


def _span(row: Any, score: str) -> str:
    """A share with its interval."""
    return show.span(*(getattr(row, f"{score}{bound}") for bound in ("", "_low", "_high")))


def _notes(results: Results, board: pd.DataFrame, shown: Collection[str]) -> Iterator[str]:
    """What is behind the table, and what those of its columns mean that are shown."""
    manifest = results.manifest
    heard = sum(r["requests"] > 0 for r in manifest["recordings"])
    requests = int(board["requests"].max())
    far = results.far_clusters
    if far is not None:
        arguments = int(board["far_arguments"].max())
        rests = f" Far recall rests on {many(arguments, 'argument')} in {many(far, 'cluster')}."
    else:
        rests = ""
    yield (
        f"{many(heard, 'recording')} in {many(results.clusters, 'cluster')}, "
        f"{many(requests, 'request')}, replayed off-policy: what the agent did next is what the "
        f"recording says.{rests}"
    )
    if _told("question_tokens_mean", board):
        yield (
            f"{many(int(board['questions'].max()), 'question')} of the recordings were put, each by "
            f"itself; no model was asked. An answer that must be worked out stands nowhere, and a "
            f"short one stands somewhere by chance."
        )
    reserve = manifest["spec"].get("reserve", 0)
    less = f" less {reserve:,} for the reply" if reserve else ""
    legend = (
        ("overflow_rate", f"over: requests larger than the limit{less}"),
        ("invalid_rate", "inval: a provider would refuse them"),
        ("cached_share", "cache: tokens read from the prompt cache"),
        ("strategy_usd", "own: the strategy's own model calls, which cost includes"),
        ("recall", "recall: what the agent used next that was still in view (availability: an "
         "upper bound)"),
        ("recall_far", f"far: what was last said over {FAR:,} tokens before, with its interval "
         "over clusters"),
        ("pointer_rate", "point: not in view but can be fetched again"),
        ("lost_rate", "lost: neither"),
        ("question_overflow_rate", "asked: requests that put a question, their mean tokens and how "
         "many are too large"),
        ("evidence_pointer_rate", "fetch: evidence that is not in view but can be fetched again"),
        ("evidence_recall", "evidence: share of a question's evidence messages that is in view"),
        ("answer_containment", "answer: questions of which an answer stands in what is sent"),
        ("answer_chance", "chance: the same where none of the evidence is in view"),
        ("survival_end", "canaries: share in view at the end of each recording"),
    )  # fmt: skip
    if words := "; ".join(meaning for column, meaning in legend if column in shown):
        yield f"{words[:1].upper()}{words[1:]}."
    yield basis(manifest, "cost_usd" in board)
    for strategy, counts in manifest.get("fallbacks", {}).items():
        yield _without_model(strategy, counts)


def basis(manifest: dict[str, Any], priced: bool) -> str:
    """How tokens were counted and, where anything was priced, at which prices."""
    alike: dict[str, list[str]] = {}
    for name, note in manifest["tokens"].items():
        alike.setdefault(note.replace(name, _NAME, 1), []).append(name)
    counted = [_sentence(note.replace(_NAME, " and ".join(names))) for note, names in alike.items()]
    prices = [_prices(manifest["prices"])] if priced else []
    return " ".join([*counted, *prices])


_NAME = "\0"


def _without_model(strategy: str, counts: dict[str, Any]) -> str:
    """How much of what a model was to write is not its own, and why."""
    kinds = list(counts["kinds"])
    what = _KINDS.get(kinds[0], f"{kinds[0]}s") if len(kinds) == 1 else "texts"
    reason, times = max(counts["reasons"].items(), key=lambda item: item[1])
    found = counts["fallbacks"]
    why = reason if times == found else f"{times:,} times: {reason}"
    return _sentence(
        f"{found:,} of {counts['written']:,} {what} of {short(strategy)} were made without the "
        f"model, in whole or in part ({why})"
    )


def _prices(models: dict[str, dict[str, Any]]) -> str:
    """Prices of each model, those that cost the same together, and what to know before trusting them."""
    alike: dict[str, list[str]] = {}
    sources, warnings = set(), []
    for name, prices in models.items():
        if prices["warning"]:
            warnings.append(prices["warning"].rstrip(".") + ".")  # it begins with a model's name
        if not (prices["input"] or prices["output"]):
            continue  # no price is known
        sources.add("litellm's table" if prices["source"] == "litellm" else "ctxlab's own table")
        rates = (f"{what} ${prices[key] * 1e6:.4g}" for what, key in _RATES.items())
        alike.setdefault(", ".join(rates), []).append(name)
    if not alike:
        return " ".join(warnings)
    whose = len(models) > 1
    listed = "; ".join(
        (" and ".join(names) + ": " if whose else "") + rates for rates, names in alike.items()
    )
    source = " and ".join(sorted(sources, reverse=True))
    return " ".join([f"Prices a million tokens: {listed} ({source}).", *warnings])


_RATES = {"input": "input", "cached": "cache_read", "output": "output"}


def _given(results: Results) -> dict[float, int | float]:
    """Limits as they were given; in the frame they are all floats."""
    return {float(limit): limit for limit in results.manifest["spec"]["limits"]}


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}".rstrip(".") + "."
