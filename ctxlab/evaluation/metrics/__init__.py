"""Metrics of an evaluation, by name; a new one needs a file and an entry in ``_MODULES``."""

from __future__ import annotations

from importlib import import_module

from ctxlab.errors import SpecError
from ctxlab.evaluation.metrics.base import Column, Metric, Score, per_request_metric
from ctxlab.evaluation.metrics.recall import FAR_TOKENS

__all__ = [
    "FAR_TOKENS",
    "METRICS",
    "Column",
    "Metric",
    "Score",
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
"""Module of each metric, by metric name."""

METRICS: dict[str, Metric] = {
    name: getattr(import_module(f"{__name__}.{module}"), name) for name, module in _MODULES.items()
}
"""All metrics by name. They use the prices and rules of each recording's model."""


def register_metric(name: str, metric: Metric) -> None:
    """Add a metric under a name.

    Parameters
    ----------
    name : str
        Name of the metric, as ``evaluate`` and experiment files use it.
    metric : Metric
        The metric.

    Raises
    ------
    SpecError
        If the name is taken.
    """
    if name in METRICS:
        raise SpecError(f"metric {name!r} exists already; choose another name")
    METRICS[name] = metric
