"""Budgets of a project are checked, in CI or in its tests, against bounds and a committed baseline."""

from __future__ import annotations

from ctxlab.evaluation.gate.check import (
    Gate,
    Update,
    check_budgets,
    findings_of,
    update_baseline,
)
from ctxlab.evaluation.gate.config import (
    Bound,
    Budget,
    Budgets,
    Experiment,
    read_budgets,
)
from ctxlab.evaluation.gate.findings import Finding

__all__ = [
    "Bound",
    "Budget",
    "Budgets",
    "Experiment",
    "Finding",
    "Gate",
    "Update",
    "check_budgets",
    "findings_of",
    "read_budgets",
    "update_baseline",
]
