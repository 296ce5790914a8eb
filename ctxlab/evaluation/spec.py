"""Specifications of experiments: the recordings to replay, the strategies and the limits.

A ``Spec`` is read from a TOML file or a saved run, or created from command line options. An
experiment file with the most common keys::

    data = ["logs/", "bundled:support-desk"]    # files, folders, globs, URLs, named data sets
    strategies = ["lineup", "mine.last_ten"]    # default: the default lineup
    limits = [8000, "16k", 0.25, "25%"]         # tokens, or shares of each recording's length
    model = "gpt-5"                             # counts and prices; default: model of each recording
    reserve = 1000                              # tokens of the limit kept for the reply
    cache_ttl = "recorded"                      # lifetime of cache writes: recorded, 5m or 1h
    fixed = "recorded"                          # unlogged tokens per request to pay for, or a number
    fixed_in_limit = false                      # true: the limits include these tokens
    reasoning = "recorded"                      # hidden reasoning: auto, keep, current_turn or clear
    where = ["messages>=50", "model=claude*"]   # conditions on recordings
    sample = 20                                 # number of recordings to draw; default: all
    metrics = ["usage", "validity", "cost", "recall"]
    calls = "auto"                              # model calls of strategies: auto, record, replay
    min_recall = 0.95                           # minimum recall, relative to full history
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
from msgspec.structs import replace

from ctxlab._utils.humanize import parse_limit
from ctxlab._utils.jsonio import parse_json
from ctxlab.errors import CtxlabError, ReadError, SpecError, redact_urls, require_known
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.grid import DEFAULT_LIMITS
from ctxlab.evaluation.metrics import DEFAULT_METRICS, METRICS, Metric
from ctxlab.evaluation.metrics.closed_loop import (
    LATENCY_SECONDS,
    MAX_REFETCHES,
    ClosedLoopMetric,
)
from ctxlab.evaluation.results import Results
from ctxlab.evaluation.run_files import MANIFEST_FILE
from ctxlab.formats import FORMATS, LoadReport, OnError, OnSkip, load
from ctxlab.formats.filters import parse_condition
from ctxlab.formats.io.datasets import (
    BUNDLED_PREFIX,
    DATASET_PREFIX,
    bundled_path,
    data_dirs,
    resolve_dataset_path,
)
from ctxlab.formats.io.files import PathOrUrl, is_url
from ctxlab.formats.table.columns import parse_columns
from ctxlab.formats.table.hub import is_hub_name
from ctxlab.llm import CacheMode, default_client
from ctxlab.messages.types import Recording
from ctxlab.strategies import models_used
from ctxlab.strategies.baselines import newest_baselines
from ctxlab.strategies.registry import DEFAULT_LINEUP, METRIC_CONTROLS, parse_strategy
from ctxlab.tokens.cache_timeline import CacheTtl, CostSettings
from ctxlab.tokens.model_choice import ModelChoice
from ctxlab.tokens.profiles import TokenProfile
from ctxlab.tokens.reasoning import ReasoningMode

_LIST_KEYS = ("data", "where", "strategies", "limits", "metrics", "repeatable")
"keys with a list as value; a file may give a single value instead"


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """An experiment for ``run_experiment``. The fields are the keys of an experiment file.

    Short forms such as ``"16k"`` are expanded. Raises ``SpecError`` if a value is invalid; the
    message starts with the name of the field.

    Examples
    --------
    >>> Spec(data=("logs",), limits=("16k", "25%"), strategies=("full",)).limits
    (16000, 0.25)
    """

    data: tuple[str, ...]
    """files, folders, globs or URLs. ``bundled:NAME`` is a data set that comes with ctxlab, and
    ``dataset:NAME`` is one that ``ctxlab datasets`` downloads, and ``hf:OWNER/NAME`` one of the Hugging
    Face hub"""
    folder: str = ""
    "base folder of relative paths in ``data``; empty for the current folder"
    format: str | None = None
    "format of the files in ``data``; None detects the format of each file"
    columns: str | None = None
    "columns of tables by field, such as ``messages=history,id=key``; None recognises known names"
    clusters: str | None = None
    "TSV or CSV file that assigns clusters to files; None uses the clusters of the recordings"
    on_error: OnError = "raise"
    "handling of a malformed line: ``raise`` stops with an error, ``skip`` omits and counts the line"
    where: tuple[str, ...] = ()
    "conditions that recordings must meet, such as ``messages>=50`` or ``model=claude*``"
    sample: int | None = None
    "number of recordings to draw at random; None uses all"
    seed: int = 0
    "seed for drawing the sample"
    strategies: tuple[str, ...] = DEFAULT_LINEUP
    """strategies as strings; ``lineup`` is the default lineup, ``baselines`` is the newest baseline of
    every product, and ``metric_controls`` is every control of the metric"""
    limits: tuple[int | float | str, ...] = DEFAULT_LIMITS
    "integers are numbers of tokens; floats up to 1 are shares of each recording's length"
    model: str | None = None
    "model whose tokenizer, prices and rules apply; None takes the model of each recording"
    reserve: int = 0
    "tokens of the limit kept for the reply"
    cache_ttl: CacheTtl = "recorded"
    """lifetime of cache writes: ``5m``, ``1h``, or ``recorded``: as the bills of each recording show"""
    fixed: int | Literal["recorded"] = "recorded"
    """unlogged tokens of each request (system prompt and tool definitions) that its cost includes;
    ``recorded`` estimates them from the bills of each recording"""
    fixed_in_limit: bool = False
    "True to count these tokens in the limits, as a context window does"
    reasoning: ReasoningMode = "recorded"
    """hidden reasoning of earlier replies that requests contain: ``keep``, ``current_turn``, ``clear``,
    or ``auto``: by the rule of each model's provider. ``recorded`` does not count it"""
    metrics: tuple[str, ...] = DEFAULT_METRICS
    "names of the metrics to compute"
    closed_loop: bool = False
    """True to add the metric ``closed_loop``: the agent fetches again what it needs and no longer
    holds"""
    max_refetches: int = MAX_REFETCHES
    "maximum number of repeated calls before one action in the closed loop"
    repeatable: tuple[str, ...] = ()
    "further tools and commands that the agent can repeat in the closed loop, or cannot (``!NAME``)"
    latency: float = LATENCY_SECONDS
    "assumed time of one request in the closed loop, in seconds"
    min_recall: float = 0.95
    "minimum of the headline recall score, as a share of its value for full history"
    profiles: tuple[TokenProfile, ...] | None = None
    """calibrations of token counts, one per model family; None takes those stored in the project, and
    the built-in ones for other model families"""
    calls: CacheMode = "auto"
    """source of the replies to strategies' model calls: ``auto`` reads the cache ``.ctxlab/calls`` and
    calls the model if a reply is missing, ``replay`` only reads the cache, and ``record`` calls the
    model for every reply"""

    def __post_init__(self) -> None:
        """Expand short forms such as ``16k``, and check the values."""
        sets = {
            "lineup": DEFAULT_LINEUP,
            "baselines": newest_baselines(),
            "metric_controls": METRIC_CONTROLS,
        }
        texts = [text for name in self.strategies for text in sets.get(name, (name,))]
        put = msgspec.structs.force_setattr
        put(self, "strategies", tuple(dict.fromkeys(texts)))
        put(self, "limits", tuple(dict.fromkeys(map(parse_limit, self.limits))))
        loop = ("closed_loop",) if self.closed_loop else ()
        put(self, "metrics", tuple(dict.fromkeys((*self.metrics, *loop))))
        for key in ("data", "strategies", "limits", "metrics"):
            if not getattr(self, key):
                what = "file or folder" if key == "data" else "value"
                raise SpecError(f"{key}: expected at least one {what}, got an empty list")
        if "" in self.data:
            raise SpecError("data: expected a path, got ''; write . for the current folder")
        with prefix_errors("strategies"):
            for text in self.strategies:
                parse_strategy(text)
        with prefix_errors("metrics"):
            for name in self.metrics:
                require_known("metric", name, METRICS)
        self._closed_loop_metric()
        for condition in self.where:
            parse_condition(condition)
        if self.format is not None:
            require_known("format", self.format, FORMATS)
        parse_columns(self.columns)
        if self.sample is not None and self.sample < 1:
            raise SpecError(f"sample: expected at least 1 recording, got {self.sample}")
        if self.calls not in (modes := get_args(CacheMode)):
            raise SpecError(f"calls: expected {' or '.join(modes)}, got {self.calls!r}")
        if self.reserve < 0:
            raise SpecError(f"reserve: expected at least 0 tokens, got {self.reserve}")
        CostSettings(
            self.cache_ttl, self.fixed, self.fixed_in_limit, self.reasoning
        )  # raises SpecError if a value is invalid
        if not 0 <= self.min_recall <= 1:
            raise SpecError(f"min_recall: expected a share from 0 to 1, got {self.min_recall:g}")

    def _closed_loop_metric(self) -> ClosedLoopMetric:
        return ClosedLoopMetric(self.max_refetches, self.latency, self.repeatable)

    @property
    def chosen_metrics(self) -> tuple[Metric, ...]:
        """Metrics to compute, with their settings."""
        return tuple(
            self._closed_loop_metric() if name == "closed_loop" else METRICS[name]
            for name in self.metrics
        )

    @property
    def strategy_models(self) -> tuple[str, ...]:
        """Names of the models that the strategies call."""
        return models_used(*map(parse_strategy, self.strategies))

    @property
    def paths(self) -> tuple[PathOrUrl, ...]:
        """Paths and URLs of the data. Raises ``DataMissing`` if a data set is not downloaded yet."""
        return tuple(_resolve_path(path, self.folder) for path in self.data)

    def without_credentials(self) -> Spec:
        """Return the experiment with the credentials in its URLs hidden, to be stored or shown.

        Returns
        -------
        Spec
            The experiment. To read its data, the user must name such URLs again.
        """
        clusters = self.clusters and redact_urls(self.clusters)
        return replace(self, data=tuple(map(redact_urls, self.data)), clusters=clusters)

    @property
    def model_choice(self) -> ModelChoice:
        """Object that selects the model and the token counter of each recording."""
        return ModelChoice.from_options(self.model, self.profiles)

    def recordings(
        self, on_skip: OnSkip | None = None, report: LoadReport | None = None
    ) -> Iterator[Recording]:
        """Load the recordings, one at a time.

        Parameters
        ----------
        on_skip : callable, optional
            Called with a path and a reason for each file without a readable recording.
        report : LoadReport, optional
            Filled with the format or the kind of each file.

        Returns
        -------
        iterator of Recording
            Recordings that meet the conditions, or the sample drawn from them. Its length hint is
            estimated from the number of files that are left.

        Raises
        ------
        SpecError
            If no recording meets the conditions in ``where``.
        ReadError
            If a file cannot be read.
        """
        report = LoadReport() if report is None else report
        found = load(
            self.paths,
            format=self.format,
            columns=self.columns,
            clusters=None if self.clusters is None else _resolve_path(self.clusters, self.folder),
            on_error=self.on_error,
            on_skip=on_skip,
            report=report,
            where=self.where,
            sample=self.sample,
            seed=self.seed,
        )
        return _LoadedRecordings(_require_any(found), report, self.sample)


