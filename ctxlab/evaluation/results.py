"""Results are tidy frames: a row a request, a row a run, and the leaderboard made from the runs.

They are saved as parquet beside a manifest that suffices to run the experiment again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ctxlab._utils.jsonio import dump_json, parse_json
from ctxlab.errors import ReadError, SpecError
from ctxlab.evaluation.bootstrap import ratio_interval
from ctxlab.evaluation.metrics.base import Score
from ctxlab.evaluation.recommendation import leaderboard_verdict
from ctxlab.tokens.model_choice import explain_models

__all__ = [
    "MANIFEST_FILE",
    "RUN_FILES",
    "UNFINISHED_PREFIX",
    "Results",
    "ResultsBuilder",
    "replace_run_files",
]

MANIFEST_FILE = "manifest.json"
"""File of a saved run that says what it is."""

RUN_FILES = (
    MANIFEST_FILE,
    *("requests.parquet", "runs.parquet", "answers.parquet", "frontier.parquet", "trials.parquet"),
)
"""Files that a saved run may have; an earlier run's are taken away where a run is saved."""

UNFINISHED_PREFIX = ".saving-"
"""How the folder begins in which a run is written until it is whole."""

_ID_COLUMNS = ["recording", "cluster", "strategy", "limit", "budget"]


class ResultsBuilder:
    """Collects the columns of an experiment, recording by recording, as arrays."""

    def __init__(self, columns: Sequence[str], configurations: Sequence[tuple[str, float]]) -> None:
        self.columns, self.configurations = list(columns), list(configurations)
        self.recordings: list[dict[str, Any]] = []
        self._names: set[str] = set()
        self._token_limits: list[list[int]] = []
        self._column_arrays: list[Mapping[str, np.ndarray[Any, Any]]] = []
        self._recording_numbers: list[int] = []

    def add_recording(self, recording: dict[str, Any]) -> None:
        """The recording that comes next; it is listed even if it makes no request.

        A second use of a name gets ``#2`` behind it, as ``load`` does it; a byte of a file's name that
        is no text is written out.
        """
        names = {key: _escape_surrogates(recording[key]) for key in ("recording", "cluster")}
        name, again = names["recording"], 1
        while name in self._names:
            again += 1
            name = f"{names['recording']}#{again}"
        self._names.add(name)
        self.recordings.append({**recording, **names, "recording": name})

    def add_columns(
        self, token_limits: list[int], columns: Mapping[str, np.ndarray[Any, Any]]
    ) -> None:
        """Its columns, of shape ``(configurations, requests)``."""
        self._recording_numbers.append(len(self.recordings) - 1)
        self._token_limits.append(token_limits)
        self._column_arrays.append(columns)

    def build_requests(self) -> pd.DataFrame:
        """One row a request: recording by recording, configuration by configuration."""
        if not self._column_arrays:
            raise SpecError("there is nothing to measure: no recording holds a model call")
        first = self.columns[0]
        configurations = len(self.configurations)
        sizes = np.array([figures[first].shape[1] for figures in self._column_arrays])
        per_run = np.repeat(sizes, configurations)
        which = np.repeat(self._recording_numbers, configurations)
        labels = np.tile(np.arange(configurations), len(sizes))
        strategies = list(dict.fromkeys(strategy for strategy, _ in self.configurations))
        codes = np.array([strategies.index(strategy) for strategy, _ in self.configurations])
        ids = [r["recording"] for r in self.recordings]
        clusters = list(dict.fromkeys(r["cluster"] for r in self.recordings))
        members = np.array([clusters.index(r["cluster"]) for r in self.recordings])
        limits = np.array([limit for _, limit in self.configurations], dtype=np.float64)
        frame = {
            "recording": _make_categorical(np.repeat(which, per_run), ids),
            "cluster": _make_categorical(np.repeat(members[which], per_run), clusters),
            "strategy": _make_categorical(np.repeat(codes[labels], per_run), strategies),
            "limit": np.repeat(limits[labels], per_run),
            "budget": np.repeat(np.concatenate(self._token_limits), per_run),
            "request": np.concatenate([np.arange(size) for size in per_run]),
        }
        for name in self.columns:
            frame[name] = np.concatenate([figures[name].ravel() for figures in self._column_arrays])
        return pd.DataFrame(frame)


