"""Run an experiment: replay recordings through a grid of strategies × limits.

The outer loop is over recordings. Each is replayed through every configuration of the grid and then
released from memory.
"""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple
from warnings import warn

from ctxlab._utils.jsonio import dump_json, parse_json
from ctxlab._utils.progress import Counted, show_count, track
from ctxlab.errors import DataMissing, RunIncomplete, SpecError, StrategyError
from ctxlab.evaluation.executors import Executor, choose_executor
from ctxlab.evaluation.grid import DEFAULT_LIMITS, ExperimentGrid, StrategyLike, as_list
from ctxlab.evaluation.metrics import DEFAULT_METRICS, METRICS, Metric
from ctxlab.evaluation.metrics.closed_loop import ClosedLoopMetric
from ctxlab.evaluation.parallel import default_worker_count, map_parallel
from ctxlab.evaluation.parts import ComputedPart, PartStore, PartTask
from ctxlab.evaluation.recording_table import RECORDINGS_FILE, RecordingWriter
from ctxlab.evaluation.results import Results
from ctxlab.evaluation.results_builder import ResultsBuilder
from ctxlab.evaluation.run_files import (
    COMPACTIONS_FILE,
    REQUESTS_FILE,
    RUNS_FILE,
    replace_run_files,
    write_manifest,
)
from ctxlab.evaluation.tables import TableWriter
from ctxlab.llm import MAX_CONCURRENT_CALLS, default_client
from ctxlab.llm.base import Client, split_for_workers
from ctxlab.llm.batch import add_cache_hint
from ctxlab.messages.types import Recording, check_recordings
from ctxlab.strategies.registry import DEFAULT_LINEUP
from ctxlab.tokens.cache_timeline import CacheTtl, CostSettings
from ctxlab.tokens.counter import DEFAULT_MODEL
from ctxlab.tokens.encodings import find_encoding_name, load_encoding
from ctxlab.tokens.profiles import TokenProfile
from ctxlab.tokens.reasoning import ReasoningMode


