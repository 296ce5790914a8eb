"""Bars 1, 2 and 7: a replay takes little longer than tokenising every message once."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median

from peers import Peer, peers
from synthetic import conversation
from table import Line, alternate, ratios

from ctxlab.evaluation.engine import PreparedRecording, replay_trace
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.grid import DEFAULT_LIMITS
from ctxlab.evaluation.parallel import default_worker_count, map_parallel
from ctxlab.formats import load
from ctxlab.messages.types import Message, Recording
from ctxlab.strategies import sliding_window
from ctxlab.strategies.registry import DEFAULT_LINEUP
from ctxlab.tokens.counter import TokenCounter
from ctxlab.tokens.encodings import load_encoding

LIMIT = 32_000
_ROOT = Path(__file__).parents[2]
LONG, SHORT = "claude-code-entireio", "mini-swe-agent"
"""Data sets of real recordings: one of long messages, and one of short messages."""
_SETUP = ("ctxlab.tokens.encodings", "ctxlab.tokens.models")  # independent of recordings
_Cache = type(load_encoding)


def corpora() -> dict[str, list[Recording]]:
    """Return the recordings by data set: real recordings, or bundled ones if there are none."""
    real = {name: recordings for name in (LONG, SHORT) if (recordings := corpus(name))}
    if real:
        return real
    bundled = sorted((_ROOT / "datasets").glob("*/*.jsonl"))
    return {"the bundled recordings": list(load(bundled))} if bundled else {}


def corpus(name: str) -> list[Recording]:
    """Load the real recordings of a data set; return an empty list if its folder does not exist."""
    data = Path(os.environ.get("CTXLAB_DATA") or _ROOT.parent / "shared" / "data")
    return list(load(data / name)) if (data / name).is_dir() else []


def floor(messages: Sequence[Message]) -> Callable[[], int]:
    """Return a function that only tokenises all texts and arguments once, in one thread."""
    encode = load_encoding("o200k_base").encode_ordinary

    def run() -> int:
        tokens = 0
        for message in messages:
            tokens += len(encode(message.text))
            for call in message.tool_calls:
                tokens += len(encode(call.arguments))
        return tokens

    return run


def grid(quick: bool) -> Iterator[Line]:
    """Bars 1 and 7: time the default grid on the recordings of ``corpora``, loaded in advance.

    The bar of the time applies to long messages. Recordings with many short messages take longer in
    relation to their floor, because there is more work per token. Bundled recordings have no bar.
    """
    configurations = len(DEFAULT_LINEUP) * len(DEFAULT_LIMITS)
    yield Line("configurations, all metrics", "", [configurations], at_least=24, unit="cells")
    every = corpora()
    for name, recordings in every.items():
        yield from _grid(name, recordings, quick)
    if LONG not in every:
        yield Line("no bars, because there are no real recordings: set CTXLAB_DATA")


def _grid(name: str, recordings: list[Recording], quick: bool) -> Iterator[Line]:
    messages = list(chain.from_iterable(r.messages for r in recordings))
    once = floor(messages)
    yield Line(f"{name}: {len(messages):,} messages", f"{once():,} tokens")

    def run(workers: int | None) -> None:
        evaluate(recordings, workers=workers, progress=False)

    run(1)  # load data that a process loads once, such as the vocabulary and the prices
    cores = default_worker_count()
    bar = 2.0 if name == LONG else None
    speed_up = 1.6 if cores > 1 and name in (LONG, SHORT) else None

    def beside() -> None:
        for _ in map_parallel(lambda _: once(), range(cores), cores):
            pass

    steps = (once, lambda: run(None), lambda: run(1), beside)
    floors, default, alone, together = alternate(2 if quick else 9, *steps, before=forget)
    yield _against(f"{name}: {cores} processes, first time", default, floors, bar)
    yield _against(f"{name}: one process, first time", alone, floors)
    figures = f"{median(alone):.3f} s / {median(default):.3f} s"
    yield Line(f"{name}: one process over {cores} processes", figures, ratios(alone, default),
               at_least=speed_up)  # fmt: skip
    # The maximum speed-up on this machine: cores may share hardware or be used by other processes.
    figures = f"{cores} × {median(floors):.3f} s / {median(together):.3f} s"
    gain = [cores * each for each in ratios(floors, together)]
    yield Line(f"{name}: speed-up of the floor with {cores} processes", figures, gain)


def window(quick: bool) -> Iterator[Line]:
    """Bar 2: compare a window over a long conversation with other packages."""
    recording = conversation(3000)
    strategy = sliding_window(tokens=LIMIT)
    once = floor(recording.messages)
    turns = recording.request_positions
    yield Line(f"{len(recording.messages):,} messages, {len(turns):,} turns", f"{once():,} tokens")

    def run() -> None:
        prepared = PreparedRecording(recording, TokenCounter("gpt-4o"))
        replay_trace(prepared, strategy, prepared.make_budget(LIMIT))

    floors, whole = alternate(3 if quick else 11, once, run)
    yield _against("prepare + replay, counting included", whole, floors, 1.3)

    sample = 4 if quick else 12
    some = [turns[len(turns) * (2 * i + 1) // (2 * sample)] for i in range(sample)]
    bars = {"tiktoken counter": 500, "approximate": 30, "litellm": 200}
    rounds = 1 if quick else 3
    yield Line(f"others: {len(some)} turns, scaled to all {len(turns):,}", "package / ctxlab")
    for name, peer in peers(recording, LIMIT).items():
        if isinstance(peer, str):
            yield Line(name, peer)
            continue
        peer(turns[0])  # exclude work that is done only in the first call
        ours, theirs = alternate(rounds, run, partial(_each, peer, some))
        scaled = [seconds * len(turns) / len(some) for seconds in theirs]
        bar = next((bar for key, bar in bars.items() if key in name), None)
        figures = f"{median(scaled):,.1f} s / {median(ours):.3f} s"
        yield Line(name, figures, ratios(scaled, ours), at_least=bar)


def _each(peer: Peer, turns: Sequence[int]) -> None:
    for turn in turns:
        peer(turn)


def _against(
    what: str, of: Sequence[float], floors: Sequence[float], bar: float | None = None
) -> Line:
    figures = f"{median(of):.3f} s / floor {median(floors):.3f} s"
    return Line(what, figures, ratios(of, floors), at_most=bar)


def forget() -> None:
    """Clear all caches of ctxlab that depend on recordings, so that each run starts without them.

    Caches of objects, such as the counts of a counter, need no clearing: each run creates new objects.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith("ctxlab."):
            for thing in vars(module).values():
                if isinstance(thing, _Cache) and thing.__module__ not in _SETUP:
                    thing.cache_clear()
