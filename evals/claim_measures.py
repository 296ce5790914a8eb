"""Measure figures for ``claims.py`` on published recordings, each with its interval over clusters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import complexity_trap as trap
import numpy as np
import numpy.typing as npt
import pandas as pd
from msgspec import structs

from ctxlab.evaluation.bootstrap import ratio_interval
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.results import Results
from ctxlab.evaluation.survival import measure_survival
from ctxlab.evaluation.verdict import choose_configuration
from ctxlab.messages.entities import contains_entity, find_entities
from ctxlab.messages.types import Compaction, Message, Recording, count_message_chars
from ctxlab.strategies.registry import DEFAULT_LINEUP
from ctxlab.tokens.billing import billed_input_tokens

CLAUDE, PI = "claude-code-entireio", "pi-mono"
CODING = (CLAUDE, "mini-swe-agent", "openhands")
NO_LIMIT = 10.0**7
WRITE_5M, WRITE_1H, READ = 1.25, 2.0, 0.1
"prices of Claude's cache writes and reads, as a multiple of the input price"


class Measured(NamedTuple):
    """A measured figure with its 95 % interval over clusters."""

    value: float
    low: float
    high: float
    clusters: int


def ratio(top: npt.ArrayLike, bottom: npt.ArrayLike) -> Measured:
    """Return the ratio of two sums over clusters. If all clusters agree, the interval is a point."""
    above, below = (np.asarray(each, np.float64)[:, None] for each in (top, bottom))
    used = int((below > 0).sum())
    value = float(above.sum() / below.sum()) if below.sum() else math.nan
    low, high = (float(bound[0]) for bound in ratio_interval(above, below))
    return Measured(value, *((value, value) if math.isnan(low) else (low, high)), used)


def by_cluster(rows: Iterable[tuple[str, float, float]]) -> Measured:
    """Return the ratio of two amounts that are given by cluster."""
    frame = pd.DataFrame(rows, columns=["cluster", "top", "bottom"])
    sums = frame.groupby("cluster")[["top", "bottom"]].sum()
    return ratio(sums["top"], sums["bottom"])


def change(frame: pd.DataFrame, column: str, one: str, other: str) -> Measured:
    """Return the relative change of the sum of a column from one strategy to another."""
    found = trap.compare_ratios(frame.assign(each=1), column, "each", one, other, relative=True)
    bounds = (found.low, found.high)
    if math.isnan(found.low):
        bounds = (found.estimate, found.estimate)
    return Measured(found.estimate, *bounds, found.clusters)


def trap_change(column: str, one: str, other: str) -> Measured:
    """Return the change of the cost at a price list, over all logs of software-engineering agents."""
    frame = pd.concat([trap.price_requests(name) for name in trap.SCAFFOLDS], ignore_index=True)
    return change(frame, column, one, other)


def keep_differs() -> Measured:
    """Return the smallest sufficient ``keep`` of mini-swe-agent, divided by that of OpenHands."""
    keeps = np.array([*trap.KEEPS, 2 * trap.KEEPS[-1]])  # twice the largest stands for "more"
    searched = [trap.search_keep(name) for name in ("mini-swe-agent", "openhands")]
    value, draws = [], []
    for _, above, below in searched:
        value.append(keeps[trap.first_sufficient(above.sum(0) / below.sum(0))])
        draws.append(keeps[trap.draw_first(above, below)])
    low, high = np.quantile(draws[0] / draws[1], [0.025, 0.975])
    clusters = min(len(each.above) for each in searched)
    return Measured(value[0] / value[1], float(low), float(high), clusters)


@cache
def replayed(
    names: Sequence[str],
    strategies: Sequence[str],
    limit: float,
    requests: int = 0,
    model: str | None = None,
) -> Results:
    """Replay data sets. With ``requests``, only the first ones of recordings that have as many."""
    recordings = [each for name in names for each in trap.read(name)]
    if requests:
        recordings = [
            _first_requests(each, requests)
            for each in recordings
            if len(each.request_positions) >= requests
        ]
    return evaluate(recordings, list(strategies), limit, model, workers=1, progress=False)


def _first_requests(recording: Recording, count: int) -> Recording:
    end = recording.request_positions[count - 1] + 1
    compactions = tuple(each for each in recording.compactions if each.position < end)
    first = recording.messages[:end]
    return structs.replace(recording, messages=first, compactions=compactions)


def replayed_change(
    names: Sequence[str],
    strategy: str,
    column: str = "tokens",
    limit: float = NO_LIMIT,
    requests: int = 0,
) -> Measured:
    """Return the change of a column from full history to a strategy."""
    results = replayed(tuple(names), ("full()", strategy), limit, requests)
    return change(results.requests, column, strategy, "full()")


def best_saving(column: str) -> Measured:
    """Return the saving of the cheapest default strategy that keeps 95 % of the held far recall."""
    results = replayed((CLAUDE,), DEFAULT_LINEUP, 100_000)
    choice = choose_configuration(results.leaderboard())
    if choice is None or not choice.qualifies:
        return Measured(math.nan, math.nan, math.nan, 0)
    if column != "peak":
        return change(results.requests, column, choice.key[1], "full()")
    runs = results.runs.assign(strategy=results.runs["strategy"].astype(str))
    return change(runs, "tokens_peak", choice.key[1], "full()")


def cached_share() -> Measured:
    """Return the share of billed input tokens that Claude Code's provider read from its cache."""
    return by_cluster(
        (_cluster(each), message.usage.cache_read, _prompt(message))
        for each, message in _billed(CLAUDE)
    )


