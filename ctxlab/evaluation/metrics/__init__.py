"""Metrics of an evaluation, by name; a new one is a file and a line in ``_MODULES``."""

from __future__ import annotations

from importlib import import_module

from ctxlab.errors import SpecError
from ctxlab.evaluation.metrics.base import (
    Column,
    Metric,
    PerRequestMetric,
    Score,
    per_request_metric,
)
from ctxlab.evaluation.metrics.canaries import CanaryMetric
from ctxlab.evaluation.metrics.cost import CostMetric
from ctxlab.evaluation.metrics.probes import ProbeMetric
from ctxlab.evaluation.metrics.recall import FAR_TOKENS, RecallMetric
from ctxlab.evaluation.metrics.tokens import UsageMetric
from ctxlab.evaluation.metrics.validity import ValidityMetric

__all__ = [
    "FAR_TOKENS",
    "METRICS",
    "CanaryMetric",
    "Column",
    "CostMetric",
    "Metric",
    "PerRequestMetric",
    "ProbeMetric",
    "RecallMetric",
    "Score",
    "UsageMetric",
    "ValidityMetric",
    "per_request_metric",
    "register_metric",
]

_MODULES = {
    "usage": "tokens",
    "validity": "validity",
    "cost": "cost",
    "recall": "recall",
    "probes": "probes",
    "canaries": "canaries",
}
"""Module of this folder in which each metric stands, by its name."""

METRICS: dict[str, Metric] = {
    name: getattr(import_module(f"{__name__}.{module}"), name) for name, module in _MODULES.items()
}
"""By name. Prices and rules that depend on a model are those of the recording that is measured."""


def register_metric(name: str, metric: Metric) -> None:
    """Adds a metric to the table; a name that is taken raises ``SpecError``."""
    if name in METRICS:
        raise SpecError(f"a metric is already called {name!r}")
    METRICS[name] = metric
