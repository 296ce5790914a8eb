"""Findings of a gate: one bound and its outcome, as figures and as a sentence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ctxlab.evaluation.bootstrap import MIN_CLUSTERS
from ctxlab.evaluation.gate.config import Bound, GateBudget
from ctxlab.evaluation.metrics.base import Score

FindingOutcome: TypeAlias = Literal["worse", "unclear", "ok"]
"""*worse* is a breach; *unclear* is neither shown to hold nor shown to fail."""

_SCORE_LABELS = {
    "recall_far": "far recall",
    "recall_near": "near recall",
    "tokens_mean": "token mean",
    "tokens_peak": "token peak",
    "tokens_total": "token total",
    "messages_mean": "message mean",
    "cost_usd": "cost",
    "strategy_usd": "cost of own calls",
    "strategy_tokens": "token total of own calls",
    "strategy_calls": "number of own calls",
    "fallbacks": "number of fallbacks",
}


@dataclass(frozen=True)
class Finding:
    """The outcome of one bound of one budget."""

    budget: GateBudget
    "the budget"
    bound: Bound
    "the bound that was checked"
    value: float
    "the current figure"
    outcome: FindingOutcome
    "``ok``, ``unclear`` or ``worse``"
    baseline_value: float = math.nan
    "the figure in the baseline; nan unless the bound is a margin"
    baseline_strategy: str = ""
    "the strategy in the baseline"
    low: float = math.nan
    "lower bound of the 95 % interval of the difference (now minus baseline); nan if there is none"
    high: float = math.nan
    "upper bound of the interval"
    clusters: int = 0
    "number of clusters behind the interval, or that are too few for one"

    @property
    def score(self) -> Score:
        """The score that is bounded."""
        return self.bound.score

    @property
    def difference(self) -> float:
        """The current figure minus the baseline's."""
        return self.value - self.baseline_value

    @property
    def margin(self) -> float:
        """The allowed deterioration in the score's unit."""
        return self.bound.margin(self.baseline_value)

    @property
    def bound_text(self) -> str:
        """The bound as it is printed in a table."""
        if self.bound.kind == "margin":
            if self.bound.relative:
                return f"margin {self.bound.value * 100:.3g} %"
            return f"margin {format_score_value(self.bound.value, self.score)}"
        sign = "≤" if self.bound.kind == "max" else "≥"
        return f"{sign} {format_score_value(self.bound.value, self.score)}"

    @property
    def cells(self) -> tuple[str, str, str]:
        """Baseline, current figure and difference with its interval, as printed in a table."""
        if self.bound.kind != "margin":
            digits = decimal_places(self.score, self.value, self.bound.value)
            return "", format_score_value(self.value, self.score, digits), ""
        digits = decimal_places(self.score, self.value, self.baseline_value)
        before, now = (
            format_score_value(v, self.score, digits) for v in (self.baseline_value, self.value)
        )
        if self.value == self.baseline_value:
            return before, now, "0"
        by, *ends = (
            format_score_value(v, self.score, digits, sign=True)
            for v in (self.difference, self.low, self.high)
        )
        return before, now, by if math.isnan(self.low) else f"{by} ({ends[0]} to {ends[1]})"

    @property
    def sentence(self) -> str:
        """The finding as a sentence: budget, score, figures and strategy."""
        said = self._margin_sentence() if self.bound.kind == "margin" else self._bound_sentence()
        name = self.budget.name or "the strategy"
        strategy = self.budget.strategy
        if self.baseline_strategy in ("", strategy):
            return f"{self.budget.label}: {said}; {name} is {strategy}"
        return f"{self.budget.label}: {said}; {name} is now {strategy} and was {self.baseline_strategy}"

    def _bound_sentence(self) -> str:
        digits = decimal_places(self.score, self.value, self.bound.value)
        said = f"{score_label(self.score)} is {format_score_value(self.value, self.score, digits)}"
        end = "maximum" if self.bound.kind == "max" else "minimum"
        bound = format_score_value(self.bound.value, self.score)
        if self.outcome == "ok":
            return f"{said} ({end} {bound})"
        side = "above" if self.bound.kind == "max" else "below"
        return f"{said}, {side} its {end} of {bound}"

    def _margin_sentence(self) -> str:
        words = score_label(self.score)
        digits = decimal_places(self.score, self.value, self.baseline_value)
        figures = [
            format_score_value(value, self.score, digits)
            for value in (self.baseline_value, self.value)
        ]
        margin = self.bound_text
        if self.bound.relative:
            margin = f"{margin}, which is {format_score_value(self.margin, self.score, digits)}"
        if self.value == self.baseline_value:
            return f"{words} is {figures[0]}, as before ({margin})"
        verb = "fell" if self.value < self.baseline_value else "rose"
        by = format_score_value(self.difference, self.score, digits, sign=True)
        inside = f"{by}{self._interval_text(digits)}; {margin}"
        return f"{words} {verb} from {figures[0]} to {figures[1]} ({inside})"

    def _interval_text(self, digits: int) -> str:
        if not math.isnan(self.low):
            ends = [
                format_score_value(end, self.score, digits, sign=True)
                for end in (self.low, self.high)
            ]
            return f", 95 % {ends[0]} to {ends[1]}"
        if self.score.how == "max":
            return "; a maximum has no interval, so the figure decides"
        if self.clusters >= MIN_CLUSTERS:
            return f"; alike in all {self.clusters} clusters, so the figure decides"
        return f"; too few clusters for an interval ({self.clusters}), so the figure decides"


