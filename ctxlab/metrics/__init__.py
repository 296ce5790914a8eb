"""What an evaluation measures; a new metric is a file and a line in ``METRICS``."""

from __future__ import annotations

from collections.abc import Callable

from ctxlab.errors import SpecError
from ctxlab.metrics.base import Column, Metric, PerRequest, Score, per_request
from ctxlab.metrics.canaries import Canaries
from ctxlab.metrics.cost import Cost
from ctxlab.metrics.probes import Probes
from ctxlab.metrics.recall import FAR, Recall
from ctxlab.metrics.usage import Usage
from ctxlab.metrics.validity import Validity
from ctxlab.models import Model

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

METRICS: dict[str, Callable[[Model], Metric]] = {
    "usage": lambda model: Usage(),
    "validity": lambda model: Validity(),
    "cost": Cost,
    "recall": lambda model: Recall(),
    "probes": lambda model: Probes(),
    "canaries": lambda model: Canaries(),
}
"""By name: what makes the metric for a model."""


def register(name: str, metric: Callable[[Model], Metric]) -> None:
    """Adds a metric to the table; a name that is taken raises ``SpecError``."""
    if name in METRICS:
        raise SpecError(f"a metric is already called {name!r}")
    METRICS[name] = metric