def evaluate(
    recordings: Iterable[Recording],
    strategies: StrategyLike | Iterable[StrategyLike] = DEFAULT_LINEUP,
    limits: float | str | Iterable[float | str] = DEFAULT_LIMITS,
    model: str | None = None,
    *,
    reserve: int = 0,
    cache_ttl: CacheTtl = "recorded",
    fixed: int | Literal["recorded"] = "recorded",
    fixed_in_limit: bool = False,
    reasoning: ReasoningMode = "recorded",
    metrics: str | Metric | Iterable[str | Metric] = DEFAULT_METRICS,
    closed_loop: bool | ClosedLoopMetric = False,
    data: Sequence[str] = (),
    workers: int | None = None,
    progress: bool | None = None,
    profile: TokenProfile | Iterable[TokenProfile] | None = None,
    project: str | Path = "",
    client: Client | None = None,
    folder: str | Path | None = None,
    retry_failed: bool = False,
    scheduler: str | None = None,
    share: tuple[int, int] = (1, 1),
    name_source: Callable[[str], str] = str,
) -> Results:
    """Replay recordings through each strategy under each limit, and measure each request.

    Token counts are stored on disk for later runs, without any text. They do not change the results.
    To store none, set the environment variable ``CTXLAB_CACHE`` to an empty string or use
    ``ctxlab.tokens.count_cache.without_count_cache``.

    Parameters
    ----------
    recordings : iterable of Recording
        Recordings to replay. An iterator may have any length, because recordings are processed one
        at a time.
    strategies : Strategy, str, callable or iterable of them, optional
        One or several strategies to replay; the default lineup if left out.
    limits : float, str or iterable of them, optional
        One or several limits: tokens (``16000``, ``"16k"``), or fractions of each recording's
        length, which is the size of its longest request (floats up to 1, ``"25%"``).
    model : str, optional
        Model whose tokenizer, prices and rules apply. None takes the model of each recording, or
        ``DEFAULT_MODEL`` if the recording does not name one.
    reserve : int, default 0
        Tokens of the limit kept for the reply.
    cache_ttl : {"recorded", "5m", "1h"}, default "recorded"
        Lifetime of cache writes; see ``ctxlab.tokens.cache_timeline.CostSettings``.
    fixed : int or "recorded", default "recorded"
        Unlogged tokens per request that the cost includes; see the same class.
    fixed_in_limit : bool, default False
        Count the unlogged tokens in the limit, as a context window does; see the same class.
    reasoning : {"recorded", "auto", "keep", "current_turn", "clear"}, default "recorded"
        Hidden reasoning of earlier replies that requests contain; see the same class.
    metrics : str, Metric or iterable of them, optional
        Metrics to compute; all built-in metrics but ``closed_loop`` if left out.
    closed_loop : bool or ClosedLoopMetric, default False
        Also replay each configuration with an agent that fetches again what it needs and no longer
        holds (see ``ctxlab.evaluation.closed_loop``). Pass a ``ClosedLoopMetric`` to change its
        settings.
    data : sequence of str, optional
        Paths or names of the data, stored in the manifest.
    workers : int, optional
        Number of processes. None uses all cores on Linux if no other thread runs, otherwise one.
    progress : bool, optional
        Show a progress bar. None shows it only on a terminal.
    profile : TokenProfile or iterable of TokenProfile, optional
        Calibrations of token counts, one per model family. None takes those stored in
        ``project``, and the built-in ones for other model families.
    project : str or Path, optional
        Folder of the project whose stored calibrations are used; the current folder if left out.
    client : Client, optional
        Client for the model calls of strategies. None calls the provider and caches replies in
        ``.ctxlab/calls``.
    folder : str or Path, optional
        Folder of the run, in which finished parts are stored. If the evaluation stops, the same call
        goes on where it stopped, and a call with more strategies or limits computes only these. A
        recording whose evaluation fails is listed in ``manifest["failed"]``, and the others are
        evaluated. Pass the folder to ``Results.save`` to store the results beside the parts.
    retry_failed : bool, default False
        With ``folder``: evaluate again the recordings whose evaluation failed before.
    scheduler : str, optional
        With ``folder``: address of a Dask scheduler that computes the parts, or ``"local"`` for a
        cluster on this machine. The workers must see the same folder.
    share : tuple of (int, int), default (1, 1)
        With ``folder``: ``(3, 16)`` computes the third of sixteen shares of the parts, for the jobs of
        an array. The job after which no part is missing returns the results.
    name_source : callable, optional
        Converts the path of the file of a recording to the text that the results contain, such as a
        relative path. Paths are stored unchanged if it is left out.

    Returns
    -------
    Results
        Measurements of each request, and the leaderboard.

    Raises
    ------
    SpecError
        If an argument is invalid.
    StrategyError
        If a strategy fails.
    ModelError
        If a model call of a strategy fails.
    RunIncomplete
        If the share is computed, and parts of other shares are missing.

    Examples
    --------
    >>> import ctxlab
    >>> recording = next(iter(ctxlab.load("bundled:coding-agent")))
    >>> results = ctxlab.evaluate([recording], ["panic()", "nothing"], 8000, workers=1)
    >>> results
    <Results of 1 recordings, 2 configurations>
    >>> results.leaderboard()[["strategy", "requests", "overflow_rate"]].values.tolist()
    [['panic()', 120, 0.0], ['nothing()', 120, 0.0]]
    """
    check_recordings(recordings)
    if folder is None and (scheduler is not None or share != (1, 1)):
        raise SpecError("scheduler and share: expected a folder for the parts; pass folder")
    if not 1 <= share[0] <= share[1]:
        raise SpecError(f"share: expected a number from 1 to {share[1]}, got {share[0]}")
    costs = CostSettings(cache_ttl, fixed, fixed_in_limit, reasoning)
    if closed_loop:
        loop = METRICS["closed_loop"] if closed_loop is True else closed_loop
        metrics = [*as_list(metrics), loop]
    grid = ExperimentGrid.from_arguments(
        strategies, limits, model, reserve, metrics, profile, project, costs
    )
    if grid.strategy_models:
        workers = min(default_worker_count() if workers is None else workers, MAX_CONCURRENT_CALLS)
        grid = replace(grid, client=split_for_workers(client or default_client(), workers))
    with suppress(
        DataMissing
    ):  # worker processes inherit the vocabulary, instead of each loading it
        load_encoding(find_encoding_name(model or DEFAULT_MODEL)[0])
    with add_cache_hint(grid.client):
        if folder is not None:
            store = PartStore(Path(folder).absolute(), grid, retry_failed)
            execute = choose_executor(workers, scheduler)
            by_address = scheduler is not None
            parts = _compute_parts(
                store, recordings, execute, by_address, share, progress, name_source
            )
            try:
                return _join_parts(store, parts, data, progress)
            except StrategyError:
                store.remove_failures()  # the strategy is at fault, so the next run computes all anew
                raise
        builder = ResultsBuilder(grid.columns, grid.configurations, grid.scores, grid.integers)
        counted = recordings if isinstance(recordings, Sequence) else Counted(recordings)
        found = map_parallel(grid.evaluate_recording, counted, workers, _message_count)
        with show_count("recordings replayed", progress) as update:
            for number, outcome in enumerate(found, start=1):
                source = outcome.description["source"]
                named = {"source": source and name_source(source)}
                builder.add_outcome(outcome._replace(description=outcome.description | named))
                update(number, counted.total if isinstance(counted, Counted) else len(counted))
    return Results.from_builder(builder, grid.manifest(data, builder.models))


