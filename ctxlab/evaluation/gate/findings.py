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
        if self.bound.relative:
            return f"margin {self.bound.value * 100:.3g} %"
        sign = {"max": "≤", "min": "≥", "margin": "margin"}[self.bound.kind]
        return f"{sign} {format_score_value(self.bound.value, self.score)}"

    @property
    def cells(self) -> tuple[str, str, str]:
        """Baseline, current figure and difference with its interval, as printed in a table."""
        now = self._format(self.value)
        if self.bound.kind != "margin":
            return "", now, ""
        before, by = self._format(self.baseline_value), self._format(self.difference, sign=True)
        if self.value == self.baseline_value:
            return before, now, "0"
        return before, now, by if math.isnan(self.low) else f"{by} ({self._interval})"

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
        end, side = ("maximum", "above") if self.bound.kind == "max" else ("minimum", "below")
        said = f"{score_label(self.score)} is {self._format(self.value)}"
        bound = format_score_value(self.bound.value, self.score)
        if self.outcome == "ok":
            return f"{said} ({end} {bound})"
        return f"{said}, {side} its {end} of {bound}"

    def _margin_sentence(self) -> str:
        words, margin = score_label(self.score), self.bound_text
        before, now = self._format(self.baseline_value), self._format(self.value)
        if self.bound.relative:
            margin = f"{margin}, which is {self._format(self.margin)}"
        if self.value == self.baseline_value:
            return f"{words} is {before}, as before ({margin})"
        verb = "fell" if self.value < self.baseline_value else "rose"
        by = f"{self._format(self.difference, sign=True)}{self._interval_note}"
        return f"{words} {verb} from {before} to {now} ({by}; {margin})"

    @property
    def _interval_note(self) -> str:
        """The interval for a sentence, or why the figure decides without one."""
        if not math.isnan(self.low):
            return f", 95 % {self._interval}"
        if self.score.how == "max":
            why = "a maximum has no interval"
        elif self.clusters >= MIN_CLUSTERS:
            why = f"alike in all {self.clusters} clusters"
        else:
            why = f"too few clusters for an interval ({self.clusters})"
        return f"; {why}, so the figure decides"

    @property
    def _interval(self) -> str:
        return f"{self._format(self.low, sign=True)} to {self._format(self.high, sign=True)}"

    def _format(self, value: float, *, sign: bool = False) -> str:
        """Format a figure with the decimals that tell the current one from its baseline or bound."""
        other = self.baseline_value if self.bound.kind == "margin" else self.bound.value
        digits = decimal_places(self.score, self.value, other)
        return format_score_value(value, self.score, digits, sign=sign)


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
