"""Parameters are searched for what costs least and keeps most, and reported on held-out recordings."""

from __future__ import annotations

from ctxlab.evaluation.tuning.results import Tuning
from ctxlab.evaluation.tuning.search_space import (
    SPACES,
    Space,
)
from ctxlab.evaluation.tuning.tune import tune

__all__ = ["SPACES", "Space", "Tuning", "tune"]
