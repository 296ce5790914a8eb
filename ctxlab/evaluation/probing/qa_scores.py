"""Scores of replies to questions: grades of a reply, and columns and scores of the results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ctxlab.errors import ModelUnavailable
from ctxlab.evaluation.answer_matching import contains_answer, exact_match, token_f1
from ctxlab.evaluation.metrics.base import Score
from ctxlab.evaluation.probing.qa_prompts import is_abstention
from ctxlab.llm.base import Reply

GRADED_SCORES = ("exact", "f1", "contains")
"""Scores of a reply to a question that has an answer."""

REPLY_COLUMNS = (*GRADED_SCORES, "abstained", "prompt", "completion", "usd")
"""What ``grade_reply`` returns, and the tokens and price billed for a reply."""

QA_COLUMNS = (
    *("questions", "asked", "answered", "unanswered", "empty", "graded", "word_for_word"),
    *("f1_points", "holding", "gave_up", "unanswerable", "declined", "prompt_tokens"),
    *("completion_tokens", "usd", "over", "evidenced", "evidence_seen", "answerable"),
    "answer_seen",
)
"""Columns of a question, summed over its replicates; judges add their own. No score has one of
these names."""


def judge_score_name(number: int) -> str:
    """Return the name of a judge's score and verdicts.

    Parameters
    ----------
    number : int
        Number of the judge, starting from 1.

    Returns
    -------
    str
        The column name.
    """
    return f"judged_{number}"


GRADE_SCORES = (
    Score.total("questions", "questions that were asked", "questions", better=""),
    Score.share("exact", "share of replies that equal an answer", "word_for_word / graded"),
    Score.share("f1", "mean F1 of the words of reply and answer", "f1_points / graded"),
    Score.share("contains", "share of replies that contain an answer", "holding / graded"),
    Score.share(
        "declined_rate",
        "share of questions without an answer whose reply says so",
        "declined / unanswerable",
    ),
)
"""Scores of the leaderboard before those of the judges."""
OTHER_SCORES = (
    Score.rate(
        "gave_up_rate",
        "share of questions with an answer whose reply says there is none",
        "gave_up / graded",
    ),
    Score.rate("unanswered_rate", "share of questions without a reply", "unanswered / asked"),
    Score.rate("empty_rate", "share of replies that are empty", "empty / answered"),
    Score.share(
        "evidence_recall",
        "share of the evidence of questions that is in view",
        "evidence_seen / evidenced",
    ),
    Score.share(
        "answer_containment",
        "share of questions with an answer in the request",
        "answer_seen / answerable",
    ),
    Score.mean(
        "prompt_mean",
        "mean billed tokens of a request that asks a question",
        "tokens",
        "prompt_tokens / answered",
    ),
    Score.rate(
        "over_rate", "share of questions whose request is larger than the limit", "over / questions"
    ),
    Score.total("usd", "cost of the answers when they were made", "USD"),
)
"""Scores of the leaderboard after those of the judges."""


def grade_reply(text: str, answers: Sequence[str]) -> tuple[float, float, float, float]:
    """Grade a reply by its words.

    Parameters
    ----------
    text : str
        The reply. An empty one is wrong.
    answers : sequence of str
        Acceptable answers; with none, only abstention is graded.

    Returns
    -------
    tuple of float
        ``GRADED_SCORES`` and abstention, nan where they do not apply.
    """
    abstained = float(is_abstention(text))
    if not answers:
        return np.nan, np.nan, np.nan, abstained
    held = any(contains_answer(text, answer) for answer in answers)
    return float(exact_match(text, answers)), token_f1(text, answers), float(held), abstained


def classify_reply(reply: Reply | ModelUnavailable | None) -> tuple[str, str]:
    """Return the outcome of a question, and the reason.

    Parameters
    ----------
    reply : Reply or ModelUnavailable or None
        The reply; None if the request was not sent.

    Returns
    -------
    outcome : str
        ``answered``, ``empty``, ``unanswered`` or ``invalid``.
    why : str
        The reason.
    """
    if reply is None:
        return "invalid", "the provider would reject the request"
    if isinstance(reply, ModelUnavailable):
        return "unanswered", str(reply)
    if reply.text.strip():
        return "answered", reply.finish or ""
    return "empty", "it calls a tool" if reply.message.tool_calls else reply.finish or ""
