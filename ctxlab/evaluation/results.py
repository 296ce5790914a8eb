"""Results of an evaluation as tidy data frames, saved as parquet files with a manifest.

A configuration is a strategy under a limit. The table ``requests`` has one row per request, ``runs``
has one row per recording and configuration, ``compactions`` has one row per compaction, and the
leaderboard has one row per configuration. ``recordings`` has one entry per recording. The manifest
records everything else that is needed to run the experiment again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from ctxlab._utils.jsonio import parse_json
from ctxlab.errors import ReadError, SpecError
from ctxlab.evaluation.bootstrap import ratio_interval
from ctxlab.evaluation.draws import score_spread
from ctxlab.evaluation.metrics.base import FloatArray, Score
from ctxlab.evaluation.metrics.compactions import COMPACTION_KINDS
from ctxlab.evaluation.metrics.recall import HEADLINE_SCORE
from ctxlab.evaluation.recording_table import (
    RECORDINGS_FILE,
    read_entries,
    write_recordings,
)
from ctxlab.evaluation.results_builder import ResultsBuilder, sum_requests
from ctxlab.evaluation.run_files import (
    COMPACTIONS_FILE,
    MANIFEST_FILE,
    REQUESTS_FILE,
    RUNS_FILE,
    replace_run_files,
    write_manifest,
)
from ctxlab.evaluation.tables import StoredTable, TableWriter
from ctxlab.evaluation.verdict import leaderboard_verdict
from ctxlab.tokens.model_choice import explain_models

if TYPE_CHECKING:
    from ctxlab.evaluation.explorer.widget import Explorer
    from ctxlab.evaluation.grid import StrategyLike
    from ctxlab.evaluation.tracking import Tracker
    from ctxlab.messages.types import Recording

Table: TypeAlias = pd.DataFrame | StoredTable
"""A table in memory or in a file."""


class Results:
    """Results of an evaluation. A notebook displays them as the leaderboard.

    Tables of a saved run are read when they are needed. The leaderboard needs only some columns of
    ``runs``, so it can be computed for results that are larger than memory.

    Parameters
    ----------
    requests : pandas.DataFrame or StoredTable
        Table with one row per replayed request.
    scores : sequence of Score
        Scores of the leaderboard, in column order.
    manifest : dict
        Information to run the experiment again, such as ``spec`` and ``versions``.
    recordings : sequence of dict, optional
        One entry per recording: its name, its source, its digest, its size, the model that counted its
        tokens, and more. Those of a run in parts are read from a file when they are needed.
    runs : pandas.DataFrame or StoredTable, optional
        Table with one row per recording and configuration. It is computed if left out.
    compactions : pandas.DataFrame or StoredTable, optional
        Table with one row per compaction. None if the compactions are not known.

    Examples
    --------
    >>> import ctxlab
    >>> recording = next(iter(ctxlab.load("bundled:coding-agent")))
    >>> results = ctxlab.evaluate([recording], ["panic()", "full"], 8000, workers=1)
    >>> len(results.requests), len(results.runs), len(results.leaderboard())
    (240, 2, 2)
    >>> list(results.requests.columns[:5])
    ['recording', 'cluster', 'strategy', 'limit', 'budget']
    """

    def __init__(
        self,
        requests: Table,
        scores: Iterable[Score],
        manifest: dict[str, Any],
        recordings: Sequence[dict[str, Any]] = (),
        *,
        runs: Table | None = None,
        compactions: Table | None = None,
    ) -> None:
        self.scores, self.manifest, self.recordings = tuple(scores), manifest, recordings
        self._request_table, self._run_table, self._compaction_table = requests, runs, compactions

    @classmethod
    def from_builder(cls, builder: ResultsBuilder, described: Mapping[str, Any]) -> Results:
        """Create results from the collected measurements.

        Parameters
        ----------
        builder : ResultsBuilder
            Builder with the measurements of all recordings.
        described : mapping
            Description of the experiment.

        Returns
        -------
        Results
            Results with the recordings, and a manifest that also lists the package versions.

        Raises
        ------
        SpecError
            If no recording has a request.
        """
        requests, runs, compactions = builder.take_tables()
        manifest, recordings = builder.manifest(described), builder.take_recordings()
        return cls(
            requests, builder.scores, manifest, recordings, runs=runs, compactions=compactions
        )

    def __repr__(self) -> str:
        """Return a short description with the number of recordings and configurations."""
        recordings, configurations = self.recording_count, len(self.configurations)
        return f"<Results of {recordings:,} recordings, {configurations:,} configurations>"

    @cached_property
    def requests(self) -> pd.DataFrame:
        """Table with one row per replayed request: recording, configuration, and columns of metrics."""
        return _read_table(self._request_table)

    @cached_property
    def runs(self) -> pd.DataFrame:
        """Table with one row per recording × strategy × limit.

        It contains the sums of the columns of ``requests`` over the requests of the recording, and the
        scores.
        """
        if self._run_table is None:
            return sum_requests(self.requests, self.scores)
        return _read_table(self._run_table)

    def read_runs(self, columns: Sequence[str]) -> pd.DataFrame:
        """Return some columns of ``runs``, without reading the others from a stored table.

        Parameters
        ----------
        columns : sequence of str
            Names of the columns.

        Returns
        -------
        pandas.DataFrame
            One row per recording × strategy × limit.
        """
        if isinstance(self._run_table, StoredTable) and "runs" not in vars(self):
            return self._run_table.read(columns)
        return self.runs[list(columns)]

    def _read_run_column(self, column: str) -> pd.Series:
        return self.read_runs([column])[column]

    def _read_run_codes(self, column: str) -> npt.NDArray[np.integer]:
        """Return a number for each label of a column of ``runs``, in the order of appearance."""
        if isinstance(self._run_table, StoredTable) and "runs" not in vars(self):
            return self._run_table.read_codes(column)
        return pd.factorize(self.runs[column])[0]

    @property
    def configurations(self) -> list[tuple[str, float]]:
        """Strategy (as a string) and limit of each configuration, ordered as in ``runs``."""
        had = self.read_runs(["strategy", "limit"]).drop_duplicates()
        return [(str(name), float(limit)) for name, limit in had.itertuples(index=False)]

    @property
    def compactions(self) -> pd.DataFrame:
        """Table with one row per compaction: a request that changes what the previous one sent.

        The columns ``recording``, ``cluster``, ``strategy``, ``limit``, ``budget`` and ``request`` are
        those of ``requests``. Of a random strategy that was averaged over several seeds, the table
        contains the replay with the first seed only. The other columns are:

        - ``position``: position in the recording of the message that answers the request
        - ``tokens_before``: tokens of the previous request and of the messages recorded since then,
          so the size of this request without the compaction
        - ``tokens_after``: tokens of the request
        - ``freed``, ``freed_share``: ``tokens_before - tokens_after``, and its share of
          ``tokens_before``; negative if the request grew
        - ``rewritten_share``: share of the request's message tokens after its unchanged prefix
        - ``kind``: what replaced the messages (see
          ``ctxlab.evaluation.metrics.compactions.COMPACTION_KINDS``)
        - ``requests_until_next``: number of requests until the next compaction; missing for the last one
        - ``requests_until_limit``: number of requests until one has at least ``tokens_before``
          tokens again; missing if none has
        - ``read_again``: number of recorded tool calls, in the replies to this request and to the
          nine after it, that fetch again what the compaction removed. Except for the strategy
          ``recorded``, the agent that made these calls did not see the compaction

        Raises
        ------
        SpecError
            If the run was saved by a version of ctxlab that did not store compactions, or does not
            come from ``evaluate``.
        """
        if self._compaction_table is None:
            raise SpecError(
                "these results have no table of compactions, because the run asked a model or the "
                "file is missing; run ctxlab eval again with these recordings"
            )
        return self._compactions

    @cached_property
    def _compactions(self) -> pd.DataFrame:
        labels = self.read_runs(["recording", "cluster", "strategy"]).dtypes.to_dict()
        kinds: dict[str, Any] = {"kind": pd.CategoricalDtype([*COMPACTION_KINDS])}
        # A Parquet file does not say that a column with missing values has integers.
        kinds |= dict.fromkeys(("requests_until_next", "requests_until_limit"), "Int64")
        assert self._compaction_table is not None
        return _read_table(self._compaction_table).astype({**labels, **kinds})

    def leaderboard(self, *, resamples: int = 2000, seed: int = 0) -> pd.DataFrame:
        """Aggregate the runs by strategy and limit, in the order of the experiment.

        Rates are ratios of sums, so long recordings have more weight. The bounds of a score's
        interval are in two columns with the suffixes ``_low`` and ``_high``. They are computed by a
        95 % cluster bootstrap, and are nan with fewer than five clusters (see
        ``ctxlab.evaluation.bootstrap``). If a random strategy was averaged over several seeds, the
        suffix ``_sd`` marks the standard deviation of the score over the seeds; it is nan for all
        other strategies. The result is cached.

        Parameters
        ----------
        resamples : int, default 2000
            Number of bootstrap resamples.
        seed : int, default 0
            Seed of the bootstrap.

        Returns
        -------
        pandas.DataFrame
            One row per strategy and limit.
        """
        if (resamples, seed) not in self._leaderboards:
            self._leaderboards[resamples, seed] = self._compute_leaderboard(resamples, seed)
        return self._leaderboards[resamples, seed].copy()

    @cached_property
    def _leaderboards(self) -> dict[tuple[int, int], pd.DataFrame]:
        """Cache of leaderboards by (number of resamples, seed)."""
        return {}

    def _compute_leaderboard(self, resamples: int, seed: int) -> pd.DataFrame:
        keys = self.read_runs(["limit", "strategy"])
        groups = keys.groupby(["limit", "strategy"], observed=True, sort=False)
        row = groups.ngroup().to_numpy()  # number of the configuration
        configurations = groups.size().index
        in_dollars = {score.column for score in self.scores if score.unit == "USD"}

        def group(column: str) -> Any:
            return self._read_run_column(column).groupby(row)

        @cache  # many scores divide by the same column
        def total(column: str) -> FloatArray:
            values = group(column)
            sums = values.sum(min_count=1)
            if column in in_dollars:
                sums = sums.mask(values.count() < values.size())
            return np.asarray(sums)

        requests = total("requests")
        columns: dict[str, Any] = {"requests": requests}
        for score in self.scores:
            names = score.run_columns
            if score.how == "max":
                columns[score.name] = group(score.name).max().to_numpy()
            else:
                sums = [total(name) for name in names]
                columns[score.name] = score.compute(sums[0], sums[-1])
            if score.interval:
                parts = [self.cluster_sums(name, configurations) for name in names]
                low, high = ratio_interval(*parts, resamples=resamples, seed=seed)
                columns[f"{score.name}_low"], columns[f"{score.name}_high"] = low, high
                if draws := self.manifest.get("draws"):
                    sizes = dict(zip(configurations, requests, strict=True))
                    spread = score_spread(score, draws, sizes)
                    columns[f"{score.name}_sd"] = [spread.get(k, np.nan) for k in configurations]
        frame = pd.DataFrame(columns, configurations).reset_index()
        frame.insert(0, "strategy", frame.pop("strategy").astype(str))
        return frame

    def cluster_sums(self, column: str, configurations: Iterable[tuple[float, str]]) -> FloatArray:
        """Sum a column of the runs by cluster and configuration.

        Parameters
        ----------
        column : str
            Name of a column of ``runs``.
        configurations : iterable of (float, str)
            Limit and strategy (as a string) of each configuration.

        Returns
        -------
        numpy.ndarray of shape (clusters, configurations)
            Sum of the column in each cluster for each configuration.
        """
        cell, shape, known = self._cells
        sums = self._read_run_column(column).groupby(cell).sum()
        table = np.full(shape, np.nan)
        table.flat[sums.index.to_numpy()] = sums.to_numpy()
        chosen: list[Any] = [known.get_loc(key) for key in configurations]
        return table[:, chosen]

    @cached_property
    def _cells(self) -> tuple[npt.NDArray[np.integer], tuple[int, int], pd.Index[Any]]:
        """Cell of each run in a table of clusters × configurations, its shape and configurations."""
        runs, clusters = self.read_runs(["limit", "strategy"]), self._read_run_codes("cluster")
        groups = runs.groupby(["limit", "strategy"], observed=True, sort=False)
        known = groups.size().index
        cell = clusters * len(known) + groups.ngroup().to_numpy()
        return cell, (int(clusters.max(initial=-1)) + 1, len(known)), known

    def headline_sums(
        self, configurations: Sequence[tuple[float, str]]
    ) -> tuple[FloatArray, FloatArray]:
        """Sum the numerator and the denominator of the headline recall score by cluster.

        Parameters
        ----------
        configurations : sequence of (float, str)
            Limit and strategy (as a string) of each configuration.

        Returns
        -------
        tuple of (numpy.ndarray, numpy.ndarray)
            Numerators and denominators, each of shape ``(clusters, configurations)``.
        """
        (score,) = (score for score in self.scores if score.name == HEADLINE_SCORE)
        top, bottom = (self.cluster_sums(name, configurations) for name in score.run_columns)
        return top, bottom

    @property
    def recording_count(self) -> int:
        """Number of recordings with at least one request."""
        return int(self._read_run_codes("recording").max(initial=-1)) + 1

    @property
    def cluster_count(self) -> int:
        """Number of clusters. Intervals treat recordings of different clusters as independent."""
        return int(self._read_run_codes("cluster").max(initial=-1)) + 1

    @property
    def far_cluster_count(self) -> int | None:
        """Number of clusters with a need last mentioned more than 4,000 tokens earlier.

        It is None if recall was not measured.
        """
        if not any("far_arguments" in score.run_columns for score in self.scores):
            return None
        has_far = self._read_run_column("far_arguments").to_numpy() > 0
        return len(np.unique(self._read_run_codes("cluster")[has_far]))

    def equals(self, other: Results) -> bool:
        """Check if other results have the same measurements, scores, recordings and manifest.

        The key ``calls`` of the manifest is ignored. Its counts of cached replies differ between a
        first run and a repetition. The tables of compactions are compared if both have one.

        Parameters
        ----------
        other : Results
            Results to compare with.

        Returns
        -------
        bool
            True if everything except ``calls`` is equal.
        """
        mine, theirs = ({**r.manifest, "calls": None} for r in (self, other))
        same = self.scores == other.scores and mine == theirs
        same = same and list(self.recordings) == other.recordings
        if same and not (self._compaction_table is None or other._compaction_table is None):
            same = self.compactions.equals(other.compactions)
        return same and self.requests.equals(other.requests)

    def save(self, folder: str | Path) -> Path:
        """Save the results as Parquet files and ``manifest.json``.

        The Parquet files are ``requests.parquet``, ``runs.parquet``, ``compactions.parquet`` and
        ``recordings.parquet``. An earlier run in the folder is replaced. If writing fails, the earlier
        run is kept.

        Parameters
        ----------
        folder : str or Path
            Folder to save to. It is created if it does not exist.

        Returns
        -------
        Path
            Folder of the saved run.

        Raises
        ------
        OSError
            If the folder or a file cannot be written.
        """
        with replace_run_files(Path(folder)) as beside:
            self.write_files(beside)
        return Path(folder)

    def write_files(self, folder: Path) -> None:
        """Write the same files as ``save`` into an existing folder, without removing other files.

        Parameters
        ----------
        folder : Path
            Folder to write to.
        """
        _write_table(self._request_table, folder / REQUESTS_FILE)
        _write_table(self.runs if self._run_table is None else self._run_table, folder / RUNS_FILE)
        if self._compaction_table is not None:
            _write_table(self._compaction_table, folder / COMPACTIONS_FILE)
        if self.recordings:
            write_recordings(self.recordings, folder / RECORDINGS_FILE)
        write_manifest(folder, self.manifest, self.scores)

    @classmethod
    def load(cls, folder: str | Path) -> Results:
        """Load the results of a saved run.

        Parameters
        ----------
        folder : str or Path
            Folder that was passed to ``save``.

        Returns
        -------
        Results
            Results equal to the saved ones.

        Raises
        ------
        ReadError
            If a file of the saved run is missing or malformed.
        """
        folder = Path(folder)
        try:
            manifest = parse_json((folder / MANIFEST_FILE).read_bytes())
            scores = tuple(Score(**score) for score in manifest.pop("scores"))
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ReadError(folder, None, f"not a saved evaluation: {error}") from None
        return cls.from_folder(folder, scores, manifest)

    @classmethod
    def from_folder(
        cls, folder: Path, scores: Iterable[Score], manifest: dict[str, Any]
    ) -> Results:
        """Create results whose tables are read from the files of a run when they are needed.

        Parameters
        ----------
        folder : Path
            Folder of the run.
        scores : iterable of Score
            Scores of the leaderboard.
        manifest : dict
            Manifest of the run.

        Returns
        -------
        Results
            Results of the run.

        Raises
        ------
        ReadError
            If a table is missing or malformed.
        """
        requests, runs = StoredTable(folder / REQUESTS_FILE), StoredTable(folder / RUNS_FILE)
        file = folder / COMPACTIONS_FILE
        compactions = StoredTable(file) if file.is_file() else None
        recordings = read_entries(folder, manifest)
        manifest = {key: value for key, value in manifest.items() if key != "recordings"}
        return cls(requests, scores, manifest, recordings, runs=runs, compactions=compactions)

    @property
    def model_note(self) -> str:
        """Sentence that names the models whose tokenizers and prices were used."""
        said = explain_models(self.recordings, self.manifest["spec"].get("model"))
        return f"{said[:1].upper()}{said[1:]}."

    def verdict(self, min_recall: float = 0.95) -> str:
        """Recommend the cheapest strategy that keeps enough recall, in one paragraph.

        Parameters
        ----------
        min_recall : float, default 0.95
            Minimum of the headline recall score, as a share of its value for full history.

        Returns
        -------
        str
            Recommendation with what the recordings do not settle, or the reason why there is none
            (see ``ctxlab.evaluation.verdict``).
        """
        return leaderboard_verdict(self.leaderboard(), self.headline_sums, min_recall)

    def report(
        self, path: str | Path, recordings: Iterable[Recording] = (), **options: Any
    ) -> Path:
        """Write a report as one HTML file that works offline.

        Parameters
        ----------
        path : str or Path
            File to write. An existing file is replaced.
        recordings : iterable of Recording, optional
            Recordings of the run. Those that are not given are read from their files.
        **options : object
            Further arguments of ``ctxlab.evaluation.report.make_report``, such as ``with_text=True``.

        Returns
        -------
        Path
            The file.
        """
        from ctxlab.evaluation.report import make_report

        html = make_report(self, recordings, **options)
        Path(path).write_text(html, encoding="utf-8")
        return Path(path)

    def log_to(self, tracker: Tracker, *, project: str | None = None, name: str = "ctxlab") -> str:
        """Log the results to MLflow or Weights & Biases.

        One run gets the settings, the verdict, and the leaderboard and the manifest as files. Each
        configuration gets a run of its own with its strategy and limit as parameters and its scores as
        metrics, with the bounds of their intervals (``recall_far_held_low``). No text of a recording is
        logged, but the manifest names the paths that were given.

        Parameters
        ----------
        tracker : {"mlflow", "wandb"}
            Where to log. Server, credentials and offline mode are those of the package, such as
            ``MLFLOW_TRACKING_URI`` or ``WANDB_MODE=offline``.
        project : str, optional
            Experiment of MLflow or project of Weights & Biases. By default, the one that is set in the
            package.
        name : str, default "ctxlab"
            Name of the run with the settings. In MLflow, the runs of the configurations are nested in
            it, and it is nested in the active run, if there is one. In Weights & Biases, the runs are in
            a group with this name and a random suffix.

        Returns
        -------
        str
            Id of the run with the settings.

        Raises
        ------
        SpecError
            If the tracker is unknown.
        DataMissing
            If its package is not installed.
        """
        from ctxlab.evaluation.tracking import log_results

        return log_results(self, tracker, project=project, name=name)

    def explore(
        self,
        recordings: Iterable[Recording] = (),
        *,
        recording: str | None = None,
        strategy: str | None = None,
        against: str | None = None,
        limit: float | str | None = None,
        strategies: Iterable[StrategyLike] = (),
    ) -> Explorer:
        """Show the results in an explorer: frontier, recordings, context maps, requests and messages.

        Parameters
        ----------
        recordings : iterable of Recording, optional
            Recordings of the run. Those that are not given are read from their files.
        recording : str, optional
            Name of the recording to show first; the one with the most losses if left out.
        strategy : str, optional
            Strategy to show first; the recommended one if left out.
        against : str, optional
            Second strategy, to compare the first one with.
        limit : float or str, optional
            Limit to show first, such as ``8000`` or ``"50%"``.
        strategies : iterable of Strategy, str or callable, optional
            Strategies of the run that are not part of ctxlab. Others are known by their names.

        Returns
        -------
        Explorer
            Widget, which a notebook shows.

        Raises
        ------
        UnknownName
            If the results have no such recording, strategy or limit.

        Examples
        --------
        >>> import ctxlab
        >>> recordings = list(ctxlab.load("bundled:coding-agent"))[:2]
        >>> results = ctxlab.evaluate(recordings, ["full", "sliding_window()"], 8000)
        >>> results.explore(recordings, against="full")
        <Explorer of <Results of 2 recordings, 2 configurations>>
        """
        from ctxlab.evaluation.explorer import explore_results

        return explore_results(
            self, recordings, recording=recording, strategy=strategy, against=against,
            limit=limit, strategies=strategies,
        )  # fmt: skip

    def _repr_html_(self) -> str:
        from ctxlab.evaluation.html import board_html

        bound = "Off-policy replay. Recall is availability, an upper bound on what is used."
        notes = [self.verdict(), f"{bound} {self.model_note}"]
        return board_html(self.leaderboard(), self.scores, notes)


def _read_table(table: Table) -> pd.DataFrame:
    return table.read() if isinstance(table, StoredTable) else table


def _write_table(table: Table, path: Path) -> None:
    if isinstance(table, StoredTable):
        table.copy_to(path)
    else:
        with TableWriter(path) as writer:
            writer.write(table)
