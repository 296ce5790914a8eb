"""Base types of metrics: columns, scores and the base class ``Metric``.

A metric declares its columns and scores as class attributes, and computes the columns from the
traces of a recording. A trace is the result of replaying the recording under one configuration: a
strategy and a limit. ``measure`` receives the traces of all configurations together, so that shared
work is done only once. To write a metric that inspects each request separately, use
``per_request_metric``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from ctxlab.context.context import Context
from ctxlab.evaluation.engine import PreparedRecording, RequestObserver, Trace

FloatArray = npt.NDArray[np.float64]
Figures = Mapping[str, FloatArray]
"""Values of the columns of a metric: arrays of shape ``(traces, requests)``, by column name."""
Better = Literal["higher", "lower", ""]
"""Direction in which a score improves; an empty string if neither direction is better."""


@dataclass(frozen=True)
class Column:
    """A quantity that a metric measures for each request."""

    name: str
    "name of the column in ``Results.requests``"
    meaning: str
    "description for the documentation and for lists of metrics"
    unit: str
    "unit of the values, such as ``tokens``, ``USD`` or ``0 or 1``"
    integer: bool = False
    """True if all values are whole numbers and none is missing. Tables then contain integers, unless
    they contain means over the seeds of a random strategy"""


@dataclass(frozen=True)
class Score:
    """A number that summarizes a strategy under a limit, for one recording or for all recordings.

    A score aggregates the values of a column over requests. A ratio is the quotient of two sums over
    all requests and not a mean over recordings, so longer recordings weigh more. The class methods
    ``share``, ``rate``, ``mean`` and ``total`` create the usual scores.
    """

    name: str
    "name of the column in ``Results.runs`` and in the leaderboard"
    meaning: str
    "description for the documentation and for lists of metrics"
    unit: str
    "unit of the score, such as ``share``, ``tokens`` or ``USD``"
    how: Literal["sum", "max", "ratio"]
    "``sum`` or ``max`` of ``column``, or ``ratio``: sum of ``column`` divided by sum of ``per``"
    column: str
    "name of the column that is aggregated"
    per: str = ""
    "name of the denominator column of a ratio; empty to divide by the number of requests"
    interval: bool = False
    "True if the leaderboard shows a bootstrap interval"
    better: Better = ""
    "direction in which the score improves; empty if neither direction is better"
    heading: str = ""
    """heading in the printed leaderboard, in two lines. If it is empty, the score is not printed. A
    share is printed with its interval if the heading contains ``(95 %)``, and as a percentage if it
    contains another ``%``."""
    legend: str = ""
    "explanation of the heading, printed below the leaderboard"
    section: str = ""
    """title of the table in which the score is printed below the leaderboard; empty for the leaderboard
    itself"""

    @property
    def run_columns(self) -> tuple[str, ...]:
        """Columns of ``Results.runs`` that are needed to compute the score over several rows.

        They are the numerator and denominator of a ratio, the column of a sum, or the column of the
        score itself for a maximum.

        >>> Score("tokens_mean", "", "tokens", "ratio", "tokens").run_columns
        ('tokens', 'requests')
        """
        if self.how == "max":
            return (self.name,)
        return (self.column,) if self.how == "sum" else (self.column, self.per or "requests")

    def compute(self, numerators: FloatArray, denominators: FloatArray) -> FloatArray:
        """Compute the score from sums of its columns. The score must be a sum or a ratio.

        Parameters
        ----------
        numerators : numpy.ndarray
            Sums of ``column``, for example one element per configuration.
        denominators : numpy.ndarray
            Sums of ``per``, of the same shape; not used if the score is a sum.

        Returns
        -------
        numpy.ndarray
            Scores, of the same shape. A ratio is nan if its denominator is 0.
        """
        return numerators if self.how == "sum" else divide_sums(numerators, denominators)

    @classmethod
    def share(cls, name: str, meaning: str, ratio: str) -> Score:
        """Create a score that is a share, has an interval and is better if it is higher.

        Parameters
        ----------
        name, meaning : str
            Name and description of the score.
        ratio : str
            Columns as ``"numerator / denominator"``. A single column is divided by the number of
            requests.

        Returns
        -------
        Score
            Ratio with the unit ``share`` and an interval.

        Examples
        --------
        >>> recall = Score.share("recall", "share of needs in view", "seen / arguments")
        >>> recall.column, recall.per, recall.better
        ('seen', 'arguments', 'higher')
        """
        return replace(cls.mean(name, meaning, "share", ratio, "higher"), interval=True)

    @classmethod
    def rate(cls, name: str, meaning: str, ratio: str, better: Better = "lower") -> Score:
        """Create a score that is a share without an interval.

        Parameters
        ----------
        name, meaning : str
            Name and description of the score.
        ratio : str
            Columns as ``"numerator / denominator"``. A single column is divided by the number of
            requests.
        better : {"lower", "higher", ""}
            Direction in which the score improves; empty if neither direction is better.

        Returns
        -------
        Score
            Ratio with the unit ``share``.
        """
        return cls.mean(name, meaning, "share", ratio, better)

    @classmethod
    def mean(
        cls, name: str, meaning: str, unit: str, ratio: str, better: Better = "lower"
    ) -> Score:
        """Create a score that is a mean: the sum of one column divided by the sum of another.

        Parameters
        ----------
        name, meaning, unit : str
            Name, description and unit of the score.
        ratio : str
            Columns as ``"numerator / denominator"``. A single column is divided by the number of
            requests.
        better : {"lower", "higher", ""}
            Direction in which the score improves; empty if neither direction is better.

        Returns
        -------
        Score
            Ratio without an interval.
        """
        column, _, per = ratio.partition(" / ")
        return cls(name, meaning, unit, "ratio", column, per, better=better)

    @classmethod
    def total(
        cls, name: str, meaning: str, unit: str, column: str = "", better: Better = "lower"
    ) -> Score:
        """Create a score that is the sum of a column over all requests.

        Parameters
        ----------
        name, meaning, unit : str
            Name, description and unit of the score.
        column : str, optional
            Name of the column to sum. By default, it is the name of the score.
        better : {"lower", "higher", ""}
            Direction in which the score improves; empty if neither direction is better.

        Returns
        -------
        Score
            Sum without an interval.
        """
        return cls(name, meaning, unit, "sum", column or name, better=better)

    def printed(self, heading: str, legend: str = "", section: str = "") -> Score:
        """Return a copy of the score that is shown in the printed leaderboard.

        Parameters
        ----------
        heading : str
            Heading of the score's column, in two lines; see ``Score.heading``.
        legend : str, optional
            Explanation of the heading, printed below the leaderboard.
        section : str, optional
            Title of the table below the leaderboard that shows the score; empty for the leaderboard.

        Returns
        -------
        Score
            Copy with this heading, legend and section.
        """
        return replace(self, heading=heading, legend=legend, section=section)


def divide_sums(numerators: FloatArray, denominators: FloatArray) -> FloatArray:
    """Divide arrays of sums elementwise. The result is nan where a denominator is not positive.

    Parameters
    ----------
    numerators, denominators : numpy.ndarray
        Sums, as arrays of the same shape.

    Returns
    -------
    numpy.ndarray
        Quotients, as an array of the same shape.

    Examples
    --------
    >>> divide_sums(np.array([1.0, 1.0]), np.array([2.0, 0.0])).tolist()
    [0.5, nan]
    """
    ratios: FloatArray = np.full(np.shape(denominators), np.nan)
    np.divide(numerators, denominators, out=ratios, where=denominators > 0)
    return ratios


class Metric(ABC):
    """Base class of metrics. A metric measures each request and summarizes each configuration."""

    columns: tuple[Column, ...]
    "quantities that the metric measures for each request"
    scores: tuple[Score, ...]
    "scores that are computed from the columns, for each recording and for the leaderboard"
    observers: Mapping[str, RequestObserver] = MappingProxyType({})
    "functions that the replay calls with each request, by name; most metrics have none"
    uses_probes: bool = False
    "True if the replay must also build the requests that ask the probes of a recording"

    @abstractmethod
    def measure(self, prepared: PreparedRecording, traces: Sequence[Trace]) -> Figures:
        """Compute the columns of the metric for each trace of a recording.

        Parameters
        ----------
        prepared : PreparedRecording
            Recording that was replayed.
        traces : sequence of Trace
            Traces of the recording, one per configuration.

        Returns
        -------
        mapping of str to numpy.ndarray of shape (traces, requests)
            Values of each column, by column name.
        """


class PerRequestMetric(Metric):
    """Metric with one column that a function computes. Its only score is the mean of the column.

    Parameters
    ----------
    column : Column
        Quantity that the function measures.
    function : callable
        Function that returns the value for a request. It is called with the context that is sent.
    """

    def __init__(self, column: Column, function: Callable[[Context], float]) -> None:
        name, meaning = column.name, column.meaning
        score = Score.mean(
            f"{name}_mean", f"mean per request: {meaning}", column.unit, name, better=""
        )
        self.columns = (column,)
        self.scores = (score.printed(f"{name}\nmean", f"{name}: {meaning}"),)
        self.observers = {name: function}

    @override
    def measure(self, prepared: PreparedRecording, traces: Sequence[Trace]) -> Figures:
        seen = {name: [trace.observations[name] for trace in traces] for name in self.observers}
        return {name: np.array(values, dtype=np.float64) for name, values in seen.items()}


def per_request_metric(name: str, meaning: str, unit: str) -> Callable[..., PerRequestMetric]:
    """Return a decorator that makes a metric from a function that measures one request.

    Parameters
    ----------
    name : str
        Name of the column.
    meaning : str
        Description of the column.
    unit : str
        Unit of the values.

    Returns
    -------
    callable
        Decorator that turns a function from ``Context`` to ``float`` into a ``PerRequestMetric``.

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