def score_label(score: Score) -> str:
    """Return the name of a score for a sentence.

    Parameters
    ----------
    score : Score
        The score.

    Returns
    -------
    str
        Its name.

    Examples
    --------
    >>> score_label(Score("recall_far", "", "share", "ratio", "far_seen"))
    'far recall'
    """
    return _SCORE_LABELS.get(score.name, score.name.replace("_", " "))


def format_score_value(
    value: float, score: Score, digits: int | None = None, *, sign: bool = False
) -> str:
    """Format a figure in its unit.

    Parameters
    ----------
    value : float
        The figure.
    score : Score
        Its score.
    digits : int, optional
        Decimal places. None keeps as many as the value has.
    sign : bool, default False
        Write a plus sign.

    Returns
    -------
    str
        The text; ``–`` for nan.

    Examples
    --------
    >>> cost = Score("cost_usd", "", "USD", "sum", "cost_usd")
    >>> format_score_value(-0.5, cost, 2, sign=True), format_score_value(0.125, cost)
    ('−$0.50', '$0.125')
    """
    if math.isnan(value):
        return "–"
    text = f"{abs(value):,.10g}" if digits is None else f"{abs(value):,.{digits}f}"
    if math.isinf(value):
        text = "∞"
    before = "−" if value < 0 else "+" if sign else ""
    return f"{before}{'$' if score.unit == 'USD' else ''}{text}"


def decimal_places(score: Score, one: float, other: float) -> int:
    """Choose the decimal places that distinguish two figures, at least those usual for the unit.

    Parameters
    ----------
    score : Score
        The score.
    one, other : float
        The figures.

    Returns
    -------
    int
        Number of decimal places.

    Examples
    --------
    >>> mean = Score("tokens_mean", "", "tokens", "ratio", "tokens")
    >>> decimal_places(mean, 6412.3, 6000), decimal_places(mean, 6412.31, 6412.34)
    (0, 3)
    >>> decimal_places(mean, 12.3, 12.3)
    1
    """
    if score.unit in ("share", "USD"):
        usual = 2
    else:
        usual = 0 if max(abs(one), abs(other)) >= 100 or one == int(one) else 1
    apart = abs(one - other)
    return min(max(usual, 1 - math.floor(math.log10(apart))), 9) if 0 < apart < 1 else usual
