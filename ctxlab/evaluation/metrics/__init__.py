"""Metrics of an evaluation, by name. To add a metric to ctxlab, add its module to ``_MODULES``."""

from __future__ import annotations

from importlib import import_module

from ctxlab.errors import SpecError
from ctxlab.evaluation.metrics.base import Column, Metric, Score, per_request_metric
from ctxlab.evaluation.metrics.recall import FAR_TOKENS

__all__ = [
    "DEFAULT_METRICS",
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
    "compactions": "compactions",
    "closed_loop": "closed_loop",
}
"""Name of the module that defines each metric, by metric name."""

METRICS: dict[str, Metric] = {
    name: getattr(import_module(f"{__name__}.{module}"), name) for name, module in _MODULES.items()
}
"""All metrics, by name. They use the prices and API rules of each recording's model."""

DEFAULT_METRICS = tuple(name for name in METRICS if name != "closed_loop")
"""Names of the metrics that an evaluation computes by default; the closed loop replays once more."""


def register_metric(name: str, metric: Metric) -> None:
    """Register a metric, so that ``evaluate`` and experiment files can refer to it by name.

    Parameters
    ----------
    name : str
        Name of the metric. It must not be registered yet.
    metric : Metric
        Metric to register.

    Raises
    ------
    SpecError
        If a metric with this name is already registered.
    """
    if name in METRICS:
        raise SpecError(f"metric {name!r} is already registered; choose another name")
    METRICS[name] = metric
