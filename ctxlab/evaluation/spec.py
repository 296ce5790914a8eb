"""Experiment files: what to replay, through which strategies, under which limits.

A ``Spec`` is written in TOML, given on the command line, or read from a saved run::

    data = ["logs/", "bundled:support-desk"]    # files, folders, globs, URLs, named data sets
    strategies = ["lineup", "mine.last_ten"]    # default: the default lineup
    limits = [8000, "16k", 0.25, "25%"]         # tokens, or shares of each recording's own length
    model = "gpt-5"                             # default: each recording's own, for tokens and prices
    reserve = 1000                              # tokens kept for the reply
    where = ["messages>=50", "model=claude*"]   # which recordings; sample = 20 draws some of them
    metrics = ["usage", "validity", "cost", "recall"]
    calls = "auto"                              # for strategies that call a model: auto, record, replay
    min_recall = 0.95                           # far recall to keep, as a share of full history's
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import msgspec

from ctxlab._utils.humanize import parse_limit
from ctxlab._utils.jsonio import parse_json
from ctxlab.errors import CtxlabError, ReadError, SpecError, require_known
from ctxlab.evaluation.experiment import DEFAULT_LIMITS, evaluate
from ctxlab.evaluation.metrics import METRICS
from ctxlab.evaluation.results import MANIFEST_FILE, Results
from ctxlab.formats import FORMATS, OnError, OnSkip, load
from ctxlab.formats.filters import parse_condition
from ctxlab.formats.io.datasets import (
    BUNDLED_PREFIX,
    DATASET_PREFIX,
    bundled_path,
    data_dirs,
    resolve_dataset_path,
)
from ctxlab.formats.io.files import PathOrUrl, is_url
from ctxlab.llm import CacheMode, default_client
from ctxlab.messages.types import Recording
from ctxlab.strategies import models_used
from ctxlab.strategies.baselines import BASELINES
from ctxlab.strategies.registry import DEFAULT_LINEUP, parse_strategy
from ctxlab.tokens.model_choice import ModelChoice
from ctxlab.tokens.profiles import TokenProfile

_LIST_KEYS = ("data", "where", "strategies", "limits", "metrics")
"keys for whose list a single value may be written"


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """An experiment for ``run_experiment``; its fields are the keys of an experiment file.

    Short forms are expanded. Raises ``SpecError`` with the name of the field if a value is not
    valid.

    Examples
    --------
    >>> Spec(data=("logs",), limits=("16k", "25%"), strategies=("full",)).limits
    (16000, 0.25)
    """

    data: tuple[str, ...]
    """files, folders, globs or URLs; ``bundled:NAME`` is a data set that comes with ctxlab, and
    ``dataset:NAME`` one that ``ctxlab datasets`` downloads"""
    folder: str = ""
    "folder to which relative ``data`` is relative; empty: the current folder"
    format: str | None = None
    "format of the data; None detects it"
    on_error: OnError = "raise"
    "what to do with a broken line: ``raise`` stops, ``skip`` leaves it out and counts it"
    where: tuple[str, ...] = ()
    "conditions that recordings must meet, such as ``messages>=50`` or ``model=claude*``"
    sample: int | None = None
    "number of recordings to draw; None reads all"
    seed: int = 0
    "seed of the sample"
    strategies: tuple[str, ...] = DEFAULT_LINEUP
    "strategies as text; ``lineup`` is the default lineup, ``baselines`` the defaults of products"
    limits: tuple[int | float | str, ...] = DEFAULT_LIMITS
    "whole numbers are tokens; floats up to 1 are shares of each recording's own length"
    model: str | None = None
    "model whose tokenizer, prices and rules apply; None: each recording's own"
    reserve: int = 0
    "tokens kept for the reply"
    metrics: tuple[str, ...] = tuple(METRICS)
    "names of the metrics to compute"
    min_recall: float = 0.95
    "far recall that a recommended strategy must keep, as a share of full history's"
    profiles: tuple[TokenProfile, ...] | None = None
    "calibration of token counts by model family; None: the project's own, or the built-in one"
    calls: CacheMode = "auto"
    """source of replies to strategies' model calls: ``auto`` reads ``.ctxlab/calls`` and asks for
    the rest, ``replay`` only reads it, ``record`` asks for everything anew"""

    def __post_init__(self) -> None:
        """Expand short forms and check the values."""
        sets = {"lineup": DEFAULT_LINEUP, "baselines": tuple(BASELINES)}
        texts = [text for name in self.strategies for text in sets.get(name, (name,))]
        put = msgspec.structs.force_setattr
        put(self, "strategies", tuple(dict.fromkeys(texts)))
        put(self, "limits", tuple(dict.fromkeys(map(parse_limit, self.limits))))
        put(self, "metrics", tuple(dict.fromkeys(self.metrics)))
        for key in ("data", "strategies", "limits", "metrics"):
            if not getattr(self, key):
                what = "file or folder" if key == "data" else "value"
                raise SpecError(f"{key}: name at least one {what}")
        if "" in self.data:
            raise SpecError("data: a path is empty; write . for the current folder")
        with prefix_errors("strategies"):
            for text in self.strategies:
                parse_strategy(text)
        with prefix_errors("metrics"):
            for name in self.metrics:
                require_known("metric", name, METRICS)
        for condition in self.where:
            parse_condition(condition)
        if self.format is not None:
            require_known("format", self.format, FORMATS)
        if self.sample is not None and self.sample < 1:
            raise SpecError(f"sample: expected at least 1, got {self.sample}")
        if self.calls not in (modes := get_args(CacheMode)):
            raise SpecError(f"calls: expected {' or '.join(modes)}, got {self.calls!r}")
        if self.reserve < 0:
            raise SpecError(f"reserve: expected at least 0 tokens, got {self.reserve}")
        if not 0 <= self.min_recall <= 1:
            raise SpecError(f"min_recall: expected a share from 0 to 1, got {self.min_recall:g}")

    @property
    def strategy_models(self) -> tuple[str, ...]:
        """Models that the strategies call."""
        return models_used(*map(parse_strategy, self.strategies))

    @property
    def paths(self) -> tuple[PathOrUrl, ...]:
        """Paths and URLs of the data. Raises ``DataMissing`` if a named data set is not downloaded."""
        return tuple(_resolve_path(path, self.folder) for path in self.data)

    @property
    def model_choice(self) -> ModelChoice:
        """Chooses the model and counter of each recording."""
        return ModelChoice.from_options(self.model, self.profiles)

    def recordings(self, on_skip: OnSkip | None = None) -> Iterator[Recording]:
        """Load the recordings, one at a time.

        Parameters
        ----------
        on_skip : callable, optional
            Called with the path of a file that gave no recording, and the reason.

        Returns
        -------
        iterator of Recording
            The recordings.

        Raises
        ------
        SpecError
            If no recording meets the conditions.
        ReadError
            If a file cannot be read.
        """
        found = load(
            self.paths,
            format=self.format,
            on_error=self.on_error,
            on_skip=on_skip,
            where=self.where,
            sample=self.sample,
            seed=self.seed,
        )
        return _require_any(found)


def read_spec(path: str | Path) -> Spec:
    """Read an experiment from a TOML file or a saved run.

    Parameters
    ----------
    path : str or Path
        The file, or the folder or manifest of a saved run. Relative ``data`` is relative to the
        file.

    Returns
    -------
    Spec
        The experiment.

    Raises
    ------
    ReadError
        If the file cannot be read.
    SpecError
        If a value is not valid or a key is unknown; the message names file and key.
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
            raise SpecError("the key data is missing; list the files and folders to read")
        folder = fields.get("folder", "")
        if isinstance(folder, str):
            fields["folder"] = os.path.abspath(path.parent / Path(folder).expanduser())
        try:
            return msgspec.convert(fields, Spec)
        except msgspec.ValidationError as error:
            raise SpecError(_format_validation_error(error)) from None


