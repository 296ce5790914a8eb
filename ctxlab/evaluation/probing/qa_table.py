"""Columns and notes of the table that shows how well a model answers questions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pandas as pd

from ctxlab._utils.humanize import pluralize
from ctxlab._utils.numbers import format_percent, format_share_interval
from ctxlab._utils.tables import Column
from ctxlab.evaluation.columns import Figure, frame_columns
from ctxlab.evaluation.probing.judge import judge_key

if TYPE_CHECKING:
    from ctxlab.evaluation.probing.results import QAResults

_MATCHES = (
    "exact match: the reply equals the answer; F1: overlap of words; contains: the reply contains "
    "the answer (all three normalised as in SQuAD and only for questions with an answer)"
)
_IN_VIEW = "in view: contained in the request (availability, measured without a model)"
_DECLINED = "correctly abstained: unanswerable questions whose reply states that no answer exists"
_GAVE_UP = "abstained: answerable questions whose reply states that no answer exists"
_BEFORE_SCORES = (
    Figure("tokens\nmean", "prompt_mean", "count"),
    Figure("over\n%", "over_rate", "percent", "over: requests larger than the limit", 6, "empty"),
    Figure("evidence\nin view", "evidence_recall", "share", _IN_VIEW, 2, "nan"),
    Figure("answer\nin view", "answer_containment", "share", _IN_VIEW, 3, "nan"),
    Figure("exact\nmatch", "exact", "share", "", 5),
    Figure("F1\n(95 %)", "f1", "interval", _MATCHES),
)
_AFTER_SCORES = (
    Figure("correctly\nabstained", "declined_rate", "share", _DECLINED, 0, "nan"),
    Figure("abstained\n%", "gave_up_rate", "percent", _GAVE_UP, 4, "empty"),
    Figure("no\nanswer %", "unanswered_rate", "percent", hide="empty"),
    Figure("empty\n%", "empty_rate", "percent", "", 7, "empty"),
    Figure("cost\n$", "usd", "usd"),
)


def qa_columns(results: QAResults, board: pd.DataFrame) -> Iterator[Column]:
    """Yield the columns of the table; columns without values are left out.

    Parameters
    ----------
    results : QAResults
        Results of question answering.
    board : pandas.DataFrame
        Leaderboard of the results.

    Yields
    ------
    Column
        Next column, with one cell per row of the leaderboard.
    """
    judges = range(1, len(results.judges) + 1)
    yield from frame_columns(board, _BEFORE_SCORES)
    if not judges:
        yield Figure("contains\n(95 %)", "contains", "interval").column(board)
        yield from _spread(results, board)
    else:
        yield Figure("contains", "contains", "share").column(board)
    for number in judges:
        head = f"judge{f' {number}' if len(judges) > 1 else ''}\n(95 %)"
        yield Figure(head, judge_key(number), "interval").column(board)
        if number == 1:
            yield from _spread(results, board)
    yield from frame_columns(board, _AFTER_SCORES)


def _spread(results: QAResults, board: pd.DataFrame) -> Iterator[Column]:
    """Yield a column with the standard deviation of the mean score over replicates.

    A replicate is one of several repetitions of all questions. Without repetitions, no column is
    yielded.
    """
    if "f1_sd" in board:
        name = judge_key(1) if results.judges else "f1"
        cells = [f"{spread:.3f}"[1:] for spread in board[f"{name}_sd"]]
        of = "the share graded as correct" if results.judges else "F1"
        count = results.manifest["exam"]["replicates"]
        legend = f"SD over replicates: standard deviation of {of} over the {count} replicates"
        yield Column("SD over\nreplicates", cells, legend, drop=1)


def qa_notes(results: QAResults, board: pd.DataFrame, legend: str) -> Iterator[str]:
    """Yield the notes below the table: questions, legend, judges, and questions without a score.

    Parameters
    ----------
    results : QAResults
        Results of question answering.
    board : pandas.DataFrame
        Leaderboard of the results.
    legend : str
        Explanation of the headings that are shown.

    Yields
    ------
    str
        Next note.
    """
    settings, answers = results.manifest["exam"], results.answers
    questions = int(board["questions"].max())
    times = f", each {settings['replicates']} times" if settings["replicates"] > 1 else ""
    n_recordings = sum(1 for _ in dict.fromkeys(answers["recording"]))
    clusters = pluralize(results.cluster_count, "cluster")
    yield (
        f"{settings['answer_model']} was asked {pluralize(questions, 'question')} under each "
        f"strategy{times}, in {pluralize(n_recordings, 'recording')} and {clusters}. Off-policy: the "
        "conversation stays as recorded. Scores depend on model and context; compare them with full."
    )
    yield legend
    if results.judges:
        yield from _judge_sentences(results)
    yield from _unscored_sentences(answers)


def _judge_sentences(results: QAResults) -> Iterator[str]:
    answers = results.answers
    replies = answers[answers["outcome"] == "answered"]
    for number, judge in enumerate(results.judges, 1):
        unread = int(replies[judge_key(number)].isna().sum())
        which = f" {number}" if len(results.judges) > 1 else ""
        lost = f"; {unread:,} verdicts could not be parsed and are not counted"
        rule = "ctxlab's rubric; empty replies count as wrong and are not sent to the judge"
        yield f"Judge{which}: share graded as correct by {judge}, with {rule}{lost if unread else ''}."
    for (one, other), each in results.judge_agreement().items():
        kappa = f"{each.kappa:.2f}"
        if each.kappa >= 0:
            kappa = format_share_interval(each.kappa, each.low, each.high)
        yield (
            f"{one} and {other} agree on {format_percent(each.agreement)} % of "
            f"{each.replies:,} different replies; Cohen's kappa {kappa}, "
            "with its 95 % interval over clusters."
        )


def _unscored_sentences(answers: pd.DataFrame) -> Iterator[str]:
    """Yield sentences that count questions without a score and empty replies, with the main reason."""
    for outcome, words in (
        ("unanswered", "requests got no reply and are not scored"),
        ("invalid", "requests are not scored, because a provider would reject them"),
        ("empty", "replies are empty, which counts as wrong"),
    ):
        rows = answers[answers["outcome"] == outcome]
        if rows.empty:
            continue
        why = rows["why"].value_counts().index[0]
        reason = f" (mostly: {why})" if why and outcome != "invalid" else ""
        hint = "; increase --max-tokens" if outcome == "empty" and why == "length" else ""
        yield f"{len(rows):,} of {len(answers):,} {words}{reason}{hint}."
