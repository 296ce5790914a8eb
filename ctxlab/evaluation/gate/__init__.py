"""Regression gate: check scores, in CI or in tests, against fixed bounds and a committed baseline."""

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

__all__ = [
    "BaselineUpdate",
    "Bound",
    "Finding",
    "GateBudget",
    "GateConfig",
    "GateExperiment",
    "GateResults",
    "check_results",
    "read_gate_config",
    "run_gate",
    "update_baseline",
]
