"""Metrics of an evaluation, by name; a new one is a file and a line in ``METRICS``."""

from __future__ import annotations

from ctxlab.errors import SpecError
from ctxlab.evaluation.metrics.base import (
    Column,
    Metric,
    PerRequest,
    Score,
    per_request,
)
from ctxlab.evaluation.metrics.canaries import Canaries
from ctxlab.evaluation.metrics.cost import Cost
from ctxlab.evaluation.metrics.probes import Probes
from ctxlab.evaluation.metrics.recall import (
    FAR,
    Recall,
)
from ctxlab.evaluation.metrics.tokens import Usage
from ctxlab.evaluation.metrics.validity import Validity

__all__ = [
    "FAR",
    "METRICS",
    "Canaries",
    "Column",
    "Cost",
    "Metric",
    "PerRequest",
    "Probes",
    "Recall",
    "Score",
    "Usage",
    "Validity",
    "per_request",
    "register",
]

METRICS: dict[str, Metric] = {
    "usage": Usage(),
    "validity": Validity(),
    "cost": Cost(),
    "recall": Recall(),
    "probes": Probes(),
    "canaries": Canaries(),
}
"""By name. Prices and rules that depend on a model are those of the recording that is measured."""


def register(name: str, metric: Metric) -> None:
    """Adds a metric to the table; a name that is taken raises ``SpecError``."""
    if name in METRICS:
        raise SpecError(f"a metric is already called {name!r}")
    METRICS[name] = metric
