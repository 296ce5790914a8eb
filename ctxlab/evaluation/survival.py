"""Measure the survival of planted canaries by kind, depth, round of compaction, distance and role.

A canary is a fact planted in a recording. It survives in a request if the request contains its value.

A *round* of compaction starts with each request that does not begin with all messages of the
previous request, because the strategy dropped or rewrote some of them. A strategy that summarizes
starts a round once in a while. A sliding window that is full starts a round with every request. The
rounds of a canary are counted from the first request after the canary. Round 0 lasts until the
strategy next drops or rewrites a message. If a canary is not in view in round 0, the strategy
removed it as soon as its message arrived. Later rounds contain fewer canaries, because only canaries
planted early in long recordings reach them. The number of canaries is reported with each figure.

Survival is reported in two ways: over all requests after the canary, and at the last request of each
recording. Survival over all requests is higher, because any strategy keeps recent messages in view.
Survival measures availability: an upper bound on what a model can use. The replay is off-policy.
Summaries in a recording were written before any canary was planted, so the strategy ``recorded``
loses every canary that a recorded summary replaces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from msgspec import structs

from ctxlab._utils.numbers import (
    describe_limit,
    format_share,
    format_share_interval,
    format_signed_share,
)
from ctxlab._utils.progress import track
from ctxlab._utils.tables import legend_of
from ctxlab.errors import SpecError, require_known
from ctxlab.evaluation.bootstrap import ratio_difference, ratio_interval
from ctxlab.evaluation.canaries import CANARY_KINDS, DEFAULT_DEPTHS, make_planter, read_canaries
from ctxlab.evaluation.columns import short_strategy
from ctxlab.evaluation.engine import PreparedRecording, Trace
from ctxlab.evaluation.grid import DEFAULT_LIMITS, ExperimentGrid, StrategyLike
from ctxlab.evaluation.metrics.base import FloatArray
from ctxlab.evaluation.metrics.canaries import measure_canary_visibility
from ctxlab.evaluation.metrics.compactions import find_compacted_requests
from ctxlab.evaluation.parallel import map_parallel
from ctxlab.evaluation.results import Results
from ctxlab.evaluation.results_builder import ReplayOutcome, ResultsBuilder
from ctxlab.evaluation.verdict import control_names, usable_rows
from ctxlab.llm import default_client
from ctxlab.llm.base import Client
from ctxlab.messages.types import Recording, check_recordings
from ctxlab.strategies.registry import DEFAULT_LINEUP
from ctxlab.tokens.profiles import TokenProfile

ROUND_LABELS: tuple[str, ...] = ("0", "1", "2", "3", "4", "5–8", "9–16", "17–32", "33+")
"""Labels of the groups of rounds of compaction since a canary was planted."""

DISTANCE_LABELS = ("under 1k", *(f"{k}k–{2 * k}k" for k in (1, 2, 4, 8, 16, 32)), "64k+")
"""Labels of the groups of distances: the number of tokens between a canary and the request."""

BREAKDOWNS: tuple[str, ...] = ("kind", "depth", "round", "distance", "role")
"""Dimensions of ``SurvivalResults.breakdown``. ``role`` is the role of the message with the canary."""

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
"dimensions with a value that differs between the requests of one canary"
_REQUEST_COUNTS = ["kept", "superseded", "stale", "both", "requests"]
_COUNT_COLUMNS = tuple(dict.fromkeys(name for pair in _RATIOS.values() for name in pair))


@dataclass(repr=False)
class SurvivalResults:
    """Survival of each canary. A notebook displays it as a table with a column for each kind.

    Examples
    --------
    >>> import ctxlab
    >>> recording = next(iter(ctxlab.load("bundled:coding-agent")))
    >>> found = ctxlab.measure_survival([recording], ["full", "nothing"], 8000, workers=1)
    >>> facts = found.breakdown("kind").query("kind == 'fact'")
    >>> facts["survival"].round(1).tolist()
    [1.0, 0.0]
    """

    frame: pd.DataFrame
    """one row per canary × strategy × limit × round × distance. ``requests`` is the number of
    requests after the canary in this round and at this distance, and ``kept`` is the number of these
    with the canary in view. If the canary supersedes an older value, ``superseded`` equals
    ``requests``, ``stale`` counts the requests with only the older value in view, and ``both`` those
    with both values in view. ``end``, ``end_kept``, ``end_superseded`` and ``end_stale`` are the
    same counts for the recording's last request only"""
    results: Results
    "results of the evaluation with the metrics ``usage`` and ``canaries``"
    skip_reasons: tuple[str, ...] = ()
    "one reason for each recording in which no canary could be planted"

    def breakdown(
        self, dimension: str | None, *, level: float = 0.95, resamples: int = 2000, seed: int = 0
    ) -> pd.DataFrame:
        """Break survival down by one dimension, such as the kind or the depth of the canaries.

        ``survival`` is the share of requests after a canary that contain its value, and
        ``survival_end`` is the share of canaries in view in the last request of their recording.
        Three shares consider only canaries that supersede an older value. ``stale`` is the share of
        requests with only the older value in view, ``both`` is the share of requests with both
        values in view, and ``stale_end`` is the share of these canaries with only the older value
        in view in the last request. The columns with the suffixes ``_low`` and ``_high`` are bounds
        of intervals, nan with fewer than five clusters. In a breakdown by round or distance, all
        canaries of a group have the same weight, even if their numbers of requests differ.

        Parameters
        ----------
        dimension : str or None
            One of ``BREAKDOWNS``. None computes totals without a breakdown.
        level : float, default 0.95
            Coverage of the intervals.
        resamples : int, default 2000
            Number of bootstrap resamples.
        seed : int, default 0
            Seed of the bootstrap.

        Returns
        -------
        pandas.DataFrame
            One row per limit × strategy × value of the dimension, with the shares and the numbers
            of canaries and clusters.

        Raises
        ------
        UnknownName
            If ``dimension`` is not in ``BREAKDOWNS``.
        """
        keys = _KEYS
        if dimension is not None:
            keys = [*_KEYS, require_known("breakdown of survival", dimension, BREAKDOWNS)]
        rows, names = self.frame, list(_COUNT_COLUMNS)
        canaries = rows.groupby([*keys, "recording"], observed=True)["canary"].nunique()
        board = pd.DataFrame({"canaries": canaries.groupby(level=keys, observed=True).sum()})
        board["clusters"] = rows.groupby(keys, observed=True, sort=False)["cluster"].nunique()
        if dimension in _PER_REQUEST_BREAKDOWNS:
            own = ["recording", "cluster", "canary", *keys]
            rows = rows.groupby(own, observed=True)[names].sum().reset_index()
            rows[_REQUEST_COUNTS] = rows[_REQUEST_COUNTS].div(rows["requests"], axis=0)
        sums = rows.groupby(["cluster", *keys], observed=True)[names].sum()
        tables = {name: sums[name].unstack("cluster", fill_value=0) for name in names}
        wide = {name: each.loc[board.index].to_numpy().T for name, each in tables.items()}
        for name, (numerator, denominator) in _RATIOS.items():
            over, under = wide[numerator], wide[denominator]
            whole = under.sum(axis=0)
            nothing = np.full(len(board), np.nan)
            board[name] = np.divide(over.sum(axis=0), whole, out=nothing, where=whole > 0)
            low, high = ratio_interval(over, under, level=level, resamples=resamples, seed=seed)
            board[f"{name}_low"], board[f"{name}_high"] = low, high
        return board.reset_index().astype({"strategy": str})

    def verdict(self) -> str:
        """Say for each limit which strategy keeps the most canaries at the end of the recordings.

        Controls and strategies that exceed the limit at some request are not considered.

        Returns
        -------
        str
            One paragraph. It compares the best strategy with the next one, and says whether the
            recordings settle which of both keeps more.
        """
        board = self.breakdown(None)
        usage = self.results.leaderboard().set_index(_KEYS)
        usable = usable_rows(usage) & (control_names(usage.reset_index()) == "").to_numpy()
        board = board[usable.reindex(pd.MultiIndex.from_frame(board[_KEYS])).to_numpy()]
        sentences = []
        for limit in usage.index.unique("limit"):
            rows = board[(board["limit"] == limit) & board["survival_end"].notna()]
            ranked = rows.sort_values("survival_end", ascending=False, kind="stable")
            sentences.append(self._verdict_within(limit, ranked.to_dict("records")))
        return " ".join(sentences)

    def _verdict_within(self, limit: float, ranked: list[dict[Any, Any]]) -> str:
        """Compare the two best strategies within a limit, given the rows of all, best first."""
        within = f"Within {describe_limit(limit)}"
        if not ranked:
            return f"{within}, no strategy was measured that fits at every request."
        best = ranked[0]
        share = format_share_interval(
            *(best[f"survival_end{end}"] for end in ("", "_low", "_high"))
        )
        said = f"{short_strategy(best['strategy'])} keeps the most canaries at the end: {share}"
        if len(ranked) == 1:
            return f"{within}, {said}; no other strategy fits."
        other = ranked[1]
        rival = f"{short_strategy(other['strategy'])} ({format_share(other['survival_end'])}"
        if other["survival_end"] == best["survival_end"]:
            return f"{within}, {said}; {rival}) keeps as many."
        keys = [(limit, each["strategy"]) for each in (best, other)]
        kept, planted = (self._end_sums(name, keys) for name in ("end_kept", "end"))
        found = ratio_difference(kept[:, 0], planted[:, 0], kept[:, 1], planted[:, 1])
        if np.isnan(found.low):
            return f"{within}, {said}. The next is {rival}); too few clusters for an interval."
        gap = " to ".join(map(format_signed_share, (found.low, found.high)))
        gap = f"{format_signed_share(found.estimate)}, 95 % {gap}"
        if found.low > 0:
            return f"{within}, {said}, more than {rival}; difference {gap})."
        return (
            f"{within}, {said}, but these recordings do not settle whether that is more than {rival}; "
            f"difference {gap})."
        )

    def _end_sums(self, column: str, keys: Sequence[tuple[float, str]]) -> FloatArray:
        """Sum a column of ``frame`` by cluster and configuration, of shape ``(clusters, keys)``."""
        sums = self.frame.groupby(["cluster", *_KEYS], observed=True)[column].sum()
        wide = sums.unstack(_KEYS, fill_value=0)
        return wide[list(keys)].to_numpy(dtype=np.float64)

    @property
    def canary_count(self) -> int:
        """Number of canaries planted in all recordings."""
        return int(self.frame.groupby("recording", observed=True)["canary"].nunique().sum())

    def __repr__(self) -> str:
        """Return a short description with the numbers of canaries and configurations."""
        configurations = len(self.results.configurations)
        return f"<SurvivalResults of {self.canary_count:,} canaries, {configurations:,} configurations>"

    def _repr_html_(self) -> str:
        from ctxlab.evaluation.html import grouped_html, paragraph, wrap_with_frame
        from ctxlab.evaluation.survival_table import survival_columns, survival_notes

        whole = self.breakdown(None)
        columns = survival_columns(self, whole, "kind")
        notes = [*survival_notes(self, "kind", legend_of(columns)), self.results.model_note]
        said = (paragraph(note, is_note=True) for note in notes)
        return wrap_with_frame([grouped_html(whole, columns), *said], whole)


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
    """Plant canaries in copies of recordings, replay them, and measure how long canaries stay in view.

    No canary is added to a recording that already contains canaries. Recordings that are too short
    for ``n`` canaries are left out, and ``skip_reasons`` lists the reasons. If a strategy calls a model,
    ``workers`` is ignored and everything runs in one process.

    Parameters
    ----------
    recordings : iterable of Recording
        Recordings to plant canaries in.
    strategies : Strategy, str, callable or iterable of them, optional
        One or several strategies to replay; the default lineup if left out.
    limits : float, str or iterable of them, optional
        One or several limits, in tokens or as fractions of each recording's length.
    model : str, optional
        Model whose tokenizer, prices and rules apply. None takes the model of each recording.
    n : int, default 10
        Number of canaries per recording.
    kinds : str or iterable of str, optional
        Kinds of canaries, from ``CANARY_KINDS``; all kinds if left out.
    depths : float or iterable of float, optional
        Depths of the canaries, as shares of the text before the last request.
    seed : int, default 0
        Seed for choosing words and depths.
    reserve : int, default 0
        Tokens of the limit kept for the reply.
    data : sequence of str, optional
        Paths or names of the data, stored in the manifest.
    workers : int, optional
        Number of processes. None uses all cores on Linux if no other thread runs, otherwise one.
    progress : bool, optional
        Show a progress bar. None shows it only on a terminal.
    profile : TokenProfile or iterable of TokenProfile, optional
        Calibrations of token counts, one per model family.
    client : Client, optional
        Client for the model calls of strategies. None calls the provider and caches replies in
        ``.ctxlab/calls``.

    Returns
    -------
    SurvivalResults
        Survival of each canary, and the results of the evaluation.

    Raises
    ------
    SpecError
        If all recordings are too short for the canaries, or an argument is invalid.
    StrategyError
        If a strategy fails.

    Examples
    --------
    >>> import ctxlab
    >>> recording = next(iter(ctxlab.load("bundled:coding-agent")))
    >>> found = ctxlab.measure_survival([recording], "full", 8000, n=5, workers=1)
    >>> (found.frame["kept"] == found.frame["requests"]).all().item(), len(found.frame)
    (True, 27)
    """
    check_recordings(recordings)
    grid = ExperimentGrid.from_arguments(
        strategies, limits, model, reserve, ("usage", "canaries"), profile
    )
    if grid.strategy_models:
        grid = replace(grid, client=client or default_client())
        workers = 1
    planter = make_planter(n, kinds, depths, seed)
    table = ResultsBuilder(grid.columns, grid.configurations, grid.scores, grid.integers)
    frames: list[pd.DataFrame] = []
    left_out: list[str] = []
    total = len(recordings) if isinstance(recordings, Sequence) else None
    work = map_parallel(partial(_replay_with_canaries, grid, planter), recordings, workers)
    for found in track(work, "recordings replayed", total, progress):
        if isinstance(found, str):
            left_out.append(found)
            continue
        outcome, frame = found
        table.add_outcome(outcome)
        for place, name in enumerate(("recording", "cluster")):
            frame.insert(place, name, table.recordings[-1][name])
        frames.append(frame)
    if not frames:
        why = left_out[0] if left_out else "expected at least one recording, got none"
        raise SpecError(f"no canary could be planted: {why}")
    told = {"canaries": {**vars(planter), "left_out": left_out}}
    manifest = grid.manifest(data, table.models) | told
    results = Results.from_builder(table, manifest)
    return SurvivalResults(_concat_frames(frames), results, tuple(left_out))


