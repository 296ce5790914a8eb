"""Bar 3: the time per message is the same in long and in short conversations."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter

from replay import LIMIT, forget
from synthetic import conversation
from table import Line, alternate, ratios

from ctxlab.evaluation.engine import PreparedRecording, replay_trace
from ctxlab.messages.types import Message, Recording
from ctxlab.strategies import Strategy, parse_strategy, sliding_window
from ctxlab.strategies.introspection import list_strategies
from ctxlab.tokens.counter import TokenCounter

_SLOW_CONTROLS = ("name_list", "word_list", "base64_text", "line_list")
_INNER = "observation_mask(keep=3)"
"""Argument for strategies that take another strategy as a parameter."""


_PIPELINES = (
    "observation_mask(keep=10) | panic()",
    "tool_stubs(keep=3) | panic()",
    "stale_results() | panic()",
    "file_sessions() | sliding_window()",
    "in_batches(observation_mask(keep=3)) | panic()",
)
"""Pipelines of a strategy that edits before each request and one that reads the whole context."""


def every(quick: bool = False) -> list[str]:
    """Return all strategies with their defaults and some pipelines; without baselines if ``quick``.

    Most controls of the metric are left out: they tokenize a text of the size of the limit at each
    request, which takes an hour at these lengths.
    """
    texts = []
    for known in list_strategies():
        if known.name in _SLOW_CONTROLS or (quick and known.kind == "baseline"):
            continue
        if known.name == "pinned":  # all user messages, which it keeps by default, exceed the limit
            texts.append("pinned(sliding_window(), users=False, match='Task 1.:')")
            continue
        given = ", ".join(_INNER for p in known.parameters if not p.default)
        texts.append(f"{known.name}({given})")
    return [*texts, *_PIPELINES]


def replays(quick: bool) -> Iterator[Line]:
    """Measure a window including counting, then only the replay of each strategy."""
    middle, long = (6000, 20_000) if quick else (20_000, 60_000)
    longest = 20_000 if quick else 100_000
    recordings = {n: conversation(n) for n in (1000, 3000, longest)}

    def window(n: int) -> Callable[[], object]:
        def step() -> None:
            prepared = PreparedRecording(recordings[n], TokenCounter("gpt-4o"))
            replay_trace(prepared, sliding_window(tokens=LIMIT), prepared.make_budget(LIMIT))

        return step

    window(1000)()
    short, third = alternate(3 if quick else 9, window(1000), window(3000))
    figures = f"{median(third):.3f} s / {median(short):.3f} s"
    yield Line("window 32k, counted: 3,000 messages over 1,000", figures, ratios(third, short), 3.6)
    third, whole = alternate(1 if quick else 3, window(3000), window(longest))
    at = {3000: third, longest: whole}
    yield _a_message(f"window 32k, counted, a message: {longest:,} over 3,000", at)
    recordings.clear()

    # At these lengths all windows are full, and so are the 20,000 tokens of user messages in Codex.
    ready = {n: Ready(conversation(n)) for n in (middle, long)}
    gc.freeze()  # collect only objects that the replays create
    yield Line(f"replay alone, 32k, a message: at {middle:,}, {long:,}", "last / first")
    for text in every(quick):
        yield _a_message(text, _alone(text, ready, 2 if quick else 3))
    gc.unfreeze()


def _a_message(what: str, seconds: dict[int, list[float]]) -> Line:
    """Compare the time per message of the longest conversation with that of the second longest."""
    micro = {n: [1e6 * s / n for s in taken] for n, taken in seconds.items()}
    *_, short, long = micro.values()
    figures = ", ".join(f"{median(taken):,.1f}" for taken in micro.values())
    return Line(what, f"{figures} µs", ratios(long, short), 1.5)


class Ready:
    """A recording with token counts and needs computed in advance, to time only the replay."""

    def __init__(self, recording: Recording) -> None:
        count = TokenCounter("gpt-4o").count_message
        self.recording, self.known = recording, {id(m): count(m) for m in recording.messages}
        self.needs = PreparedRecording(recording, _Known(self.known)).needs

    def prepare(self) -> PreparedRecording:
        """Return the recording ready for a replay, with empty caches."""
        prepared = PreparedRecording(self.recording, _Known(self.known))
        vars(prepared)["needs"] = self.needs
        return prepared

    def seconds(self, strategy: Strategy) -> float:
        """Return the seconds of a replay that starts with empty caches."""
        prepared = self.prepare()
        forget()
        start = perf_counter()
        replay_trace(prepared, strategy, prepared.make_budget(LIMIT))
        return perf_counter() - start


class _Known(TokenCounter):
    """A token counter with known counts of some messages, by ``id(message)``."""

    def __init__(self, known: dict[int, int]) -> None:
        super().__init__("gpt-4o")
        self._known = known

    def count_message(self, message: Message, by_line: bool = False) -> int:
        tokens = self._known.get(id(message))
        return super().count_message(message, by_line) if tokens is None else tokens


_SLOW = 10.0
"A strategy whose replay takes more seconds is measured only once."


def _alone(text: str, ready: dict[int, Ready], rounds: int) -> dict[int, list[float]]:
    taken: dict[int, list[float]] = {n: [] for n in ready}
    for _ in range(rounds):
        for n, recording in ready.items():
            taken[n].append(recording.seconds(parse_strategy(text)))
        if taken[max(ready)][0] > _SLOW:
            break
    return taken
