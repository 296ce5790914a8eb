"""What survives of what was planted: by kind, by depth, and by round of compaction.

A *round* is a request that does not begin with all of the request before it: something that stood
there is gone or was rewritten, as a summary does it once in a while, and a full window at every request.
The rounds of a canary are counted from the first request after it; at round 0 nothing had been lost yet,
so that a canary which is not in view there was cut on its arrival. Deep rounds rest on fewer canaries,
those planted early in long recordings: the number stands beside every figure.

Otherwise shares are of requests after the planting, or of canaries at the end of their recordings; the
first flatter, since what was said just now is in view under any strategy. Survival is availability: an
upper bound on what a model can use. The replay is off-policy, and a summary that the recording system
wrote itself was written before anything was planted, so that ``recorded`` keeps nothing through one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from ctxlab._utils.progress import track
from ctxlab.errors import SpecError, UnknownName
from ctxlab.evaluation.bootstrap import ratio_interval
from ctxlab.evaluation.canaries import (
    CANARY_KINDS,
    DEFAULT_DEPTHS,
    Canary,
    CanaryPlanter,
    make_planter,
    read_canaries,
)
from ctxlab.evaluation.engine import PreparedRecording, Trace
from ctxlab.evaluation.experiment import DEFAULT_LIMITS, ExperimentGrid, ReplayOutcome, StrategyLike
from ctxlab.evaluation.metrics.canaries import CanaryVisibility, measure_canary_visibility
from ctxlab.evaluation.metrics.strategy_calls import StrategyCallTotals
from ctxlab.evaluation.parallel import map_parallel
from ctxlab.evaluation.results import Results, ResultsBuilder
from ctxlab.llm import default_client
from ctxlab.llm.base import Client
from ctxlab.messages.types import Recording, check_recordings
from ctxlab.strategies.registry import DEFAULT_LINEUP
from ctxlab.tokens.profiles import TokenProfile

__all__ = ["BREAKDOWNS", "DISTANCE_LABELS", "ROUND_LABELS", "SurvivalResults", "measure_survival"]

ROUND_LABELS: tuple[str, ...] = ("0", "1", "2", "3", "4", "5–8", "9–16", "17–32", "33+")
"""Rounds since a canary was planted, as they are grouped."""

DISTANCE_LABELS: tuple[str, ...] = (
    *("under 1k", "1k–2k", "2k–4k", "4k–8k", "8k–16k", "16k–32k", "32k–64k"), "64k+"
)  # fmt: skip
"""Tokens between a canary and the request, as they are grouped."""

BREAKDOWNS: tuple[str, ...] = ("kind", "depth", "round", "distance", "role")
"""What ``SurvivalResults.breakdown`` takes apart: ``role`` is whose message holds the canary."""

_ROUND_EDGES = (1, 2, 3, 4, 5, 9, 17, 33)
_DISTANCE_EDGES = tuple(1000 << i for i in range(7))
_KEYS = ["limit", "strategy"]
_RATIOS = {
    "survival": ("kept", "requests"),
    "survival_end": ("end_kept", "end"),
    "stale": ("stale", "superseded"),
    "stale_end": ("end_stale", "end_superseded"),
    "both": ("both", "superseded"),
}
_PER_REQUEST_BREAKDOWNS = ("round", "distance")
"what a canary goes through, request by request"
_REQUEST_COUNTS = ["kept", "superseded", "stale", "both", "requests"]
_COUNT_COLUMNS = tuple(dict.fromkeys(name for pair in _RATIOS.values() for name in pair))


@dataclass
class SurvivalResults:
    """What became of every canary; it shows itself as a table by kind in a notebook."""

    frame: pd.DataFrame
    """a row a canary × strategy × limit × round × distance that it went through. ``requests`` after
    the planting, of which it was ``kept``; ``superseded`` requests, where it replaces an older value, of
    which ``stale`` had the older one alone and ``both`` the two; ``end`` is 1 in the row of the
    recording's last request, ``end_kept``, ``end_superseded`` and ``end_stale`` as above"""
    results: Results
    "a row a request, as any evaluation gives: usage, and the metric ``canaries``"
    skip_reasons: tuple[str, ...] = ()
    "for each recording in which nothing could be planted, why"

    def breakdown(
        self, dimension: str | None, *, level: float = 0.95, resamples: int = 2000, seed: int = 0
    ) -> pd.DataFrame:
        """Survival taken apart by one of ``BREAKDOWNS``: a row a limit × strategy × value of it.

        None takes nothing apart: a row a limit × strategy.

        ``canaries`` and ``clusters`` are behind the row; ``survival`` is over all requests after the
        planting, ``survival_end`` at the end of each recording, ``stale`` and ``stale_end`` of
        superseded values, ``both`` of these too. Beside each stand ``_low`` and ``_high``,
        the bounds of its interval over clusters, nan below five of them. In a round and at a
        distance each canary that went so far weighs the same, however many requests it stayed
        there. Raises ``UnknownName``.
        """
        if dimension is not None and dimension not in BREAKDOWNS:
            raise UnknownName("breakdown of survival", dimension, BREAKDOWNS)
        keys = _KEYS if dimension is None else [*_KEYS, dimension]
        groups = self.frame.groupby(keys, observed=True, sort=False)
        canaries = self.frame.groupby([*keys, "recording"], observed=True)["canary"].nunique()
        board = pd.DataFrame({"canaries": canaries.groupby(level=keys, observed=True).sum()})
        board["clusters"] = groups["cluster"].nunique()
        rows = self.frame
        if dimension in _PER_REQUEST_BREAKDOWNS:
            own = ["recording", "cluster", "canary", *keys]
            rows = rows.groupby(own, observed=True)[list(_COUNT_COLUMNS)].sum().reset_index()
            rows[_REQUEST_COUNTS] = rows[_REQUEST_COUNTS].div(rows["requests"], axis=0)
        sums = rows.groupby(["cluster", *keys], observed=True)[list(_COUNT_COLUMNS)].sum()
        wide = {
            name: sums[name].unstack("cluster", fill_value=0).loc[board.index].to_numpy().T
            for name in _COUNT_COLUMNS
        }
        for name, (numerator, denominator) in _RATIOS.items():
            over, under = wide[numerator], wide[denominator]
            whole = under.sum(axis=0)
            board[name] = np.divide(
                over.sum(axis=0), whole, out=np.full(len(board), np.nan), where=whole > 0
            )
            low, high = ratio_interval(over, under, level=level, resamples=resamples, seed=seed)
            board[f"{name}_low"], board[f"{name}_high"] = low, high
        board = board.reset_index()
        board["strategy"] = board["strategy"].astype(str)
        return board

    @property
    def canary_count(self) -> int:
        """How many canaries it rests on."""
        return int(self.frame.groupby("recording", observed=True)["canary"].nunique().sum())

    def _repr_html_(self) -> str:
        shown = self.breakdown("kind").pivot(index=_KEYS, columns="kind", values="survival_end")
        board = self.results.leaderboard().set_index(_KEYS)
        shown["all"], shown["stale"] = board["survival_end"], board["stale_rate_end"]
        note = (
            f"Share of {self.canary_count:,} canaries in view at the end of their recordings, in "
            f"{self.results.cluster_count:,} clusters. Off-policy replay; survival is availability, an "
            f"upper bound. Intervals: .breakdown('kind'). {self.results.model_note}"
        )
        return (
            f"{shown.reset_index().to_html(index=False, float_format='{:.2f}'.format)}<p>{note}</p>"
        )