class _LoadedRecordings(Iterator[Recording]):
    """Recordings of files, with an estimate of how many are left."""

    def __init__(
        self, recordings: Iterator[Recording], report: LoadReport, sample: int | None
    ) -> None:
        self._recordings, self._report, self._sample = recordings, report, sample
        self._read = 0

    def __next__(self) -> Recording:
        recording = next(self._recordings)
        self._read += 1
        return recording

    def __length_hint__(self) -> int:
        if self._sample is not None:  # all files have been read when the first one is yielded
            return max(self._sample - self._read, 0)
        if not self._read:
            return self._report.found
        opened = len(self._report.files) + 1  # a file is reported when it has been read
        return round(max(self._report.found - opened, 0) * self._read / opened)


def read_spec(path: str | Path) -> Spec:
    """Read an experiment from a TOML file or a saved run.

    Parameters
    ----------
    path : str or Path
        TOML file, or the folder or manifest of a saved run. Relative paths in ``data`` are resolved
        against the folder that contains the file, or against the value of its key ``folder``.

    Returns
    -------
    Spec
        The experiment. Its ``folder`` is an absolute path.

    Raises
    ------
    ReadError
        If the file cannot be read.
    SpecError
        If a value is invalid or a key is unknown. The message names the file and the key.
    """
    path = Path(path)
    path = path / MANIFEST_FILE if path.is_dir() else path
    fields = read_table(path)
    with prefix_errors(path):
        for key, value in fields.items():
            require_known("key", key, Spec.__struct_fields__)
            if key in _LIST_KEYS and isinstance(value, (str, int, float)):
                fields[key] = [value]
        if "data" not in fields:
            raise SpecError("data: missing; add a list of files and folders to read")
        folder = fields.get("folder", "")
        if isinstance(folder, str):
            fields["folder"] = os.path.abspath(path.parent / Path(folder).expanduser())
        try:
            return msgspec.convert(fields, Spec)
        except msgspec.ValidationError as error:
            raise SpecError(_format_validation_error(error)) from None


