"""Findings of a gate: the outcome of each bound, with its values and a sentence that explains it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ctxlab.evaluation.bootstrap import MIN_CLUSTERS
from ctxlab.evaluation.gate.config import Bound, GateBudget
from ctxlab.evaluation.metrics.base import Score
from ctxlab.evaluation.metrics.recall import HEADLINE_LABEL, HEADLINE_SCORE

FindingOutcome: TypeAlias = Literal["worse", "unclear", "ok"]
"""Outcome of a bound: *ok* if it is met, *worse* if it is violated. *unclear* is possible only for a
comparison of logs: the interval of the difference contains the margin."""

_SCORE_LABELS = {
    "recall_far": "far recall",
    "recall_near": "near recall",
    HEADLINE_SCORE: HEADLINE_LABEL,
    "tokens_mean": "token mean",
    "tokens_peak": "token peak",
    "tokens_total": "token total",
    "messages_mean": "message mean",
    "cost_usd": "cost",
    "strategy_usd": "cost of own calls",
    "strategy_tokens": "token total of own calls",
    "strategy_calls": "number of own calls",
    "fallbacks": "number of fallbacks",
    "calls_per_recording": "number of model calls per recording",
    "tool_calls_per_recording": "number of tool calls per recording",
    "tokens_per_recording": "token total per recording",
    "output_per_recording": "number of billed output tokens per recording",
    "billed_per_recording": "price of the billed tokens per recording",
    "cost_per_recording": "input cost per recording",
}


@dataclass(frozen=True)
class Finding:
    """Outcome of checking one bound of one budget of a gate file."""

    budget: GateBudget
    "budget that the bound belongs to"
    bound: Bound
    "bound that was checked"
    value: float
    "current score"
    outcome: FindingOutcome
    "``ok``, ``unclear`` or ``worse``"
    baseline_value: float = math.nan
    "score in the baseline; nan unless the bound is a margin"
    baseline_strategy: str = ""
    "``repr`` of the strategy in the baseline; empty unless the bound is a margin"
    low: float = math.nan
    "lower bound of the 95 % interval of ``difference``; nan if there is no interval"
    high: float = math.nan
    "upper bound of the interval; nan if there is no interval"
    clusters: int = 0
    "number of clusters with data, even if they are too few for an interval"
    of_logs: bool = False
    "True if the score of new logs is compared with that of old logs, and not two replays of the same"

    @property
    def score(self) -> Score:
        """Score that was checked."""
        return self.bound.score

    @property
    def difference(self) -> float:
        """Current score minus the score in the baseline."""
        return self.value - self.baseline_value

    @property
    def loss(self) -> float:
        """Difference to the baseline in the direction in which the score becomes worse."""
        return self.difference if self.score.better == "lower" else -self.difference

    @property
    def label(self) -> str:
        """Outcome in a table: ``BREACH`` if the finding fails the gate."""
        return "BREACH" if self.outcome == "worse" else self.outcome

    @property
    def margin(self) -> float:
        """Margin in the score's unit: difference by which the score may become worse."""
        return self.bound.margin(self.baseline_value)

    @property
    def bound_text(self) -> str:
        """Bound as a string for a table, such as ``≤ 6000`` or ``margin 2 %``."""
        if self.bound.relative:
            return f"margin {self.bound.value * 100:.3g} %"
        sign = {"max": "≤", "min": "≥", "margin": "margin"}[self.bound.kind]
        return f"{sign} {format_score_value(self.bound.value, self.score)}"

    @property
    def cells(self) -> tuple[str, str, str]:
        """Table cells: score in the baseline, current score, and difference with its interval.

        The first and the last cell are empty strings for a fixed bound.
        """
        now = self._format(self.value)
        if self.bound.kind != "margin":
            return "", now, ""
        before, by = self._format(self.baseline_value), self._format(self.difference, sign=True)
        if self.value == self.baseline_value:
            return before, now, "0"
        return before, now, by if math.isnan(self.low) else f"{by} ({self._interval})"

    @property
    def sentence(self) -> str:
        """Finding as a sentence that names the budget, the score, its values and the strategy."""
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
            note = f"; {self._interval_note}" if self.of_logs else ""
            return f"{words} is {before}, as before ({margin}{note})"
        verb = "fell" if self.value < self.baseline_value else "rose"
        by = self._format(self.difference, sign=True)
        return f"{words} {verb} from {before} to {now} ({by}; {margin}; {self._interval_note})"

    @property
    def _interval_note(self) -> str:
        """Last words of the sentence: the interval, or the reason why there is no interval."""
        if not math.isnan(self.low):
            said = f"{self._interval} (95 %)"
            if self.of_logs:
                return f"interval {said}"
            return f"on other recordings, the difference may be {said}"
        if self.score.how == "max":
            return "a maximum has no interval"
        if self.clusters >= MIN_CLUSTERS:
            same = "value" if self.of_logs else "difference"
            return f"no interval, because all {self.clusters} clusters have the same {same}"
        return f"too few clusters for an interval ({self.clusters})"

    @property
    def _interval(self) -> str:
        return f"{self._format(self.low, sign=True)} to {self._format(self.high, sign=True)}"

    def _format(self, value: float, *, sign: bool = False) -> str:
        """Format a value of the score.

        The decimal places suffice to distinguish the current score from its baseline or bound.
        """
        other = self.baseline_value if self.bound.kind == "margin" else self.bound.value
        digits = decimal_places(self.score, self.value, other)
        return format_score_value(value, self.score, digits, sign=sign)


def score_label(score: Score) -> str:
    """Return the readable name of a score, for use in sentences.

    Parameters
    ----------
    score : Score
        Score to name.

    Returns
    -------
    str
        Readable name, in lower case.

    Examples
    --------
    >>> score_label(Score("recall_far", "", "share", "ratio", "far_seen"))
    'far recall'
    """
    return _SCORE_LABELS.get(score.name, score.name.replace("_", " "))


def format_score_value(
    value: float, score: Score, digits: int | None = None, *, sign: bool = False
) -> str:
    """Format a value of a score, with a dollar sign for costs.

    Parameters
    ----------
    value : float
        Value to format.
    score : Score
        Score that the value belongs to. A dollar sign is written if its unit is ``USD``.
    digits : int, optional
        Number of decimal places. None prints up to ten significant digits.
    sign : bool, default False
        Write a plus sign before a value that is not negative.

    Returns
    -------
    str
        Formatted value; ``–`` for nan.

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
    """Choose how many decimal places to print so that two values of a score look different.

    Shares and costs have at least 2 decimal places. Other scores have at least 1, but need none if a
    value is 100 or more, or if ``one`` is a whole number. If the values differ by less than 1, decimal
    places are added until the difference has two significant digits, up to 9 places.

    Parameters
    ----------
    score : Score
        Score that both values belong to.
    one, other : float
        Values to distinguish.

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
