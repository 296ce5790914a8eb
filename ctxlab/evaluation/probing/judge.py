"""A second model judges replies by a written rubric, and two judges are compared.

The rubric is ``prompts/judge.md``: question, reference answers and reply in, a verdict with one reason
out. A judge sees neither the conversation nor which strategy sent it. What it writes is read strictly:
where it holds no JSON object with a verdict, there is no verdict, and that is counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ctxlab.evaluation.bootstrap import MIN_CLUSTERS
from ctxlab.evaluation.probing.qa_prompts import load_prompt
from ctxlab.llm.base import Request
from ctxlab.messages.types import Message, Probe

__all__ = [
    "JudgeAgreement",
    "JudgeVerdict",
    "cohen_kappa",
    "judge_agreement",
    "judge_request",
    "parse_verdict",
]

_JSON_OBJECT = re.compile(r"\{[^{}]*\}")
_VERDICTS = {"correct": True, "incorrect": False}
_Bools = npt.NDArray[np.bool_]


class JudgeVerdict(NamedTuple):
    """What a judge says of a reply."""

    correct: bool | None
    "None: it gave no verdict that can be read"
    reason: str


def judge_request(model: str, probe: Probe, reply: str, max_tokens: int) -> Request:
    """What a judge is asked about a reply; equal replies to a question are judged once."""
    lines = [f"- {answer}" for answer in probe.answers] or ["(none: the conversation does not say)"]
    said = (
        f"Question: {probe.question}\n\nReference answers:\n" + "\n".join(lines),
        f"<reply>\n{reply}\n</reply>",
    )
    messages = (Message("system", load_prompt("judge")), Message("user", "\n\n".join(said)))
    return Request(model, messages, max_tokens=max_tokens)


def parse_verdict(text: str) -> JudgeVerdict:
    """The verdict in what a judge wrote: that of the last JSON object which holds one.

    >>> parse_verdict('```json\\n{"verdict": "correct", "reason": "The same day."}\\n```')
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
    """Cohen's kappa of two judges on the same replies: agreement beyond chance.

    1 is full agreement and 0 what chance would give; nan where nothing was judged, and where both say
    the same of every reply, since chance would give that too. Source: Cohen, Educational and
    Psychological Measurement 20, 1960.

    >>> round(cohen_kappa([True] * 45 + [False] * 55, [True] * 25 + [False] * 75), 4)
    0.5789
    """
    return float(
        _kappa_of_tables(
            _contingency_cells(np.asarray(first, bool), np.asarray(second, bool)).sum(axis=0)[None]
        )[0]
    )


class JudgeAgreement(NamedTuple):
    """How far two judges agree."""

    replies: int
    "that both gave a verdict on"
    agreement: float
    "share on which it is the same verdict"
    kappa: float
    low: float
    "of kappa's interval; nan with fewer than five clusters, and where hardly a draw tells"
    high: float


def judge_agreement(
    first: _Bools,
    second: _Bools,
    clusters: Sequence[str] | npt.NDArray[np.object_],
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> JudgeAgreement:
    """Agreement and kappa of two judges, with a percentile interval from draws of whole clusters.

    With few clusters such an interval is too short: in simulations those of five hold kappa 84 times in
    a hundred, those of thirty 93. All arrays have one value a reply; ``clusters`` says which replies are
    not independent.
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
    """Which of the four cells of the table each reply is in: both, first only, second only, neither."""
    return np.stack(
        [first & second, first & ~second, ~first & second, ~first & ~second], axis=1
    ).astype(np.float64)


def _kappa_of_tables(tables: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    both, one, other, neither = tables.T
    with np.errstate(invalid="ignore", divide="ignore"):
        total = both + one + other + neither
        agreed = (both + neither) / total
        chance = ((both + one) * (both + other) + (neither + one) * (neither + other)) / total**2
        return np.where(chance < 1, (agreed - chance) / (1 - chance), np.nan)
