"""Base types of metrics: columns, scores and the ``Metric`` protocol.

A metric declares its columns as data and computes them from the traces of a recording. ``measure``
gets all configurations of one recording at once, so that shared work is done once and the rest with
arrays. Use ``per_request_metric`` for a metric that inspects each request as it would be sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from ctxlab.context.context import Context
from ctxlab.evaluation.engine import PreparedRecording, RequestObserver, Trace

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Column:
    """A figure of each request."""

    name: str
    "column name in ``Results.requests``"
    meaning: str
    "description for readers"
    unit: str
    "such as ``tokens``, ``USD`` or ``0 or 1``"


@dataclass(frozen=True)
class Score:
    """A figure of a run or a configuration, computed from columns of its requests.

    Scores are computed from sums, not as a mean of means: longer recordings weigh more.
    """

    name: str
    "column name in ``Results.runs`` and the leaderboard"
    meaning: str
    "description for readers"
    unit: str
    "such as ``share``, ``tokens`` or ``USD``"
    how: Literal["sum", "max", "ratio"]
    "``sum``, ``max``, or ``ratio``: the sum of ``column`` divided by the sum of ``per``"
    column: str
    "the column that is aggregated"
    per: str = ""
    "the denominator of a ratio; empty: the number of requests"
    interval: bool = False
    "True if the leaderboard shows a bootstrap interval"
    better: Literal["higher", "lower", ""] = ""
    "which direction is better; empty if it depends"
    heading: str = ""
    """heading in the printed leaderboard, in two lines; a score without one is not printed there.
    With ``(95 %)`` in the second line a share is printed with its interval, with another ``%`` as a
    percentage."""
    legend: str = ""
    "explanation of the heading, printed below the leaderboard"


@runtime_checkable
class Metric(Protocol):
    """What an evaluation measures."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """The figures of each request."""
        ...

    @property
    def scores(self) -> tuple[Score, ...]:
        """The figures of a run and of the leaderboard."""
        ...

    @property
    def observers(self) -> Mapping[str, RequestObserver]:
        """Functions, by name, that are called with each request as it is sent; often none."""
        ...

    def measure(
        self, prepared: PreparedRecording, traces: Sequence[Trace]
    ) -> Mapping[str, FloatArray]:
        """Compute the columns for each trace.

        Parameters
        ----------
        prepared : PreparedRecording
            The recording that was replayed.
        traces : sequence of Trace
            One trace per configuration.

        Returns
        -------
        mapping of str to numpy.ndarray of shape (traces, requests)
            Figures by column name.
        """
        ...


@dataclass(frozen=True)
class PerRequestMetric:
    """A metric computed by a function of each request."""

    column: Column
    "the figure that the function computes"
    function: Callable[[Context], float]
    "computes the figure from the context that is sent"

    @property
    def columns(self) -> tuple[Column, ...]:
        """The one column."""
        return (self.column,)

    @property
    def scores(self) -> tuple[Score, ...]:
        """The mean of the column over requests."""
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
        """The function, by column name."""
        return {self.column.name: self.function}

    def measure(
        self, prepared: PreparedRecording, traces: Sequence[Trace]
    ) -> Mapping[str, FloatArray]:
        """Return the values that the function computed during the replay.

        Parameters
        ----------
        prepared : PreparedRecording
            The recording that was replayed.
        traces : sequence of Trace
            One trace per configuration.

        Returns
        -------
        mapping of str to numpy.ndarray of shape (traces, requests)
            The figures by column name.
        """
        name = self.column.name
        return {name: np.array([trace.observations[name] for trace in traces], dtype=np.float64)}


def per_request_metric(name: str, meaning: str, unit: str) -> Callable[..., PerRequestMetric]:
    """Make a metric from a function of the context.

    Parameters
    ----------
    name : str
        Column name of the figure.
    meaning : str
        Description for readers.
    unit : str
        Unit of the figure.

    Returns
    -------
    callable
        A decorator that turns a function from ``Context`` to ``float`` into a ``PerRequestMetric``.

    Examples
    --------
    >>> @per_request_metric("user_messages", "messages of the user", "messages")
    ... def user_messages(context: Context) -> float:
    ...     return sum(message.role == "user" for message in context.messages)
    >>> user_messages.scores[0].name
    'user_messages_mean'
    """

    def wrap(function: Callable[[Context], float]) -> PerRequestMetric:
        return PerRequestMetric(Column(name, meaning, unit), function)

    return wrap
