"""Evaluate contexts by sending them to a model, which answers questions or makes the next tool call."""

from __future__ import annotations

from ctxlab.evaluation.probing.judge import JudgeAgreement, cohen_kappa
from ctxlab.evaluation.probing.next_action import evaluate_next_action
from ctxlab.evaluation.probing.qa import run_qa
from ctxlab.evaluation.probing.results import NextActionResults, QAResults

__all__ = [
    "JudgeAgreement",
    "NextActionResults",
    "QAResults",
    "cohen_kappa",
    "evaluate_next_action",
    "run_qa",
]
