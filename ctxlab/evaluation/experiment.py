"""An experiment is a grid, strategies × limits, over recordings; ``evaluate`` runs it.

Recordings are the outer loop: each is counted once and its needs are indexed once, then every
configuration is replayed over it and it is let go. Within a recording all strategies share one tokenizer
and one price table, those of its model, so that they compare.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from ctxlab._utils.humanize import parse_limit
from ctxlab._utils.progress import track
from ctxlab.errors import SpecError, UnknownName
from ctxlab.evaluation.engine import PreparedRecording, RequestObserver, Trace, replay_traces
from ctxlab.evaluation.metrics import METRICS, Metric
from ctxlab.evaluation.metrics.base import FloatArray
from ctxlab.evaluation.metrics.strategy_calls import (
    StrategyCalls,
    StrategyCallTotals,
    collect_strategy_calls,
)
from ctxlab.evaluation.parallel import default_worker_count, map_parallel
from ctxlab.evaluation.probe_questions import probe_to_message
from ctxlab.evaluation.results import Results, ResultsBuilder
from ctxlab.llm import MAX_CONCURRENT_CALLS, default_client
from ctxlab.llm.base import Client, split_for_workers
from ctxlab.llm.batch import add_cache_hint
from ctxlab.messages.types import Recording, check_recordings
from ctxlab.strategies import Strategy, as_strategy, models_used, parse_strategy
from ctxlab.strategies.registry import DEFAULT_LINEUP
from ctxlab.tokens.model_choice import ModelChoice
from ctxlab.tokens.models import find_model, find_model_without_warning
from ctxlab.tokens.prices import Prices
from ctxlab.tokens.profiles import TokenProfile

__all__ = ["DEFAULT_LIMITS", "ExperimentGrid", "ReplayOutcome", "StrategyLike", "evaluate"]

StrategyLike: TypeAlias = Strategy | str | Callable[..., Any]
"""A strategy: as it is, as text, or as a function of one's own."""

DEFAULT_LIMITS: tuple[float, ...] = (0.25, 0.5)
"""Fractions of each recording's own length: a limit means little apart from the data."""


def evaluate(
    recordings: Iterable[Recording],
    strategies: StrategyLike | Iterable[StrategyLike] = DEFAULT_LINEUP,
    limits: float | str | Iterable[float | str] = DEFAULT_LIMITS,
    model: str | None = None,
    *,
    reserve: int = 0,
    metrics: str | Metric | Iterable[str | Metric] = tuple(METRICS),
    data: Sequence[str] = (),
    workers: int | None = None,
    progress: bool | None = None,
    profile: TokenProfile | Iterable[TokenProfile] | None = None,
    project: str | Path = "",
    client: Client | None = None,
) -> Results:
    """Replays recordings through every strategy under every limit, and measures each request.

    ``recordings`` may be an iterator of any length; one is held at a time. ``strategies`` and
    ``limits`` are one or several; limits are tokens (16000, ``"16k"``), or shares (floats up to 1,
    ``"25%"``) of each recording's own length. ``model``: whose tokenizer, prices and rules apply to
    every recording; None takes each recording's own, and ``DEFAULT_MODEL`` where it names none.
    ``reserve``: tokens kept free for the reply. ``data`` says where the recordings are from, for
    the manifest. ``workers``: processes; None takes every core where that is safe. ``profile``: how
    families of models count, one or several; None takes the calibration that the folder ``project``
    stores (the current one), else the built-in one. ``client``: whom strategies ask that call a model;
    None asks the provider, and keeps the answers in ``.ctxlab/calls``. Raises ``SpecError`` for what is
    written wrongly, ``StrategyError`` where a strategy fails and ``ModelError`` where a model refuses.
    """
    check_recordings(recordings)
    grid = ExperimentGrid.from_arguments(
        strategies, limits, model, reserve, metrics, profile, project
    )
    if grid.strategy_models:
        workers = min(default_worker_count() if workers is None else workers, MAX_CONCURRENT_CALLS)
        grid = replace(grid, client=split_for_workers(client or default_client(), workers))
    table = ResultsBuilder(grid.columns, grid.configurations)
    call_totals = StrategyCallTotals()
    outcomes = map_parallel(grid.evaluate_recording, recordings, workers, task_size=_message_count)
    total = len(recordings) if isinstance(recordings, Sequence) else None
    bar = "recordings replayed"
    with add_cache_hint(grid.client):
        for outcome in track(outcomes, bar, total, progress):
            table.add_recording(outcome.description)
            if outcome.columns:
                table.add_columns(outcome.token_limits, outcome.columns)
                call_totals.add(outcome.strategy_calls)
    manifest = {**grid.manifest(data, table.recordings), **call_totals.manifest()}
    return Results.from_builder(table, grid.scores, manifest)


class ReplayOutcome(NamedTuple):
    """What the replays of one recording gave."""

    description: dict[str, Any]
    "what it is"
    token_limits: list[int]
    "limit of each configuration, in tokens"
    columns: dict[str, FloatArray]
    "columns, of shape ``(configurations, requests)``; empty where it makes no request"
    strategy_calls: StrategyCalls
    "what strategies asked of models"


