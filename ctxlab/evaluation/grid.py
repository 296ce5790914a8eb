"""The grid of an experiment: strategies × limits, with the metrics and the model settings.

A recording is replayed through every configuration of the grid (a strategy under a limit). Its tokens
are counted once. All strategies use the tokenizer and prices of the same model for a recording, so that
their figures are comparable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from ctxlab._utils.garbage import pause_garbage_collection
from ctxlab._utils.humanize import parse_limit
from ctxlab.errors import SpecError, redact_urls, require_known
from ctxlab.evaluation.draws import average_draws, sum_draws
from ctxlab.evaluation.engine import PreparedRecording, Trace, probe_to_message, replay_traces
from ctxlab.evaluation.metrics import METRICS, Metric
from ctxlab.evaluation.metrics.base import FloatArray
from ctxlab.evaluation.metrics.closed_loop import ClosedLoopMetric
from ctxlab.evaluation.metrics.compactions import find_compactions
from ctxlab.evaluation.metrics.strategy_calls import collect_strategy_calls
from ctxlab.evaluation.results_builder import ReplayOutcome
from ctxlab.llm.base import Client
from ctxlab.messages.types import Recording
from ctxlab.strategies import Strategy, as_strategy, models_used, parse_strategy
from ctxlab.tokens.cache_timeline import AS_RECORDED, CostSettings
from ctxlab.tokens.model_choice import ModelChoice
from ctxlab.tokens.models import find_model, find_model_without_warning
from ctxlab.tokens.prices import Prices
from ctxlab.tokens.profiles import TokenProfile

StrategyLike: TypeAlias = Strategy | str | Callable[..., Any]
"""A strategy as an object, as a string such as ``"panic()"``, or as a user-defined function."""

DEFAULT_LIMITS: tuple[float, ...] = (0.25, 0.5)
"""Default limits, as fractions of each recording's length. They suit recordings of any length."""


