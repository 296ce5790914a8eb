"""Strategies are compared on the same requests, with an interval beside every difference."""

from __future__ import annotations

from ctxlab.comparison.equal import Equal, equal_tokens
from ctxlab.comparison.matched import Matched, matched_difference
from ctxlab.comparison.paired import COMPARED, compare
from ctxlab.comparison.table import Comparison, Configuration

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
