"""Base types of metrics: columns, scores and the base class ``Metric``.

A metric declares its columns and scores as data and computes the columns from the traces of a
recording. ``measure`` gets all configurations of one recording at once, so that shared work is done
once and the rest with arrays. Use ``per_request_metric`` for a metric that inspects each request as
it would be sent.
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
"""Arrays of shape ``(traces, requests)`` by column name."""
Better = Literal["higher", "lower", ""]
"""Which direction of a score is better; empty if it depends."""


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

    Scores are computed from sums, not as a mean of means: longer recordings weigh more. The class
    methods make the usual ones.
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
    better: Better = ""
    "which direction is better; empty if it depends"
    heading: str = ""
    """heading in the printed leaderboard, in two lines; a score without one is not printed there.
    With ``(95 %)`` in the second line a share is printed with its interval, with another ``%`` as a
    percentage."""
    legend: str = ""
    "explanation of the heading, printed below the leaderboard"

    @property
    def run_columns(self) -> tuple[str, ...]:
        """Columns of ``Results.runs`` with the score's numerator and denominator, or with its value.

        >>> Score("tokens_mean", "", "tokens", "ratio", "tokens").run_columns
        ('tokens', 'requests')
        """
        if self.how == "max":
            return (self.name,)
        return (self.column,) if self.how == "sum" else (self.column, self.per or "requests")

    def compute(self, numerators: FloatArray, denominators: FloatArray) -> FloatArray:
        """Compute a score that is a sum or a ratio from sums; nan where nothing counts for a ratio.

        Parameters
        ----------
        numerators : numpy.ndarray
            Sums of ``column``.
        denominators : numpy.ndarray
            Sums of ``per``; not used for a sum.

        Returns
        -------
        numpy.ndarray
            One value per sum.
        """
        return numerators if self.how == "sum" else divide_sums(numerators, denominators)

    @classmethod
    def share(cls, name: str, meaning: str, ratio: str) -> Score:
        """Create a share with an interval; more is better.

        Parameters
        ----------
        name, meaning : str
            Name and description of the score.
        ratio : str
            Columns as ``"numerator / denominator"``; one column alone is divided by the requests.

        Returns
        -------
        Score
            The score.

        Examples
        --------
        >>> recall = Score.share("recall", "share of what the agent used next", "seen / arguments")
        >>> recall.column, recall.per, recall.better
        ('seen', 'arguments', 'higher')
        """
        return replace(cls.mean(name, meaning, "share", ratio, "higher"), interval=True)

    @classmethod
    def rate(cls, name: str, meaning: str, ratio: str, better: Better = "lower") -> Score:
        """Create a share without an interval.

        Parameters
        ----------
        name, meaning : str
            Name and description of the score.
        ratio : str
            Columns as ``"numerator / denominator"``; one column alone is divided by the requests.
        better : {"lower", "higher", ""}
            Which direction is better.

        Returns
        -------
        Score
            The score.
        """
        return cls.mean(name, meaning, "share", ratio, better)

    @classmethod
    def mean(
        cls, name: str, meaning: str, unit: str, ratio: str, better: Better = "lower"
    ) -> Score:
        """Create a mean.

        Parameters
        ----------
        name, meaning, unit : str
            Name, description and unit of the score.
        ratio : str
            Columns as ``"numerator / denominator"``; one column alone is divided by the requests.
        better : {"lower", "higher", ""}
            Which direction is better.

        Returns
        -------
        Score
            The score.
        """
        column, _, per = ratio.partition(" / ")
        return cls(name, meaning, unit, "ratio", column, per, better=better)

    @classmethod
    def total(
        cls, name: str, meaning: str, unit: str, column: str = "", better: Better = "lower"
    ) -> Score:
        """Create a sum.

        Parameters
        ----------
        name, meaning, unit : str
            Name, description and unit of the score.
        column : str, optional
            The column that is summed; the one with the name of the score if left out.
        better : {"lower", "higher", ""}
            Which direction is better.

        Returns
        -------
        Score
            The score.
        """
        return cls(name, meaning, unit, "sum", column or name, better=better)

    def printed(self, heading: str, legend: str = "") -> Score:
        """Return the score with a column in the printed leaderboard.

        Parameters
        ----------
        heading : str
            See ``Score.heading``.
        legend : str, optional
            Explanation of the heading.

        Returns
        -------
        Score
            A copy.
        """
        return replace(self, heading=heading, legend=legend)


def divide_sums(numerators: FloatArray, denominators: FloatArray) -> FloatArray:
    """Divide sums; the result is nan where a denominator is not positive.

    Parameters
    ----------
    numerators, denominators : numpy.ndarray
        The sums.

    Returns
    -------
    numpy.ndarray
        The ratios.

    Examples
    --------
    >>> divide_sums(np.array([1.0, 1.0]), np.array([2.0, 0.0])).tolist()
    [0.5, nan]
    """
    ratios: FloatArray = np.full(np.shape(denominators), np.nan)
    np.divide(numerators, denominators, out=ratios, where=denominators > 0)
    return ratios


class Metric(ABC):
    """Base class of metrics, which measure each request and sum up a strategy."""

    columns: tuple[Column, ...]
    "the figures of each request"
    scores: tuple[Score, ...]
    "the figures of a run and of the leaderboard"
    observers: Mapping[str, RequestObserver] = MappingProxyType({})
    "functions, by name, that are called with each request as it is sent; often none"
    uses_probes: bool = False
    "True if the probes of a recording must be previewed"

    @abstractmethod
    def measure(self, prepared: PreparedRecording, traces: Sequence[Trace]) -> Figures:
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


class PerRequestMetric(Metric):
    """A metric computed by a function of each request; its score is the mean.

    Parameters
    ----------
    column : Column
        The figure that the function computes.
    function : callable
        Computes the figure from the context that is sent.
    """

    def __init__(self, column: Column, function: Callable[[Context], float]) -> None:
        name, meaning = column.name, column.meaning
        score = Score.mean(f"{name}_mean", f"mean of: {meaning}", column.unit, name, better="")
        self.columns = (column,)
        self.scores = (score.printed(f"{name}\nmean", f"{name}: {meaning}"),)
        self.observers = {name: function}

    @override
    def measure(self, prepared: PreparedRecording, traces: Sequence[Trace]) -> Figures:
        seen = {name: [trace.observations[name] for trace in traces] for name in self.observers}
        return {name: np.array(values, dtype=np.float64) for name, values in seen.items()}


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