@dataclass
class Results:
    """What an evaluation found; it shows itself as the leaderboard in a notebook."""

    requests: pd.DataFrame
    "a row a request of a run: who and where, then every column of every metric"
    scores: tuple[Score, ...]
    "what each column of the leaderboard means"
    manifest: dict[str, Any]
    "what it takes to run it again: ``spec``, ``recordings``, ``versions``"

    @classmethod
    def from_builder(
        cls, builder: ResultsBuilder, scores: Sequence[Score], manifest: Mapping[str, Any]
    ) -> Results:
        """From what an evaluation collected. Raises ``SpecError`` for a score that hides a column."""
        for score in scores:
            if score.name in builder.columns and (score.how, score.column) != ("sum", score.name):
                raise SpecError(
                    f"the score {score.name} is called as a column is: rename one of them"
                )
        whole = {**manifest, "recordings": builder.recordings, "versions": _versions()}
        # A score of two metrics, such as the cached share of tokens, needs both of them.
        had = {*builder.columns, ""}
        measured = tuple(s for s in scores if s.column in had and s.per in had)
        return cls(builder.build_requests(), measured, whole)

    @cached_property
    def runs(self) -> pd.DataFrame:
        """A row a recording × strategy × limit: sums of its requests' columns, and its scores."""
        groups = self.requests.groupby(_ID_COLUMNS, observed=True, sort=False)
        columns = [c for c in self.requests.columns if c not in (*_ID_COLUMNS, "request")]
        sums = _sum_groups(self.requests, _ID_COLUMNS, columns, self._usd_columns)
        frame = sums.copy()
        frame.insert(0, "requests", groups.size())
        for score in self.scores:
            if score.how == "max":
                frame[score.name] = groups[score.column].max()
            else:
                frame[score.name] = _compute_score(score, frame)
        return frame.reset_index()

    def leaderboard(self, *, resamples: int = 2000, seed: int = 0) -> pd.DataFrame:
        """A row a strategy × limit over all recordings, in the order of the experiment.

        Rates are ratios of sums, so long recordings weigh more. Beside every recall stand the bounds of
        its 95 % interval from a bootstrap that draws whole clusters, ``resamples`` times; nan with fewer
        than five clusters that have any (``ctxlab.evaluation.bootstrap``). It is computed once.
        """
        key = (resamples, seed)
        if key not in self._leaderboards:
            self._leaderboards[key] = self._compute_leaderboard(resamples, seed)
        return self._leaderboards[key].copy()

    @cached_property
    def _leaderboards(self) -> dict[tuple[int, int], pd.DataFrame]:
        """By number of resamples and seed, those that were asked for."""
        return {}

    def _compute_leaderboard(self, resamples: int, seed: int) -> pd.DataFrame:
        runs = self.runs
        groups = runs.groupby(["limit", "strategy"], observed=True, sort=False)
        numbers = runs.select_dtypes("number").columns.drop(["limit", "budget"])
        sums = _sum_groups(runs, ["limit", "strategy"], list(numbers), self._usd_columns)
        frame = sums[["requests"]].copy()
        for score in self.scores:
            if score.how == "max":
                frame[score.name] = groups[score.name].max()
            else:
                frame[score.name] = _compute_score(score, sums)
            if score.interval:
                low, high = self._score_interval(score, list(frame.index), resamples, seed)
                frame[f"{score.name}_low"], frame[f"{score.name}_high"] = low, high
        frame = frame.reset_index()
        frame.insert(0, "strategy", frame.pop("strategy").astype(str))
        return frame

    @property
    def _usd_columns(self) -> set[str]:
        """Columns in dollars."""
        return {score.column for score in self.scores if score.unit == "USD"}

    def _score_interval(
        self, score: Score, order: list[tuple[float, str]], resamples: int, seed: int
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        keys = ["limit", "strategy"]
        sums = self.runs.pivot_table(
            index="cluster", columns=keys, values=[score.column, score.per], aggfunc="sum",
            observed=True, sort=False,
        )  # fmt: skip
        numerators, denominators = (
            sums[name][order].to_numpy() for name in (score.column, score.per)
        )
        return ratio_interval(numerators, denominators, resamples=resamples, seed=seed)

    @property
    def cluster_count(self) -> int:
        """How many independent units the intervals are drawn over."""
        return int(self.requests["cluster"].nunique())

    @property
    def far_cluster_count(self) -> int | None:
        """In how many of them anything was used that had last been said long before."""
        if "far_arguments" not in self.requests:
            return None
        used = self.requests.loc[self.requests["far_arguments"] > 0, "cluster"]
        return int(used.nunique())

    def equals(self, other: Results) -> bool:
        """Whether both hold the same figures, scores and manifest.

        ``calls`` of the manifest apart: what is answered from disk the second time is the same answer.
        """
        mine, theirs = ({**r.manifest, "calls": None} for r in (self, other))
        same = self.scores == other.scores and mine == theirs
        return same and self.requests.equals(other.requests)

    def save(self, folder: str | Path) -> Path:
        """Write ``requests.parquet``, ``runs.parquet`` and ``manifest.json``; return the folder.

        An earlier run in the folder is replaced, whatever it is of; where that fails it stays as it was.
        Raises ``OSError`` where the folder cannot be written.
        """
        with replace_run_files(Path(folder)) as beside:
            self.write_files(beside)
        return Path(folder)

    def write_files(self, folder: Path) -> None:
        """Write the files of ``save`` into a folder that is there."""
        self.requests.to_parquet(folder / "requests.parquet", index=False)
        self.runs.to_parquet(folder / "runs.parquet", index=False)
        scores = [vars(score) for score in self.scores]
        text = dump_json({**self.manifest, "scores": scores})
        (folder / MANIFEST_FILE).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path) -> Results:
        """What ``save`` wrote, equal to what was saved. Raises ``ReadError`` where it is not there."""
        folder = Path(folder)
        try:
            manifest = parse_json((folder / MANIFEST_FILE).read_bytes())
            requests = pd.read_parquet(folder / "requests.parquet")
            scores = tuple(Score(**score) for score in manifest.pop("scores"))
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ReadError(folder, None, f"no saved evaluation: {error}") from None
        return cls(requests, scores, manifest)

    @property
    def model_note(self) -> str:
        """By which models the recordings were counted and priced, as a sentence."""
        said = explain_models(self.manifest["recordings"], self.manifest["spec"].get("model"))
        return f"{said[:1].upper()}{said[1:]}."

    def verdict(self, min_recall: float = 0.95) -> str:
        """One sentence: the cheapest strategy that keeps ``min_recall`` of full history's far recall.

        Or that none does; see ``ctxlab.evaluation.recommendation`` for what counts.
        """
        return leaderboard_verdict(self.leaderboard(), min_recall)

    def _repr_html_(self) -> str:
        shown = self.leaderboard()
        bound = "Off-policy replay; recall is availability, an upper bound."
        note = f"{self.verdict()} {bound} {self.model_note}"
        return f"{shown.to_html(index=False, float_format=lambda v: f'{v:,.3g}')}<p>{note}</p>"


