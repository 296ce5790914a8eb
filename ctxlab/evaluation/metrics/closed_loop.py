"""Cost of forgetting: the requests that the agent needs to fetch again what it lacks.

Each configuration is replayed once more in a closed loop (``ctxlab.evaluation.closed_loop``), in which
the agent repeats tool calls for needs that a request does not hold. The cost then includes these
requests, so that strategies that keep much and strategies that keep little can be compared in dollars
at equal knowledge. What no call can return is counted as irrecoverable.

There are two extremes. The agent needs the line that mentions a name, or the name alone suffices
(columns with the suffix ``_named``). The second usually costs less, but not always: see
``docs/closed-loop.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from typing_extensions import override

from ctxlab.errors import SpecError
from ctxlab.evaluation.closed_loop import ClosedTrace, RefetchIndex, replay_closed_loop
from ctxlab.evaluation.engine import PreparedRecording, Trace, distinct_replays
from ctxlab.evaluation.metrics.base import Column, Figures, FloatArray, Metric, Score
from ctxlab.evaluation.metrics.cost import RequestTokens, price_requests, sum_reasoning
from ctxlab.messages.repeatable_calls import RepeatableCalls
from ctxlab.strategies.base import models_used
from ctxlab.tokens.cache_timeline import CacheTimeline

MAX_REFETCHES = 5
"""Default of the maximum number of repeated calls before one recorded action."""

LATENCY_SECONDS = 5.0
"""Default of the assumed time of one request, in seconds."""

SECTION = "closed loop: the agent fetches again what a request does not hold"
"""Title of the table in which the leaderboard prints these scores."""

_BOUNDED = ("refetches", "irrecoverable", "closed_usd")
"columns that are also computed for an agent for which names suffice"


def _rate(name: str, meaning: str, column: str, interval: bool = False) -> Score:
    return replace(Score.mean(name, meaning, "per request", column), interval=interval)


def _columns(suffix: str, bound: str) -> tuple[Column, ...]:
    return (
        Column(
            f"refetches{suffix}",
            f"calls that the agent repeats before its action{bound}",
            "calls",
            integer=True,
        ),
        Column(
            f"irrecoverable{suffix}",
            "needs that are not held and that no repeatable call returned; without those that the "
            f"agent mentioned first{bound}",
            "needs",
            integer=True,
        ),
        Column(
            f"closed_usd{suffix}",
            "input cost of the request and of all requests for repeated calls before it, with the "
            f"output of these calls{bound}",
            "USD",
        ),
    )


@dataclass(frozen=True)
class ClosedLoopMetric(Metric):
    """Requests and cost if the agent fetches again what it needs and a request does not hold.

    Examples
    --------
    >>> import ctxlab
    >>> recordings = [next(iter(ctxlab.load("bundled:coding-agent")))]
    >>> results = ctxlab.evaluate(
    ...     recordings, ["full", "sliding_window()"], 0.25, metrics=["cost", ClosedLoopMetric()]
    ... )
    >>> board = results.leaderboard().set_index("strategy")
    >>> (board["refetch_rate"] > 0).to_dict()
    {'full()': False, 'sliding_window()': True}
    """

    max_refetches: int = MAX_REFETCHES
    "maximum number of repeated calls before one recorded action"
    latency: float = LATENCY_SECONDS
    "assumed time of one request, in seconds"
    repeatable: tuple[str, ...] = ()
    """further tools and commands that the agent can repeat, or cannot; see
    ``ctxlab.messages.repeatable_calls``"""

    def __post_init__(self) -> None:
        """Check the values."""
        if self.max_refetches < 0:
            raise SpecError(f"max_refetches: expected 0 or more calls, got {self.max_refetches}")
        if not 0 <= self.latency < math.inf:
            raise SpecError(f"latency: expected 0 or more seconds, got {self.latency}")

    columns = (
        *_columns("", ", if it needs the line that mentions a name"),
        *_columns("_named", ", if a name suffices"),
        Column(
            "refetches_changed",
            "repeated calls that read a file edited since",
            "calls",
            integer=True,
        ),
        Column(
            "irrecoverable_agent",
            "needs that are not held, that no repeatable call returned, and that the agent "
            "mentioned first",
            "needs",
            integer=True,
        ),
        Column(
            "unrecovered",
            "needs that are not held although a repeatable call returned them: its file was "
            "rewritten since, its result was cut again, or there were too many calls",
            "needs",
            integer=True,
        ),
        Column(
            "closed_tokens",
            "tokens of the request and of all requests for repeated calls before it",
            "tokens",
            integer=True,
        ),
        Column(
            "closed_priced",
            "the same, with the unlogged tokens that are paid",
            "tokens",
            integer=True,
        ),
        Column(
            "closed_cached",
            "tokens of these requests read from the prompt cache",
            "tokens",
            integer=True,
        ),
        Column("closed_seconds", "time of these requests at the assumed latency", "seconds"),
    )
    scores = (
        Score.total(
            "closed_usd", "input cost with the requests that fetch again what is not held", "USD"
        ).printed(
            "closed\n$",
            "closed $: cost if the agent fetches again what a request does not hold",
            SECTION,
        ),
        Score.total("closed_usd_named", "the same cost if names suffice", "USD").printed(
            "if names\nsuffice $",
            "if names suffice $: the same if it needs only the names",
            SECTION,
        ),
        Score.rate(
            "closed_cached_share",
            "share of the paid input tokens of all these requests that are read from the prompt cache",
            "closed_cached / closed_priced",
            "higher",
        ).printed("cached\n%", section=SECTION),
        Score.mean(
            "closed_tokens_mean",
            "tokens of all requests of the closed loop, divided by the number of recorded requests",
            "tokens",
            "closed_tokens",
        ).printed("tokens\nmean", "tokens: of all these requests, per recorded request", SECTION),
        _rate("refetch_rate", "repeated calls per request", "refetches", interval=True).printed(
            "re-fetches\nper 100", "re-fetches: repeated calls, per 100 recorded requests", SECTION
        ),
        _rate(
            "refetch_rate_named", "repeated calls per request if names suffice", "refetches_named"
        ),
        _rate(
            "refetch_changed_rate",
            "repeated calls per request that read a file edited since",
            "refetches_changed",
        ),
        _rate(
            "irrecoverable_rate",
            "needs per request that are not held and that no repeatable call returned; without those "
            "that the agent mentioned first",
            "irrecoverable",
            interval=True,
        ).printed(
            "irreco-\nverable",
            "irrecoverable: names and values that are not held and that no repeatable call returned "
            "(without those that the agent mentioned first), per 100 recorded requests",
            SECTION,
        ),
        _rate("irrecoverable_rate_named", "the same rate if names suffice", "irrecoverable_named"),
        _rate(
            "irrecoverable_rate_agent",
            "the same rate of needs that the agent mentioned first",
            "irrecoverable_agent",
        ),
        _rate(
            "unrecovered_rate",
            "needs per request that are not held although a repeatable call returned them",
            "unrecovered",
        ).printed(
            "unre-\ncovered",
            "unrecovered: names and values that are still not held after all repeated calls",
            SECTION,
        ),
        Score.total("closed_seconds", "time of all requests at the assumed latency", "seconds"),
    )

    @override
    def measure(self, prepared: PreparedRecording, traces: Sequence[Trace]) -> Figures:
        for trace in traces:
            if models := models_used(trace.strategy):
                raise SpecError(
                    f"the closed loop replays strategies without models, but {trace.strategy!r} calls "
                    f"{', '.join(models)}; leave out its model or the closed loop"
                )
        index = RefetchIndex(prepared, RepeatableCalls.default(self.repeatable))
        replays, order = distinct_replays(traces)
        rows = [self._measure_trace(prepared, trace, index) for trace in replays]
        return {
            column.name: np.array([row[column.name] for row in rows])[order]
            for column in self.columns
        }

    def _measure_trace(
        self, prepared: PreparedRecording, trace: Trace, index: RefetchIndex
    ) -> dict[str, FloatArray]:
        """Replay one configuration in closed loops; return each column as one value per request."""
        strategy = trace.seeded_strategy or trace.strategy
        closed = replay_closed_loop(prepared, strategy, trace.budget, index, self.max_refetches)
        found = _sum_requests(prepared, closed)
        named = closed, found
        if closed.names_matter:  # otherwise both replays are equal
            alike = replay_closed_loop(
                prepared, strategy, trace.budget, index, self.max_refetches, names_suffice=True
            )
            named = alike, _sum_requests(prepared, alike)
        return {
            **found,
            **{f"{name}_named": named[1][name] for name in _BOUNDED},
            "refetches_changed": np.array(closed.changed, np.float64),
            "irrecoverable_agent": np.array(closed.irrecoverable_agent, np.float64),
            "unrecovered": np.array(closed.unrecovered, np.float64),
            "closed_seconds": (found["refetches"] + 1) * self.latency,
        }


closed_loop = ClosedLoopMetric()


def _sum_requests(prepared: PreparedRecording, closed: ClosedTrace) -> dict[str, FloatArray]:
    """Price all requests of a closed loop, and sum them by recorded request."""
    trace, numbers = closed.trace, np.array(closed.recorded_requests)
    before = prepared.cache_timeline
    first = np.diff(numbers, prepend=-1) > 0  # later requests follow at once, so the cache is warm
    timeline = CacheTimeline(
        before.warm[numbers] | ~first,
        np.where(first, before.shared[numbers], 0.0),
        before.long_share[numbers],
    )
    places = closed.history.positions
    thoughts = prepared.priced_reasoning_tokens.items()
    reasoning = {places[place]: n for place, n in thoughts if place < len(places)}
    sums = sum_reasoning(trace, closed.request_positions, reasoning)
    tokens = RequestTokens.of_traces([trace], sums[None])
    ledger = {name: row[0] for name, row in price_requests(prepared, tokens, timeline).items()}
    calls = np.array(closed.call_tokens, np.float64)
    usd = ledger["input_usd"] + calls * ledger["output_rate"]

    def by_request(weights: FloatArray) -> FloatArray:
        return np.bincount(numbers, weights, len(prepared.request_positions)).astype(np.float64)

    return {
        "refetches": by_request((calls > 0).astype(np.float64)),
        "irrecoverable": np.array(closed.irrecoverable, np.float64),
        "closed_usd": by_request(usd),
        "closed_tokens": by_request(tokens.sent[0]),
        "closed_priced": by_request(ledger["priced_tokens"]),
        "closed_cached": by_request(ledger["cached"]),
    }