@dataclass(frozen=True)
class ExperimentGrid:
    """Every configuration of an experiment, ready to be run over one recording after the other."""

    strategies: tuple[Strategy, ...]
    limits: tuple[float, ...]
    reserve: int
    model_choice: ModelChoice
    metrics: tuple[Metric, ...]
    metric_names: tuple[str, ...]
    "of the metrics"
    client: Client | None = None

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
    ) -> ExperimentGrid:
        """From what a user writes; names are looked up and checked here."""
        steps = tuple(
            parse_strategy(s) if isinstance(s, str) else as_strategy(s)
            for s in _as_list(strategies)
        )
        bounds = tuple(dict.fromkeys(parse_limit(limit) for limit in _as_list(limits)))
        if not steps or not bounds:
            raise SpecError("an experiment needs at least one strategy and one limit")
        for bound in bounds:
            if bound > 1 and reserve >= bound:
                raise SpecError(f"a reserve of {reserve} leaves nothing of a limit of {bound}")
        if reserve < 0:
            raise SpecError(f"a reserve is a number of tokens, not {reserve}")
        labels = [repr(step) for step in steps]
        for step, name in zip(steps, labels, strict=True):
            if steps[labels.index(name)] != step:
                raise SpecError(f"two strategies are both called {name}: give one another name")
        if model:
            find_model(model)  # warns of a model that is not known
        measures = tuple(_as_list(metrics))
        made = tuple(map(_resolve_metric, measures))
        names = tuple(m if isinstance(m, str) else type(m).__name__ for m in measures)
        unique = tuple(dict.fromkeys(steps))
        return cls(
            unique, bounds, reserve, ModelChoice.from_options(model, profile, project), made, names
        )

    @property
    def configurations(self) -> list[tuple[str, float]]:
        """``(strategy as text, limit)`` of every configuration, limits outermost."""
        return [(repr(s), limit) for limit in self.limits for s in self.strategies]

    @property
    def strategy_models(self) -> tuple[str, ...]:
        """Models that its strategies call themselves."""
        return models_used(*self.strategies)

    @property
    def uses_probes(self) -> bool:
        """Whether a metric wants the questions of a recording put."""
        return any(getattr(metric, "uses_probes", False) for metric in self.metrics)

    @property
    def columns(self) -> list[str]:
        """Names of the figures of a request, in order."""
        return [column.name for metric in self.metrics for column in metric.columns]

    @property
    def scores(self) -> list[Any]:
        """What the leaderboard shows, in order."""
        return [score for metric in self.metrics for score in metric.scores]

    def evaluate_recording(self, recording: Recording) -> ReplayOutcome:
        """Replays one recording through every configuration, and measures it."""
        return self.measure_traces(*self.replay_recording(recording))

    def prepare_recording(self, recording: Recording) -> PreparedRecording:
        """Make a recording ready to be replayed, counted and priced by its model."""
        return PreparedRecording.from_recording(
            recording,
            self.model_choice,
            self.client,
            probe_to_message if self.uses_probes else None,
        )

    def replay_recording(self, recording: Recording) -> tuple[PreparedRecording, list[Trace]]:
        """The trace of every configuration; none where the recording makes no request."""
        prepared = self.prepare_recording(recording)
        if not prepared.request_positions:
            return prepared, []
        observers: dict[str, RequestObserver] = {}
        for metric in self.metrics:
            observers.update(metric.observers)
        budgets = [prepared.make_budget(limit, self.reserve) for limit in self.limits]
        return prepared, replay_traces(prepared, self.strategies, budgets, observers)

    def measure_traces(self, prepared: PreparedRecording, traces: Sequence[Trace]) -> ReplayOutcome:
        """What the metrics make of them."""
        if not traces:
            return ReplayOutcome(prepared.manifest_entry, [], {}, collect_strategy_calls(()))
        figures: dict[str, FloatArray] = {}
        for metric in self.metrics:
            figures.update(metric.measure(prepared, traces))
        limits = [trace.budget.limit for trace in traces]
        return ReplayOutcome(
            prepared.manifest_entry, limits, figures, collect_strategy_calls(traces)
        )

    def manifest(
        self, data: Sequence[str], recordings: Iterable[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Describe the experiment so that it can be run again, and what it was run with.

        ``recordings``: facts of those that were replayed. ``tokens`` says for each model by which they
        were counted how far the counts can be trusted; ``prices`` and ``cache`` are its own, and
        ``profiles`` of the experiment are those that counted.
        """
        used = {
            name: find_model_without_warning(name) for name in [r["counted_as"] for r in recordings]
        }
        return {
            "spec": {
                "data": list(data),
                "strategies": [repr(s) for s in self.strategies],
                "limits": list(self.limits),
                "model": self.model_choice.model,
                "profiles": msgspec.to_builtins(self.model_choice.profiles_for(used)),
                "reserve": self.reserve,
                "metrics": list(self.metric_names),
            },
            "tokens": {name: self.model_choice.accuracy_note_for(name) for name in used},
            "prices": {
                name: {
                    "source": model.source,
                    **_prices_to_dict(model.prices),
                    "warning": model.warning,
                }
                for name, model in used.items()
            },
            "cache": {name: msgspec.to_builtins(model.cache) for name, model in used.items()},
            "asked": {
                name: _prices_to_dict(find_model(name).prices) for name in self.strategy_models
            },
            "replay": "off-policy: what the agent did next is what the recording says",
        }


def _prices_to_dict(prices: Prices) -> dict[str, Any]:
    """Prices as they are saved; ``above`` is there only where long prompts are dearer."""
    figures: dict[str, Any] = msgspec.to_builtins(prices)
    above = list(figures.pop("above"))
    return {**figures, "above": above} if above else figures


def _as_list(value: Any) -> Iterable[Any]:
    """One where a list belongs is a list of one."""
    return [value] if isinstance(value, str) or not isinstance(value, Iterable) else value


def _resolve_metric(metric: str | Metric) -> Metric:
    if not isinstance(metric, str):
        return metric
    if metric not in METRICS:
        raise UnknownName("metric", metric, METRICS)
    return METRICS[metric]


def _message_count(recording: Recording) -> int:
    return len(recording.messages)
