"""Compare the closed loop of ctxlab with the independent implementation, request by request.

Usage: ``PYTHONPATH=tests/evaluation/independent_recall python
tests/evaluation/independent_closed_loop/closed_agreement.py PATH...
[--strategies A B ...] [--limits N ...] [--smallest N] [--step N] [--differences N]``
"""

from __future__ import annotations

import argparse
import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import isclose, isnan
from pathlib import Path

from closed_replay import ClosedLoop, Recorded, Row

import ctxlab
from ctxlab.evaluation.engine import PreparedRecording
from ctxlab.messages.types import Recording
from ctxlab.strategies import parse_strategy
from ctxlab.tokens.counter import get_counter
from ctxlab.tokens.model_choice import ModelChoice

STRATEGIES = (
    "full",
    "nothing()",
    "sliding_window()",
    "observation_mask(keep=3) | panic()",
    "tool_stubs(keep=2) | panic()",
    "tool_stubs(keep=0)",
    "tool_result_cap(chars=60) | sliding_window()",
    "offload(tokens=20, preview=30) | sliding_window()",
    "rolling_summary() | panic()",
    "random_drop(seed=0)",
    "retrieval(k=3, share=0.3)",
    "contents() | panic()",
    "shorten_arguments(keep=0, limit=4, chars=2) | sliding_window()",
)
COLUMNS = (
    "refetches",
    "irrecoverable",
    "closed_usd",
    "refetches_named",
    "irrecoverable_named",
    "closed_usd_named",
    "refetches_changed",
    "irrecoverable_agent",
    "unrecovered",
    "closed_tokens",
    "closed_priced",
    "closed_cached",
)


@dataclass
class Agreement:
    """Equal and compared values by column and strategy, and a description of each difference."""

    compared: Counter[tuple[str, str]] = field(default_factory=Counter)
    equal: Counter[tuple[str, str]] = field(default_factory=Counter)
    sums: Counter[str] = field(default_factory=Counter)
    "sum of each column, to show that the comparison is not one of zeros"
    differences: list[str] = field(default_factory=list)

    def add(self, column: str, strategy: str, mine: float, theirs: float, where: str) -> None:
        """Compare one value."""
        is_equal = isclose(mine, theirs, rel_tol=1e-9, abs_tol=1e-15)
        is_equal = is_equal or (isnan(mine) and isnan(theirs))
        self.compared[column, strategy] += 1
        self.equal[column, strategy] += is_equal
        self.sums[column] += 0 if isnan(mine) else mine  # type: ignore[assignment]
        if not is_equal:
            self.differences.append(f"[{column}] {where}: page {mine}, ctxlab {theirs}")

    def update(self, other: Agreement) -> None:
        """Add the values of another comparison."""
        self.compared.update(other.compared)
        self.equal.update(other.equal)
        self.sums.update(other.sums)
        self.differences += other.differences


def compare_recording(
    recording: Recording,
    strategies: Sequence[str] = STRATEGIES,
    limits: Sequence[float] = (0.25, 0.5),
) -> Agreement:
    """Compare the closed loop of a recording under several strategies and limits.

    Parameters
    ----------
    recording : Recording
        Recording to replay.
    strategies : sequence of str
        Strategies to replay.
    limits : sequence of float
        Limits in tokens, or as fractions of the longest request.

    Returns
    -------
    Agreement
        Comparisons by column and strategy.
    """
    found = Agreement()
    counter = get_counter(ModelChoice.from_options(None, None, "").model_name_for(recording))
    prepared = PreparedRecording(recording, counter)
    if not prepared.request_positions:
        return found
    results = ctxlab.evaluate(
        [recording],
        strategies,
        limits,
        metrics=["cost", "closed_loop"],
        workers=1,
        progress=False,
    ).requests
    recorded = Recorded(prepared)
    for name in strategies:
        strategy = parse_strategy(name)
        for limit in limits:
            rows = ClosedLoop(recorded, strategy, limit).run()
            named = ClosedLoop(recorded, strategy, limit, name_suffices=True).run()
            is_mine = (results["strategy"] == repr(strategy)) & (results["limit"] == limit)
            theirs = results[is_mine].sort_values("request")
            for number, (row, lower) in enumerate(zip(rows, named, strict=True)):
                values = columns(row, lower)
                where = f"{recording.id}, request {number}, {name} at {limit}"
                for column in COLUMNS:
                    other = float(theirs[column].iloc[number])
                    found.add(column, name, values[column], other, where)
    return found


def columns(row: Row, named: Row) -> dict[str, float]:
    """Return the values of a row, by the names of ctxlab's columns."""
    return {
        "refetches": row.refetches,
        "irrecoverable": row.irrecoverable,
        "closed_usd": row.usd,
        "refetches_named": named.refetches,
        "irrecoverable_named": named.irrecoverable,
        "closed_usd_named": named.usd,
        "refetches_changed": row.refetches_changed,
        "irrecoverable_agent": row.irrecoverable_agent,
        "unrecovered": row.unrecovered,
        "closed_tokens": row.tokens,
        "closed_priced": row.priced,
        "closed_cached": row.cached,
    }


def smallest(path: Path, number: int, step: int = 1) -> list[Recording]:
    """Return the smallest recordings of a folder or file, or each ``step``-th one, by messages."""
    known = sorted(ctxlab.load(path, on_error="skip"), key=lambda each: len(each.messages))
    return known[::step][:number]


def main() -> None:
    """Compare recordings and print the agreement by column and by strategy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--strategies", nargs="*", default=STRATEGIES)
    parser.add_argument("--limits", nargs="*", type=float, default=(0.25, 0.5))
    parser.add_argument("--smallest", type=int, default=3, help="recordings per folder")
    parser.add_argument("--step", type=int, default=1, help="take each STEP-th recording by size")
    parser.add_argument("--differences", type=int, default=0, help="differences per recording")
    options = parser.parse_args()
    all_found = Agreement()
    chosen = [smallest(path, options.smallest, options.step) for path in options.paths]
    for recording in chain.from_iterable(chosen):
        found = compare_recording(recording, options.strategies, options.limits)
        compared, equal = found.compared.total(), found.equal.total()
        print(f"{recording.id}: {equal:,} of {compared:,} values are equal", flush=True)
        for difference in found.differences[: options.differences]:
            print("   ", difference)
        all_found.update(found)
    print_agreement(all_found)


def print_agreement(found: Agreement) -> None:
    """Print the share of equal values by column and by strategy."""
    for kind, name in enumerate(("column", "strategy")):
        print(f"\n{name:60} {'compared':>9} {'equal':>9}")
        for each in dict.fromkeys(key[kind] for key in found.compared):
            compared = sum(n for key, n in found.compared.items() if key[kind] == each)
            equal = sum(n for key, n in found.equal.items() if key[kind] == each)
            total = f", sum {found.sums[each]:,.4g}" if not kind else ""
            print(f"{each:60} {compared:>9,} {equal:>9,} {equal / compared:>8.3%}{total}")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
