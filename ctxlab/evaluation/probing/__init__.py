"""Exams ask a model, with what each strategy would send: questions, or for the next action."""

from __future__ import annotations

from ctxlab.evaluation.probing.judge import (
    Concord,
    kappa,
)
from ctxlab.evaluation.probing.next_action import agree
from ctxlab.evaluation.probing.next_action_results import Agreement
from ctxlab.evaluation.probing.qa import examine
from ctxlab.evaluation.probing.qa_results import Exam
from ctxlab.llm.batch import (
    Estimate,
    ask,
    estimate,
    paid_client,
)

__all__ = [
    "Agreement",
    "Concord",
    "Estimate",
    "Exam",
    "agree",
    "ask",
    "estimate",
    "examine",
    "kappa",
    "paid_client",
]
