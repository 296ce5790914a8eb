"""What a model called where a recorded agent called a tool, and how far that agrees.

An ``Agreement`` is a ``Results`` whose rows are requests that were drawn, so that it is compared, gated
and saved as any other; beside them stand the answers themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from ctxlab.comparison.paired import compare
from ctxlab.errors import ReadError
from ctxlab.results import Results

__all__ = ["FULL", "Agreement"]

FULL = "full()"
"""Full history, which is the ceiling, as results name it."""


@dataclass
class Agreement(Results):
    """How often the next call is the recorded one; a row a drawn request in ``requests``."""

    answers: pd.DataFrame
    """a row a request × strategy × limit × replicate: ``position`` in the recording, ``outcome``
    (answered, unanswered, invalid) and ``why``, the ``recorded`` calls and what was ``said``, what
    agreed (``name``, ``arguments``, ``both``, ``leaves``, ``entities``: shares, nan where there is
    nothing to compare), ``tokens`` as counted, and what was billed when it was asked"""

    def beside_full(self, score: str = "agrees_both") -> pd.DataFrame:
        """For every strategy and limit a score less that of full history, with its interval.

        Columns ``strategy``, ``limit``, ``difference``, ``low``, ``high``: paired by recording, over
        clusters (``ctxlab.comparison.paired``). Empty where full history was not asked.
        """
        heads = {"a": "strategy", "limit_a": "limit"}
        wanted = [*heads, "difference", "low", "high"]
        names = list(dict.fromkeys(self.requests["strategy"].astype(str)))
        others = [name for name in names if name != FULL] if FULL in names else []
        found = [compare(self, name, FULL, scores=[score]).table[wanted] for name in others]
        whole = pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=wanted)
        return whole.rename(columns=heads)

    def equals(self, other: Results) -> bool:
        """Whether both hold the same figures and the same answers."""
        same = isinstance(other, Agreement) and self.answers.equals(other.answers)
        return same and super().equals(other)

    def save(self, folder: str | Path) -> Path:
        """Writes what ``Results.save`` writes, and ``answers.parquet``."""
        folder = super().save(folder)
        self.answers.to_parquet(folder / "answers.parquet", index=False)
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Agreement:
        """What ``save`` wrote. Raises ``ReadError`` where it is not there, or is another kind of run."""
        saved = Results.load(folder)
        if "agreement" not in saved.manifest:
            other = "exam" in saved.manifest
            kind = "an exam" if other else "an evaluation"
            by = "ctxlab.Exam.load" if other else "ctxlab.Results.load"
            raise ReadError(folder, None, f"this run is no agreement but {kind}: {by} reads it")
        try:
            answers = pd.read_parquet(Path(folder) / "answers.parquet")
        except (OSError, ValueError) as error:
            raise ReadError(folder, None, f"no saved agreement: {error}") from None
        return cls(saved.requests, saved.scores, saved.manifest, answers)

    def __repr__(self) -> str:
        asked = self.manifest["agreement"]
        return f"<Agreement of {asked['answer_model']}: {len(self.answers):,} answers>"

    def _repr_html_(self) -> str:
        shown = self.leaderboard()
        note = "Off-policy; another call than the recorded one may be as good: compare with full."
        return f"{shown.to_html(index=False, float_format=lambda v: f'{v:,.3g}')}<p>{note}</p>"