def caching_saving() -> Measured:
    """Return what caching saved of the input cost of the bills, at Claude's price ratios."""
    rows = []
    for each, message in _billed(CLAUDE):
        used, prompt = message.usage, _prompt(message)
        short = used.cache_write - used.cache_write_1h
        cost = used.input + WRITE_5M * short + WRITE_1H * used.cache_write_1h
        rows.append((_cluster(each), prompt - cost - READ * used.cache_read, prompt))
    return by_cluster(rows)


def written_again() -> Measured:
    """Return the share of the first prompt after a compaction that is written to the cache again."""
    rows = []
    for recording, compaction in _compactions():
        message = recording.messages[_request_after(recording, compaction)]
        if message.usage:
            rows.append((_cluster(recording), message.usage.cache_write, _prompt(message)))
    return by_cluster(rows)


def pruning_factor() -> Measured:
    """Return the cost of the requests that a masking pass edits, per cost of the requests before."""
    passes = "in_batches(observation_mask(keep=10), trigger=0.5)"
    frame = replayed((CLAUDE, PI), (passes,), 200_000).requests
    before = frame.groupby("recording", observed=True)["cost_usd"].shift()
    edited = frame[frame["compacted"].astype(bool) & before.notna()]
    return by_cluster(zip(edited["cluster"], edited["cost_usd"], before[edited.index], strict=True))


def compaction_trigger() -> Measured:
    """Return the prompt before a compaction of Claude Code, as a share of 200,000 tokens."""
    rows = []
    for recording, compaction in _compactions(CLAUDE):
        bills = billed_input_tokens(recording)
        before = [bills[at] for at in sorted(bills) if at < compaction.position]
        if before:
            rows.append((_cluster(recording), before[-1], 200_000))
    return by_cluster(rows)


def kept_by_compaction(kind: str) -> Measured:
    """Return the share of the names in removed messages that the context still has after it."""
    rows = []
    for recording, compaction in _compactions():
        kept = {each for each in compaction.context if isinstance(each, int)}
        before = [
            m for i, m in enumerate(recording.messages[: compaction.position]) if i not in kept
        ]
        after = "\n".join(_text(m) for m in compaction.sent_messages(recording.messages))
        if kind == "command":
            calls = (call for message in before for call in message.tool_calls)
            said = {v for call in calls for k, v in call.argument_leaves() if k == "command"}
            names = {each for each in said if isinstance(each, str)}
            found = sum(each in after for each in names)
        else:
            texts = map(_text, before)
            names = {e.text for text in texts for e in find_entities(text) if e.kind == kind}
            found = sum(contains_entity(after, each) for each in names)
        rows.append((_cluster(recording), found, len(names)))
    return by_cluster(rows)