@dataclass(frozen=True)
class ExperimentGrid:
    """Strategies, limits, metrics and model settings of an experiment, for any number of recordings."""

    strategies: tuple[Strategy, ...]
    "strategies without duplicates"
    limits: tuple[float, ...]
    "limits in tokens, or as fractions of each recording's length"
    reserve: int
    "tokens of the limit kept for the reply"
    model_choice: ModelChoice
    "chooses the model and the token counter of each recording"
    metrics: tuple[Metric, ...]
    "metrics to compute"
    metric_names: tuple[str, ...]
    "name of each metric"
    client: Client | None = None
    "client for the model calls of strategies"
    costs: CostSettings = AS_RECORDED
    "assumptions about the prompt cache and the unlogged tokens"

    @classmethod
    def from_arguments(
        cls,
        strategies: StrategyLike | Iterable[StrategyLike],
        limits: float | str | Iterable[float | str],
        model: str | None,
        reserve: int,
        metrics: str | Metric | Iterable[str | Metric],
        profile: TokenProfile | Iterable[TokenProfile] | None = None,
        project: str | Path = "",
        costs: CostSettings = AS_RECORDED,
    ) -> ExperimentGrid:
        """Create a grid from user input: check the values and look up strategies and metrics by name.

        Parameters
        ----------
        strategies : Strategy, str, callable or iterable of them
            One or several strategies.
        limits : float, str or iterable of them
            One or several limits, in tokens or as fractions.
        model : str or None
            Model whose tokenizer, prices and rules apply. None takes the model of each recording.
        reserve : int
            Tokens of the limit kept for the reply.
        metrics : str, Metric or iterable of them
            Metrics to compute.
        profile : TokenProfile or iterable of TokenProfile, optional
            Calibrations of token counts, one per model family.
        project : str or Path, optional
            Folder of the project whose stored calibrations are used if ``profile`` is None.
        costs : CostSettings, optional
            Assumptions about the prompt cache and the unlogged tokens.

        Returns
        -------
        ExperimentGrid
            Grid without duplicate strategies and limits.

        Raises
        ------
        SpecError
            If an argument is invalid.
        """
        unique = tuple(dict.fromkeys(map(resolve_strategy, as_list(strategies))))
        bounds = tuple(dict.fromkeys(map(parse_limit, as_list(limits))))
        if not unique or not bounds:
            raise SpecError("expected at least one strategy and one limit, got an empty list")
        for bound in bounds:
            if bound > 1 and reserve >= bound:
                raise SpecError(f"reserve: expected less than the limit of {bound}, got {reserve}")
        if reserve < 0:
            raise SpecError(f"reserve: expected at least 0 tokens, got {reserve}")
        named: dict[str, Strategy] = {}
        for step in unique:
            if named.setdefault(repr(step), step) is not step:
                raise SpecError(f"two different strategies are named {step!r}; rename one of them")
        if model:
            find_model(model)  # warns if the model is unknown
        measures = list(as_list(metrics))
        made = tuple(map(_resolve_metric, measures))
        names = tuple(m if isinstance(m, str) else _metric_name(m) for m in measures)
        model_choice = ModelChoice.from_options(model, profile, project)
        return cls(unique, bounds, reserve, model_choice, made, names, costs=costs)

    @property
    def configurations(self) -> list[tuple[str, float]]:
        """Strategy (as a string) and limit of each configuration, ordered by limit, then by strategy."""
        return [(repr(s), limit) for limit in self.limits for s in self.strategies]

    @property
    def _closed_loop_settings(self) -> dict[str, Any]:
        """Settings of the closed loop by name of the field in a ``Spec``; empty without it."""
        for metric in self.metrics:
            if isinstance(metric, ClosedLoopMetric):
                return {
                    "max_refetches": metric.max_refetches,
                    "latency": metric.latency,
                    "repeatable": list(metric.repeatable),
                }
        return {}

    @property
    def strategy_models(self) -> tuple[str, ...]:
        """Names of the models that the strategies call."""
        return models_used(*self.strategies)

    @property
    def columns(self) -> list[str]:
        """Names of the columns that the metrics compute, in the order of the metrics."""
        return [column.name for metric in self.metrics for column in metric.columns]

    @property
    def integers(self) -> frozenset[str]:
        """Names of the columns whose values are whole numbers."""
        return frozenset(c.name for metric in self.metrics for c in metric.columns if c.integer)

    @property
    def scores(self) -> list[Any]:
        """Scores of all metrics, in the column order of the leaderboard."""
        return [score for metric in self.metrics for score in metric.scores]

    def evaluate_recording(self, recording: Recording) -> ReplayOutcome:
        """Replay one recording through every configuration, and compute the metrics.

        Parameters
        ----------
        recording : Recording
            Recording to replay.

        Returns
        -------
        ReplayOutcome
            Measurements of each configuration and request.
        """
        with pause_garbage_collection():  # a tenth of the time for recordings of short messages
            return self.measure_traces(*self.replay_recording(recording))

    def prepare_recording(self, recording: Recording) -> PreparedRecording:
        """Prepare a recording for replay: count its tokens as ``model_choice`` specifies.

        Parameters
        ----------
        recording : Recording
            Recording to replay.

        Returns
        -------
        PreparedRecording
            Recording with token counts, and with its probes if a metric needs them.
        """
        ask = probe_to_message if any(m.uses_probes for m in self.metrics) else None
        counter = self.model_choice.counter_for(recording)
        return PreparedRecording(recording, counter, self.client, ask, costs=self.costs)

    def replay_recording(self, recording: Recording) -> tuple[PreparedRecording, list[Trace]]:
        """Replay a recording through every configuration.

        Parameters
        ----------
        recording : Recording
            Recording to replay.

        Returns
        -------
        prepared : PreparedRecording
            Recording with its token counts.
        traces : list of Trace
            One trace per configuration; empty if the recording has no request.
        """
        prepared = self.prepare_recording(recording)
        if not prepared.request_positions:
            return prepared, []
        observers = {k: observe for m in self.metrics for k, observe in m.observers.items()}
        budgets = [prepared.make_budget(limit, self.reserve) for limit in self.limits]
        return prepared, replay_traces(prepared, self.strategies, budgets, observers)

    def measure_traces(self, prepared: PreparedRecording, traces: Sequence[Trace]) -> ReplayOutcome:
        """Compute the metrics of the traces of one recording.

        Parameters
        ----------
        prepared : PreparedRecording
            Recording that was replayed.
        traces : sequence of Trace
            One trace per configuration.

        Returns
        -------
        ReplayOutcome
            Measurements of each configuration and request.
        """
        draws = [draw for trace in traces for draw in trace.draws]
        figures = _measure_draws(self.metrics, prepared, draws) if draws else {}
        columns = average_draws(figures, traces)
        limits = [trace.budget.limit for trace in traces]
        calls = collect_strategy_calls(draws)
        sums = sum_draws(figures, traces, self.scores)
        changes = find_compactions(prepared, traces)
        return ReplayOutcome(prepared.manifest_entry, limits, columns, calls, sums, changes)

    def manifest(self, data: Sequence[str], models: Iterable[str]) -> dict[str, Any]:
        """Create the manifest: a description from which the experiment can be run again.

        Three keys contain one value for each model that counted tokens: ``tokens`` the accuracy of
        its counts, ``prices`` its prices, and ``cache`` its cache rules. ``profiles`` in ``spec``
        contains the calibrations that were used.

        Parameters
        ----------
        data : sequence of str
            Paths or names of the data. Credentials in URLs are hidden.
        models : iterable of str
            Names of the models that counted tokens.

        Returns
        -------
        dict
            Manifest as JSON values.
        """
        used = {name: find_model_without_warning(name) for name in models}
        return {
            "spec": {
                "data": [redact_urls(each) for each in data],
                "strategies": [repr(s) for s in self.strategies],
                "limits": list(self.limits),
                "model": self.model_choice.model,
                "profiles": msgspec.to_builtins(self.model_choice.profiles_for(used)),
                "reserve": self.reserve,
                "cache_ttl": self.costs.cache_ttl,
                "fixed": self.costs.fixed,
                "fixed_in_limit": self.costs.fixed_in_limit,
                "reasoning": self.costs.reasoning,
                "metrics": list(self.metric_names),
                **self._closed_loop_settings,
            },
            "tokens": {name: self.model_choice.accuracy_note_for(name) for name in used},
            "prices": {
                name: {"source": m.source, **_prices_to_dict(m.prices), "warning": m.warning}
                for name, m in used.items()
            },
            "cache": {name: msgspec.to_builtins(model.cache) for name, model in used.items()},
            "asked": {n: _prices_to_dict(find_model(n).prices) for n in self.strategy_models},
            "replay": "off-policy: what the agent did next is what the recording says",
        }


