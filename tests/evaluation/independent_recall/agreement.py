"""Compare the recall of ctxlab with the independent implementation, need by need.

Usage: ``python tests/evaluation/independent_recall/agreement.py PATH... [--strategies A B ...]
[--limits N ...] [--sample N] [--differences N]``
"""

from __future__ import annotations

import argparse
import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recall import Call, Need, Recall, Said, Sent

import ctxlab
from ctxlab.context.context import Context
from ctxlab.context.history import Entry
from ctxlab.evaluation.engine import PreparedRecording, replay_trace
from ctxlab.evaluation.visibility import measure_need_visibility
from ctxlab.messages.types import Message
from ctxlab.strategies import parse_strategy
from ctxlab.tokens.counter import TokenCounter

STRATEGIES = (
    "full",
    "nothing",
    "sliding_window()",
    "observation_mask(keep=3)",
    "tool_result_cap(chars=500)",
    "rolling_summary()",
    "contents()",
    "middle_out()",
    "oracle",
)
LIMITS = (8_000, 32_000)

Key = tuple[int, int, str]
"""Number of the request, number of the argument in its action, and text of the entity."""


@dataclass
class Agreement:
    """Equal and compared needs, by what was compared, and a description of each difference."""

    compared: Counter[str] = field(default_factory=Counter)
    equal: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    def add(self, what: str, is_equal: bool, difference: str) -> None:
        """Count one comparison."""
        self.compared[what] += 1
        self.equal[what] += is_equal
        if not is_equal:
            self.differences.append(f"[{what}] {difference}")

    def update(self, other: Agreement) -> None:
        """Add the counts of another recording."""
        self.compared.update(other.compared)
        self.equal.update(other.equal)
        self.differences += other.differences

    def share(self, *names: str) -> float:
        """Return the share of equal comparisons, of the given kinds or of all."""
        names = names or tuple(self.compared)
        compared = sum(self.compared[name] for name in names)
        return sum(self.equal[name] for name in names) / compared if compared else 1.0


def compare_recording(
    recording: ctxlab.Recording,
    counter: TokenCounter,
    strategies: Sequence[str] = STRATEGIES,
    limits: Sequence[int] = LIMITS,
) -> Agreement:
    """Compare the needs of a recording, and their tiers under several strategies.

    Parameters
    ----------
    recording : Recording
        Recording to replay.
    counter : TokenCounter
        Counter of tokens.
    strategies : sequence of str
        Strategies to replay.
    limits : sequence of int
        Limits in tokens.

    Returns
    -------
    Agreement
        Comparisons by ``needs`` and by strategy with its limit.
    """
    found = Agreement()
    prepared = PreparedRecording(recording, counter)
    theirs = _needs_of_ctxlab(prepared)
    messages = [_plain(entry.message, entry.tokens) for entry in prepared.history.entries]
    if not messages:
        return found
    folder = recording.meta.get("cwd")
    tools = "\n".join(_strings(list(recording.tools)))
    independent = Recall(messages, tools, folder if isinstance(folder, str) else None)
    if independent.requests != list(prepared.request_positions):
        raise AssertionError(f"{recording.id}: the requests differ")
    numbers = {position: number for number, position in enumerate(independent.requests)}
    ours = {(numbers[n.request], n.argument, n.entity.text): n for n in independent.needs()}
    for key in sorted(ours.keys() | theirs.keys()):
        mine = (ours[key].origin, ours[key].gap) if key in ours else None
        other = theirs[key][1:] if key in theirs else None
        where = f"{recording.id} {key}"
        found.add("needs", mine == other, f"{where}: page {mine}, ctxlab {other}")
    common = {key: ours[key] for key in ours if key in theirs}
    for name in strategies:
        for limit in limits:
            what = f"{name} at {limit}"
            is_limited = _compare_tiers(
                found, what, prepared, independent, common, theirs, name, limit
            )
            if not is_limited:
                break
    return found


