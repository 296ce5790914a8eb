"""Regression gate: check scores against bounds and a committed baseline, or new logs against old."""

from __future__ import annotations

from ctxlab.evaluation.gate.check import (
    BaselineUpdate,
    GateResults,
    check_results,
    run_gate,
    update_baseline,
)
from ctxlab.evaluation.gate.config import (
    Bound,
    GateBudget,
    GateConfig,
    GateExperiment,
    read_gate_config,
)
from ctxlab.evaluation.gate.findings import Finding
from ctxlab.evaluation.gate.logs import compare_logs

__all__ = [
    "BaselineUpdate",
    "Bound",
    "Finding",
    "GateBudget",
    "GateConfig",
    "GateExperiment",
    "GateResults",
    "check_results",
    "compare_logs",
    "read_gate_config",
    "run_gate",
    "update_baseline",
]
