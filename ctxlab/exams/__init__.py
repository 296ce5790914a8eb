"""Exams ask a model, with what each strategy would send: questions, or for the next action."""

from __future__ import annotations

from ctxlab.asking import Estimate, ask, estimate, paid_client
from ctxlab.exams.agreed import Agreement
from ctxlab.exams.agreement import agree
from ctxlab.exams.exam import Exam
from ctxlab.exams.judge import Concord, kappa
from ctxlab.exams.sitting import examine

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
