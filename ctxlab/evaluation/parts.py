"""Store the measurements of an evaluation in parts, so that a stopped run can be continued.

The recordings are cut into buckets of about equal size. A part is a folder with the measurements of one
bucket under some configurations (strategies × limits). Its name is a hash of everything that the
measurements depend on: the contents of the recordings, the configurations, the options, and the code and
libraries that compute them. A part is written beside its place and then renamed, so it is complete or
missing, whenever the process stops. Several processes may write parts to the same folder.

``part.json`` lists the recordings, and the hashes of the other files. A part whose files do not have
these hashes is damaged. It is removed and computed again.
"""

from __future__ import annotations

import gc
import hashlib
import inspect
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from uuid import uuid4

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ctxlab._utils.jsonio import dump_json, parse_json
from ctxlab.errors import ModelError
from ctxlab.evaluation.addresses import (
    AddressError,
    RecordingAddress,
    find_addresses,
    read_addresses,
)
from ctxlab.evaluation.draws import DrawSums
from ctxlab.evaluation.fingerprint import recording_digest
from ctxlab.evaluation.grid import ExperimentGrid
from ctxlab.evaluation.metrics.base import FloatArray
from ctxlab.evaluation.metrics.compactions import CompactionRows
from ctxlab.evaluation.metrics.strategy_calls import GeneratedText, StrategyCalls
from ctxlab.evaluation.results_builder import ReplayOutcome, library_versions
from ctxlab.evaluation.run_files import UNFINISHED_PREFIX
from ctxlab.llm.base import ModelCall
from ctxlab.messages.types import Recording, count_message_chars
from ctxlab.strategies.base import FunctionStrategy, walk_strategies
from ctxlab.tokens.models import find_model_without_warning

PARTS_FOLDER = "parts"
"""Name of the folder inside of a run's folder that contains the parts."""

BUCKET_CHARS = 1_000_000
"""Characters of a bucket, about 250,000 tokens: a few seconds of work, and few files for long runs."""

TASK_CHARS = 2_000_000
"""Characters of a recording, about 500,000 tokens, from which its strategies are divided among tasks, so
that it does not hold up the end of a run. Each task counts its tokens again, or finds them stored."""

_PART_FILE = "part.json"
_FIGURES_FILE, _COMPACTIONS_FILE = "figures.parquet", "compactions.parquet"
_TEMPORARY = ".writing-"
_CURRENT = f"{UNFINISHED_PREFIX}current-"
"prefix of the file that names the recording which is evaluated"

_EXHAUSTED = "not enough memory; use fewer processes, or --retry-failed where more is free"
_KILLED = (
    "processes that evaluated this recording ended unexpectedly, perhaps out of memory; use fewer "
    "processes, or --retry-failed where more is free"
)

Cell: TypeAlias = tuple[str, float]
"""A configuration: a strategy as text, and a limit."""


class Bucket(NamedTuple):
    """Recordings that are evaluated together."""

    key: str
    "hash of the recordings and of the models that count and price them"
    recordings: tuple[Recording | RecordingAddress, ...]
    "recordings, in the order of the run, or their addresses"
    digests: tuple[str, ...]
    "digest of the contents of each recording"
    chars: int
    "characters of all recordings"


class PartTask(NamedTuple):
    """Work that is missing: a bucket, and the strategies and limits to evaluate."""

    bucket: Bucket
    "recordings to evaluate"
    strategies: tuple[str, ...]
    "strategies as texts"
    limits: tuple[float, ...]
    "limits, in tokens or as fractions"
    watched: bool = False
    "True if a process died that computed the task: note which recording is evaluated"
    lost: frozenset[int] = frozenset()
    "numbers of recordings during which processes died; they are not evaluated again"

    @property
    def name(self) -> str:
        """Text that differs from the names of all other tasks of the run."""
        return f"{self.bucket.key}-{_hash([self.strategies, self.limits])}"