def is_spec(path: str | Path) -> bool:
    """Check if a path is an experiment instead of data.

    Parameters
    ----------
    path : str or Path
        The path.

    Returns
    -------
    bool
        True for a TOML file, and for the folder or manifest of a saved run.
    """
    path = Path(path)
    if path.is_dir():
        return (path / MANIFEST_FILE).is_file() and (path / "requests.parquet").is_file()
    return path.suffix == ".toml" or path.name == MANIFEST_FILE


def run_experiment(
    spec: Spec, progress: bool | None = None, on_skip: OnSkip | None = None
) -> Results:
    """Load the data of an experiment, one recording at a time, and evaluate it.

    ``manifest["spec"]`` of the result is the experiment, and ``manifest["left_out"]`` lists the
    files that gave no recording.

    Parameters
    ----------
    spec : Spec
        The experiment.
    progress : bool, optional
        Show a progress bar. None shows it on a terminal.
    on_skip : callable, optional
        Called with the path of a file that gave no recording, and the reason.

    Returns
    -------
    Results
        Figures of each request, and the leaderboard.

    Raises
    ------
    SpecError
        If no recording meets the conditions.
    ReadError
        If a file cannot be read.
    StrategyError
        If a strategy fails.
    ModelError
        If a model call of a strategy fails.
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
        metrics=spec.metrics,
        progress=progress,
        profile=spec.profiles,
        client=default_client(mode=spec.calls) if spec.strategy_models else None,
    )
    # Keep strategies as written: a user's own strategy is found by its dotted path.
    results.manifest["spec"] = _spec_to_dict(spec, results.manifest["spec"]["profiles"])
    results.manifest["left_out"] = left_out
    for recording in results.manifest["recordings"]:
        recording["source"] = _portable_path(recording["source"], spec)
    return results


def _require_any(recordings: Iterator[Recording]) -> Iterator[Recording]:
    """Raise ``SpecError`` if no recording meets the conditions."""
    first = next(recordings, None)
    if first is None:
        raise SpecError("no recording meets the conditions")
    yield first
    yield from recordings


@contextmanager
def prefix_errors(where: str | Path) -> Iterator[None]:
    """Raise each ``CtxlabError`` of the block as a ``SpecError`` that starts with the place.

    Parameters
    ----------
    where : str or Path
        The file or key.
    """
    try:
        yield
    except CtxlabError as error:
        raise SpecError(f"{where}: {error}") from None


def read_table(path: Path) -> dict[str, Any]:
    """Read a TOML file, or the experiment of a manifest.

    Parameters
    ----------
    path : Path
        The file; JSON if its name ends so.

    Returns
    -------
    dict
        The keys.

    Raises
    ------
    ReadError
        If the file cannot be read.
    SpecError
        If it is not TOML, or not the manifest of a run.
    """
    try:
        text = path.read_bytes()
        found = parse_json(text)["spec"] if path.suffix == ".json" else tomllib.loads(text.decode())
        return dict(found)
    except OSError as error:
        raise ReadError(path, None, error.strerror or str(error)) from None
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{path}: not TOML: {error}") from None
    except UnicodeDecodeError:
        raise SpecError(f"{path}: not UTF-8 text") from None
    except (ValueError, TypeError, KeyError):
        raise SpecError(f"{path}: not the manifest of a run: it has no spec") from None


def _format_validation_error(error: msgspec.ValidationError) -> str:
    """Rewrite msgspec's ``Expected `int`, got `str` - at `$.reserve``` with the key first."""
    reason, _, where = str(error).partition(" - at `$")
    key = where.strip("`.").replace("[...]", "")
    reason = reason.replace("`", "").replace("array", "list").replace(" | null", "")
    return f"{key}: {reason[:1].lower()}{reason[1:]}" if key else reason


