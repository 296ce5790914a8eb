"""Paired comparison of strategies, with an interval for each difference."""

from __future__ import annotations

from ctxlab.evaluation.comparison.equal_tokens import EqualTokensLimit, find_equal_tokens_limit
from ctxlab.evaluation.comparison.paired import DEFAULT_SCORES, compare_strategies
from ctxlab.evaluation.comparison.report import Comparison, Configuration
from ctxlab.evaluation.comparison.stratified import StratifiedDifference, stratified_difference

__all__ = [
    "DEFAULT_SCORES",
    "Comparison",
    "Configuration",
    "EqualTokensLimit",
    "StratifiedDifference",
    "compare_strategies",
    "find_equal_tokens_limit",
    "stratified_difference",
]
