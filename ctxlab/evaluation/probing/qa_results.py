"""What a model answered to the questions of recordings, and what that was worth.

An ``Exam`` is a ``Results`` whose rows are questions, so that it is compared, gated and saved as any
other; beside them stand the replies themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import pandas as pd

from ctxlab.evaluation.probing.base import Answered
from ctxlab.evaluation.probing.judge import (
    Concord,
    concord,
)
from ctxlab.evaluation.probing.qa_scores import (
    GRADES,
    judged,
)

__all__ = ["Exam"]


@dataclass
class Exam(Answered):
    """What replies were worth; a row a question in ``requests``, a row a reply in ``answers``."""

    answers: pd.DataFrame
    """a row a question × strategy × limit × replicate: probe, category, ``outcome`` (answered, empty,
    unanswered, invalid) and ``why``, the reply, its marks (nan where there is nothing to mark), the
    verdict of each judge, and what was billed when it was asked"""
    kind: ClassVar[str] = "exam"

    def leaderboard(self, *, samples: int = 2000, seed: int = 0) -> pd.DataFrame:
        """As that of ``Results``; with several replicates ``…_sd`` is a score's spread over them."""
        board = super().leaderboard(samples=samples, seed=seed)
        spread = self.spread()
        if spread.empty:
            return board
        return board.merge(spread.reset_index(), on=["strategy", "limit"], how="left", sort=False)

    def spread(self) -> pd.DataFrame:
        """The standard deviation of each score over replicates; empty with one of them.

        It is what asking once more changes, and says nothing about other recordings.
        """
        if self.answers["replicate"].nunique() < 2:
            return pd.DataFrame()
        judges = (judged(number) for number, _ in enumerate(self.judges, 1))
        names = [*GRADES, *judges]
        keys = ["limit", "strategy"]
        means = self.answers.groupby([*keys, "replicate"], sort=False)[names].mean()
        return means.groupby(keys, sort=False).std(ddof=1).add_suffix("_sd")

    @property
    def judges(self) -> tuple[str, ...]:
        """Who judged, in order."""
        return tuple(self.manifest["exam"]["judges"])

    def concord(self) -> dict[tuple[str, str], Concord]:
        """How far each judge agrees with the next, on the replies that both gave a verdict on."""
        found = {}
        for (i, one), (j, other) in pairwise(enumerate(self.judges, 1)):
            frame = self.answers[self.answers["outcome"] == "answered"]
            frame = frame.dropna(subset=[judged(i), judged(j)])
            # Equal replies to one question are judged once, so they are one witness.
            frame = frame.drop_duplicates(["recording", "probe", "reply"])
            first, second = (frame[judged(n)].to_numpy() == 1 for n in (i, j))
            found[one, other] = concord(first, second, frame["cluster"].to_numpy(dtype=object))
        return found

    def __repr__(self) -> str:
        asked = self.manifest["exam"]
        return f"<Exam of {asked['answer_model']}: {len(self.answers):,} replies>"

    def _repr_html_(self) -> str:
        shown = self.leaderboard()
        note = "Off-policy replay; model and context are measured together: compare with full."
        return f"{shown.to_html(index=False, float_format=lambda v: f'{v:,.3g}')}<p>{note}</p>"
