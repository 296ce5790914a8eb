"""Compare replays with an empty count cache, with a filled one and without one."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, count
from pathlib import Path
from statistics import median

from replay import LONG, SHORT, corpora, floor, forget
from table import Line, alternate, ratios

from ctxlab.evaluation.engine import PreparedRecording
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.grid import DEFAULT_LIMITS
from ctxlab.messages.types import Recording
from ctxlab.strategies.registry import DEFAULT_LINEUP
from ctxlab.tokens.count_cache import FOLDER_VARIABLE, close_count_caches, find_count_cache
from ctxlab.tokens.model_choice import ModelChoice

_NO_BARS = (None, None, None)
_COUNT_BARS: dict[str, tuple[float | None, ...]] = {LONG: (None, 1.5, 0.5)}
_GRID_BARS: dict[str, tuple[float | None, ...]] = {LONG: (None, 2.2, 1.5), SHORT: (None, 5.5, None)}
_SECOND_BARS = {LONG: 1.2, SHORT: 1.2}
"""Bars by data set; those of counts and grids are without cache, with an empty and with a filled one."""
_ADDED = "codex"


def counts(quick: bool) -> Iterator[Line]:
    """Yield the time of counting and of the default grid, over the time of tokenizing once.

    The bars of the grid are bounds of the whole run, and the cache saves only the time of counting.
    Short messages take longer in relation to their floor. Bundled recordings have no bars.
    """
    every = corpora()
    for name, recordings in every.items():
        messages = list(chain.from_iterable(recording.messages for recording in recordings))
        once = floor(messages)
        yield Line(f"{name}: {len(messages):,} messages", f"{once():,} tokens")
        what = f"{name}: counting"
        bars = _COUNT_BARS.get(name, _NO_BARS)
        yield from _compare(what, partial(_count, recordings), once, bars, 3 if quick else 9)
        what = f"{name}: default grid, one process"
        grid = partial(evaluate, recordings, workers=1, progress=False)
        yield from _compare(what, grid, once, _GRID_BARS.get(name, _NO_BARS), 1 if quick else 5)
        # excerpt_memory takes most of the time, and was not in the lineup when the bars were set.
        others = [each for each in DEFAULT_LINEUP if not each.startswith("excerpt_memory")]
        number = len(others) * len(DEFAULT_LIMITS)
        what = f"{name}: {number} configurations without excerpt_memory, one process"
        grid = partial(evaluate, recordings, others, workers=1, progress=False)
        yield from _compare(what, grid, once, _NO_BARS, 1 if quick else 5)
    if LONG not in every:
        yield Line("no bars, because there are no real recordings: set CTXLAB_DATA")


def second_run(quick: bool) -> Iterator[Line]:
    """Compare a second run in the same folder, with one strategy more, with a run of that strategy.

    Token counts are stored in both cases. The folder of the first run is copied before each round.
    """
    before = os.environ.get(FOLDER_VARIABLE)
    every = corpora()
    for name, recordings in every.items():
        with tempfile.TemporaryDirectory() as place:
            os.environ[FOLDER_VARIABLE] = str(Path(place, "counts"))
            first, more, alone = (Path(place, each) for each in ("first", "more", "alone"))

            def run(
                strategies: Sequence[str],
                folder: Path,
                recordings: Sequence[Recording] = recordings,
            ) -> None:
                evaluate(recordings, strategies, folder=folder, workers=1, progress=False)

            def prepare(first: Path = first, more: Path = more, alone: Path = alone) -> None:
                forget()
                shutil.rmtree(more, ignore_errors=True)
                shutil.rmtree(alone, ignore_errors=True)
                shutil.copytree(first, more)

            run(DEFAULT_LINEUP, first)
            longer, single = alternate(
                1 if quick else 5,
                partial(run, [*DEFAULT_LINEUP, _ADDED], more),
                partial(run, [_ADDED], alone),
                before=prepare,
            )
        figures = f"{median(longer):.3f} s / {median(single):.3f} s"
        what = f"{name}: a second run that adds {_ADDED}, over it alone"
        yield Line(what, figures, ratios(longer, single), _SECOND_BARS.get(name))
    _restore(before)
    if LONG not in every:
        yield Line("no bars, because there are no real recordings: set CTXLAB_DATA")


def _count(recordings: Sequence[Recording]) -> None:
    for recording in recordings:
        PreparedRecording(recording, ModelChoice("gpt-4o").counter_for(recording))
    close_count_caches()


def _compare(
    what: str,
    run: Callable[[], object],
    once: Callable[[], int],
    bars: Sequence[float | None],
    rounds: int,
) -> Iterator[Line]:
    """Yield the time of ``run`` without a cache, with an empty one and with a filled one."""
    before = os.environ.get(FOLDER_VARIABLE)
    with tempfile.TemporaryDirectory() as folder:
        numbers = count()

        def run_in(path: str) -> None:
            os.environ[FOLDER_VARIABLE] = path
            run()

        def run_cold() -> None:
            run_in(str(Path(folder, str(next(numbers)))))

        def run_warm() -> None:
            run()  # in the folder of the cold run; the counts in memory are forgotten

        run_in("")  # load data that a process loads once
        steps = (once, partial(run_in, ""), run_cold, run_warm)
        floors, *times = alternate(rounds, *steps, before=forget)
        names = ("without cache", "cold", "warm")
        for name, seconds, bar in zip(names, times, bars, strict=True):
            figures = f"{median(seconds):.3f} s / floor {median(floors):.3f} s"
            yield Line(f"{what}, {name}", figures, ratios(seconds, floors), at_most=bar)
        cache = find_count_cache()
        if cache is not None:
            info = cache.info()
            yield Line(f"{what}: {info.entries:,} stored counts", f"{info.bytes / 1e3:,.0f} kB")
            cache.clear()
    _restore(before)


def _restore(before: str | None) -> None:
    if before is None:
        os.environ.pop(FOLDER_VARIABLE, None)
    else:
        os.environ[FOLDER_VARIABLE] = before