def is_spec(path: str | Path) -> bool:
    """Check if a path refers to an experiment and not to recordings.

    Parameters
    ----------
    path : str or Path
        Path of a file or folder.

    Returns
    -------
    bool
        True if the path is a TOML file, or the folder or manifest of a saved run.
    """
    path = Path(path)
    if path.is_dir():
        return (path / MANIFEST_FILE).is_file() and (path / "requests.parquet").is_file()
    return path.suffix == ".toml" or path.name == MANIFEST_FILE


def run_experiment(
    spec: Spec,
    progress: bool | None = None,
    on_skip: OnSkip | None = None,
    folder: Path | None = None,
    retry_failed: bool = False,
    scheduler: str | None = None,
    share: tuple[int, int] = (1, 1),
) -> Results:
    """Load the recordings of an experiment one at a time, and evaluate the strategies on them.

    In the results, ``manifest["spec"]`` is the experiment, and ``manifest["left_out"]`` lists the
    files that were left out, for example because they contain no recording.

    Parameters
    ----------
    spec : Spec
        Experiment to run.
    progress : bool, optional
        Show a progress bar. None shows it only on a terminal.
    on_skip : callable, optional
        Called with the path and the reason for each file that is left out.
    folder : Path, optional
        Folder of the run, in which finished parts are stored (see ``evaluate``). It is not used if
        every model call is to be made anew.
    retry_failed : bool, default False
        Evaluate again the recordings whose evaluation failed before.
    scheduler : str, optional
        Address of a Dask scheduler that computes the parts, or ``"local"``.
    share : tuple of (int, int), default (1, 1)
        Share of the parts to compute (see ``evaluate``).

    Returns
    -------
    Results
        Measurements of each request, and the leaderboard.

    Raises
    ------
    SpecError
        If no recording meets the conditions in ``where``.
    ReadError
        If a file is malformed and the experiment does not skip errors (``on_error``).
    StrategyError
        If a strategy fails.
    ModelError
        If a model call of a strategy fails.
    RunIncomplete
        If the share is computed, and parts of other shares are missing.
    """
    left_out: list[dict[str, str]] = []

    def note(path: Path | str, reason: str) -> None:
        left_out.append({"file": _portable_path(path, spec), "reason": reason})
        if on_skip is not None:
            on_skip(path, reason)

    results = evaluate(
        spec.recordings(note),
        spec.strategies,
        spec.limits,
        spec.model,
        reserve=spec.reserve,
        cache_ttl=spec.cache_ttl,
        fixed=spec.fixed,
        fixed_in_limit=spec.fixed_in_limit,
        reasoning=spec.reasoning,
        metrics=spec.chosen_metrics,
        progress=progress,
        profile=spec.profiles,
        client=default_client(mode=spec.calls) if spec.strategy_models else None,
        folder=None if spec.calls == "record" and spec.strategy_models else folder,
        retry_failed=retry_failed,
        scheduler=scheduler,
        share=share,
        name_source=partial(_portable_path, spec=spec),
    )
    # Store strategies as the user wrote them: repr() would lose the dotted path of a custom strategy.
    results.manifest["spec"] = _spec_to_dict(spec, results.manifest["spec"]["profiles"])
    results.manifest["left_out"] = left_out
    return results