def _replay_with_canaries(
    grid: ExperimentGrid, planter: Callable[[Recording], Recording], recording: Recording
) -> tuple[ReplayOutcome, pd.DataFrame] | str:
    """Plant canaries in one recording, replay it and count the requests with canaries in view.

    If no canary can be planted, return a string with the reason instead.
    """
    if not read_canaries(recording):
        try:
            recording = planter(recording)
        except SpecError as error:
            return str(error)
    prepared, traces = grid.replay_recording(recording)
    frame = _count_cells(prepared, traces, grid.configurations)
    return grid.measure_traces(prepared, traces), frame


def _count_cells(
    prepared: PreparedRecording, traces: Sequence[Trace], labels: Sequence[tuple[str, float]]
) -> pd.DataFrame:
    """Count requests by configuration, canary, round and distance.

    The round is the number of compactions since the canary. The distance is the number of tokens
    between the canary and the end of the request. Counts of a random strategy are means over its
    seeds.
    """
    draws = np.array([len(trace.draws) for trace in traces], dtype=np.intp)
    configuration = np.repeat(np.arange(len(traces)), draws)
    traces = [draw for trace in traces for draw in trace.draws]
    found = measure_canary_visibility(prepared, traces)
    requests = np.array(prepared.request_positions)
    before = np.array(prepared.history.tokens_before)
    places = np.array([canary.position for canary in found.canaries])
    lost: npt.NDArray[np.int64] = np.cumsum(find_compacted_requests(traces), axis=1)
    first = np.searchsorted(requests, places, side="right")
    earlier = np.pad(lost, ((0, 0), (1, 0)))[:, first]
    rounds = np.digitize(lost[:, None, :] - earlier[:, :, None], _ROUND_EDGES)
    distances = np.digitize(before[requests] - before[places + 1][:, None], _DISTANCE_EDGES)
    at = np.nonzero(np.broadcast_to(found.said_before, found.in_view.shape))
    trace, canary, request = configuration[at[0]], *at[1:]
    keys = trace, canary, rounds[at], distances[canary, request]
    sizes = len(labels), found.in_view.shape[1], len(ROUND_LABELS), len(DISTANCE_LABELS)
    cells, cell = np.unique(np.ravel_multi_index(keys, sizes), return_inverse=True)
    superseded = np.array([each.old is not None for each in found.canaries])
    states = {
        "requests": np.ones(len(request), dtype=bool),
        "kept": found.in_view[at],
        "superseded": superseded[canary],
        "stale": found.stale[at],
        "both": found.both_in_view[at],
    }
    last = request == len(requests) - 1
    weight = 1 / draws[trace]
    counts = {name: np.bincount(cell, state * weight) for name, state in states.items()}
    for name, state in states.items():
        counts[f"end_{name}".removesuffix("_requests")] = np.bincount(cell, (state & last) * weight)
    trace, canary, round_group, distance_group = np.unravel_index(cells, sizes)
    planted = pd.DataFrame(map(structs.asdict, found.canaries)).rename(columns={"id": "canary"})
    frame = planted[["canary", "kind", "role", "depth", "at"]].iloc[canary].reset_index(drop=True)
    frame.insert(0, "strategy", [labels[i][0] for i in trace.tolist()])
    frame.insert(1, "limit", [float(labels[i][1]) for i in trace.tolist()])
    return frame.assign(
        round=np.array(ROUND_LABELS)[round_group],
        distance=np.array(DISTANCE_LABELS)[distance_group],
        **counts,
    )


def _concat_frames(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate the rows of all recordings, and convert columns of strings to categories."""
    frame = pd.concat(frames, ignore_index=True)
    orders = {"kind": [*CANARY_KINDS], "round": [*ROUND_LABELS], "distance": [*DISTANCE_LABELS]}
    for name in ("recording", "cluster", "strategy", "canary", "kind", "role", "round", "distance"):
        order = pd.Index(orders.get(name) or list(frame[name].unique()))
        frame[name] = pd.Categorical(frame[name], order, ordered=name in ("round", "distance"))
    counts = [name for name in frame if name in _COUNT_COLUMNS or name == "end_both"]
    whole = bool((frame[counts] % 1 == 0).all(axis=None))  # means over seeds are not
    kinds = dict.fromkeys(counts, np.int64 if whole else np.float64)
    return frame.astype({"depth": float, "at": float, **kinds})
