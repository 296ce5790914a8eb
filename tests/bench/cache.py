"""Compare replays with an empty count cache, with a filled one and without one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, count
from pathlib import Path
from statistics import median

from replay import corpora, floor, forget
from table import Line, alternate, ratio

from ctxlab.evaluation.engine import PreparedRecording
from ctxlab.evaluation.experiment import evaluate
from ctxlab.messages.types import Recording
from ctxlab.tokens.count_cache import FOLDER_VARIABLE, close_count_caches, find_count_cache
from ctxlab.tokens.model_choice import ModelChoice


def counts(quick: bool) -> Iterator[Line]:
    """Yield the time of counting and of the default grid, over the time of tokenizing once.

    The bars apply to the first data set, whose messages are long. The bars of the grid are bounds of
    the whole run, and the cache saves only the time of counting.
    """
    has_bar = True
    for name, recordings in corpora().items():
        messages = list(chain.from_iterable(recording.messages for recording in recordings))
        once = floor(messages)
        yield Line(f"{name}: {len(messages):,} messages", f"{once():,} tokens")
        bars = (None, 1.5, 0.5) if has_bar else (None, None, None)
        yield from _compare("counting", partial(_count, recordings), once, bars, 3 if quick else 9)
        bars = (None, 2.2, 1.5) if has_bar else (None, None, None)
        grid = partial(evaluate, recordings, workers=1, progress=False)
        yield from _compare("default grid", grid, once, bars, 1 if quick else 3)
        has_bar = False
    if has_bar:
        yield Line("stored counts", "no recordings: set CTXLAB_DATA")


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
            yield Line(f"{what}, {name}", figures, ratio(seconds, floors), at_most=bar)
        cache = find_count_cache()
        if cache is not None:
            info = cache.info()
            yield Line(f"{what}: {info.entries:,} stored counts", f"{info.bytes / 1e3:,.0f} kB")
            cache.clear()
    if before is None:
        del os.environ[FOLDER_VARIABLE]
    else:
        os.environ[FOLDER_VARIABLE] = before
