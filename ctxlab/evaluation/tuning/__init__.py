"""Search for strategy parameters with low cost and high recall, tested on held-out recordings."""

from __future__ import annotations

from ctxlab.evaluation.tuning.results import TuningResults
from ctxlab.evaluation.tuning.search_space import DEFAULT_SPACES, SearchSpace
from ctxlab.evaluation.tuning.tune import tune

__all__ = ["DEFAULT_SPACES", "SearchSpace", "TuningResults", "tune"]