def _require_any(recordings: Iterator[Recording]) -> Iterator[Recording]:
    """Yield all recordings. Raise ``SpecError`` if there is none."""
    first = next(recordings, None)
    if first is None:
        raise SpecError("no recording meets the conditions in 'where'; relax or remove a condition")
    yield first
    yield from recordings


@contextmanager
def prefix_errors(where: str | Path) -> Iterator[None]:
    """Re-raise a ``CtxlabError`` of the ``with`` block as a ``SpecError`` with a prefixed message.

    Parameters
    ----------
    where : str or Path
        Prefix of the message: the file or the key with the invalid value.
    """
    try:
        yield
    except CtxlabError as error:
        raise SpecError(f"{where}: {error}") from None


def read_table(path: Path) -> dict[str, Any]:
    """Read the keys and values of a TOML file, or of the experiment in a manifest.

    Parameters
    ----------
    path : Path
        Manifest of a saved run if the name ends with ``.json``, otherwise a TOML file.

    Returns
    -------
    dict
        Values by key, not validated yet.

    Raises
    ------
    ReadError
        If the file cannot be read.
    SpecError
        If the file is not valid TOML, or is not the manifest of a saved run.
    """
    try:
        text = path.read_bytes()
        found = parse_json(text)["spec"] if path.suffix == ".json" else tomllib.loads(text.decode())
        return dict(found)
    except OSError as error:
        raise ReadError(path, None, error.strerror or str(error)) from None
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{path}: invalid TOML: {error}") from None
    except UnicodeDecodeError:
        raise SpecError(f"{path}: expected TOML, got a file that is not UTF-8") from None
    except (ValueError, TypeError, KeyError):
        raise SpecError(f"{path}: expected a manifest of a saved run, with the key spec") from None