def compression() -> Measured:
    """Return the share of the message tokens that a recorded compaction of Claude Code removed."""
    frame = replayed((CLAUDE,), ("recorded()",), NO_LIMIT).compactions
    rows = frame[frame["kind"] == "summary"]
    return by_cluster(zip(rows["cluster"], rows["freed"], rows["tokens_before"], strict=True))


def read_again() -> Measured:
    """Return the share of recorded compactions after which a call fetched removed content again."""
    frame = replayed((CLAUDE, PI), ("recorded()",), NO_LIMIT).compactions
    rows = frame[frame["kind"] == "summary"]
    return by_cluster(
        (cluster, again > 0, 1) for cluster, again in rows[["cluster", "read_again"]].values
    )


@cache
def survival(strategy: str, limit: float, kinds: tuple[str, ...]) -> Measured:
    """Return the share of planted facts that are still in the last request of a recording."""
    options: dict[str, Any] = {"kinds": kinds} if kinds else {}
    found = measure_survival(
        trap.read(CLAUDE), strategy, limit, n=10, workers=1, progress=False, **options
    )
    return by_cluster(found.frame[["cluster", "end_kept", "end"]].values)


def invalid_share(strategy: str) -> Measured:
    """Return the share of the requests that a strategy shortened and that a provider would reject."""
    # OpenAI's rules, unlike Anthropic's, let a conversation begin with a message of the assistant. So
    # only broken pairs of calls and results count.
    data, model = (*CODING, "tau2-bench"), "gpt-4o"
    frame = replayed(data, ("full()", strategy), 0.5, model=model).requests
    tokens = frame.set_index(["strategy", "recording", "request"])["tokens"]
    full, own = tokens.loc["full()"], frame[frame["strategy"] == strategy]
    whole = full.loc[list(zip(own["recording"], own["request"], strict=True))].to_numpy()
    cut = own[own["tokens"].to_numpy() < whole]
    return by_cluster((c, float(bad), 1) for c, bad in cut[["cluster", "newly_invalid"]].values)


def undercount() -> Measured:
    """Return by how much a quarter of the characters is below the billed growth of the prompt."""
    rows = []
    for recording in trap.read(CLAUDE):
        bills = billed_input_tokens(recording)
        edited = {each.position for each in recording.compactions}
        for one, other in zip(sorted(bills), sorted(bills)[1:], strict=False):
            grown = bills[other] - bills[one]
            if grown > 0 and not any(one < at <= other for at in edited):
                added = sum(map(count_message_chars, recording.messages[one:other])) / 4
                rows.append((_cluster(recording), grown - added, grown))
    return by_cluster(rows)


def _billed(name: str) -> Iterator[tuple[Recording, Any]]:
    for recording in trap.read(name):
        for at in recording.request_positions:
            if recording.messages[at].usage and _prompt(recording.messages[at]):
                yield recording, recording.messages[at]


def _prompt(message: Message) -> int:
    used = message.usage
    return used.input + used.cache_read + used.cache_write if used else 0


def _compactions(*names: str) -> Iterator[tuple[Recording, Compaction]]:
    """Yield the recorded compactions that wrote a summary."""
    for name in names or (CLAUDE, PI):
        for recording in trap.read(name):
            for compaction in recording.compactions:
                if compaction.summary:
                    yield recording, compaction


def _request_after(recording: Recording, compaction: Compaction) -> int:
    return next(at for at in recording.request_positions if at >= compaction.position)


def _cluster(recording: Recording) -> str:
    return recording.cluster or recording.id


def _text(message: Message) -> str:
    leaves = (str(leaf) for call in message.tool_calls for _, leaf in call.argument_leaves())
    return "\n".join([message.text, *leaves])
