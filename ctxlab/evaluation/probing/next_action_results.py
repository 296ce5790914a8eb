"""What a model called where a recorded agent called a tool, and how far that agrees.

An ``Agreement`` is a ``Results`` whose rows are requests that were drawn, so that it is compared, gated
and saved as any other; beside them stand the answers themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pandas as pd

from ctxlab.evaluation.comparison.paired import compare
from ctxlab.evaluation.probing.base import Answered

__all__ = ["FULL", "Agreement"]

FULL = "full()"
"""Full history, which is the ceiling, as results name it."""


@dataclass
class Agreement(Answered):
    """How often the next call is the recorded one; a row a drawn request in ``requests``."""

    answers: pd.DataFrame
    """a row a request × strategy × limit × replicate: ``position`` in the recording, ``outcome``
    (answered, unanswered, invalid) and ``why``, the ``recorded`` calls and what was ``said``, what
    agreed (``name``, ``arguments``, ``both``, ``leaves``, ``entities``: shares, nan where there is
    nothing to compare), ``tokens`` as counted, and what was billed when it was asked"""
    kind: ClassVar[str] = "agreement"

    def beside_full(self, score: str = "agrees_both") -> pd.DataFrame:
        """For every strategy and limit a score less that of full history, with its interval.

        Columns ``strategy``, ``limit``, ``difference``, ``low``, ``high``: paired by recording, over
        clusters (``ctxlab.evaluation.comparison.paired``). Empty where full history was not asked.
        """
        heads = {"a": "strategy", "limit_a": "limit"}
        wanted = [*heads, "difference", "low", "high"]
        names = list(dict.fromkeys(self.requests["strategy"].astype(str)))
        others = [name for name in names if name != FULL] if FULL in names else []
        found = [compare(self, name, FULL, scores=[score]).table[wanted] for name in others]
        whole = pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=wanted)
        return whole.rename(columns=heads)

    def __repr__(self) -> str:
        asked = self.manifest["agreement"]
        return f"<Agreement of {asked['answer_model']}: {len(self.answers):,} answers>"

    def _repr_html_(self) -> str:
        shown = self.leaderboard()
        note = "Off-policy; another call than the recorded one may be as good: compare with full."
        return f"{shown.to_html(index=False, float_format=lambda v: f'{v:,.3g}')}<p>{note}</p>"