def _resolve_path(path: str, folder: str) -> PathOrUrl:
    if is_url(path):
        return path
    if (known := resolve_dataset_path(path)) is not None:
        return known
    inside = not folder or os.path.abspath(folder) == os.getcwd()
    return Path("" if inside else folder) / Path(path).expanduser()


def _portable_path(path: str | Path, spec: Spec) -> str:
    """Return a file relative to ``data``, so that a run repeated elsewhere has the same manifest."""
    text = str(path)
    if any(path.startswith(BUNDLED_PREFIX) for path in spec.data):
        text = text.replace(os.path.join(bundled_path("datasets"), ""), BUNDLED_PREFIX, 1)
    if any(path.startswith(DATASET_PREFIX) for path in spec.data):
        for home in data_dirs():
            text = text.replace(os.path.join(home, ""), DATASET_PREFIX, 1)
    return text.removeprefix(os.path.join(spec.folder, "")) if spec.folder else text


def _spec_to_dict(spec: Spec, profiles: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Convert a spec to JSON values, with an absolute folder if one is needed.

    ``profiles`` are those that were used, so that a run repeated elsewhere counts the same.
    """
    found = all(
        path.startswith((BUNDLED_PREFIX, DATASET_PREFIX))
        or is_url(path)
        or Path(path).expanduser().is_absolute()
        for path in spec.data
    )
    folder = "" if found else os.path.abspath(spec.folder or ".")
    fields = msgspec.to_builtins(spec) | {"folder": folder, "profiles": list(profiles)}
    return {k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()}