@contextmanager
def replace_run_files(folder: Path) -> Iterator[Path]:
    """Give a folder to write files into, which then replace the run that ``folder`` holds.

    The earlier run is put aside first and its files come back where anything fails. The manifest is the
    last file to be put there: a process that is killed on the way leaves no manifest, and so no run.
    """
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix=UNFINISHED_PREFIX, dir=folder) as work:
            made, before = Path(work, "made"), Path(work, "before")
            made.mkdir()
            before.mkdir()
            yield made
            _swap_run_files(folder, made, before)
    except BaseException:
        if new:
            with suppress(OSError):
                folder.rmdir()
        raise


def _swap_run_files(folder: Path, made: Path, before: Path) -> None:
    """Put the files of a run into a folder, in the place of those of an earlier one."""
    put: list[Path] = []
    try:
        for name in RUN_FILES:
            if (folder / name).is_file():
                (folder / name).replace(before / name)
        for file in sorted(made.iterdir(), key=lambda file: file.name == MANIFEST_FILE):
            file.replace(folder / file.name)
            put.append(folder / file.name)
    except BaseException:
        for file in put:
            file.unlink(missing_ok=True)
        for file in before.iterdir():
            file.replace(folder / file.name)
        raise


def _escape_surrogates(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()


def _make_categorical(codes: np.ndarray[Any, Any], names: list[Any]) -> pd.Categorical:
    return pd.Categorical.from_codes(codes.tolist(), pd.Index(names))


def _sum_groups(
    frame: pd.DataFrame, keys: list[str], columns: list[str], money: set[str]
) -> pd.DataFrame:
    """Columns summed by group; what is known of no request of a group stays unknown.

    Money of which any part is unknown is unknown: less than all of a bill is no bill.
    """
    groups = frame.groupby(keys, observed=True, sort=False)
    sums = groups[columns].sum(min_count=1)
    for name in money & set(columns):
        parts = frame[name].isna().groupby([frame[key] for key in keys], observed=True, sort=False)
        sums[name] = sums[name].mask(parts.any())
    return sums


def _compute_score(score: Score, sums: pd.DataFrame) -> pd.Series[float]:
    if score.how == "sum":
        return sums[score.column]
    denominators = sums[score.per] if score.per else sums["requests"]
    return sums[score.column] / denominators.where(denominators > 0)


def _versions() -> dict[str, str]:
    import platform
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for name in ("ctxlab", "litellm", "numpy", "pandas", "tiktoken"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
