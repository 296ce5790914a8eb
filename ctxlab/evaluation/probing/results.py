"""Results of asking a model: an evaluation, and beside it every answer and its scores."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, Self

import pandas as pd

from ctxlab.errors import ReadError
from ctxlab.evaluation.comparison.paired import compare_strategies
from ctxlab.evaluation.probing.judge import JudgeAgreement, judge_agreement
from ctxlab.evaluation.probing.qa_scores import GRADED_SCORES, judge_score_name
from ctxlab.evaluation.results import Results

__all__ = ["FULL_HISTORY", "AnsweredResults", "NextActionResults", "QAResults"]

_KINDS = {
    "exam": ("QA run", "ctxlab.QAResults.load"),
    "agreement": ("next-action run", "ctxlab.NextActionResults.load"),
}
_EVALUATION = ("evaluation", "ctxlab.Results.load")


@dataclass
class AnsweredResults(Results):
    """``Results`` whose rows are what a model was asked; a kind of run has a key in its manifest."""

    answers: pd.DataFrame
    "a row an answer: a question × strategy × limit × replicate"
    kind: ClassVar[str]

    def equals(self, other: Results) -> bool:
        """Whether both hold the same figures and the same answers."""
        same = isinstance(other, type(self)) and self.answers.equals(other.answers)
        return same and super().equals(other)

    def write_files(self, folder: Path) -> None:
        """Write what ``Results`` writes, and ``answers.parquet``."""
        super().write_files(folder)
        self.answers.to_parquet(folder / "answers.parquet", index=False)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """What ``save`` wrote. Raises ``ReadError`` where it is not there, or is another kind of run."""
        saved = Results.load(folder)
        expected, _ = _KINDS[cls.kind]
        if cls.kind not in saved.manifest:
            found, loader = next(
                (names for kind, names in _KINDS.items() if kind in saved.manifest), _EVALUATION
            )
            hint = f"expected a saved {expected}, got a saved {found}: {loader} reads it"
            raise ReadError(folder, None, hint)
        try:
            answers = pd.read_parquet(Path(folder) / "answers.parquet")
        except (OSError, ValueError) as error:
            raise ReadError(folder, None, f"no saved {expected}: {error}") from None
        return cls(saved.requests, saved.scores, saved.manifest, answers)


@dataclass
class QAResults(AnsweredResults):
    """What replies were worth; a row a question in ``requests``, a row a reply in ``answers``."""

    answers: pd.DataFrame
    """a row a question × strategy × limit × replicate: probe, category, ``outcome`` (answered, empty,
    unanswered, invalid) and ``why``, the reply, its marks (nan where there is nothing to mark), the
    verdict of each judge, and what was billed when it was asked"""
    kind: ClassVar[str] = "exam"

    def _compute_leaderboard(self, resamples: int, seed: int) -> pd.DataFrame:
        """As that of ``Results``; with several replicates ``…_sd`` is a score's spread over them."""
        board = super()._compute_leaderboard(resamples, seed)
        spread = self.replicate_std()
        if spread.empty:
            return board
        return board.merge(spread.reset_index(), on=["strategy", "limit"], how="left", sort=False)

    def replicate_std(self) -> pd.DataFrame:
        """The standard deviation of each score over replicates; empty with one of them.

        It is what asking once more changes, and says nothing about other recordings.
        """
        if self.answers["replicate"].nunique() < 2:
            return pd.DataFrame()
        judges = (judge_score_name(number) for number, _ in enumerate(self.judges, 1))
        names = [*GRADED_SCORES, *judges]
        keys = ["limit", "strategy"]
        means = self.answers.groupby([*keys, "replicate"], sort=False)[names].mean()
        return means.groupby(keys, sort=False).std(ddof=1).add_suffix("_sd")

    @property
    def judges(self) -> tuple[str, ...]:
        """Who judged, in order."""
        return tuple(self.manifest["exam"]["judges"])

    def judge_agreement(self) -> dict[tuple[str, str], JudgeAgreement]:
        """How far each judge agrees with the next, on the replies that both gave a verdict on."""
        found = {}
        for (i, one), (j, other) in pairwise(enumerate(self.judges, 1)):
            frame = self.answers[self.answers["outcome"] == "answered"]
            frame = frame.dropna(subset=[judge_score_name(i), judge_score_name(j)])
            # Equal replies to one question are judged once, so they count as one.
            frame = frame.drop_duplicates(["recording", "probe", "reply"])
            first, second = (frame[judge_score_name(n)].to_numpy() == 1 for n in (i, j))
            found[one, other] = judge_agreement(
                first, second, frame["cluster"].to_numpy(dtype=object)
            )
        return found

    def __repr__(self) -> str:
        asked = self.manifest["exam"]
        return f"<QAResults of {asked['answer_model']}: {len(self.answers):,} replies>"

    def _repr_html_(self) -> str:
        shown = self.leaderboard()
        note = "Off-policy replay; model and context are measured together: compare with full."
        return f"{shown.to_html(index=False, float_format=lambda v: f'{v:,.3g}')}<p>{note}</p>"


FULL_HISTORY = "full()"
"""Full history, which is the ceiling, as results name it."""


@dataclass
class NextActionResults(AnsweredResults):
    """How often the next call is the recorded one; a row a drawn request in ``requests``."""

    answers: pd.DataFrame
    """a row a request × strategy × limit × replicate: ``position`` in the recording, ``outcome``
    (answered, unanswered, invalid) and ``why``, the ``recorded`` calls and what was ``said``, what
    agreed (``name``, ``arguments``, ``both``, ``leaves``, ``entities``: shares, nan where there is
    nothing to compare), ``tokens`` as counted, and what was billed when it was asked"""
    kind: ClassVar[str] = "agreement"

    def difference_to_full(self, score: str = "agrees_both") -> pd.DataFrame:
        """For every strategy and limit a score less that of full history, with its interval.

        Columns ``strategy``, ``limit``, ``difference``, ``low``, ``high``: paired by recording, over
        clusters (``ctxlab.evaluation.comparison.paired``). Empty where full history was not asked.
        """
        heads = {"a": "strategy", "limit_a": "limit"}
        wanted = [*heads, "difference", "low", "high"]
        names = list(dict.fromkeys(self.requests["strategy"].astype(str)))
        others = [name for name in names if name != FULL_HISTORY] if FULL_HISTORY in names else []
        found = [
            compare_strategies(self, name, FULL_HISTORY, scores=[score]).table[wanted]
            for name in others
        ]
        whole = pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=wanted)
        return whole.rename(columns=heads)

    def __repr__(self) -> str:
        asked = self.manifest["agreement"]
        return f"<NextActionResults of {asked['answer_model']}: {len(self.answers):,} answers>"

    def _repr_html_(self) -> str:
        shown = self.leaderboard()
        note = "Off-policy; another call than the recorded one may be as good: compare with full."
        return f"{shown.to_html(index=False, float_format=lambda v: f'{v:,.3g}')}<p>{note}</p>"
