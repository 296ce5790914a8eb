"""A line of the table is what was compared, the figures, their ratio, and the bar that it must keep."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from time import perf_counter
from typing import NamedTuple


class Line(NamedTuple):
    """One comparison; without a bar it is there to be read and not judged."""

    what: str
    figures: str
    ratio: float | None = None
    at_most: float | None = None
    at_least: float | None = None

    @property
    def bar(self) -> str:
        """What the ratio must be; empty where it is not judged."""
        if self.at_most is not None:
            return f"≤ {self.at_most:g}"
        return "" if self.at_least is None else f"≥ {self.at_least:g}"

    @property
    def holds(self) -> bool | None:
        """Whether the ratio keeps the bar; None where it is not judged."""
        if self.ratio is None or not self.bar:
            return None
        if self.at_most is not None and self.ratio > self.at_most:
            return False
        return self.at_least is None or self.ratio >= self.at_least


Group = Callable[[bool], Iterable[Line]]
"""Measures some bars, given whether to be quick about it."""


def alternate(
    rounds: int, *steps: Callable[[], object], before: Callable[[], object] = lambda: None
) -> list[list[float]]:
    """The seconds of each step in each round: ``[step][round]``, run as A B A B …

    ``before`` is called before each step and takes no part in its time.
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
    """The median of the ratios of what was measured side by side."""
    return median(a / b for a, b in zip(of, over, strict=True))


def show(title: str, lines: Iterable[Line]) -> bool:
    """Prints a group, each line as soon as it is known; returns whether all of its bars hold."""
    print(f"\n{title}", flush=True)
    fine = True
    for line in lines:
        number = "" if line.ratio is None else _short(line.ratio)
        verdict = {None: "", True: "holds", False: "falls short"}[line.holds]
        row = f"  {line.what:<58}  {line.figures:<46}  {number:>7}  {line.bar:>7}  {verdict}"
        print(row.rstrip(), flush=True)
        fine = fine and line.holds is not False
    return fine


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
