"""Results of an evaluation as tidy data frames, saved as parquet files with a manifest.

A configuration is a strategy under a limit. The table ``requests`` has one row per request, ``runs``
has one row per recording and configuration, ``compactions`` has one row per compaction, and the
leaderboard has one row per configuration. The manifest records everything that is needed to run the
experiment again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ctxlab._utils.jsonio import dump_json, parse_json
from ctxlab.errors import ReadError, SpecError
from ctxlab.evaluation.bootstrap import ratio_interval
from ctxlab.evaluation.draws import DrawSums, DrawTotals, score_spread
from ctxlab.evaluation.metrics.base import FloatArray, Score
from ctxlab.evaluation.metrics.compactions import COMPACTION_KINDS, CompactionRows
from ctxlab.evaluation.metrics.recall import HEADLINE_SCORE
from ctxlab.evaluation.metrics.strategy_calls import StrategyCalls, StrategyCallTotals
from ctxlab.evaluation.recommendation import leaderboard_verdict
from ctxlab.tokens.model_choice import explain_models

MANIFEST_FILE = "manifest.json"
"""File name of the manifest in the folder of a saved run."""

RUN_FILES = (
    MANIFEST_FILE,
    *("requests.parquet", "runs.parquet", "compactions.parquet"),
    *("answers.parquet", "frontier.parquet", "trials.parquet"),
)
"""Names of the files of a saved run. Saving removes the files of an earlier run with these names."""

UNFINISHED_PREFIX = ".saving-"
"""Prefix of the name of the temporary folder into which a run is written first."""

_ID_COLUMNS = ["recording", "cluster", "strategy", "limit", "budget"]


class ReplayOutcome(NamedTuple):
    """Measurements of one recording that was replayed through all configurations."""

    description: dict[str, Any]
    "manifest entry of the recording"
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


class ResultsBuilder:
    """Collects the measurements of an experiment, recording by recording, and builds a table of them.

    Parameters
    ----------
    columns : sequence of str
        Names of the columns that the metrics compute.
    configurations : sequence of (str, float)
        Strategy (as a string) and limit of each configuration.
    """

    def __init__(self, columns: Sequence[str], configurations: Sequence[tuple[str, float]]) -> None:
        self.columns, self.configurations = list(columns), list(configurations)
        self.recordings: list[dict[str, Any]] = []
        self.calls = StrategyCallTotals()
        self.draws = DrawTotals()
        self._names: set[str] = set()
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
            self._compactions.append(outcome.compactions)

    def add_recording(self, recording: dict[str, Any]) -> None:
        """Add the manifest entry of the next recording, even if the recording has no request.

        If the name is already used, the suffix ``#2``, ``#3``, … is appended, as in ``ctxlab.load``.
        Characters that cannot be encoded as UTF-8 are escaped.

        Parameters
        ----------
        recording : dict
            Manifest entry of the recording.
        """
        names = {
            key: recording[key].encode("utf-8", "backslashreplace").decode()
            for key in ("recording", "cluster")
        }
        name, again = names["recording"], 1
        while name in self._names:
            again += 1
            name = f"{names['recording']}#{again}"
        self._names.add(name)
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

    def build_requests(self) -> pd.DataFrame:
        """Build a data frame with one row per request, ordered by recording, then by configuration.

        Returns
        -------
        pandas.DataFrame
            Columns that identify the recording, configuration and request, and columns of the metrics.

        Raises
        ------
        SpecError
            If no recording has a request.
        """
        if not self._column_arrays:
            raise SpecError("expected recordings with model calls, got none; use other recordings")
        count, first = len(self.configurations), self.columns[0]
        sizes = np.array([figures[first].shape[1] for figures in self._column_arrays])
        per_run = np.repeat(sizes, count)
        which = np.repeat(np.repeat(self._recording_numbers, count), per_run)
        labels = np.repeat(np.tile(np.arange(count), len(sizes)), per_run)
        frame: dict[str, Any] = {
            "recording": _make_categorical([r["recording"] for r in self.recordings], which),
            "cluster": _make_categorical([r["cluster"] for r in self.recordings], which),
            "strategy": _make_categorical([name for name, _ in self.configurations], labels),
            "limit": np.array([limit for _, limit in self.configurations], np.float64)[labels],
            "budget": np.repeat(np.concatenate(self._token_limits), per_run),
            "request": np.concatenate([np.arange(size) for size in per_run]),
        }
        for name in self.columns:
            frame[name] = np.concatenate([figures[name].ravel() for figures in self._column_arrays])
        return pd.DataFrame(frame)

    def build_compactions(self) -> pd.DataFrame | None:
        """Build a data frame with one row per compaction, ordered as ``build_requests``.

        Returns
        -------
        pandas.DataFrame or None
            Columns that identify the recording and configuration, and the columns of
            ``Results.compactions``. None if measurements were added without compactions.
        """
        if not self._compactions or len(self._compactions) < len(self._recording_numbers):
            return None
        counts = [len(rows.request) for rows in self._compactions]
        which = np.repeat(self._recording_numbers, counts)
        rows = CompactionRows.concatenate(self._compactions)
        token_limits = np.array(self._token_limits)
        limits = np.array([limit for _, limit in self.configurations], np.float64)
        return pd.DataFrame(
            {
                "recording": _make_categorical([r["recording"] for r in self.recordings], which),
                "cluster": _make_categorical([r["cluster"] for r in self.recordings], which),
                "strategy": _make_categorical(
                    [name for name, _ in self.configurations], rows.configuration
                ),
                "limit": limits[rows.configuration],
                "budget": token_limits[
                    np.repeat(np.arange(len(counts)), counts), rows.configuration
                ],
                **rows.columns(),
            }
        )


@dataclass
class Results:
    """Results of an evaluation. A notebook displays them as the leaderboard."""

    requests: pd.DataFrame
    "one row per replayed request: recording, configuration, and the columns of each metric"
    scores: tuple[Score, ...]
    "scores of the leaderboard, in column order"
    manifest: dict[str, Any]
    "information to run the experiment again, such as ``spec``, ``recordings`` and ``versions``"
    compaction_table: pd.DataFrame | None = field(default=None, kw_only=True, repr=False)
    "table that ``compactions`` returns; None if the compactions are not known"

    @classmethod
    def from_builder(
        cls, builder: ResultsBuilder, scores: Sequence[Score], manifest: Mapping[str, Any]
    ) -> Results:
        """Create results from the collected measurements.

        Parameters
        ----------
        builder : ResultsBuilder
            Builder with the measurements of all recordings.
        scores : sequence of Score
            Scores of the leaderboard. A score is left out if one of its columns was not measured.
        manifest : mapping
            Description of the experiment.

        Returns
        -------
        Results
            Results with a manifest that also lists the recordings and the package versions.

        Raises
        ------
        SpecError
            If a score has the same name as a column with a different meaning, or if no recording
            has a request.
        """
        for score in scores:
            if score.name in builder.columns and (score.how, score.column) != ("sum", score.name):
                what = f"score {score.name} and a column of a metric have the same name"
                raise SpecError(f"{what}; rename the score or the column")
        totals = {**builder.calls.manifest(), **builder.draws.manifest(builder.configurations)}
        whole = {**manifest, **totals, "recordings": builder.recordings}
        # Some scores, such as the cached share of tokens, need columns of two metrics.
        had = {*builder.columns, ""}
        measured = tuple(s for s in scores if s.column in had and s.per in had)
        return cls(
            builder.build_requests(),
            measured,
            whole | {"versions": library_versions()},
            compaction_table=builder.build_compactions(),
        )

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
        - ``requests_until_next``: number of requests until the next compaction; nan for the last one
        - ``requests_until_limit``: number of requests until one has at least ``tokens_before``
          tokens again; nan if none has
        - ``read_again``: number of recorded tool calls, in the replies to this request and to the
          nine after it, that fetch again what the compaction removed. Except for the strategy
          ``recorded``, the agent that made these calls did not see the compaction

        Raises
        ------
        SpecError
            If the run was saved by a version of ctxlab that did not store compactions, or does not
            come from ``evaluate``.
        """
        if self.compaction_table is None:
            raise SpecError(
                "these results have no table of compactions: they were saved by an earlier version, "
                "or the run asked a model; run ctxlab eval again with these recordings"
            )
        return self.compaction_table

    @cached_property
    def runs(self) -> pd.DataFrame:
        """Table with one row per recording × strategy × limit.

        It contains the sums of the columns of ``requests`` over the requests of the recording, and the
        scores.
        """
        columns = [c for c in self.requests.columns if c not in (*_ID_COLUMNS, "request")]
        groups, frame = self._sum_groups(self.requests, _ID_COLUMNS, columns)
        frame.insert(0, "requests", groups.size())
        scores = {s.name: _compute_score(s, frame, groups, s.column) for s in self.scores}
        # One new frame: pandas warns if a hundred columns are added one by one.
        return pd.DataFrame(dict(frame.items()) | scores).reset_index()

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
        keys = ["limit", "strategy"]
        numbers = self.runs.select_dtypes("number").columns.drop(["limit", "budget"])
        groups, sums = self._sum_groups(self.runs, keys, list(numbers))
        columns: dict[str, Any] = {"requests": sums["requests"]}
        for score in self.scores:
            columns[score.name] = _compute_score(score, sums, groups, score.name)
            if score.interval:
                parts = [self.cluster_sums(name, sums.index) for name in score.run_columns]
                low, high = ratio_interval(*parts, resamples=resamples, seed=seed)
                columns[f"{score.name}_low"], columns[f"{score.name}_high"] = low, high
                if draws := self.manifest.get("draws"):
                    requests = dict(zip(sums.index, sums["requests"], strict=True))
                    spread = score_spread(score, draws, requests)
                    columns[f"{score.name}_sd"] = [spread.get(key, np.nan) for key in sums.index]
        frame = pd.DataFrame(columns, sums.index).reset_index()
        frame.insert(0, "strategy", frame.pop("strategy").astype(str))
        return frame

    def _sum_groups(
        self, frame: pd.DataFrame, keys: list[str], columns: list[str]
    ) -> tuple[Any, pd.DataFrame]:
        """Group a data frame by keys, and sum columns within each group.

        Nan is skipped, and the sum is nan if all values of a group are nan. A sum in USD is nan if
        any of its values is nan, because a partial bill would be misleading.
        """
        groups = frame.groupby(keys, observed=True, sort=False)
        sums = groups[columns].sum(min_count=1)
        for name in {score.column for score in self.scores if score.unit == "USD"} & {*columns}:
            parts = frame[name].isna().groupby([frame[k] for k in keys], observed=True, sort=False)
            sums[name] = sums[name].mask(parts.any())
        return groups, sums

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
        keys = ["limit", "strategy"]
        sums = self.runs.pivot_table(column, "cluster", keys, "sum", observed=True, sort=False)
        return sums[list(configurations)].to_numpy(dtype=np.float64)

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
    def cluster_count(self) -> int:
        """Number of clusters. Intervals treat recordings of different clusters as independent."""
        return int(self.requests["cluster"].nunique())

    @property
    def far_cluster_count(self) -> int | None:
        """Number of clusters with a need last mentioned more than 4,000 tokens earlier.

        It is None if recall was not measured.
        """
        if "far_arguments" not in self.requests:
            return None
        used = self.requests.loc[self.requests["far_arguments"] > 0, "cluster"]
        return int(used.nunique())

    def equals(self, other: Results) -> bool:
        """Check if other results have the same measurements, scores and manifest.

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
        one, two = self.compaction_table, other.compaction_table
        same = same and (one is None or two is None or one.equals(two))
        return same and self.requests.equals(other.requests)

    def save(self, folder: str | Path) -> Path:
        """Save the results as Parquet files and ``manifest.json``.

        The Parquet files are ``requests.parquet``, ``runs.parquet`` and ``compactions.parquet``. An
        earlier run in the folder is replaced. If writing fails, the earlier run is kept.

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
        self.requests.to_parquet(folder / "requests.parquet", index=False)
        self.runs.to_parquet(folder / "runs.parquet", index=False)
        if self.compaction_table is not None:
            self.compaction_table.to_parquet(folder / "compactions.parquet", index=False)
        scores = [vars(score) for score in self.scores]
        text = dump_json({**self.manifest, "scores": scores})
        (folder / MANIFEST_FILE).write_text(text + "\n", encoding="utf-8")

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
            requests = pd.read_parquet(folder / "requests.parquet")
            scores = tuple(Score(**score) for score in manifest.pop("scores"))
            compactions = _read_compactions(folder / "compactions.parquet", requests)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ReadError(folder, None, f"not a saved evaluation: {error}") from None
        return cls(requests, scores, manifest, compaction_table=compactions)

    @property
    def model_note(self) -> str:
        """Sentence that names the models whose tokenizers and prices were used."""
        said = explain_models(self.manifest["recordings"], self.manifest["spec"].get("model"))
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
            (see ``ctxlab.evaluation.recommendation``).
        """
        return leaderboard_verdict(self.leaderboard(), self.headline_sums, min_recall)

    def _repr_html_(self) -> str:
        shown = self.leaderboard()
        bound = "Off-policy replay. Recall is availability, an upper bound on what is used."
        note = f"{self.verdict()} {bound} {self.model_note}"
        return f"{shown.to_html(index=False, float_format=lambda v: f'{v:,.3g}')}<p>{note}</p>"


@contextmanager
def replace_run_files(folder: Path) -> Iterator[Path]:
    """Replace the run in ``folder`` by the files that the ``with`` block writes.

    The block writes to a temporary folder. When it ends, the files of the earlier run are moved away
    and the new files are moved into ``folder``. If anything fails, the earlier run is restored. The
    new manifest is moved last. If the process is killed while files are moved, the folder therefore
    has no manifest and does not look like a saved run.

    Parameters
    ----------
    folder : Path
        Folder of the run. It is created if it does not exist.

    Yields
    ------
    Path
        Temporary folder for the new files.
    """
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix=UNFINISHED_PREFIX, dir=folder) as work:
            made, before = Path(work, "made"), Path(work, "before")
            made.mkdir()
            before.mkdir()
            yield made
            names = [name for name in RUN_FILES if (folder / name).is_file()]
            files = sorted(made.iterdir(), key=lambda file: file.name == MANIFEST_FILE)
            moves = [(folder / name, before / name) for name in names]
            _move_all_or_none(moves + [(file, folder / file.name) for file in files])
    except BaseException:
        if new:
            with suppress(OSError):
                folder.rmdir()
        raise


def _move_all_or_none(moves: Sequence[tuple[Path, Path]]) -> None:
    """Move files one after another. If a move fails, undo the earlier moves."""
    try:
        for old, new in moves:
            old.replace(new)
    except BaseException:
        for old, new in reversed(moves):
            if new.exists() and not old.exists():
                new.replace(old)
        raise


def _make_categorical(names: Sequence[str], rows: np.ndarray[Any, Any]) -> pd.Categorical[str]:
    """Create a categorical with ``names[i]`` for each ``i`` in ``rows``; categories are the names."""
    places = {name: place for place, name in enumerate(dict.fromkeys(names))}
    codes = np.array([places[name] for name in names])
    return pd.Categorical.from_codes(codes[rows].tolist(), pd.Index(list(places)))


def _read_compactions(file: Path, requests: pd.DataFrame) -> pd.DataFrame | None:
    """Read the table of compactions; None if an earlier version of ctxlab saved the run without it."""
    if not file.is_file():
        return None
    table = pd.read_parquet(file)
    # A table without rows loses its categories in the file.
    types = {name: requests[name].dtype for name in ("recording", "cluster", "strategy")}
    return table.astype({**types, "kind": pd.CategoricalDtype([*COMPACTION_KINDS])})


def _compute_score(score: Score, sums: pd.DataFrame, groups: Any, max_column: str) -> Any:
    if score.how == "max":
        return groups[max_column].max()
    columns = [sums[name].to_numpy() for name in score.run_columns]
    return score.compute(columns[0], columns[-1])


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
