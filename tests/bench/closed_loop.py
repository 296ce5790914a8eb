"""The closed loop takes at most 2.5 × the time of the open loop, and its time grows linearly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter

from linear import Ready
from replay import corpora, forget
from synthetic import conversation
from table import Line, alternate, ratios

from ctxlab.evaluation.closed_loop import RefetchIndex, replay_closed_loop
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.metrics.closed_loop import MAX_REFETCHES
from ctxlab.messages.repeatable_calls import RepeatableCalls
from ctxlab.messages.types import Recording
from ctxlab.strategies import parse_strategy

LIMIT = 32_000
_STRATEGIES = (
    "sliding_window()",
    "observation_mask(keep=10) | panic()",
    "tool_stubs() | panic()",
    "rolling_summary() | panic()",
    "claude_code()",
)


def loops(quick: bool) -> Iterator[Line]:
    """Compare the default grid with and without the closed loop, then long with short conversations."""
    for name, recordings in corpora().items():
        chosen = recordings[:3] if quick else recordings

        def run(closed: bool, chosen: list[Recording] = chosen) -> Callable[[], object]:
            return lambda: evaluate(chosen, closed_loop=closed, workers=1, progress=False)

        run(False)()
        open_loop, closed_loop = alternate(1 if quick else 5, run(False), run(True))
        figures = f"{median(closed_loop):.3f} s / open loop {median(open_loop):.3f} s"
        yield Line(f"{name}: default grid", figures, ratios(closed_loop, open_loop), 2.5)
    middle, long = (3000, 10_000) if quick else (10_000, 30_000)
    yield Line(f"closed loop alone, 32k, a request: at {middle:,}, {long:,}", "last / first")
    ready = [Ready(conversation(n)) for n in (middle, long)]
    for text in _STRATEGIES:
        rounds = [[_seconds(each, text) for each in ready] for _ in range(1 if quick else 3)]
        short, whole = zip(*rounds, strict=True)
        figures = f"{median(short):,.1f}, {median(whole):,.1f} µs"
        yield Line(text, figures, ratios(whole, short), 1.5)


def _seconds(ready: Ready, text: str) -> float:
    """Return the microseconds of one request, of the recording or for a repeated call."""
    prepared = ready.prepare()
    index = RefetchIndex(prepared, RepeatableCalls.default())
    strategy, budget = parse_strategy(text), prepared.make_budget(LIMIT)
    forget()
    start = perf_counter()
    closed = replay_closed_loop(prepared, strategy, budget, index, MAX_REFETCHES)
    return 1e6 * (perf_counter() - start) / len(closed.recorded_requests)
