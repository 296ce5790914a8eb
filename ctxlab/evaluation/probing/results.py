"""Results of probing a model: an evaluation, and each answer with its scores."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, Self

import pandas as pd

from ctxlab.errors import ReadError
from ctxlab.evaluation.comparison.paired import compare_strategies
from ctxlab.evaluation.probing.judge import JudgeAgreement, judge_agreement, judge_key
from ctxlab.evaluation.results import Results

GRADED_SCORES = ("exact", "f1", "contains")
"""Scores of a reply to a question that has an answer."""

_KINDS = {
    "exam": ("QA run", "ctxlab.QAResults.load"),
    "agreement": ("next-action run", "ctxlab.NextActionResults.load"),
}
_EVALUATION = ("evaluation", "ctxlab.Results.load")


@dataclass(repr=False)
class AnsweredResults(Results):
    """``Results`` whose rows are probes of a model; each kind of run has its own manifest key."""

    answers: pd.DataFrame
    "one row per answer: probe × strategy × limit × replicate"
    kind: ClassVar[str]
    "manifest key of this kind of run"
    note: ClassVar[str]
    "how to read the leaderboard, printed below it in a notebook"

    def equals(self, other: Results) -> bool:
        """Check that two results have the same figures and answers.

        Parameters
        ----------
        other : Results
            The results to compare with.

        Returns
        -------
        bool
            True if they are equal.
        """
        same = isinstance(other, type(self)) and self.answers.equals(other.answers)
        return same and super().equals(other)

    def write_files(self, folder: Path) -> None:
        """Write the files of ``Results``, and ``answers.parquet``.

        Parameters
        ----------
        folder : Path
            An existing folder.
        """
        super().write_files(folder)
        self.answers.to_parquet(folder / "answers.parquet", index=False)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Load results that ``save`` wrote.

        Parameters
        ----------
        folder : str or Path
            Folder of the saved run.

        Returns
        -------
        AnsweredResults
            Results equal to those that were saved.

        Raises
        ------
        ReadError
            If the folder has no saved run of this kind.
        """
        saved = Results.load(folder)
        expected, _ = _KINDS[cls.kind]
        if cls.kind not in saved.manifest:
            kinds = (names for kind, names in _KINDS.items() if kind in saved.manifest)
            found, loader = next(kinds, _EVALUATION)
            hint = f"expected a saved {expected}, got a saved {found}; use {loader}"
            raise ReadError(folder, None, hint)
        try:
            answers = pd.read_parquet(Path(folder) / "answers.parquet")
        except (OSError, ValueError) as error:
            raise ReadError(folder, None, f"not a saved {expected}: {error}") from None
        return cls(saved.requests, saved.scores, saved.manifest, answers)

    def __repr__(self) -> str:
        """Return the model and the number of answers."""
        model = self.manifest[self.kind]["answer_model"]
        return f"<{type(self).__name__} of {model}: {len(self.answers):,} answers>"

    def _repr_html_(self) -> str:
        shown = self.leaderboard().to_html(index=False, float_format=lambda v: f"{v:,.3g}")
        return f"{shown}<p>{self.note}</p>"


class QAResults(AnsweredResults):
    """Scores of replies: one row per question in ``requests``, one per reply in ``answers``.

    ``answers`` has one row per question × strategy × limit × replicate: probe, category,
    ``outcome`` (answered, empty, unanswered, invalid) and ``why``, the reply, its scores (nan if
    there is nothing to score), the verdict of each judge, and the tokens and price billed for it.
    """

    kind = "exam"
    note = "Off-policy replay; scores depend on model and context: compare with full."

    def _compute_leaderboard(self, resamples: int, seed: int) -> pd.DataFrame:
        """Add the spread over replicates (``…_sd``) to the leaderboard if there are several."""
        board = super()._compute_leaderboard(resamples, seed)
        spread = self.replicate_std()
        if spread.empty:
            return board
        return board.merge(spread.reset_index(), on=["strategy", "limit"], how="left", sort=False)

    def replicate_std(self) -> pd.DataFrame:
        """Return the standard deviation of each score over replicates.

        It measures the noise of asking again, not the variation between recordings.

        Returns
        -------
        pandas.DataFrame
            One row per limit and strategy; empty with one replicate.
        """
        if self.answers["replicate"].nunique() < 2:
            return pd.DataFrame()
        judges = (judge_key(number) for number, _ in enumerate(self.judges, 1))
        names = [*GRADED_SCORES, *judges]
        keys = ["limit", "strategy"]
        means = self.answers.groupby([*keys, "replicate"], sort=False)[names].mean()
        return means.groupby(keys, sort=False).std(ddof=1).add_suffix("_sd")

    @property
    def judges(self) -> tuple[str, ...]:
        """Models of the judges, in order."""
        return tuple(self.manifest["exam"]["judges"])

    def judge_agreement(self) -> dict[tuple[str, str], JudgeAgreement]:
        """Compare each judge with the next one, on replies that both gave a verdict on.

        Returns
        -------
        dict
            ``JudgeAgreement`` by pair of model names.
        """
        found = {}
        for (i, one), (j, other) in pairwise(enumerate(self.judges, 1)):
            frame = self.answers[self.answers["outcome"] == "answered"]
            frame = frame.dropna(subset=[judge_key(i), judge_key(j)])
            # Equal replies to one question are judged once, so they count once.
            frame = frame.drop_duplicates(["recording", "probe", "reply"])
            first, second = (frame[judge_key(n)].to_numpy() == 1 for n in (i, j))
            found[one, other] = judge_agreement(first, second, list(frame["cluster"]))
        return found


FULL_HISTORY = "full()"
"""Name of full history, the ceiling, in results."""


class NextActionResults(AnsweredResults):
    """How often the next call equals the recorded one; one row per sampled request in ``requests``.

    ``answers`` has one row per request × strategy × limit × replicate: ``position`` in the
    recording, ``outcome`` (answered, unanswered, invalid) and ``why``, the ``recorded`` calls and
    what was ``said``, the agreement (``name``, ``arguments``, ``both``, ``leaves``, ``entities``:
    shares, nan if there is nothing to compare), ``tokens`` as counted, and the tokens and price
    billed for it.
    """

    kind = "agreement"
    note = "Off-policy; a call other than the recorded one may be as good: compare with full."

    def difference_to_full(self, score: str = "agrees_both") -> pd.DataFrame:
        """Compare each strategy with full history at every limit.

        Parameters
        ----------
        score : str, default "agrees_both"
            The score to compare.

        Returns
        -------
        pandas.DataFrame
            Columns ``strategy``, ``limit``, ``difference``, ``low``, ``high``: paired by recording,
            with intervals over clusters. Empty if full history was not evaluated.
        """
        heads = {"a": "strategy", "limit_a": "limit"}
        wanted = [*heads, "difference", "low", "high"]
        names = list(dict.fromkeys(self.requests["strategy"].astype(str)))
        others = [name for name in names if name != FULL_HISTORY] if FULL_HISTORY in names else []
        compared = (compare_strategies(self, name, FULL_HISTORY, scores=score) for name in others)
        found = [each.table[wanted] for each in compared]
        whole = pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=wanted)
        return whole.rename(columns=heads)
