"""A metric declares its columns as data and works them out from the traces of a recording.

``measure`` is given all configurations of one recording at once, so that what they share is worked out
once and the rest in arrays. A metric that must look at each request as it would be sent is written with
``per_request_metric``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from ctxlab.context.context import Context
from ctxlab.evaluation.engine import PreparedRecording, RequestObserver, Trace

__all__ = ["Column", "FloatArray", "Metric", "PerRequestMetric", "Score", "per_request_metric"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Column:
    """A figure of every request."""

    name: str
    meaning: str
    unit: str


@dataclass(frozen=True)
class Score:
    """A figure of a run or of a whole configuration, made from columns of its requests.

    ``how`` is ``sum``, ``max``, or ``ratio``: the sum of ``column`` over the sum of ``per``, where an
    empty ``per`` counts requests. Sums of what was counted, never a mean of means: a recording weighs
    as much as it says.
    """

    name: str
    meaning: str
    unit: str
    how: Literal["sum", "max", "ratio"]
    column: str
    per: str = ""
    interval: bool = False
    "whether a bootstrap interval stands beside it"
    better: Literal["higher", "lower", ""] = ""
    "which way is better; empty where that depends"
    heading: str = ""
    """the heading of its column in the printed leaderboard, in two lines; without one it has no column
    there. A share is printed with its interval below ``(95 %)`` and in per cent below another ``%``."""
    legend: str = ""
    "what the heading means, printed below the leaderboard"


@runtime_checkable
class Metric(Protocol):
    """What an evaluation measures."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """What it gives for each request."""
        ...

    @property
    def scores(self) -> tuple[Score, ...]:
        """What it gives for a run and for the leaderboard."""
        ...

    @property
    def observers(self) -> Mapping[str, RequestObserver]:
        """What must see each request as it is sent, by name; often nothing."""
        ...

    def measure(
        self, prepared: PreparedRecording, traces: Sequence[Trace]
    ) -> Mapping[str, FloatArray]:
        """Each column as an array of shape ``(traces, requests)``."""
        ...


@dataclass(frozen=True)
class PerRequestMetric:
    """A metric from a function of the context that is sent."""

    column: Column
    function: Callable[[Context], float]

    @property
    def columns(self) -> tuple[Column, ...]:
        """The one column."""
        return (self.column,)

    @property
    def scores(self) -> tuple[Score, ...]:
        """Its mean over requests."""
        c = self.column
        return (
            Score(
                f"{c.name}_mean",
                f"mean of: {c.meaning}",
                c.unit,
                "ratio",
                c.name,
                heading=f"{c.name}\nmean",
                legend=f"{c.name}: {c.meaning}",
            ),
        )

    @property
    def observers(self) -> Mapping[str, RequestObserver]:
        """The function itself."""
        return {self.column.name: self.function}

    def measure(
        self, prepared: PreparedRecording, traces: Sequence[Trace]
    ) -> Mapping[str, FloatArray]:
        """What the function returned."""
        name = self.column.name
        return {name: np.array([trace.observations[name] for trace in traces], dtype=np.float64)}


def per_request_metric(name: str, meaning: str, unit: str) -> Callable[..., PerRequestMetric]:
    """Makes a metric of a function from a context, as it is sent, to a number."""

    def wrap(function: Callable[[Context], float]) -> PerRequestMetric:
        return PerRequestMetric(Column(name, meaning, unit), function)

    return wrap
