"""Recommend the setting of a product that saves most for the recorded work and forgets little."""

from __future__ import annotations

from ctxlab.evaluation.recommendation.recommend import recommend
from ctxlab.evaluation.recommendation.results import Recommendation

__all__ = ["Recommendation", "recommend"]