def measure_survival(
    recordings: Iterable[Recording],
    strategies: StrategyLike | Iterable[StrategyLike] = DEFAULT_LINEUP,
    limits: float | str | Iterable[float | str] = DEFAULT_LIMITS,
    model: str | None = None,
    *,
    n: int = 10,
    kinds: str | Iterable[str] = tuple(CANARY_KINDS),
    depths: float | Iterable[float] = DEFAULT_DEPTHS,
    seed: int = 0,
    reserve: int = 0,
    data: Sequence[str] = (),
    workers: int | None = None,
    progress: bool | None = None,
    profile: TokenProfile | Iterable[TokenProfile] | None = None,
    client: Client | None = None,
) -> SurvivalResults:
    """Plants canaries in copies of recordings, replays these, and says which of them were in view when.

    ``n``, ``kinds``, ``depths`` and ``seed`` are those of ``plant_canaries``; a recording that has
    canaries already is taken as it is, and one that is too short for ``n`` of them is left out and
    named. All else is as ``evaluate`` has it, but for strategies that ask a model: they run in one
    process. Raises ``SpecError`` where no recording has room, and what ``evaluate`` raises.
    """
    check_recordings(recordings)
    grid = ExperimentGrid.from_arguments(
        strategies, limits, model, reserve, ("usage", "canaries"), profile
    )
    if grid.strategy_models:
        grid = replace(grid, client=client or default_client())
        workers = 1
    work = _SurvivalTask(grid, make_planter(n, kinds, depths, seed))
    table, call_totals = ResultsBuilder(grid.columns, grid.configurations), StrategyCallTotals()
    frames: list[pd.DataFrame] = []
    left_out: list[str] = []
    total = len(recordings) if isinstance(recordings, Sequence) else None
    for found in track(
        map_parallel(work, recordings, workers), "recordings replayed", total, progress
    ):
        if found.outcome is None:
            left_out.append(found.reason)
            continue
        table.add_recording(found.outcome.description)
        table.add_columns(found.outcome.token_limits, found.outcome.columns)
        call_totals.add(found.outcome.strategy_calls)
        frames.append(_build_frame(found, grid.configurations, table.recordings[-1]))
    if not frames:
        why = left_out[0] if left_out else "there is no recording"
        raise SpecError(f"nothing could be planted: {why}")
    told = {**vars(work.planter), "left_out": left_out}
    manifest = {**grid.manifest(data, table.recordings), **call_totals.manifest(), "canaries": told}
    return SurvivalResults(
        _concat_frames(frames), Results.from_builder(table, grid.scores, manifest), tuple(left_out)
    )


