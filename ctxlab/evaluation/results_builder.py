"""Collect the measurements of an experiment, recording by recording, and build tables of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from ctxlab.errors import SpecError
from ctxlab.evaluation.draws import DrawSums, DrawTotals
from ctxlab.evaluation.metrics.base import FloatArray, Score
from ctxlab.evaluation.metrics.compactions import CompactionRows
from ctxlab.evaluation.metrics.strategy_calls import StrategyCalls, StrategyCallTotals
from ctxlab.evaluation.tables import make_categorical

_ID_COLUMNS = ["recording", "cluster", "strategy", "limit", "budget"]


class ReplayOutcome(NamedTuple):
    """Measurements of one recording that was replayed through all configurations."""

    description: dict[str, Any]
    "entry of the recording in ``Results.recordings``"
    token_limits: list[int]
    "limit of each configuration, in tokens"
    columns: dict[str, FloatArray]
    """arrays of shape ``(configurations, requests)`` by column name; empty if the recording has no
    request"""
    strategy_calls: StrategyCalls
    "model calls made by the strategies"
    draw_sums: DrawSums
    "sums of columns for each seed of the random strategies"
    compactions: CompactionRows
    "compactions of each configuration; of a random strategy, those of the first seed"


class RunTables(NamedTuple):
    """Tables of some recordings."""

    requests: pd.DataFrame
    "one row per request, ordered by recording, then by configuration"
    runs: pd.DataFrame
    "one row per recording and configuration"
    compactions: pd.DataFrame | None
    "one row per compaction; None if measurements were added without compactions"


class ResultsBuilder:
    """Collects the measurements of an experiment, recording by recording, and builds tables of them.

    Parameters
    ----------
    columns : sequence of str
        Names of the columns that the metrics compute.
    configurations : sequence of (str, float)
        Strategy (as a string) and limit of each configuration.
    scores : sequence of Score
        Scores of the leaderboard. A score is left out if one of its columns was not measured.
    integers : collection of str, optional
        Names of the columns whose values are whole numbers. They are stored as integers, unless a
        strategy is random: its rows are means over several seeds.

    Raises
    ------
    SpecError
        If a score has the same name as a column with a different meaning.
    """

    def __init__(
        self,
        columns: Sequence[str],
        configurations: Sequence[tuple[str, float]],
        scores: Sequence[Score],
        integers: Collection[str] = (),
    ) -> None:
        self.columns, self.configurations = list(columns), list(configurations)
        self._integers = frozenset(integers)
        for score in scores:
            if score.name in columns and (score.how, score.column) != ("sum", score.name):
                what = f"score {score.name} and a column of a metric have the same name"
                raise SpecError(f"{what}; rename the score or the column")
        # Some scores, such as the cached share of tokens, need columns of two metrics.
        had = {*columns, ""}
        self.scores = tuple(s for s in scores if s.column in had and s.per in had)
        self.recordings: list[dict[str, Any]] = []
        self.models: dict[str, None] = {}
        self.calls = StrategyCallTotals()
        self.draws = DrawTotals()
        self._names: set[str] = set()
        self._suffixes: dict[str, int] = {}
        self._token_limits: list[list[int]] = []
        self._column_arrays: list[Mapping[str, FloatArray]] = []
        self._recording_numbers: list[int] = []
        self._compactions: list[CompactionRows] = []

    def add_outcome(self, outcome: ReplayOutcome) -> None:
        """Add the next recording with its measurements and the model calls of the strategies.

        Parameters
        ----------
        outcome : ReplayOutcome
            Measurements of the recording.
        """
        self.add_recording(outcome.description)
        if outcome.columns:
            self.add_columns(outcome.token_limits, outcome.columns)
            self.calls.add(outcome.strategy_calls)
            self.draws.add(outcome.draw_sums)
            if outcome.draw_sums:
                self._integers = frozenset()
            self._compactions.append(outcome.compactions)

    def add_recording(self, recording: dict[str, Any]) -> None:
        """Add the entry of the next recording, even if the recording has no request.

        If the name is already used, the suffix ``#2``, ``#3``, … is appended, as in ``ctxlab.load``.
        Characters that cannot be encoded as UTF-8 are escaped.

        Parameters
        ----------
        recording : dict
            Entry of the recording.
        """
        names = {
            key: recording[key].encode("utf-8", "backslashreplace").decode()
            for key in ("recording", "cluster")
        }
        name = names["recording"]
        while name in self._names:
            again = self._suffixes[names["recording"]] = (
                self._suffixes.get(names["recording"], 1) + 1
            )
            name = f"{names['recording']}#{again}"
        self._names.add(name)
        self.models.setdefault(recording["counted_as"])
        self.recordings.append({**recording, **names, "recording": name})

    def add_columns(self, token_limits: list[int], columns: Mapping[str, FloatArray]) -> None:
        """Add the measurements of the recording that was added last.

        Parameters
        ----------
        token_limits : list of int
            Limit of each configuration, in tokens.
        columns : mapping of str to numpy.ndarray of shape (configurations, requests)
            Measurements by column name.
        """
        self._recording_numbers.append(len(self.recordings) - 1)
        self._token_limits.append(token_limits)
        self._column_arrays.append(columns)

    @property
    def has_requests(self) -> bool:
        """True if recordings with a request were added since the last call of ``take_tables``."""
        return bool(self._recording_numbers)

    def take_tables(self) -> RunTables:
        """Build the tables of the recordings added since the last call, and forget their measurements.

        Returns
        -------
        RunTables
            Tables with columns that identify the recording and configuration, and columns of the
            metrics.

        Raises
        ------
        SpecError
            If none of these recordings has a request.
        """
        if not self.has_requests:
            raise SpecError("expected recordings with model calls, got none; use other recordings")
        requests, compactions = self._build_requests(), self._build_compactions()
        self._recording_numbers, self._token_limits = [], []
        self._column_arrays, self._compactions = [], []
        return RunTables(requests, sum_requests(requests, self.scores), compactions)

    def take_recordings(self) -> list[dict[str, Any]]:
        """Return the entries of recordings added since the last call, and forget them.

        Call ``take_tables`` first if some of these recordings have requests.

        Returns
        -------
        list of dict
            Entries of the recordings.
        """
        taken, self.recordings = self.recordings, []
        return taken

    def manifest(self, described: Mapping[str, Any]) -> dict[str, Any]:
        """Complete the manifest: add the model calls of strategies and the versions.

        Parameters
        ----------
        described : mapping
            Description of the experiment.

        Returns
        -------
        dict
            Manifest of the results.
        """
        totals = {**self.calls.manifest(), **self.draws.manifest(self.configurations)}
        return {**described, **totals, "versions": library_versions()}

    def _label(self, which: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> dict[str, Any]:
        """Return the columns that identify recordings (by number) and configurations."""
        limits = np.array([limit for _, limit in self.configurations], np.float64)
        used, places = np.unique(which, return_inverse=True)  # few of the recordings of a long run
        recordings = [self.recordings[number] for number in used]
        return {
            "recording": make_categorical([r["recording"] for r in recordings], places),
            "cluster": make_categorical([r["cluster"] for r in recordings], places),
            "strategy": make_categorical([name for name, _ in self.configurations], labels),
            "limit": limits[labels],
        }

    def _build_requests(self) -> pd.DataFrame:
        count, first = len(self.configurations), self.columns[0]
        sizes = np.array([figures[first].shape[1] for figures in self._column_arrays])
        per_run = np.repeat(sizes, count)
        which = np.repeat(np.repeat(self._recording_numbers, count), per_run)
        labels = np.repeat(np.tile(np.arange(count), len(sizes)), per_run)
        frame: dict[str, Any] = {
            **self._label(which, labels),
            "budget": np.repeat(np.concatenate(self._token_limits), per_run),
            "request": np.concatenate([np.arange(size) for size in per_run]),
        }
        for name in self.columns:
            values = np.concatenate([figures[name].ravel() for figures in self._column_arrays])
            frame[name] = _to_integers(name, values) if name in self._integers else values
        return pd.DataFrame(frame)

    def _build_compactions(self) -> pd.DataFrame | None:
        if len(self._compactions) < len(self._recording_numbers):
            return None
        counts = [len(rows.request) for rows in self._compactions]
        rows = CompactionRows.concatenate(self._compactions)
        of = np.repeat(np.arange(len(counts)), counts)
        return pd.DataFrame(
            {
                **self._label(np.array(self._recording_numbers)[of], rows.configuration),
                "budget": np.array(self._token_limits)[of, rows.configuration],
                **rows.columns(),
            }
        )


def _to_integers(name: str, values: FloatArray) -> npt.NDArray[np.int64]:
    whole = np.rint(values).astype(np.int64)
    if not np.array_equal(whole, values):
        raise ValueError(
            f"Expected whole numbers in the column {name!r}, got other values; set integer=False in the "
            "Column of the metric"
        )
    return whole


def sum_requests(requests: pd.DataFrame, scores: Iterable[Score]) -> pd.DataFrame:
    """Sum the columns of a table of requests over each recording and configuration.

    Nan is skipped, and the sum is nan if all values are nan. A sum in USD is nan if any of its values
    is nan, because a partial bill would be misleading.

    Parameters
    ----------
    requests : pandas.DataFrame
        Table with one row per request.
    scores : iterable of Score
        Scores to compute from the sums.

    Returns
    -------
    pandas.DataFrame
        Table with one row per recording and configuration: the sums and the scores.
    """
    scores = list(scores)
    columns = [name for name in requests.columns if name not in (*_ID_COLUMNS, "request")]
    groups = requests.groupby(_ID_COLUMNS, observed=True, sort=False)
    sums, sizes = groups[columns].sum(min_count=1), groups.size()
    usd = {score.column for score in scores if score.unit == "USD"}
    if in_dollars := [name for name in columns if name in usd]:
        partial = groups[in_dollars].count().lt(sizes, axis=0)
        sums[in_dollars] = sums[in_dollars].mask(partial)
    largest = groups[list({score.column for score in scores if score.how == "max"})].max()
    sums.insert(0, "requests", sizes)
    found = {name: values.to_numpy() for name, values in sums.items()}
    for score in scores:
        if score.how == "max":
            found[score.name] = largest[score.column].to_numpy()
        else:
            top, *bottom = (sums[column].to_numpy() for column in score.run_columns)
            found[score.name] = score.compute(top, *(bottom or [top]))
    # One new frame: pandas warns if a hundred columns are added one by one.
    return pd.DataFrame(found, sums.index).reset_index()


def library_versions() -> dict[str, str]:
    """Return the versions of Python, of ctxlab and of the libraries that measurements depend on.

    Returns
    -------
    dict of str to str
        Versions by name.
    """
    import platform
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for name in ("ctxlab", "litellm", "numpy", "pandas", "tiktoken"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
