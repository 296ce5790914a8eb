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

from ctxlab._utils.humanize import read_limit
from ctxlab._utils.progress import track
from ctxlab.errors import (
    SpecError,
    UnknownName,
)
from ctxlab.evaluation.engine import (
    Tape,
    Trace,
    Watcher,
    play_all,
)
from ctxlab.evaluation.fingerprint import recording_digest
from ctxlab.evaluation.metrics import (
    METRICS,
    Metric,
)
from ctxlab.evaluation.metrics.base import Array
from ctxlab.evaluation.metrics.strategy_calls import (
    Asked,
    Tally,
    asked_in,
)
from ctxlab.evaluation.parallel import (
    execute,
    usable_workers,
)
from ctxlab.evaluation.probe_questions import question
from ctxlab.evaluation.results import (
    Results,
    Table,
)
from ctxlab.llm import (
    AT_A_TIME,
    default_client,
)
from ctxlab.llm.base import Client
from ctxlab.llm.batch import answers_kept
from ctxlab.messages.types import (
    Recording,
    several,
)
from ctxlab.strategies import (
    Strategy,
    as_strategy,
    models_asked,
    parse,
)
from ctxlab.strategies.registry import LINEUP
from ctxlab.tokens.billing import session
from ctxlab.tokens.model_choice import ModelChoice
from ctxlab.tokens.models import (
    find_model,
    look_up_model,
)
from ctxlab.tokens.prices import Prices
from ctxlab.tokens.profiles import (
    Profile,
    key_of,
)

__all__ = ["DEFAULT_LIMITS", "Choice", "Grid", "Outcome", "evaluate"]

Choice: TypeAlias = Strategy | str | Callable[..., Any]
"""A strategy: as it is, as text, or as a function of one's own."""

DEFAULT_LIMITS: tuple[float, ...] = (0.25, 0.5)
"""Fractions of each recording's own length: a limit means little apart from the data."""


