"""Measure, and print lines: the figures, the median and the spread of a measured value, and its bar."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median, quantiles
from time import perf_counter
from typing import NamedTuple

RATIO = "×"
"""Unit of a ratio of two measurements."""

_LEAST_FOR_QUARTILES = 5


class Line(NamedTuple):
    """One line of the table; the bar is the maximum or minimum of the median, if there is one."""

    what: str
    "name of the measurement; names with values are unique within a group"
    figures: str = ""
    "what the value is computed from, as text"
    values: Sequence[float] = ()
    "the value in each round; none if the line is only a remark"
    at_most: float | None = None
    at_least: float | None = None
    unit: str = RATIO

    @property
    def median(self) -> float | None:
        """Median over the rounds; None if nothing was measured."""
        return median(self.values) if self.values else None

    @property
    def spread(self) -> tuple[float, float] | None:
        """Interquartile range of at least five rounds, or range of fewer; None of a single round."""
        return spread(self.values)

    @property
    def bar(self) -> str:
        """Text of the bar, such as ``≤ 2``; empty if there is no bar."""
        if self.at_most is not None:
            return f"≤ {self.at_most:g}"
        return "" if self.at_least is None else f"≥ {self.at_least:g}"

    @property
    def met(self) -> bool | None:
        """True if the median is within the bar; None if there is no value or no bar."""
        middle = self.median
        if middle is None or not self.bar:
            return None
        if self.at_most is not None and middle > self.at_most:
            return False
        return self.at_least is None or middle >= self.at_least


Group = Callable[[bool], Iterable[Line]]
"""Function that yields the lines of a group; its argument is True for a quick run."""


def alternate(
    rounds: int, *steps: Callable[[], object], before: Callable[[], object] = lambda: None
) -> list[list[float]]:
    """Run steps alternately (A B A B …) and return their seconds as ``[step][round]``.

    ``before`` is called before each step; its time is not included.
    """
    seconds: list[list[float]] = [[] for _ in steps]
    for _ in range(rounds):
        for step, taken in zip(steps, seconds, strict=True):
            before()
            start = perf_counter()
            step()
            taken.append(perf_counter() - start)
    return seconds


def ratios(of: Sequence[float], over: Sequence[float]) -> list[float]:
    """Return the ratio of the two measurements of each round."""
    return [a / b for a, b in zip(of, over, strict=True)]


def spread(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the interquartile range of at least five values, or the range of fewer.

    One value has no spread: None.
    """
    if len(values) < 2:
        return None
    if len(values) < _LEAST_FOR_QUARTILES:
        return min(values), max(values)
    low, _, high = quantiles(values, method="inclusive")
    return low, high


def show(title: str, lines: Iterable[Line]) -> list[Line]:
    """Print a group line by line, and return its lines. Two lines with values need different names."""
    print(f"\n{title}", flush=True)
    shown: list[Line] = []
    for line in lines:
        if line.values and any(line.what == each.what and each.values for each in shown):
            raise ValueError(f"two lines of a group have the name {line.what!r}")
        verdict = {None: "", True: "met", False: "missed"}[line.met]
        value = f"{show_number(line.median)} {line.unit}" if line.values else ""
        row = f"  {line.what:<66}  {line.figures:<42}  {value:>11}  {show_spread(line.spread):>13}"
        print(f"{row}  {line.bar:>7}  {verdict}".rstrip(), flush=True)
        shown.append(line)
    return shown


def show_number(number: float | None) -> str:
    """Format a number with three significant digits; None gives an empty text."""
    if number is None:
        return ""
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def show_spread(found: Sequence[float] | None) -> str:
    """Format a spread, such as ``1.02–1.1``."""
    return "–".join(map(show_number, found)) if found else ""
