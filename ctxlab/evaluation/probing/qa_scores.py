"""Scores of replies to questions, as arrays and as columns of the results.

Arrays have the shape ``(configurations, questions, replicates)``. Scores of an unanswered question
are nan. An empty reply is a reply, and it is wrong.
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

ReplyScores = Mapping[str, FloatArray]
"""Arrays of shape ``(configurations, questions, replicates)`` by name."""

GRADED_SCORES = ("exact", "f1", "contains")
"""Scores of a reply to a question that has an answer."""

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


def column_names(judges: Sequence[str]) -> list[str]:
    """Return the column names of a question.

    Parameters
    ----------
    judges : sequence of str
        Models of the judges.

    Returns
    -------
    list of str
        ``QA_COLUMNS`` and two columns per judge.
    """
    more = [name for i in range(1, len(judges) + 1) for name in (f"passed_{i}", f"verdicts_{i}")]
    return [*QA_COLUMNS, *more]


def make_scores(judges: Sequence[str]) -> tuple[Score, ...]:
    """Return the scores of the leaderboard.

    Parameters
    ----------
    judges : sequence of str
        Models of the judges.

    Returns
    -------
    tuple of Score
        The scores, including one per judge.
    """
    of_judges = tuple(
        Score(
            judge_score_name(i), f"share of replies that {model} judges correct", "share", "ratio",
            f"passed_{i}", f"verdicts_{i}", interval=True, better="higher",
        )
        for i, model in enumerate(judges, 1)
    )  # fmt: skip
    return (*_SCORES[:5], *of_judges, *_SCORES[5:])


_SCORES = (
    Score("questions", "questions that were asked", "questions", "sum", "questions"),
    Score("exact", "share of replies that equal an answer", "share", "ratio",
          "word_for_word", "graded", interval=True, better="higher"),
    Score("f1", "mean F1 of the words of reply and answer", "share", "ratio", "f1_points", "graded",
          interval=True, better="higher"),
    Score("contains", "share of replies that contain an answer", "share", "ratio", "holding",
          "graded", interval=True, better="higher"),
    Score("declined_rate", "share of questions without an answer whose reply says so", "share",
          "ratio", "declined", "unanswerable", interval=True, better="higher"),
    Score("gave_up_rate", "share of questions with an answer whose reply says there is none",
          "share", "ratio", "gave_up", "graded", better="lower"),
    Score("unanswered_rate", "share of questions without a reply", "share", "ratio",
          "unanswered", "asked", better="lower"),
    Score("empty_rate", "share of replies that are empty", "share", "ratio", "empty", "answered",
          better="lower"),
    Score("evidence_recall", "share of the evidence of questions that is in view", "share", "ratio",
          "evidence_seen", "evidenced", interval=True, better="higher"),
    Score("answer_containment", "share of questions with an answer in the request", "share",
          "ratio", "answer_seen", "answerable", interval=True, better="higher"),
    Score("prompt_mean", "mean billed tokens of a request that asks a question", "tokens",
          "ratio", "prompt_tokens", "answered", better="lower"),
    Score("over_rate", "share of questions whose request is larger than the limit", "share", "ratio",
          "over", "questions", better="lower"),
    Score("usd", "cost of the answers when they were made", "USD", "sum", "usd",
          better="lower"),
)  # fmt: skip


def score_replies(
    probes: Sequence[Probe], replies: Sequence[Sequence[Sequence[Reply | ModelUnavailable | None]]]
) -> dict[str, FloatArray]:
    """Score replies by configuration, question and replicate.

    Parameters
    ----------
    probes : sequence of Probe
        The questions.
    replies : sequence of sequence of sequence of Reply, ModelUnavailable or None
        The replies; None if the request was not sent.

    Returns
    -------
    dict of str to numpy.ndarray of shape (configurations, questions, replicates)
        Scores, billed tokens and price by name; nan without a reply.
    """
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
    """Return exact match, F1, containment and abstention."""
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
    """Compute ``QA_COLUMNS`` and the columns of the judges.

    Parameters
    ----------
    probes : sequence of Probe
        The questions.
    reply_scores : mapping of str to numpy.ndarray
        Scores of the replies.
    empty : numpy.ndarray of bool, shape (configurations, questions, replicates)
        True for empty replies.
    visibility : ProbeVisibility
        Evidence and answers in view.
    token_budgets : numpy.ndarray of int, shape (configurations,)
        Tokens that a request may take.
    verdicts : sequence of numpy.ndarray
        Verdicts of each judge: 1, 0 or nan.

    Returns
    -------
    dict of str to numpy.ndarray of shape (configurations, questions)
        Figures by column name.
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
    # An unknown price makes the sum nan.
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