def measure_metrics(
    metrics: Iterable[Metric], prepared: PreparedRecording, traces: Sequence[Trace]
) -> dict[str, FloatArray]:
    """Compute the columns of several metrics for one recording.

    Parameters
    ----------
    metrics : iterable of Metric
        Metrics to compute.
    prepared : PreparedRecording
        Recording that was replayed.
    traces : sequence of Trace
        One trace per configuration.

    Returns
    -------
    dict of str to numpy.ndarray of shape (traces, requests)
        Measurements by column name; of a random strategy, the means over its seeds.
    """
    draws = [draw for trace in traces for draw in trace.draws]
    return average_draws(_measure_draws(metrics, prepared, draws), traces)


def _measure_draws(
    metrics: Iterable[Metric], prepared: PreparedRecording, draws: Sequence[Trace]
) -> dict[str, FloatArray]:
    """Compute the columns of several metrics, with one row for each seed of each configuration."""
    return {k: v for metric in metrics for k, v in metric.measure(prepared, draws).items()}


def _prices_to_dict(prices: Prices) -> dict[str, Any]:
    """Convert prices to JSON values; omit ``above`` if long requests have no other prices."""
    figures: dict[str, Any] = msgspec.to_builtins(prices)
    above = list(figures.pop("above"))
    return {**figures, "above": above} if above else figures


def as_list(value: Any) -> Iterable[Any]:
    """Wrap a string or another single value in a list, and return any other iterable unchanged.

    Parameters
    ----------
    value : object
        One value or an iterable of values.

    Returns
    -------
    iterable
        The values.
    """
    return [value] if isinstance(value, str) or not isinstance(value, Iterable) else value


def resolve_strategy(strategy: StrategyLike) -> Strategy:
    """Convert a strategy from a string or a function to a ``Strategy`` object.

    Parameters
    ----------
    strategy : Strategy, str or callable
        A strategy object, which is returned unchanged, or a string or function to convert.

    Returns
    -------
    Strategy
        Strategy object.
    """
    return parse_strategy(strategy) if isinstance(strategy, str) else as_strategy(strategy)


def _resolve_metric(metric: str | Metric) -> Metric:
    return METRICS[require_known("metric", metric, METRICS)] if isinstance(metric, str) else metric


def _metric_name(metric: Metric) -> str:
    return "closed_loop" if isinstance(metric, ClosedLoopMetric) else type(metric).__name__