class _BucketParts(NamedTuple):
    """Finished parts of a bucket."""

    key: str
    "key of the bucket"
    sources: bytes
    "where each recording was read from, compressed: paths are long, and much alike"
    unsaved: list[Any]
    "parts that could not be written"


def _compute_parts(
    store: PartStore,
    recordings: Iterable[Recording],
    execute: Executor,
    by_address: bool,
    share: tuple[int, int],
    progress: bool | None,
    name_source: Callable[[str], str],
) -> list[_BucketParts]:
    """Compute the parts that are missing.

    With ``by_address``, workers read the recordings from their files, if possible.
    """
    buckets: list[tuple[str, bytes]] = []
    unsaved: defaultdict[str, list[Any]] = defaultdict(list)
    waiting: Counter[str] = Counter()  # tasks of a bucket that are not computed yet
    sizes: Counter[str] = Counter()  # recordings of these buckets
    done = elsewhere = 0
    counted = Counted(recordings)
    contents: dict[str, PartTask] = {}  # tasks that were sent with addresses
    read_with_others: set[str] = set()  # formats whose files cannot be read alone

    def tasks() -> Iterator[PartTask]:
        nonlocal done, elsewhere
        for number, bucket in enumerate(store.cut(counted)):
            sources = [each.source and name_source(each.source) for each in bucket.recordings]
            buckets.append((bucket.key, zlib.compress(dump_json(sources).encode())))
            missing = store.find_missing(bucket)
            if not missing:
                done += len(bucket.recordings)
            elif number % share[1] == share[0] - 1:
                waiting[bucket.key] += len(missing)
                sizes[bucket.key] += len(bucket.recordings)
                yield from map(send, missing) if by_address else missing
            else:
                elsewhere += 1

    def send(task: PartTask) -> PartTask:
        contents[task.name] = task
        return store.with_addresses(task, read_with_others)

    def run(work: Iterable[PartTask]) -> Iterator[ComputedPart]:
        again = []  # with contents, as their files cannot be read again
        for computed in execute(store.compute, work, on_death=store.replace_killed):
            task = contents.pop(computed.task, None)
            if (problem := computed.unreadable) is None:
                yield computed
                continue
            assert task is not None
            again.append(task)
            if problem.changed:
                warn(
                    f"{problem.path}: the file changed since it was read; its former contents are "
                    "evaluated. Run the evaluation again for the new ones",
                    stacklevel=5,
                )
            else:
                read_with_others.add(problem.format)
        if again:
            yield from run(again)

    with show_count("recordings replayed", progress) as update:
        update(0, counted.total)
        for computed in run(tasks()):
            if computed.unsaved is not None:
                if not unsaved:
                    warn(f"{store.folder}: parts cannot be stored: {computed.reason}", stacklevel=4)
                unsaved[computed.bucket].append(computed.unsaved)
            waiting[computed.bucket] -= 1
            if not waiting[computed.bucket]:
                del waiting[computed.bucket]
                done += sizes.pop(computed.bucket)
            update(done, counted.total)
    if elsewhere and (absent := store.count_incomplete(key for key, _ in buckets)):
        raise RunIncomplete(absent, len(buckets))
    return [_BucketParts(key, sources, unsaved.get(key, [])) for key, sources in buckets]