class StoredRecording(NamedTuple):
    """Measurements of one recording under the configurations of a part."""

    outcome: ReplayOutcome | None
    "None if the evaluation of the recording failed"
    description: dict[str, Any]
    "manifest entry; of a recording that failed, its name, cluster, source and digest"
    reason: str = ""
    "message of the error, if the evaluation failed"


class _Part(NamedTuple):
    folder: Path
    cells: dict[Cell, str]
    "key of each configuration"
    recordings: list[dict[str, Any]]
    unsaved: Sequence[StoredRecording] = ()
    "measurements, if the part could not be written"

    @property
    def has_failures(self) -> bool:
        return any("reason" in each for each in self.recordings)


class ComputedPart(NamedTuple):
    """A part that was computed, and written if possible; or nothing if the input was unreadable."""

    bucket: str
    "key of the bucket"
    task: str
    "name of the task"
    unsaved: _Part | None = None
    "the part, if it could not be written; it is then only in memory"
    reason: str = ""
    "error of the file system, if the part could not be written"
    unreadable: AddressError | None = None
    "file without the planned contents, so that nothing was computed"


@dataclass(frozen=True)
class PartStore:
    """The parts in the folder of a run.

    Parameters
    ----------
    folder : Path
        Folder of the run.
    grid : ExperimentGrid
        Strategies, limits and options of the run.
    retry_failed : bool, default False
        Evaluate recordings again whose evaluation failed.
    """

    folder: Path
    grid: ExperimentGrid
    retry_failed: bool = False

    def __post_init__(self) -> None:
        """Compute what can be random or change, before worker processes copy the store."""
        _ = self._cell_keys, self._new_folders

    @cached_property
    def _new_folders(self) -> list[Path]:
        """Folders that do not exist before the run, which leaves none of them empty."""
        return [each for each in (self.folder, *self.folder.parents) if not each.exists()]

    @property
    def place(self) -> Path:
        """Folder that contains the parts."""
        return self.folder / PARTS_FOLDER

    def cut(self, recordings: Iterable[Recording]) -> Iterator[Bucket]:
        """Cut recordings into buckets, in order.

        Parameters
        ----------
        recordings : iterable of Recording
            Recordings of the run.

        Yields
        ------
        Bucket
            The next bucket.
        """
        held: list[Recording] = []
        chars = 0
        for recording in recordings:
            held.append(recording)
            chars += sum(map(count_message_chars, recording.messages))
            if chars >= BUCKET_CHARS:
                yield self._make_bucket(held, chars)
                held, chars = [], 0
        if held:
            yield self._make_bucket(held, chars)

    def find_missing(self, bucket: Bucket) -> list[PartTask]:
        """Find what no part of a bucket contains yet. Damaged parts are removed.

        Parameters
        ----------
        bucket : Bucket
            Recordings to evaluate.

        Returns
        -------
        list of PartTask
            Tasks that compute the missing configurations; several for a long recording.
        """
        if self.retry_failed:
            for part in self._parts_of(bucket.key):
                if part.has_failures:
                    shutil.rmtree(part.folder)
        finished = self._finished_cells(bucket.key)
        limits: dict[tuple[str, ...], list[float]] = {}
        for limit in self.grid.limits:
            names = map(repr, self.grid.strategies)
            absent = tuple(n for n in names if self._cell_keys[n, limit] not in finished)
            if absent:
                limits.setdefault(absent, []).append(limit)
        pieces = 1 + bucket.chars // TASK_CHARS
        tasks = []
        for absent, found in limits.items():
            size = -(-len(absent) // pieces)
            groups = (absent[start : start + size] for start in range(0, len(absent), size))
            tasks += [PartTask(bucket, group, tuple(found)) for group in groups]
        return tasks

    def remove_failures(self) -> None:
        """Remove all parts with recordings whose evaluation failed."""
        for folder in self.place.glob("*/[!.]*"):
            part = _check_part(folder)
            if part is None or part.has_failures:
                shutil.rmtree(folder)
            self._remove_empty(folder.parent)

    def _remove_empty(self, place: Path) -> None:
        for empty in (place, self.place, *self._new_folders):
            with suppress(OSError):  # it has other parts
                empty.rmdir()

    def count_incomplete(self, keys: Iterable[str]) -> int:
        """Count the buckets for which parts are missing.

        Parameters
        ----------
        keys : iterable of str
            Keys of the buckets.

        Returns
        -------
        int
            Number of buckets.
        """
        wanted = set(self._cell_keys.values())
        return sum(not wanted <= self._finished_cells(key) for key in keys)

    def _finished_cells(self, key: str) -> set[str]:
        return {cell for part in self._parts_of(key) for cell in part.cells.values()}

    def compute(self, task: PartTask) -> ComputedPart:
        """Evaluate the recordings of a task, and write the part.

        A recording whose evaluation fails is stored with the reason. If it exhausts the memory, it is
        evaluated once more. Errors of models are raised, because a later run may succeed.

        Parameters
        ----------
        task : PartTask
            Bucket and configurations.

        Returns
        -------
        ComputedPart
            Key of the bucket, and the measurements if the part could not be written.
        """
        chosen = tuple(s for s in self.grid.strategies if repr(s) in task.strategies)
        grid = replace(self.grid, strategies=chosen, limits=task.limits)
        try:
            recordings = read_addresses(task.bucket.recordings)
        except AddressError as error:
            return ComputedPart(task.bucket.key, task.name, unreadable=error)
        found: list[StoredRecording] = []
        for number, recording in enumerate(recordings):
            if number in task.lost:
                found.append(StoredRecording(None, _describe(recording), _KILLED))
                continue
            if task.watched:
                self._note_current(task, number)
            try:
                outcome = _evaluate_twice(grid, recording)
                found.append(StoredRecording(outcome, outcome.description))
            except (ModelError, OSError):
                raise
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
                if _is_memory_error(error):
                    reason = f"MemoryError: {_EXHAUSTED}"
                found.append(StoredRecording(None, _describe(recording), reason))
        if task.watched:
            self._current_file(task).unlink(missing_ok=True)
        try:
            self._write(task.bucket, grid, found)
        except OSError as error:
            cells = {cell: self._cell_keys[cell] for cell in grid.configurations}
            part = _Part(self.place / task.bucket.key, cells, [], found)
            return ComputedPart(task.bucket.key, task.name, part, str(error))
        return ComputedPart(task.bucket.key, task.name)

    def with_addresses(self, task: PartTask, without: Collection[str] = ()) -> PartTask:
        """Replace the recordings of a task by their addresses, where their files can be read.

        Parameters
        ----------
        task : PartTask
            Task with the contents of its recordings.
        without : collection of str
            Formats of recordings whose contents are kept.

        Returns
        -------
        PartTask
            Task to send.
        """
        bucket = task.bucket
        found = find_addresses(bucket.recordings, bucket.digests, without)
        return task._replace(bucket=bucket._replace(recordings=found))

    def replace_killed(self, task: PartTask) -> PartTask:
        """Return the task to compute after a process died that computed a task.

        The first time, it is computed again, and the process notes which recording it evaluates. If it
        dies again, this recording is left out.

        Parameters
        ----------
        task : PartTask
            Task that was not finished.

        Returns
        -------
        PartTask
            Task to compute instead.
        """
        if task.watched:
            file = self._current_file(task)
            with suppress(OSError, ValueError):  # the process died before it evaluated a recording
                task = task._replace(lost=task.lost | {int(file.read_text())})
                file.unlink()
        return task._replace(watched=True)

    def _current_file(self, task: PartTask) -> Path:
        return self.folder / f"{_CURRENT}{task.name}"

    def _note_current(self, task: PartTask, number: int) -> None:
        with suppress(OSError):  # a full disk
            self.folder.mkdir(parents=True, exist_ok=True)
            self._current_file(task).write_text(str(number))

    def read(
        self, key: str, sources: Sequence[str | None], unsaved: Sequence[_Part] = ()
    ) -> Iterator[StoredRecording]:
        """Read the measurements of a bucket under all configurations of the run.

        Parameters
        ----------
        key : str
            Key of the bucket, which has no missing parts.
        sources : sequence of str or None
            Where each recording was read from in this run.
        unsaved : sequence of parts
            Parts of the bucket that could not be written.

        Yields
        ------
        StoredRecording
            The recordings of the bucket, in order.
        """
        parts = [*self._parts_of(key), *unsaved]
        where = {
            cell: (number, row)
            for number, part in enumerate(parts)
            for row, cell in enumerate(part.cells.values())
        }
        chosen = [where[self._cell_keys[cell]] for cell in self.grid.configurations]
        used = sorted({number for number, _ in chosen})  # others have only other strategies
        for source, *found in zip(sources, *(_read_part(parts[i]) for i in used), strict=True):
            failed = [each for each in found if each.outcome is None]
            entry = {**(failed or found)[0].description, "source": source}
            if failed:
                yield StoredRecording(None, entry, failed[0].reason)
            else:
                outcomes = {
                    i: each.outcome for i, each in zip(used, found, strict=True) if each.outcome
                }
                outcome = _join(outcomes, chosen)
                yield StoredRecording(outcome._replace(description=entry), entry)
        for left in (self.place / key).glob(f"{_TEMPORARY}*"):  # of processes that were killed
            shutil.rmtree(left, ignore_errors=True)
        for file in self.folder.glob(f"{_CURRENT}{key}-*"):
            file.unlink(missing_ok=True)

    def _make_bucket(self, recordings: Sequence[Recording], chars: int) -> Bucket:
        digests = tuple(map(recording_digest, recordings))
        return Bucket(self._bucket_key(recordings, digests), tuple(recordings), digests, chars)

    def _bucket_key(self, recordings: Sequence[Recording], digests: Sequence[str]) -> str:
        identities = []
        for recording, digest in zip(recordings, digests, strict=True):
            model = self.grid.model_choice.model_name_for(recording)
            known = find_model_without_warning(model)
            rules = msgspec.to_builtins([known.prices, known.cache])
            place = [recording.id, recording.cluster, model, rules]
            profiles = msgspec.to_builtins(self.grid.model_choice.profiles_for([model]))
            identities.append([digest, *place, profiles])
        return _hash(identities)

    @cached_property
    def _cell_keys(self) -> dict[Cell, str]:
        """Hash of each configuration with everything else that its measurements depend on."""
        grid = self.grid
        options = [
            *(_code_hash(), library_versions(), grid.reserve, msgspec.to_builtins(grid.costs)),
            [
                [repr(type(metric)), repr(vars(metric)), _own_code(metric)]
                for metric in grid.metrics
            ],
        ]
        return {
            (repr(strategy), limit): _hash([options, repr(strategy), limit, _own_code(strategy)])
            for strategy in grid.strategies
            for limit in grid.limits
        }

    def _parts_of(self, key: str) -> list[_Part]:
        """Return the parts of a bucket that are not damaged. Remove the others."""
        found = []
        for folder in sorted((self.place / key).glob("[!.]*")):
            part = _check_part(folder)
            if part is None:
                shutil.rmtree(folder)
            else:
                found.append(part)
        return found

    def _write(self, bucket: Bucket, grid: ExperimentGrid, found: list[StoredRecording]) -> None:
        """Write a part: all of it, or nothing."""
        place = self.place / bucket.key
        cells = {cell: self._cell_keys[cell] for cell in grid.configurations}
        outcomes = [each.outcome for each in found if each.outcome and each.outcome.columns]
        part = place / _hash([*cells.values()])
        place.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=place))
        try:
            figures = {
                name: np.concatenate([each.columns[name].ravel() for each in outcomes])
                for name in (grid.columns if outcomes else ())
            }
            pq.write_table(pa.table(figures), beside / _FIGURES_FILE)
            changes = [each.outcome.compactions for each in found if each.outcome]
            rows = CompactionRows.concatenate(changes)._asdict() if changes else {}
            pq.write_table(pa.table(rows), beside / _COMPACTIONS_FILE)
            names = (_FIGURES_FILE, _COMPACTIONS_FILE)
            listed = {
                "cells": [[*cell, key] for cell, key in cells.items()],
                "recordings": [_to_json(each) for each in found],
                "files": {name: _file_hash(beside / name) for name in names},
            }
            text = dump_json(listed)
            (beside / _PART_FILE).write_text(f"{text}\n{_hash(text)}\n", encoding="utf-8")
            beside.rename(part)
        except OSError:
            if not part.is_dir():  # no other process wrote the same part
                raise
        finally:
            shutil.rmtree(beside, ignore_errors=True)
            self._remove_empty(place)