def _compare_tiers(
    found: Agreement,
    what: str,
    prepared: PreparedRecording,
    independent: Recall,
    needs: dict[Key, Need],
    theirs: dict[Key, tuple[int, str, int]],
    strategy: str,
    limit: int,
) -> bool:
    """Compare the tiers of needs under one strategy. Return whether it depends on the limit."""
    by_request: dict[int, list[Key]] = {}
    for key, need in needs.items():
        by_request.setdefault(need.request, []).append(key)
    known: dict[int, tuple[Entry, Sent]] = {}

    def convert(entry: Entry) -> Sent:
        if id(entry) not in known:  # keep the entry alive, so that its id is not reused
            message = _plain(entry.message, 0)
            known[id(entry)] = entry, Sent(entry.start, entry.stop, entry.form.value, message)
        return known[id(entry)][1]

    def observe(context: Context) -> dict[Key, tuple[str, bool]]:
        keys = by_request.get(context.history_length, [])
        sent = [convert(entry) for entry in context.entries] if keys else []
        tiers = {key: independent.tier(needs[key], sent) for key in keys}
        return {k: (t, independent.is_similar(needs[k], t, sent)) for k, t in tiers.items()}

    budget = prepared.make_budget(limit)
    trace = replay_trace(prepared, parse_strategy(strategy), budget, {"independent": observe})
    view = measure_need_visibility(prepared.needs, [trace])
    for tiers in trace.observations["independent"]:
        for key, mine in tiers.items():
            i = theirs[key][0]
            other = "lost"
            if view.in_view[0, i]:
                other = "held" if view.held[0, i] else "named"
            elif view.fetchable[0, i]:
                other = "pointer"
            theirs_now = other, bool(view.similar[0, i])
            difference = f"{prepared.recording.id} {key}: page {mine}, ctxlab {theirs_now}"
            found.add(what, mine == theirs_now, difference)
    return trace.context.budget_read


def _needs_of_ctxlab(prepared: PreparedRecording) -> dict[Key, tuple[int, str, int]]:
    """Return index, origin and gap of each need that ctxlab finds."""
    needs, found = prepared.needs, {}
    first: dict[int, int] = {}
    for number, argument in enumerate(needs.arguments):
        first.setdefault(argument.request, number)
    for i in range(len(needs)):
        need = needs.get_need(i)
        request, argument = need.argument.request, int(needs.argument[i])
        key = request, argument - first[request], need.entity.text
        origin = "agent" if need.origin_role == "assistant" else need.origin_role
        found[key] = i, origin, need.gap_tokens
    return found


def _plain(message: Message, tokens: int) -> Said:
    calls = [Call(call.name, call.arguments) for call in message.tool_calls]
    return Said(message.role, message.text, calls, tokens)


def _strings(value: Any) -> Iterator[str]:
    """List the keys and values of tool definitions."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield name
            yield from _strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)
    else:
        yield str(value)


def compare_files(
    paths: Sequence[Path], strategies: Sequence[str], limits: Sequence[int], sample: int
) -> Iterator[tuple[str, Agreement]]:
    """Compare the first recordings of each folder or file; yield the name and agreement of each."""
    counter = TokenCounter("gpt-4o")
    for path in paths:
        taken: Counter[str] = Counter()
        for recording in ctxlab.load(path, on_error="skip"):
            folder = str(Path(recording.source or "").parent)
            taken[folder] += 1
            if taken[folder] <= sample:
                yield recording.id, compare_recording(recording, counter, strategies, limits)


def main() -> None:
    """Compare recordings and print the agreement by recording and by strategy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--strategies", nargs="*", default=STRATEGIES)
    parser.add_argument("--limits", nargs="*", type=int, default=LIMITS)
    parser.add_argument("--sample", type=int, default=10**6, help="recordings per folder")
    parser.add_argument("--differences", type=int, default=0, help="differences per recording")
    options = parser.parse_args()
    total = Agreement()
    compared = compare_files(options.paths, options.strategies, options.limits, options.sample)
    for name, found in compared:
        tiers = [what for what in found.compared if what != "needs"]
        print(
            f"{name}: {found.compared['needs']} needs, {found.share('needs'):.2%} equal; "
            f"tiers {found.share(*tiers) if tiers else 1:.2%} equal",
            flush=True,
        )
        for difference in found.differences[: options.differences]:
            print("   ", difference)
        total.update(found)
    print()
    for what, number in total.compared.items():
        print(f"{what:32} {number:>9,} compared, {total.share(what):.3%} equal")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