def _join_parts(
    store: PartStore, parts: Sequence[_BucketParts], data: Sequence[str], progress: bool | None
) -> Results:
    """Write the tables of a run, bucket by bucket. If that is impossible, build them in memory."""
    try:
        with replace_run_files(store.folder) as beside:
            names = (REQUESTS_FILE, RUNS_FILE, COMPACTIONS_FILE)
            with ExitStack() as stack:
                writers = [stack.enter_context(TableWriter(beside / name)) for name in names]
                lister = stack.enter_context(RecordingWriter(beside / RECORDINGS_FILE))

                def write(builder: ResultsBuilder) -> None:
                    if builder.has_requests:
                        for writer, piece in zip(writers, builder.take_tables(), strict=True):
                            assert piece is not None
                            writer.write(piece)
                    lister.write(builder.take_recordings())

                builder, described = _read_parts(store, parts, data, progress, write)
            manifest = builder.manifest(described)
            write_manifest(beside, manifest, builder.scores)
        return Results.from_folder(store.folder, builder.scores, manifest)
    except OSError as error:
        warn(f"{store.folder}: the results cannot be stored: {error}", stacklevel=3)
    builder, described = _read_parts(store, parts, data, progress)
    return Results.from_builder(builder, described)


def _read_parts(
    store: PartStore,
    parts: Sequence[_BucketParts],
    data: Sequence[str],
    progress: bool | None,
    write: Callable[[ResultsBuilder], None] | None = None,
) -> tuple[ResultsBuilder, dict[str, Any]]:
    """Read the measurements of all recordings; return the builder, and what describes the experiment.

    ``write`` is called after each bucket. It takes the measurements of the bucket from the builder.
    """
    grid = store.grid
    builder = ResultsBuilder(grid.columns, grid.configurations, grid.scores, grid.integers)
    failed: list[dict[str, str]] = []
    any_evaluated = any_requests = False
    for key, sources, unsaved in track(parts, "parts joined", show=progress):
        for stored in store.read(key, parse_json(zlib.decompress(sources)), unsaved):
            if stored.outcome is None:
                failed.append({**stored.description, "reason": stored.reason})
            else:
                builder.add_outcome(stored.outcome)
                any_evaluated = True
        any_requests |= builder.has_requests
        if write is not None:
            write(builder)
    if failed and not any_evaluated:
        raise StrategyError(
            f"no recording could be evaluated; the first error: {failed[0]['reason']}"
        )
    if not any_requests:
        builder.take_tables()  # raises the error of results without requests
    return builder, grid.manifest(data, builder.models) | ({"failed": failed} if failed else {})


def _message_count(recording: Recording) -> int:
    return len(recording.messages)
