"""Judges: models that grade replies by a written rubric, and the agreement of two judges.

The rubric is the prompt ``prompts/judge.md``. A judge receives a question, the reference answers and
a reply, and returns a verdict with a reason. It receives neither the conversation nor the strategy.
If the output contains no JSON object with a verdict, the judge has no verdict on the reply, and the
reply is left out of the score of this judge.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ctxlab.evaluation.bootstrap import MIN_CLUSTERS
from ctxlab.llm.base import Request
from ctxlab.messages.types import Message, Probe

_JSON_OBJECT = re.compile(r"\{[^{}]*\}")
_VERDICTS = {"correct": True, "incorrect": False}
_Bools = npt.NDArray[np.bool_]


class JudgeVerdict(NamedTuple):
    """Verdict of a judge on a reply."""

    correct: bool | None
    "True if the reply is correct; None if the judge's output contains no valid verdict"
    reason: str
    "reason for the verdict; without a valid verdict, the complete output of the judge"


def judge_key(number: int) -> str:
    """Return the name of the column with a judge's verdicts, which is also the name of the score.

    Parameters
    ----------
    number : int
        Number of the judge, starting from 1.

    Returns
    -------
    str
        Column name, such as ``judged_1``.
    """
    return f"judged_{number}"


@cache
def load_prompt(name: str) -> str:
    """Load a prompt from the folder ``prompts`` of this package.

    Parameters
    ----------
    name : str
        File name without extension, such as ``judge``.

    Returns
    -------
    str
        Text of the prompt.
    """
    path = files("ctxlab.evaluation.probing") / "prompts" / f"{name}.md"
    return path.read_text(encoding="utf-8").strip()


def judge_request(model: str, probe: Probe, reply: str, max_tokens: int) -> Request:
    """Build the request that asks a judge to grade a reply.

    Parameters
    ----------
    model : str
        Model of the judge.
    probe : Probe
        Question with its reference answers.
    reply : str
        Reply to grade.
    max_tokens : int
        Maximum tokens of the judge's output.

    Returns
    -------
    Request
        Request with the rubric as its system message.
    """
    lines = [f"- {answer}" for answer in probe.answers] or ["(none: the conversation does not say)"]
    asked = f"Question: {probe.question}\n\nReference answers:\n" + "\n".join(lines)
    said = f"{asked}\n\n<reply>\n{reply}\n</reply>"
    messages = (Message("system", load_prompt("judge")), Message("user", said))
    return Request(model, messages, max_tokens=max_tokens)


def parse_verdict(text: str) -> JudgeVerdict:
    r"""Parse the verdict from the output of a judge.

    If the output contains several JSON objects with a verdict, the last one is used.

    Parameters
    ----------
    text : str
        Output of the judge.

    Returns
    -------
    JudgeVerdict
        Verdict and reason; ``correct`` is None if there is no valid verdict.

    Examples
    --------
    >>> parse_verdict('```json\n{"verdict": "correct", "reason": "The same day."}\n```')
    JudgeVerdict(correct=True, reason='The same day.')
    >>> parse_verdict("I think it is correct.").correct is None
    True
    """
    for found in reversed(_JSON_OBJECT.findall(text)):
        try:
            said = json.loads(found, strict=False)
        except ValueError:
            continue
        verdict = said.get("verdict")
        if isinstance(verdict, str) and verdict.strip().lower() in _VERDICTS:
            correct = _VERDICTS[verdict.strip().lower()]
            return JudgeVerdict(correct, " ".join(str(said.get("reason") or "").split()))
    return JudgeVerdict(None, " ".join(text.split()))


def cohen_kappa(first: Sequence[bool] | _Bools, second: Sequence[bool] | _Bools) -> float:
    """Compute Cohen's kappa of two judges, which measures agreement beyond chance.

    Parameters
    ----------
    first, second : array_like of bool, shape (n,)
        Verdicts of the judges on the same replies.

    Returns
    -------
    float
        1 for full agreement, 0 for agreement by chance. It is nan if there are no replies, or if
        all verdicts are equal, for example if both judges accept every reply.

    References
    ----------
    - Cohen, Educational and Psychological Measurement 20, 1960.

    Examples
    --------
    >>> round(cohen_kappa([True] * 45 + [False] * 55, [True] * 25 + [False] * 75), 4)
    0.5789
    """
    cells = _contingency_cells(np.asarray(first, bool), np.asarray(second, bool))
    return float(_kappa_of_tables(cells.sum(axis=0)[None])[0])


class JudgeAgreement(NamedTuple):
    """Agreement of two judges on the same replies."""

    replies: int
    "number of replies with a verdict from both judges"
    agreement: float
    "share of replies with the same verdict"
    kappa: float
    "Cohen's kappa"
    low: float
    """lower bound of kappa's interval; nan with fewer than five clusters, or if kappa is undefined in
    more than 5 % of the resamples or has the same value in all of them"""
    high: float
    "upper bound of kappa's interval; nan if there is no lower bound"


def judge_agreement(
    first: _Bools,
    second: _Bools,
    clusters: Sequence[str] | npt.NDArray[np.object_],
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> JudgeAgreement:
    """Compute the agreement and Cohen's kappa of two judges, with an interval for kappa.

    The interval is a percentile bootstrap over clusters. With few clusters it is too narrow: in
    simulations the 95 % interval contains the true kappa in 84 % of cases with five clusters, and in
    93 % with thirty.

    Parameters
    ----------
    first, second : numpy.ndarray of bool, shape (n,)
        Verdicts of the judges on the same replies.
    clusters : sequence of str
        Cluster of each reply.
    level : float, default 0.95
        Coverage of the interval.
    resamples : int, default 2000
        Number of bootstrap resamples.
    seed : int, default 0
        Seed of the bootstrap.

    Returns
    -------
    JudgeAgreement
        Agreement, kappa, and the interval of kappa.
    """
    cells = _contingency_cells(first, second)
    whole = cells.sum(axis=0)
    total = int(whole.sum())
    estimate = float(_kappa_of_tables(whole[None])[0])
    agreement = float((whole[0] + whole[3]) / total) if total else float("nan")
    names, member = np.unique(np.asarray(clusters, dtype=object).astype(str), return_inverse=True)
    low = high = float("nan")
    if len(names) >= MIN_CLUSTERS:
        sums = np.zeros((len(names), 4))
        np.add.at(sums, member, cells)
        chances = np.full(len(names), 1 / len(names))
        draws = np.random.default_rng(seed).multinomial(len(names), chances, size=resamples)
        found = _kappa_of_tables(draws @ sums)
        found = found[~np.isnan(found)]
        if len(found) >= 0.95 * resamples and np.ptp(found) > 0:
            tail = (1 - level) / 2
            low, high = (float(bound) for bound in np.quantile(found, [tail, 1 - tail]))
    return JudgeAgreement(total, agreement, estimate, low, high)


def _contingency_cells(first: _Bools, second: _Bools) -> npt.NDArray[np.float64]:
    """Return one-hot rows with the cell of each reply in the 2 × 2 table of verdicts.

    The cells are: correct for both judges, for the first only, for the second only, for neither.
    """
    cells = first & second, first & ~second, ~first & second, ~first & ~second
    return np.stack(cells, axis=1).astype(np.float64)


def _kappa_of_tables(tables: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    both, one, other, neither = tables.T
    with np.errstate(invalid="ignore", divide="ignore"):
        total = both + one + other + neither
        agreed = (both + neither) / total
        chance = ((both + one) * (both + other) + (neither + one) * (neither + other)) / total**2
        return np.where(chance < 1, (agreed - chance) / (1 - chance), np.nan)
