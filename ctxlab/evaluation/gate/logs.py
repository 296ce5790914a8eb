"""Compare new logs of an agent with old ones, to see if it calls, sends and costs more than before.

The other checks of a gate replay the same recordings twice. Here the recordings themselves differ, so
chance is involved: other tasks would have given other scores. Both sets of recordings are measured
separately, as they were recorded or as a strategy would have sent them. A score is an amount per
recording or per request, so the two sets may have different sizes. The 95 % interval of the difference
follows from those of both sets, over clusters of recordings. The outcome of a score is

- *worse*, which fails the gate, if the whole interval is worse than the old score by more than the
  margin,
- *ok* if the whole interval is within the margin, or if all clusters of both sets have the same value,
- *unclear* in all other cases, also if one of the sets has no interval.

There is no correction for the number of scores. If both sets were drawn from the same real logs, fewer
than 3 % of the draws had any breach (``evals/false_alarms.py``), because the scores depend on each other
and a breach must exceed a margin. With a correction, the comparison would miss more real changes.

The sets are assumed to have no task in common. If they have the same tasks, the intervals are too wide,
which makes breaches rarer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from typing_extensions import override

from ctxlab.errors import SpecError, require_known
from ctxlab.evaluation.bootstrap import MIN_CLUSTERS, difference_of_samples, ratio_interval
from ctxlab.evaluation.engine import PreparedRecording, Trace
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.gate.check import GateResults
from ctxlab.evaluation.gate.config import Bound, GateBudget, parse_bounds
from ctxlab.evaluation.gate.findings import Finding, FindingOutcome, score_label
from ctxlab.evaluation.grid import StrategyLike
from ctxlab.evaluation.metrics import METRICS
from ctxlab.evaluation.metrics.base import Column, Figures, Metric, Score
from ctxlab.evaluation.metrics.recall import HEADLINE_SCORE
from ctxlab.evaluation.results import Results
from ctxlab.messages.types import Recording, Usage

DEFAULT_LOG_SCORES: tuple[str, ...] = (
    "calls_per_recording",
    "tool_calls_per_recording",
    "tokens_mean",
    "tokens_per_recording",
    "output_per_recording",
    "billed_per_recording",
    "cost_per_recording",
    HEADLINE_SCORE,
)
"""Scores that are compared by default, if both sets of logs have a value for them."""

DEFAULT_SHARE_MARGIN = 0.02
"""Margin of a score that is a share, if none is given."""
DEFAULT_RELATIVE_MARGIN = "5 %"
"""Margin of any other score, if none is given."""

_LOG_METRICS = ("usage", "validity", "cost", "recall")


class LogMetric(Metric):
    """What the agent did and what was billed, as recorded. It is the same under every strategy."""

    columns = (
        Column("recordings", "1 at the first model call of a recording", "recordings"),
        Column(
            "billed_recordings", "1 at the first model call of a recording with bills", "recordings"
        ),
        Column("model_calls", "1 for each recorded model call", "calls"),
        Column("tool_calls", "tool calls of the recorded reply", "calls"),
        Column("billed_output", "output tokens billed for the recorded reply", "tokens"),
        Column("billed_usd", "price of the billed tokens of the recorded request and reply", "USD"),
    )
    scores = (
        Score.mean(
            "calls_per_recording",
            "mean number of model calls of a recording",
            "calls",
            "model_calls / recordings",
        ),
        Score.mean(
            "tool_calls_per_recording",
            "mean number of tool calls of a recording",
            "calls",
            "tool_calls / recordings",
        ),
        Score.mean(
            "tokens_per_recording",
            "mean number of tokens of all requests of a recording",
            "tokens",
            "tokens / recordings",
        ),
        Score.mean(
            "output_per_recording",
            "mean number of output tokens billed for a recording",
            "tokens",
            "billed_output / billed_recordings",
        ),
        Score.mean(
            "billed_per_recording",
            "mean price of the tokens billed for a recording",
            "USD",
            "billed_usd / billed_recordings",
        ),
        Score.mean(
            "cost_per_recording",
            "mean input cost of a recording",
            "USD",
            "cost_usd / recordings",
        ),
    )

    @override
    def measure(self, prepared: PreparedRecording, traces: Sequence[Trace]) -> Figures:
        replies = [prepared.recording.messages[p] for p in prepared.request_positions]
        bills = [reply.usage or Usage() for reply in replies]
        first = np.arange(len(replies)) == 0
        rows = {
            "recordings": first,
            "billed_recordings": first & any(reply.usage is not None for reply in replies),
            "model_calls": np.ones(len(replies)),
            "tool_calls": [len(reply.tool_calls) for reply in replies],
            "billed_output": [usage.output for usage in bills],
            "billed_usd": [prepared.model.prices.cost(usage) for usage in bills],
        }
        return {
            name: np.tile(np.asarray(row, dtype=np.float64), (len(traces), 1))
            for name, row in rows.items()
        }


class _Measured(NamedTuple):
    """Score of one set of logs, with its interval."""

    value: float
    low: float
    high: float
    clusters: int


def compare_logs(
    old: Iterable[Recording],
    new: Iterable[Recording],
    strategy: StrategyLike = "recorded",
    limit: float | str | None = None,
    *,
    margins: Mapping[str, float | str] | None = None,
    model: str | None = None,
    progress: bool | None = None,
) -> GateResults:
    """Compare the scores of new recordings with those of old ones, with intervals.

    Parameters
    ----------
    old, new : iterable of Recording
        Recordings of the agent before and after a change. They need not be the same tasks.
    strategy : Strategy, str or callable, default "recorded"
        Strategy for the scores that depend on requests, such as tokens and recall. ``recorded``
        sends what the product sent, as far as the log tells.
    limit : float or str, optional
        Limit of the strategy, in tokens or as a fraction of each recording's length. None sets no
        limit.
    margins : mapping of str to float or str, optional
        Margin by name of score, as in a gate file: how much worse the new score may be, such as 0.02
        or ``"10 %"`` of the old score. These scores are compared in addition to
        ``DEFAULT_LOG_SCORES``, whose default margin is 0.02 for shares and 5 % for others.
    model : str, optional
        Model that determines the tokenizer, the prices and the API rules. None uses the model of
        each recording.
    progress : bool, optional
        Show a progress bar. None shows it only on a terminal.

    Returns
    -------
    GateResults
        One finding per score.

    Raises
    ------
    SpecError
        If a margin is not valid, or if a score with a margin has no value in one of the sets.
    StrategyError
        If the strategy fails.
    """
    metrics = [*(METRICS[name] for name in _LOG_METRICS), LogMetric()]
    scores = {score.name: score for metric in metrics for score in metric.scores}
    ratios = {
        name: score for name, score in scores.items() if score.how == "ratio" and score.better
    }
    asked = _parse_margins(margins or {}, ratios)
    whole = 1.0 if limit is None else limit
    sides = [
        evaluate(each, strategy, whole, model, metrics=metrics, progress=progress)
        for each in (old, new)
    ]
    name, allowed = sides[0].manifest["spec"]["strategies"][0], asked.values()
    known = None if limit is None else sides[0].manifest["spec"]["limits"][0]
    budget = GateBudget("new logs", "", name, known, tuple(allowed))
    found: list[Finding] = []
    for bound in allowed:
        before, now = (_measure(side, bound.score) for side in sides)
        if not (math.isnan(before.value) or math.isnan(now.value)):
            found.append(_compare(budget, bound, before, now))
        elif bound.score.name in (margins or {}):
            which = "old" if math.isnan(before.value) else "new"
            said = f"the {which} logs have no value of {score_label(bound.score)}"
            raise SpecError(f"{bound.score.name}: {said}; remove its margin")
    return GateResults(tuple(found))


def _parse_margins(
    margins: Mapping[str, float | str], scores: Mapping[str, Score]
) -> dict[str, Bound]:
    """Return the margin of each score to compare, by name of score."""
    for name in margins:
        require_known("score", name, scores)
    default = {
        name: DEFAULT_SHARE_MARGIN if scores[name].unit == "share" else DEFAULT_RELATIVE_MARGIN
        for name in DEFAULT_LOG_SCORES
    }
    bounds = parse_bounds({"margin": {**default, **margins}}, scores.values())
    return {bound.score.name: bound for bound in bounds}


def _measure(results: Results, score: Score) -> _Measured:
    """Compute a score over all recordings, and its interval over clusters."""
    row = results.leaderboard().iloc[0]
    key = [(row["limit"], row["strategy"])]
    top, bottom = (results.cluster_sums(name, key) for name in score.run_columns)
    low, high = ratio_interval(top, bottom)
    clusters = int((bottom > 0).sum())
    return _Measured(float(row[score.name]), float(low[0]), float(high[0]), clusters)


def _compare(budget: GateBudget, bound: Bound, before: _Measured, now: _Measured) -> Finding:
    """Compare a score of both sets of logs, and decide the outcome."""
    new, old = ((np.array(s.value), np.array(s.low), np.array(s.high)) for s in (now, before))
    low, high = (float(each) for each in difference_of_samples(new, old)[1:])
    best, worst = (low, high) if bound.score.better == "lower" else (-high, -low)
    margin = bound.margin(before.value)
    outcome: FindingOutcome = "worse" if best > margin else "ok" if worst <= margin else "unclear"
    clusters = min(before.clusters, now.clusters)
    # With enough clusters, there is no interval only if all clusters have the same value.
    constant = clusters >= MIN_CLUSTERS and math.isnan(before.low) and math.isnan(now.low)
    if constant and math.isclose(before.value, now.value):
        outcome = "ok"
    return Finding(
        budget, bound, now.value, outcome, before.value, "", low, high, clusters, of_logs=True
    )
