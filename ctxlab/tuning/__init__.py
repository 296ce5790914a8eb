"""Parameters are searched for what costs least and keeps most, and reported on held-out recordings."""

from __future__ import annotations

from ctxlab.tuning.outcome import Tuning
from ctxlab.tuning.search import tune
from ctxlab.tuning.space import SPACES, Space

__all__ = ["SPACES", "Space", "Tuning", "tune"]