def _format_validation_error(error: msgspec.ValidationError) -> str:
    """Move the key to the front of an error such as ``Expected `int`, got `str` - at `$.key```."""
    reason, _, where = str(error).partition(" - at `$")
    key = where.strip("`.").replace("[...]", "")
    reason = reason.replace("`", "").replace("array", "list").replace(" | null", "")
    return f"{key}: {reason[:1].lower()}{reason[1:]}" if key else reason


def _resolve_path(path: str, folder: str) -> PathOrUrl:
    if is_url(path) or is_hub_name(path):
        return path
    if (known := resolve_dataset_path(path)) is not None:
        return known
    inside = not folder or os.path.abspath(folder) == os.getcwd()
    return Path("" if inside else folder) / Path(path).expanduser()


def _portable_path(path: str | Path, spec: Spec) -> str:
    """Remove the folder of the data from a path, so that manifests do not depend on the computer."""
    text = str(path)
    if any(path.startswith(BUNDLED_PREFIX) for path in spec.data):
        text = text.replace(os.path.join(bundled_path("datasets"), ""), BUNDLED_PREFIX, 1)
    if any(path.startswith(DATASET_PREFIX) for path in spec.data):
        for home in data_dirs():
            text = text.replace(os.path.join(home, ""), DATASET_PREFIX, 1)
    return text.removeprefix(os.path.join(spec.folder, "")) if spec.folder else text


def _spec_to_dict(spec: Spec, profiles: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Convert a spec to JSON values.

    The paths in the field ``data`` of the spec may be relative to a folder. The key ``folder`` of the
    result is the absolute path of this folder, or an empty string if no path is relative.

    ``profiles`` are the calibrations of token counts that were used. They are stored so that a
    repeated run counts the same tokens on any computer.
    """
    found = all(
        path.startswith((BUNDLED_PREFIX, DATASET_PREFIX))
        or is_url(path)
        or is_hub_name(path)
        or Path(path).expanduser().is_absolute()
        for path in (*spec.data, *([spec.clusters] if spec.clusters else []))
    )
    folder = "" if found else os.path.abspath(spec.folder or ".")
    fields = msgspec.to_builtins(spec.without_credentials()) | {
        "folder": folder,
        "profiles": list(profiles),
    }
    return {k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()}
