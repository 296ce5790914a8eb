"""The board of ``ctxlab probe``: what replies were worth, strategy by strategy, and what it rests on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pandas as pd
from rich.text import Text

from ctxlab._utils.humanize import many
from ctxlab.cli.render import format as show
from ctxlab.cli.render.leaderboard import (
    board_json,
    by_limit,
    short,
)
from ctxlab.evaluation.probing.qa_scores import judged

if TYPE_CHECKING:
    from ctxlab.evaluation.probing.qa_results import Exam

__all__ = ["exam_json", "exam_text"]

_SPARE = ("empty\n%", "over\n%", "exact\n", "gave\nup %", "answer\nin view", "evid.\nin view")
"heads of the columns that a narrow terminal does without, what is missed least first"


def exam_json(found: Exam) -> str:
    """The leaderboard as one JSON array of objects."""
    return board_json(found)


def exam_text(found: Exam) -> str:
    """The table, then what it rests on and what it does not say."""
    board = found.leaderboard()
    columns = _columns(found, board)
    names = [short(name) for name in board["strategy"]]
    heads = show.fitting({"\nstrategy": names, **columns}, _SPARE)
    wide = {i for i, head in enumerate(heads) if "95" in head}
    return show.drawn(
        show.table(
            heads, by_limit(board, heads, columns, found.manifest["spec"]["limits"]), {0, *wide}
        ),
        Text(),
        *(Text(sentence, style="dim") for sentence in _notes(found, board, heads)),
    )


def _columns(found: Exam, board: pd.DataFrame) -> dict[str, list[str]]:
    """Cells by head, in the order in which they stand; what says nothing is left out."""
    rows = list(board.to_dict("records"))

    def spans(name: str) -> list[str]:
        return [show.span(row[name], row[f"{name}_low"], row[f"{name}_high"]) for row in rows]

    def shares(name: str) -> list[str]:
        return [show.share(row[name]) for row in rows]

    def percents(name: str) -> list[str]:
        return [show.percent(row[name]) for row in rows]

    judges = {_head(found, i): spans(judged(i)) for i, _ in enumerate(found.judges, 1)}
    shown = {
        "tokens\nmean": [show.compact(row["prompt_mean"]) for row in rows],
        "over\n%": percents("over_rate"),
        "evid.\nin view": shares("evidence_recall"),
        "answer\nin view": shares("answer_containment"),
        "exact\n": shares("exact"),
        "F1\n(95 %)": spans("f1"),
        **({"holds\n": shares("contains")} if judges else {"holds\n(95 %)": spans("contains")}),
        **judges,
        "not\nsaid": shares("declined_rate"),
        "gave\nup %": percents("gave_up_rate"),
        "none\n%": percents("unanswered_rate"),
        "empty\n%": percents("empty_rate"),
        "cost\n$": [show.dollars(row["usd"]) for row in rows],
    }
    if "f1_sd" in board:
        name = judged(1) if judges else "f1"
        spread = [f"{row[f'{name}_sd']:.3f}"[1:] for row in rows]
        shown = _after(shown, _head(found, 1) if judges else "holds\n(95 %)", {"again\n±": spread})
    silent = {
        "over\n%": (board["over_rate"] == 0).all(),
        "evid.\nin view": board["evidence_recall"].isna().all(),
        "answer\nin view": board["answer_containment"].isna().all(),
        "not\nsaid": board["declined_rate"].isna().all(),
        "gave\nup %": (board["gave_up_rate"].fillna(0) == 0).all(),
        "none\n%": (board["unanswered_rate"] == 0).all(),
        "empty\n%": (board["empty_rate"].fillna(0) == 0).all(),
    }
    return {head: cells for head, cells in shown.items() if not silent.get(head, False)}


def _head(found: Exam, number: int) -> str:
    which = f" {number}" if len(found.judges) > 1 else ""
    return f"judge{which}\n(95 %)"


def _after(
    columns: dict[str, list[str]], head: str, more: dict[str, list[str]]
) -> dict[str, list[str]]:
    made: dict[str, list[str]] = {}
    for each, cells in columns.items():
        made[each] = cells
        if each == head:
            made |= more
    return made


def _notes(found: Exam, board: pd.DataFrame, heads: list[str]) -> Iterator[str]:
    """What is behind the figures, and what they do not say."""
    asked, answers = found.manifest["exam"], found.answers
    questions = int(board["questions"].max())
    times = f", each {asked['replicates']} times" if asked["replicates"] > 1 else ""
    heard = sum(1 for _ in dict.fromkeys(answers["recording"]))
    yield (
        f"{asked['answer_model']} was asked {many(questions, 'question')} under each{times}, in "
        f"{many(heard, 'recording')} and {many(found.clusters, 'cluster')}. Off-policy: the "
        "conversation is as it was recorded. Model and context are measured together: compare with full."
    )
    legend = (
        ("F1", "exact, F1, holds: the reply is the answer, shares words with it, contains it "
         "(normalised as in SQuAD), over questions that have one"),
        ("in view", "in view: availability, without a model"),
        ("not\nsaid", "not said: of questions without an answer, those of which the reply says so"),
        ("gave", "gave up: of questions with an answer, those of which the reply says there is none"),
        ("over", "over: requests larger than the limit"),
    )  # fmt: skip
    shown = "; ".join(words for head, words in legend if any(head in each for each in heads))
    yield f"{shown[:1].upper()}{shown[1:]}."
    if asked["replicates"] > 1:
        of = "the judge's share" if found.judges else "F1"
        yield f"Again: standard deviation of {of} over the {asked['replicates']} replicates."
    if found.judges:
        yield from _of_judges(found)
    yield from _unmarked(answers)


def _of_judges(found: Exam) -> Iterator[str]:
    answers = found.answers
    replies = answers[answers["outcome"] == "answered"]
    for number, judge in enumerate(found.judges, 1):
        unread = int(replies[judged(number)].isna().sum())
        without = (
            f"; {unread:,} of its verdicts cannot be read and count for nothing" if unread else ""
        )
        yield f"Judge {number if len(found.judges) > 1 else ''}".rstrip() + (
            f": {judge}, by ctxlab's rubric; an empty reply is wrong without being judged{without}."
        )
    for (one, other), each in found.concord().items():
        interval = (
            show.span(each.kappa, each.low, each.high) if each.kappa >= 0 else f"{each.kappa:.2f}"
        )
        yield (
            f"{one} and {other} agree on {show.percent(each.agreement)} % of "
            f"{each.replies:,} different replies; Cohen's kappa {interval}, "
            "with the 95 % interval over clusters."
        )


def _unmarked(answers: pd.DataFrame) -> Iterator[str]:
    """What got no mark, or a mark for nothing, and why."""
    for outcome, words in (
        ("unanswered", "no reply came, so they are in no score"),
        (
            "invalid",
            "were not asked and are in no score, since a provider would refuse what is sent",
        ),
        ("empty", "the reply is empty, which is wrong"),
    ):
        rows = answers[answers["outcome"] == outcome]
        if rows.empty:
            continue
        why = rows["why"].value_counts().index[0]
        reason = f" (mostly: {why})" if why and outcome != "invalid" else ""
        hint = "; --max-tokens gives more room" if outcome == "empty" and why == "length" else ""
        yield (f"{len(rows):,} of {len(answers):,} times {words}{reason}{hint}.")