def _evaluate_twice(grid: ExperimentGrid, recording: Recording) -> ReplayOutcome:
    """Evaluate a recording; if the memory is exhausted, free what is unused and try once more."""
    try:
        return grid.evaluate_recording(recording)
    except Exception as error:
        if not _is_memory_error(error):
            raise
    gc.collect()  # what the traceback held can be freed only after the block
    return grid.evaluate_recording(recording)


def _is_memory_error(error: Exception) -> bool:
    return isinstance(error.__cause__ or error, MemoryError)  # the cause of a StrategyError


def read_identities(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the descriptions of the recordings in the parts of a run.

    Parameters
    ----------
    folder : Path
        Folder of the run.

    Yields
    ------
    dict
        Manifest entry of a recording, once for each bucket that contains it.
    """
    for place in sorted((folder / PARTS_FOLDER).glob("*")):
        parts = filter(None, map(_check_part, sorted(place.glob("[!.]*"))))
        for part in parts:
            yield from (each["description"] for each in part.recordings if "reason" not in each)
            break


def _check_part(folder: Path) -> _Part | None:
    """Return what ``part.json`` lists; None if a file of the part is missing or damaged."""
    try:
        text, digest = (folder / _PART_FILE).read_text(encoding="utf-8").splitlines()
        if _hash(text) != digest:
            return None
        listed = parse_json(text.encode())
        for name, expected in listed["files"].items():
            if _file_hash(folder / name) != expected:
                return None
    except (OSError, ValueError):
        return None
    cells = {(name, float(limit)): key for name, limit, key in listed["cells"]}
    return _Part(folder, cells, listed["recordings"])


def _read_part(part: _Part) -> Iterator[StoredRecording]:
    """Yield the measurements of each recording of a part."""
    if part.unsaved:
        yield from part.unsaved
        return
    figures = _read_columns(part.folder / _FIGURES_FILE)
    changes = _read_columns(part.folder / _COMPACTIONS_FILE)
    at = changed = 0
    for stored in part.recordings:
        description = stored["description"]
        if "reason" in stored:
            yield StoredRecording(None, description, stored["reason"])
            continue
        shape = len(part.cells), stored["requests"]
        columns: dict[str, FloatArray] = {}
        rows = slice(changed, changed + stored["compactions"])
        if stored["requests"]:
            stop = at + shape[0] * shape[1]
            columns = {name: values[at:stop].reshape(shape) for name, values in figures.items()}
            at, changed = stop, rows.stop
        calls = [ModelCall(**call | {"usd": _to_nan(call["usd"])}) for call in stored["calls"]]
        texts = {
            name: [GeneratedText(*t) for t in found] for name, found in stored["texts"].items()
        }
        draws: DrawSums = {
            int(row): {name: np.array(values) for name, values in sums.items()}
            for row, sums in stored["draws"].items()
        }
        outcome = ReplayOutcome(
            *(description, stored["token_limits"], columns, StrategyCalls(calls, texts), draws),
            CompactionRows(**{name: values[rows] for name, values in changes.items()}),
        )
        yield StoredRecording(outcome, description)


def _to_json(stored: StoredRecording) -> dict[str, Any]:
    outcome = stored.outcome
    if outcome is None:
        return {"description": stored.description, "reason": stored.reason}
    calls = [call._asdict() for call in outcome.strategy_calls.calls]
    return {
        "description": stored.description,
        "token_limits": outcome.token_limits,
        "requests": next((each.shape[1] for each in outcome.columns.values()), 0),
        "compactions": len(outcome.compactions.request),
        "calls": [call | {"usd": _from_nan(call["usd"])} for call in calls],
        "texts": outcome.strategy_calls.texts_by_strategy,
        "draws": {
            str(row): {name: values.tolist() for name, values in sums.items()}
            for row, sums in outcome.draw_sums.items()
        },
    }


def _from_nan(value: float) -> float | None:
    return None if value != value else value  # JSON has no nan


def _to_nan(value: float | None) -> float:
    return float("nan") if value is None else value


def _join(
    outcomes: Mapping[int, ReplayOutcome], chosen: Sequence[tuple[int, int]]
) -> ReplayOutcome:
    """Join the measurements of one recording from several parts.

    ``chosen`` has for each configuration the number of the part, and the row in it.
    """
    used = [outcomes[number] for number in dict.fromkeys(number for number, _ in chosen)]
    calls = [call for each in used for call in each.strategy_calls.calls]
    texts: dict[str, list[GeneratedText]] = {}
    for each in used:
        texts |= each.strategy_calls.texts_by_strategy
    if not used[0].columns:
        return used[0]._replace(strategy_calls=StrategyCalls(calls, texts))
    changes = []
    for place, (number, row) in enumerate(chosen):
        rows = outcomes[number].compactions
        picked = CompactionRows(*(values[rows.configuration == row] for values in rows))
        changes.append(picked._replace(configuration=np.full(len(picked.request), place)))
    return ReplayOutcome(
        used[0].description,
        [outcomes[number].token_limits[row] for number, row in chosen],
        {
            name: np.stack([outcomes[number].columns[name][row] for number, row in chosen])
            for name in used[0].columns
        },
        StrategyCalls(calls, texts),
        {
            place: outcomes[number].draw_sums[row]
            for place, (number, row) in enumerate(chosen)
            if row in outcomes[number].draw_sums
        },
        CompactionRows.concatenate(changes),
    )


def _read_columns(path: Path) -> dict[str, Any]:
    table = pq.read_table(path)
    return {name: table[name].to_numpy() for name in table.column_names}


def _describe(recording: Recording) -> dict[str, Any]:
    return {
        "recording": recording.id,
        "cluster": recording.cluster or recording.id,
        "source": recording.source,
        "digest": recording_digest(recording),
    }


def _hash(value: Any) -> str:
    text = value if isinstance(value, str) else dump_json(value)
    data = text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _file_hash(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()


@lru_cache(maxsize=1)
def _code_hash() -> str:
    """Hash of the code and the data of the packages that compute measurements."""
    names = (
        "messages",
        "tokens",
        "context",
        "formats",
        "llm",
        "strategies",
        "evaluation",
        "_utils",
    )
    home, digest = Path(str(files("ctxlab"))), hashlib.blake2b(digest_size=16)
    for name in names:
        for path in sorted((home / name).rglob("*")):
            if path.suffix in (".py", ".toml", ".json", ".md", ".tsv"):
                digest.update(path.relative_to(home).as_posix().encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()


def _own_code(thing: object) -> list[str]:
    """Hash the modules outside of ctxlab that define a metric, or a strategy and those inside of it.

    What is defined in a notebook or an interactive session can change at any time. It gets a new value
    each time, so that it is always computed again.
    """
    found = []
    for each in [thing, *walk_strategies(thing)]:
        code = each.function if isinstance(each, FunctionStrategy) else type(each)
        module = getattr(code, "__module__", None) or ""
        if module.split(".")[0] != "ctxlab":
            with suppress(TypeError, OSError):
                found.append(_file_hash(Path(inspect.getsourcefile(code) or "")))
                continue
            found.append(uuid4().hex)
    return found