class _RecordingSurvival(NamedTuple):
    """What the replays of one recording gave; no outcome where nothing could be planted, and why."""

    reason: str = ""
    outcome: ReplayOutcome | None = None
    canaries: tuple[Canary, ...] = ()
    counts: dict[str, npt.NDArray[Any]] = {}  # noqa: RUF012 — never changed


@dataclass(frozen=True)
class _SurvivalTask:
    """Everything that is done to one recording, in whichever process."""

    grid: ExperimentGrid
    planter: CanaryPlanter

    def __call__(self, recording: Recording) -> _RecordingSurvival:
        if not read_canaries(recording):
            try:
                recording = self.planter(recording)
            except SpecError as error:
                return _RecordingSurvival(str(error))
        prepared, traces = self.grid.replay_recording(recording)
        found = measure_canary_visibility(prepared, traces)
        outcome = self.grid.measure_traces(prepared, traces)
        return _RecordingSurvival(
            "", outcome, found.canaries, _count_cells(prepared, traces, found)
        )


def _count_cells(
    prepared: PreparedRecording, traces: Sequence[Trace], found: CanaryVisibility
) -> dict[str, npt.NDArray[Any]]:
    """The rows of one recording: every figure, summed over requests of one round and distance."""
    requests = np.array(prepared.request_positions)
    before = np.array(prepared.history.tokens_before)
    places = np.array([canary.position for canary in found.canaries])
    first = np.searchsorted(requests, places, side="right")
    lost = np.cumsum([_starts_new_round(trace) for trace in traces], axis=1)
    earlier = np.concatenate([np.zeros((len(traces), 1), dtype=np.int64), lost], axis=1)[:, first]
    rounds = np.digitize(lost[:, None, :] - earlier[:, :, None], _ROUND_EDGES)
    gaps = before[requests] - before[places + 1][:, None]
    shape = (*found.in_view.shape, len(ROUND_LABELS), len(DISTANCE_LABELS))
    configuration, canary, request = np.nonzero(
        np.broadcast_to(found.said_before, found.in_view.shape)
    )
    cell = np.ravel_multi_index(
        (
            configuration,
            canary,
            rounds[configuration, canary, request],
            np.digitize(gaps, _DISTANCE_EDGES)[canary, request],
        ),
        (*shape[:2], *shape[3:]),
    )
    rows, cell = np.unique(cell, return_inverse=True)
    replaced = np.array([each.old is not None for each in found.canaries])[canary]
    last = request == len(requests) - 1
    state = {
        "": np.ones(len(request), dtype=bool),
        "kept": found.in_view[configuration, canary, request],
        "superseded": replaced,
        "stale": found.stale[configuration, canary, request],
        "both": found.both_in_view[configuration, canary, request],
    }
    figures = {name or "requests": np.bincount(cell, value) for name, value in state.items()}
    figures |= {
        "_".join(filter(None, ("end", name))): np.bincount(cell, value & last)
        for name, value in state.items()
    }
    places_of = np.unravel_index(rows, (*shape[:2], *shape[3:]))
    return {**dict(zip(_CELL_COLUMNS, places_of, strict=True)), **figures}


_CELL_COLUMNS = ("configuration", "canary", "round", "distance")


def _starts_new_round(trace: Trace) -> npt.NDArray[np.bool_]:
    """Whether each request fails to begin with all of the one before it."""
    tokens = np.array(trace.tokens) - trace.budget.fixed
    return np.concatenate([[False], np.array(trace.unchanged_prefix_tokens)[1:] < tokens[:-1]])


def _build_frame(
    found: _RecordingSurvival, labels: Sequence[tuple[str, float]], named: dict[str, Any]
) -> pd.DataFrame:
    """The rows of one recording, with who and where."""
    which, canary = found.counts["configuration"], found.counts["canary"]
    own = {
        name: np.array([getattr(each, field) for each in found.canaries], dtype=object)[canary]
        for name, field in (
            ("canary", "id"),
            ("kind",) * 2,
            ("role",) * 2,
            ("depth",) * 2,
            ("at",) * 2,
        )
    }
    return pd.DataFrame(
        {
            "recording": named["recording"],
            "cluster": named["cluster"],
            "strategy": np.array([strategy for strategy, _ in labels], dtype=object)[which],
            "limit": np.array([float(limit) for _, limit in labels])[which],
            **own,
            "round": np.array(ROUND_LABELS, dtype=object)[found.counts["round"]],
            "distance": np.array(DISTANCE_LABELS, dtype=object)[found.counts["distance"]],
            **{name: found.counts[name] for name in found.counts if name not in _CELL_COLUMNS},
        }
    )


def _concat_frames(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """All rows, whose texts are categories, in the order in which they are told."""
    frame = pd.concat(frames, ignore_index=True)
    orders = {"kind": [*CANARY_KINDS], "round": [*ROUND_LABELS], "distance": [*DISTANCE_LABELS]}
    for name in ("recording", "cluster", "strategy", "canary", "kind", "role", "round", "distance"):
        order = pd.Index(orders.get(name) or list(frame[name].unique()))
        frame[name] = pd.Categorical(frame[name], order, ordered=name in ("round", "distance"))
    return frame.astype({"depth": float, "at": float})
