"""Measure, compare and print: each line of the table shows figures, their ratio, and its bar."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from time import perf_counter
from typing import NamedTuple


class Line(NamedTuple):
    """One line of the table; the bar is the maximum or minimum of the ratio, if there is one."""

    what: str
    figures: str
    ratio: float | None = None
    at_most: float | None = None
    at_least: float | None = None

    @property
    def bar(self) -> str:
        """Text of the bar, such as ``≤ 2``; empty if there is no bar."""
        if self.at_most is not None:
            return f"≤ {self.at_most:g}"
        return "" if self.at_least is None else f"≥ {self.at_least:g}"

    @property
    def holds(self) -> bool | None:
        """True if the ratio is within the bar; None if there is no ratio or no bar."""
        if self.ratio is None or not self.bar:
            return None
        if self.at_most is not None and self.ratio > self.at_most:
            return False
        return self.at_least is None or self.ratio >= self.at_least


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


def ratio(of: Sequence[float], over: Sequence[float]) -> float:
    """Return the median of the ratios of measurements from the same round."""
    return median(a / b for a, b in zip(of, over, strict=True))


def show(title: str, lines: Iterable[Line]) -> bool:
    """Print a group line by line; return True if all ratios are within their bars."""
    print(f"\n{title}", flush=True)
    fine = True
    for line in lines:
        number = "" if line.ratio is None else _short(line.ratio)
        verdict = {None: "", True: "ok", False: "missed"}[line.holds]
        row = f"  {line.what:<58}  {line.figures:<46}  {number:>7}  {line.bar:>7}  {verdict}"
        print(row.rstrip(), flush=True)
        fine = fine and line.holds is not False
    return fine


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
