"""Survival of planted canaries by kind, depth, round of compaction, distance and role.

A *round* is a request that does not begin with all of the previous request: something was dropped
or rewritten. A summary does this once in a while, a full window in every request. The rounds of a
canary are counted from the first request after it. At round 0 nothing has been lost yet, so a
canary that is not in view there was cut on arrival. Later rounds have fewer canaries, those planted
early in long recordings; the number of canaries is reported with each figure.

Other shares are over the requests after planting, or over canaries at the end of their recordings.
The former are higher, because recent messages are in view under any strategy. Survival is
availability: an upper bound on what a model can use. The replay is off-policy, and summaries in the
recording were written before anything was planted, so ``recorded`` keeps no canary through one.
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

ROUND_LABELS: tuple[str, ...] = ("0", "1", "2", "3", "4", "5–8", "9–16", "17–32", "33+")
"""Groups of rounds since a canary was planted."""

DISTANCE_LABELS: tuple[str, ...] = (
    *("under 1k", "1k–2k", "2k–4k", "4k–8k", "8k–16k", "16k–32k", "32k–64k"), "64k+"
)  # fmt: skip
"""Groups of tokens between a canary and the request."""

BREAKDOWNS: tuple[str, ...] = ("kind", "depth", "round", "distance", "role")
"""Dimensions of ``SurvivalResults.breakdown``; ``role`` is that of the message with the canary."""

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
"dimensions that change from request to request"
_REQUEST_COUNTS = ["kept", "superseded", "stale", "both", "requests"]
_COUNT_COLUMNS = tuple(dict.fromkeys(name for pair in _RATIOS.values() for name in pair))


@dataclass
class SurvivalResults:
    """Survival of each canary; a notebook displays it as a table by kind."""

    frame: pd.DataFrame
    """one row per canary × strategy × limit × round × distance. ``requests`` counts the requests
    after planting, ``kept`` those with the canary in view; ``superseded`` counts the requests if it
    replaces an older value, ``stale`` those with only the older value in view, and ``both`` those
    with both; ``end`` is 1 in the row of the recording's last request, and ``end_kept``,
    ``end_superseded`` and ``end_stale`` are the same there"""
    results: Results
    "one row per request, as in any evaluation: the metrics ``usage`` and ``canaries``"
    skip_reasons: tuple[str, ...] = ()
    "reason for each recording in which no canary could be planted"

    def breakdown(
        self, dimension: str | None, *, level: float = 0.95, resamples: int = 2000, seed: int = 0
    ) -> pd.DataFrame:
        """Break survival down by one dimension.

        ``survival`` is over all requests after planting, ``survival_end`` at the end of each
        recording. ``stale``, ``stale_end`` and ``both`` are about superseded values. Each has the
        columns ``_low`` and ``_high``, nan with fewer than five clusters. By round or distance each
        canary weighs the same, however many requests it stayed there.

        Parameters
        ----------
        dimension : str or None
            One of ``BREAKDOWNS``; None gives the totals.
        level : float, default 0.95
            Coverage of the intervals.
        resamples : int, default 2000
            Number of bootstrap resamples.
        seed : int, default 0
            Seed of the bootstrap.

        Returns
        -------
        pandas.DataFrame
            One row per limit × strategy × value of the dimension, with numbers of canaries and
            clusters.

        Raises
        ------
        UnknownName
            If ``dimension`` is unknown.
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
        """Number of canaries."""
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
    """Plant canaries in copies of recordings, replay them, and measure how long they stay in view.

    Recordings that contain canaries already are used as they are. Recordings that are too short for
    ``n`` canaries are left out and listed in ``skip_reasons``. Strategies that call a model run in
    one process.

    Parameters
    ----------
    recordings : iterable of Recording
        The recordings.
    strategies : Strategy, str, callable or iterable of them, optional
        One or several strategies; the default lineup if left out.
    limits : float, str or iterable of them, optional
        One or several limits, in tokens or as fractions of each recording's length.
    model : str, optional
        Model whose tokenizer, prices and rules apply. None takes the model of each recording.
    n : int, default 10
        Canaries per recording.
    kinds : str or iterable of str, optional
        Kinds of canaries; all if left out.
    depths : float or iterable of float, optional
        Where to plant them, as shares of the text before the last request.
    seed : int, default 0
        Seed of the canaries.
    reserve : int, default 0
        Tokens kept for the reply.
    data : sequence of str, optional
        Where the recordings come from, for the manifest.
    workers : int, optional
        Number of processes. None takes every core if that is safe.
    progress : bool, optional
        Show a progress bar. None shows it on a terminal.
    profile : TokenProfile or iterable of TokenProfile, optional
        Calibration of token counts by model family.
    client : Client, optional
        Answers the model calls of strategies. None calls the provider and caches replies in
        ``.ctxlab/calls``.

    Returns
    -------
    SurvivalResults
        Survival of each canary, and the evaluation behind it.

    Raises
    ------
    SpecError
        If no recording has room for the canaries, or an argument is not valid.
    StrategyError
        If a strategy fails.
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
        raise SpecError(f"no canary could be planted: {why}")
    told = {**vars(work.planter), "left_out": left_out}
    manifest = {**grid.manifest(data, table.recordings), **call_totals.manifest(), "canaries": told}
    return SurvivalResults(
        _concat_frames(frames), Results.from_builder(table, grid.scores, manifest), tuple(left_out)
    )


class _RecordingSurvival(NamedTuple):
    """Results of one recording; without an outcome, the reason why nothing was planted."""

    reason: str = ""
    outcome: ReplayOutcome | None = None
    canaries: tuple[Canary, ...] = ()
    counts: dict[str, npt.NDArray[Any]] = {}  # noqa: RUF012 — never changed


@dataclass(frozen=True)
class _SurvivalTask:
    """Plants canaries in one recording and replays it, in any process."""

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
    """Count the requests of one recording by canary, round and distance."""
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
    """Return which requests do not begin with all of the previous one."""
    tokens = np.array(trace.tokens) - trace.budget.fixed
    return np.concatenate([[False], np.array(trace.unchanged_prefix_tokens)[1:] < tokens[:-1]])


def _build_frame(
    found: _RecordingSurvival, labels: Sequence[tuple[str, float]], named: dict[str, Any]
) -> pd.DataFrame:
    """Build the rows of one recording, with its names."""
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
    """Concatenate all rows, with texts as ordered categories."""
    frame = pd.concat(frames, ignore_index=True)
    orders = {"kind": [*CANARY_KINDS], "round": [*ROUND_LABELS], "distance": [*DISTANCE_LABELS]}
    for name in ("recording", "cluster", "strategy", "canary", "kind", "role", "round", "distance"):
        order = pd.Index(orders.get(name) or list(frame[name].unique()))
        frame[name] = pd.Categorical(frame[name], order, ordered=name in ("round", "distance"))
    return frame.astype({"depth": float, "at": float})
