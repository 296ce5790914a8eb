"""Strategies are compared on the same requests, with an interval beside every difference."""

from __future__ import annotations

from ctxlab.evaluation.comparison.equal_tokens import (
    Equal,
    equal_tokens,
)
from ctxlab.evaluation.comparison.paired import (
    COMPARED,
    compare,
)
from ctxlab.evaluation.comparison.report import (
    Comparison,
    Configuration,
)
from ctxlab.evaluation.comparison.stratified import (
    Matched,
    matched_difference,
)

__all__ = [
    "COMPARED",
    "Comparison",
    "Configuration",
    "Equal",
    "Matched",
    "compare",
    "equal_tokens",
    "matched_difference",
]
