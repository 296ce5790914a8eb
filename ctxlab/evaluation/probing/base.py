"""What a model answered stands beside the figures made of it, and is saved and read with them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import pandas as pd

from ctxlab.errors import ReadError
from ctxlab.evaluation.results import Results

__all__ = ["Answered"]

_KINDS = {
    "exam": ("an exam", "ctxlab.Exam.load"),
    "agreement": ("an agreement", "ctxlab.Agreement.load"),
}
_PLAIN = ("an evaluation", "ctxlab.Results.load")


@dataclass
class Answered(Results):
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
        if cls.kind not in saved.manifest:
            is_a = next((said for kind, said in _KINDS.items() if kind in saved.manifest), _PLAIN)
            hint = f"this run is no {cls.kind} but {is_a[0]}: {is_a[1]} reads it"
            raise ReadError(folder, None, hint)
        try:
            answers = pd.read_parquet(Path(folder) / "answers.parquet")
        except (OSError, ValueError) as error:
            raise ReadError(folder, None, f"no saved {cls.kind}: {error}") from None
        return cls(saved.requests, saved.scores, saved.manifest, answers)
