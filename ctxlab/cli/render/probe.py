"""Render the table of ``ctxlab probe``: how well a model answers questions under each strategy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pandas as pd
from rich.text import Text

from ctxlab._utils.humanize import pluralize
from ctxlab.cli.render import format as show
from ctxlab.cli.render.leaderboard import leaderboard_json, rows_by_limit, short_strategy
from ctxlab.evaluation.probing.judge import judge_score_name

if TYPE_CHECKING:
    from ctxlab.evaluation.probing.results import QAResults

_DROP_ORDER = (
    "empty\n%",
    "over\n%",
    "exact\nmatch",
    "abstained\n%",
    "answer\nin view",
    "evidence\nin view",
    "SD over\nreplicates",
)
"headings of the columns that a narrow terminal leaves out, least important first"


def qa_json(results: QAResults) -> str:
    """Return the leaderboard as a JSON array of objects.

    Parameters
    ----------
    results : QAResults
        The results.

    Returns
    -------
    str
        The array.
    """
    return leaderboard_json(results)


def qa_text(results: QAResults) -> str:
    """Return the table, its legend and notes on how to read it.

    Parameters
    ----------
    results : QAResults
        The results.

    Returns
    -------
    str
        The text.
    """
    board = results.leaderboard()
    columns = _columns(results, board)
    names = [short_strategy(name) for name in board["strategy"]]
    heads = show.fit_columns({"\nstrategy": names, **columns}, _DROP_ORDER)
    wide = {i for i, head in enumerate(heads) if "95" in head}
    return show.render_to_text(
        show.make_table(
            heads,
            rows_by_limit(board, heads, columns, results.manifest["spec"]["limits"]),
            {0, *wide},
        ),
        Text(),
        *(Text(sentence, style="dim") for sentence in _notes(results, board, heads)),
    )


def _columns(results: QAResults, board: pd.DataFrame) -> dict[str, list[str]]:
    """Return cells by heading, in the order of the table; columns without values are left out."""
    rows = list(board.to_dict("records"))

    def spans(name: str) -> list[str]:
        return [
            show.format_share_interval(row[name], row[f"{name}_low"], row[f"{name}_high"])
            for row in rows
        ]

    def shares(name: str) -> list[str]:
        return [show.format_share(row[name]) for row in rows]

    def percents(name: str) -> list[str]:
        return [show.format_percent(row[name]) for row in rows]

    judges = {
        _judge_head(results, i): spans(judge_score_name(i)) for i, _ in enumerate(results.judges, 1)
    }
    shown = {
        "tokens\nmean": [show.format_count(row["prompt_mean"]) for row in rows],
        "over\n%": percents("over_rate"),
        "evidence\nin view": shares("evidence_recall"),
        "answer\nin view": shares("answer_containment"),
        "exact\nmatch": shares("exact"),
        "F1\n(95 %)": spans("f1"),
        **(
            {"contains\n": shares("contains")}
            if judges
            else {"contains\n(95 %)": spans("contains")}
        ),
        **judges,
        "correctly\nabstained": shares("declined_rate"),
        "abstained\n%": percents("gave_up_rate"),
        "no\nanswer %": percents("unanswered_rate"),
        "empty\n%": percents("empty_rate"),
        "cost\n$": [show.format_usd(row["usd"]) for row in rows],
    }
    if "f1_sd" in board:
        name = judge_score_name(1) if judges else "f1"
        spread = [f"{row[f'{name}_sd']:.3f}"[1:] for row in rows]
        shown = _insert_after(
            shown,
            _judge_head(results, 1) if judges else "contains\n(95 %)",
            {"SD over\nreplicates": spread},
        )
    silent = {
        "over\n%": (board["over_rate"] == 0).all(),
        "evidence\nin view": board["evidence_recall"].isna().all(),
        "answer\nin view": board["answer_containment"].isna().all(),
        "correctly\nabstained": board["declined_rate"].isna().all(),
        "abstained\n%": (board["gave_up_rate"].fillna(0) == 0).all(),
        "no\nanswer %": (board["unanswered_rate"] == 0).all(),
        "empty\n%": (board["empty_rate"].fillna(0) == 0).all(),
    }
    return {head: cells for head, cells in shown.items() if not silent.get(head, False)}


def _judge_head(results: QAResults, number: int) -> str:
    which = f" {number}" if len(results.judges) > 1 else ""
    return f"judge{which}\n(95 %)"


def _insert_after(
    columns: dict[str, list[str]], head: str, more: dict[str, list[str]]
) -> dict[str, list[str]]:
    made: dict[str, list[str]] = {}
    for each, cells in columns.items():
        made[each] = cells
        if each == head:
            made |= more
    return made


def _notes(results: QAResults, board: pd.DataFrame, heads: list[str]) -> Iterator[str]:
    """Yield what the figures are based on, the legend and the limits of the method."""
    settings, answers = results.manifest["exam"], results.answers
    questions = int(board["questions"].max())
    times = f", each {settings['replicates']} times" if settings["replicates"] > 1 else ""
    n_recordings = sum(1 for _ in dict.fromkeys(answers["recording"]))
    clusters = pluralize(results.cluster_count, "cluster")
    yield (
        f"{settings['answer_model']} was asked {pluralize(questions, 'question')} under each "
        f"strategy{times}, in {pluralize(n_recordings, 'recording')} and {clusters}. Off-policy: the "
        "conversation stays as recorded. Scores measure model and context together: compare with full."
    )
    legend = (
        ("F1", "exact match, F1, contains: the reply equals the answer, shares words with it, contains "
         "it (normalised as in SQuAD), over questions that have an answer"),
        ("in view", "in view: part of the request (availability), measured without a model"),
        ("correctly\nabstained", "correctly abstained: of questions without an answer, those where "
         "the reply says so"),
        ("abstained\n%", "abstained: of questions with an answer, those where the reply says there "
         "is none"),
        ("over\n%", "over: requests larger than the limit"),
    )  # fmt: skip
    shown = "; ".join(words for head, words in legend if any(head in each for each in heads))
    yield f"{shown[:1].upper()}{shown[1:]}."
    if "SD over\nreplicates" in heads:
        of = "the judge's share" if results.judges else "F1"
        count = settings["replicates"]
        yield f"SD over replicates: standard deviation of {of} over the {count} replicates."
    if results.judges:
        yield from _judge_sentences(results)
    yield from _unscored_sentences(answers)


def _judge_sentences(results: QAResults) -> Iterator[str]:
    answers = results.answers
    replies = answers[answers["outcome"] == "answered"]
    for number, judge in enumerate(results.judges, 1):
        unread = int(replies[judge_score_name(number)].isna().sum())
        without = (
            f"; {unread:,} of its verdicts could not be parsed and are not counted"
            if unread
            else ""
        )
        yield f"Judge {number if len(results.judges) > 1 else ''}".rstrip() + (
            f": {judge}, with ctxlab's rubric; empty replies count as wrong without a call{without}."
        )
    for (one, other), each in results.judge_agreement().items():
        interval = (
            show.format_share_interval(each.kappa, each.low, each.high)
            if each.kappa >= 0
            else f"{each.kappa:.2f}"
        )
        yield (
            f"{one} and {other} agree on {show.format_percent(each.agreement)} % of "
            f"{each.replies:,} different replies; Cohen's kappa {interval}, "
            "95 % interval over clusters."
        )


def _unscored_sentences(answers: pd.DataFrame) -> Iterator[str]:
    """Yield how many questions have no score or an empty reply, and why."""
    for outcome, words in (
        ("unanswered", "requests got no reply and are in no score"),
        (
            "invalid",
            "requests were not sent and are in no score: a provider would reject them",
        ),
        ("empty", "replies are empty, which counts as wrong"),
    ):
        rows = answers[answers["outcome"] == outcome]
        if rows.empty:
            continue
        why = rows["why"].value_counts().index[0]
        reason = f" (mostly: {why})" if why and outcome != "invalid" else ""
        hint = "; raise --max-tokens" if outcome == "empty" and why == "length" else ""
        yield (f"{len(rows):,} of {len(answers):,} {words}{reason}{hint}.")
