"""What replies to questions are worth: an array a figure, and the scores that are made of them.

Arrays have the shape ``(configurations, questions, replicates)``. A question that nobody answered has no
marks: nan. An empty reply is a reply, and it is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ctxlab.errors import ModelUnavailable
from ctxlab.evaluation.answer_matching import contains_answer, exact_match, token_f1
from ctxlab.evaluation.metrics.base import FloatArray, Score
from ctxlab.evaluation.metrics.probes import ProbeVisibility
from ctxlab.evaluation.probing.qa_prompts import is_abstention
from ctxlab.llm.base import Reply
from ctxlab.messages.types import Probe

__all__ = [
    "GRADED_SCORES",
    "QA_COLUMNS",
    "ReplyScores",
    "column_names",
    "compute_qa_columns",
    "judge_score_name",
    "make_scores",
    "score_replies",
]

ReplyScores = Mapping[str, FloatArray]
"""By name, of shape ``(configurations, questions, replicates)``."""

GRADED_SCORES = ("exact", "f1", "contains")
"""Marks of a reply to a question that has an answer."""

_REPLY_COLUMNS = (*GRADED_SCORES, "abstained", "prompt", "completion", "usd")

QA_COLUMNS = (
    *(
        "questions",
        "asked",
        "answered",
        "unanswered",
        "empty",
        "graded",
        "word_for_word",
        "f1_points",
        "holding",
    ),
    *("gave_up", "unanswerable", "declined", "prompt_tokens", "completion_tokens", "usd"),
    *("over", "evidenced", "evidence_seen", "answerable", "answer_seen"),
)
"""Figures of a question, summed over its replicates; judges add theirs. No score has their names."""


def judge_score_name(number: int) -> str:
    """The name of the score, and of the verdicts, of a judge, counted from 1."""
    return f"judged_{number}"


def column_names(judges: Sequence[str]) -> list[str]:
    """All figures of a question."""
    more = [name for i in range(1, len(judges) + 1) for name in (f"passed_{i}", f"verdicts_{i}")]
    return [*QA_COLUMNS, *more]


def make_scores(judges: Sequence[str]) -> tuple[Score, ...]:
    """What the leaderboard shows."""
    of_judges = tuple(
        Score(
            judge_score_name(i), f"share of replies that {model} judges correct", "share", "ratio",
            f"passed_{i}", f"verdicts_{i}", interval=True, better="higher",
        )
        for i, model in enumerate(judges, 1)
    )  # fmt: skip
    return (*_SCORES[:5], *of_judges, *_SCORES[5:])


_SCORES = (
    Score("questions", "questions that were put", "questions", "sum", "questions"),
    Score("exact", "share of replies that are an answer word for word", "share", "ratio",
          "word_for_word", "graded", interval=True, better="higher"),
    Score("f1", "F1 of the words of reply and answer, mean", "share", "ratio", "f1_points", "graded",
          interval=True, better="higher"),
    Score("contains", "share of replies that hold an answer", "share", "ratio", "holding",
          "graded", interval=True, better="higher"),
    Score("declined_rate", "share of questions without an answer of which the reply says so", "share",
          "ratio", "declined", "unanswerable", interval=True, better="higher"),
    Score("gave_up_rate", "share of questions with an answer of which the reply says there is none",
          "share", "ratio", "gave_up", "graded", better="lower"),
    Score("unanswered_rate", "share of questions that no reply came to", "share", "ratio",
          "unanswered", "asked", better="lower"),
    Score("empty_rate", "share of replies without a word", "share", "ratio", "empty", "answered",
          better="lower"),
    Score("evidence_recall", "share of the evidence of questions that is in view", "share", "ratio",
          "evidence_seen", "evidenced", interval=True, better="higher"),
    Score("answer_containment", "share of questions of which an answer stands in what is sent", "share",
          "ratio", "answer_seen", "answerable", interval=True, better="higher"),
    Score("prompt_mean", "tokens of a request that puts a question, as billed, mean", "tokens",
          "ratio", "prompt_tokens", "answered", better="lower"),
    Score("over_rate", "share of questions whose request is larger than the limit", "share", "ratio",
          "over", "questions", better="lower"),
    Score("usd", "what the answers cost when they were asked for", "USD", "sum", "usd",
          better="lower"),
)  # fmt: skip


def score_replies(
    probes: Sequence[Probe], replies: Sequence[Sequence[Sequence[Reply | ModelUnavailable | None]]]
) -> dict[str, FloatArray]:
    """The marks of replies by configuration, question and replicate; None was not asked."""
    shape = len(replies), len(probes), len(replies[0][0]) if replies and probes else 0
    found = {name: np.full(shape, np.nan) for name in _REPLY_COLUMNS}
    known: dict[tuple[int, str], tuple[float, float, float, float]] = {}
    for c, of in enumerate(replies):
        for q, again in enumerate(of):
            for r, reply in enumerate(again):
                if not isinstance(reply, Reply):
                    continue
                key = q, reply.text
                if key not in known:
                    known[key] = _score_reply(probes[q].answers, reply.text)
                bill = reply.usage.total_input, reply.usage.output, reply.usd
                for name, value in zip(_REPLY_COLUMNS, (*known[key], *bill), strict=True):
                    found[name][c, q, r] = value
    return found


def _score_reply(answers: Sequence[str], text: str) -> tuple[float, float, float, float]:
    """Exact, F1, containment, abstention."""
    if not answers:
        return np.nan, np.nan, np.nan, is_abstention(text)
    held = any(contains_answer(text, answer) for answer in answers)
    return exact_match(text, answers), token_f1(text, answers), held, is_abstention(text)


def compute_qa_columns(
    probes: Sequence[Probe],
    reply_scores: ReplyScores,
    empty: npt.NDArray[np.bool_],
    visibility: ProbeVisibility,
    token_budgets: npt.NDArray[np.int64],
    verdicts: Sequence[FloatArray],
) -> dict[str, FloatArray]:
    """``QA_COLUMNS`` and those of the judges, of shape ``(configurations, questions)``.

    ``empty``: replies without a word; ``token_budgets``: tokens that each configuration may send;
    ``verdicts``: of each judge 1, 0 or nan.
    """
    answered = ~np.isnan(reply_scores["abstained"])
    with_answer = np.array([bool(probe.answers) for probe in probes], dtype=bool)[None, :, None]
    named = np.array([bool(probe.evidence) for probe in probes], dtype=bool)[None, :]
    one = np.ones(answered.shape[:2])
    each = {
        "asked": np.ones(answered.shape),
        "answered": answered,
        "unanswered": ~answered,
        "empty": empty,
        "graded": answered & with_answer,
        "word_for_word": reply_scores["exact"],
        "f1_points": reply_scores["f1"],
        "holding": reply_scores["contains"],
        "gave_up": np.where(with_answer, reply_scores["abstained"], 0),
        "unanswerable": answered & ~with_answer,
        "declined": np.where(with_answer, 0, reply_scores["abstained"]),
        "prompt_tokens": reply_scores["prompt"],
        "completion_tokens": reply_scores["completion"],
    }
    summed = {name: np.nansum(np.asarray(a, dtype=np.float64), axis=2) for name, a in each.items()}
    # A price that is not known is no price of nothing.
    summed["usd"] = np.where(answered, reply_scores["usd"], 0.0).sum(axis=2)
    for number, verdict in enumerate(verdicts, 1):
        summed[f"passed_{number}"] = np.nansum(verdict, axis=2)
        summed[f"verdicts_{number}"] = (~np.isnan(verdict)).sum(axis=2).astype(np.float64)
    return {
        "questions": one,
        **summed,
        "over": (visibility.request_tokens > token_budgets[:, None]).astype(np.float64),
        "evidenced": one * named,
        "evidence_seen": visibility.evidence_in_view,
        "answerable": one * with_answer[:, :, 0],
        "answer_seen": (visibility.answer_in_view & with_answer[:, :, 0]).astype(np.float64),
    }