def evaluate(
    recordings: Iterable[Recording],
    strategies: Choice | Iterable[Choice] = LINEUP,
    limits: float | str | Iterable[float | str] = DEFAULT_LIMITS,
    model: str | None = None,
    *,
    reserve: int = 0,
    metrics: str | Metric | Iterable[str | Metric] = tuple(METRICS),
    data: Sequence[str] = (),
    workers: int | None = None,
    progress: bool | None = None,
    profile: Profile | Iterable[Profile] | None = None,
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
    several(recordings)
    grid = Grid.make(strategies, limits, model, reserve, metrics, profile, project)
    if grid.asked:
        workers = min(usable_workers() if workers is None else workers, AT_A_TIME)
        grid = replace(grid, client=_shared(client or default_client(), workers))
    table = Table(grid.columns, grid.labels)
    account = Tally()
    outcomes = execute(grid.run, recordings, workers, size=_messages)
    total = len(recordings) if isinstance(recordings, Sequence) else None
    bar = "recordings replayed"
    with answers_kept(grid.client):
        for outcome in track(outcomes, bar, total, progress):
            table.describe(outcome.described)
            if outcome.figures:
                table.add(outcome.budgets, outcome.figures)
                account.add(outcome.asked)
    manifest = {**grid.manifest(data, table.recordings), **account.manifest()}
    return Results.of(table, grid.scores, manifest)


class Outcome(NamedTuple):
    """What the replays of one recording gave."""

    described: dict[str, Any]
    "what it is"
    budgets: list[int]
    "limit of each configuration, in tokens"
    figures: dict[str, Array]
    "columns, of shape ``(configurations, requests)``; empty where it makes no request"
    asked: Asked
    "what strategies asked of models"


@dataclass(frozen=True)
class Grid:
    """Every configuration of an experiment, ready to be run over one recording after the other."""

    strategies: tuple[Strategy, ...]
    limits: tuple[float, ...]
    reserve: int
    models: ModelChoice
    metrics: tuple[Metric, ...]
    names: tuple[str, ...]
    "of the metrics"
    client: Client | None = None

    @classmethod
    def make(
        cls,
        strategies: Choice | Iterable[Choice],
        limits: float | str | Iterable[float | str],
        model: str | None,
        reserve: int,
        metrics: str | Metric | Iterable[str | Metric],
        profile: Profile | Iterable[Profile] | None = None,
        project: str | Path = "",
    ) -> Grid:
        """From what a user writes; names are looked up and checked here."""
        steps = tuple(
            parse(s) if isinstance(s, str) else as_strategy(s) for s in _several(strategies)
        )
        bounds = tuple(dict.fromkeys(read_limit(limit) for limit in _several(limits)))
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
        measures = tuple(_several(metrics))
        made = tuple(map(_metric, measures))
        names = tuple(m if isinstance(m, str) else type(m).__name__ for m in measures)
        unique = tuple(dict.fromkeys(steps))
        return cls(unique, bounds, reserve, ModelChoice.of(model, profile, project), made, names)

    @property
    def labels(self) -> list[tuple[str, float]]:
        """``(strategy as text, limit)`` of every configuration, limits outermost."""
        return [(repr(s), limit) for limit in self.limits for s in self.strategies]

    @property
    def asked(self) -> tuple[str, ...]:
        """Models that its strategies call themselves."""
        return models_asked(*self.strategies)

    @property
    def asks(self) -> bool:
        """Whether a metric wants the questions of a recording put."""
        return any(getattr(metric, "asks", False) for metric in self.metrics)

    @property
    def columns(self) -> list[str]:
        """Names of the figures of a request, in order."""
        return [column.name for metric in self.metrics for column in metric.columns]

    @property
    def scores(self) -> list[Any]:
        """What the leaderboard shows, in order."""
        return [score for metric in self.metrics for score in metric.scores]

    def run(self, recording: Recording) -> Outcome:
        """Replays one recording through every configuration, and measures it."""
        return self.measure(*self.play(recording))

    def prepare(self, recording: Recording) -> Tape:
        """Make a recording ready to be replayed, counted and priced by its model."""
        return Tape.of(recording, self.models, self.client, question if self.asks else None)

    def play(self, recording: Recording) -> tuple[Tape, list[Trace]]:
        """The trace of every configuration; none where the recording makes no request."""
        tape = self.prepare(recording)
        if not tape.requests:
            return tape, []
        watchers: dict[str, Watcher] = {}
        for metric in self.metrics:
            watchers.update(metric.watchers)
        budgets = [tape.budget(limit, self.reserve) for limit in self.limits]
        return tape, play_all(tape, self.strategies, budgets, watchers)

    def measure(self, tape: Tape, traces: Sequence[Trace]) -> Outcome:
        """What the metrics make of them."""
        if not traces:
            return Outcome(_described(tape), [], {}, asked_in(()))
        figures: dict[str, Array] = {}
        for metric in self.metrics:
            figures.update(metric.measure(tape, traces))
        limits = [trace.budget.limit for trace in traces]
        return Outcome(_described(tape), limits, figures, asked_in(traces))

    def manifest(
        self, data: Sequence[str], recordings: Iterable[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Describe the experiment so that it can be run again, and what it was run with.

        ``recordings``: facts of those that were replayed. ``tokens`` says for each model by which they
        were counted how far the counts can be trusted; ``prices`` and ``cache`` are its own, and
        ``profiles`` of the experiment are those that counted.
        """
        used = {name: look_up_model(name) for name in [r["counted_as"] for r in recordings]}
        return {
            "spec": {
                "data": list(data),
                "strategies": [repr(s) for s in self.strategies],
                "limits": list(self.limits),
                "model": self.models.model,
                "profiles": msgspec.to_builtins(self.models.profiles_for(used)),
                "reserve": self.reserve,
                "metrics": list(self.names),
            },
            "tokens": {name: self.models.note_of(name) for name in used},
            "prices": {
                name: {
                    "source": model.source,
                    **_figures(model.prices),
                    "warning": model.warning,
                }
                for name, model in used.items()
            },
            "cache": {name: msgspec.to_builtins(model.cache) for name, model in used.items()},
            "asked": {name: _figures(find_model(name).prices) for name in self.asked},
            "replay": "off-policy: what the agent did next is what the recording says",
        }


def _figures(prices: Prices) -> dict[str, Any]:
    """Prices as they are saved; ``above`` is there only where long prompts are dearer."""
    figures: dict[str, Any] = msgspec.to_builtins(prices)
    above = list(figures.pop("above"))
    return {**figures, "above": above} if above else figures


def _shared(client: Client, workers: int) -> Client:
    """The client for each of so many processes, which together ask no more at a time than one."""
    share = getattr(client, "shared", None)
    return share(workers) if share is not None else client


def _several(given: Any) -> Iterable[Any]:
    """One where a list belongs is a list of one."""
    return [given] if isinstance(given, str) or not isinstance(given, Iterable) else given


def _metric(metric: str | Metric) -> Metric:
    if not isinstance(metric, str):
        return metric
    if metric not in METRICS:
        raise UnknownName("metric", metric, METRICS)
    return METRICS[metric]


def _messages(recording: Recording) -> int:
    return len(recording.messages)


def _described(tape: Tape) -> dict[str, Any]:
    return {**tape.facts, "unlogged": _unlogged(tape), "digest": recording_digest(tape.recording)}


def _unlogged(tape: Tape) -> int | None:
    """Tokens of each request that were billed and are in no log; None where that is not known."""
    recording, counter = tape.recording, tape.counter
    if recording.model is None or key_of(recording.model) != key_of(counter.model):
        return None
    bills = session(recording, [entry.tokens for entry in tape.history.entries], counter)
    return bills.fixed if bills else None
