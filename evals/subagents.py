"""Compare subagents with an agent that does their work itself: ``python evals/subagents.py PATH…``.

A recorded agent with subagents is replayed three times: as recorded, where it sees only the answer of
each subagent; alone, with all messages of its subagents in its own context; and with forks, subagents
that begin with a copy of its context (``ctxlab.messages.subagents``). Tables show the tokens and the
cost of the agent and its subagents together, the longest requests, and where the agent had the names
from that a subagent saw first and that the agent used later.

With ``--write``, the page ``docs/subagents.md`` is written. Otherwise it is printed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from page_script import print_or_write, with_bounds

from ctxlab._utils.humanize import pluralize
from ctxlab._utils.tables import markdown_table
from ctxlab.evaluation.bootstrap import ratio_difference, ratio_interval
from ctxlab.evaluation.engine import PreparedRecording, Trace, replay_trace
from ctxlab.evaluation.fingerprint import recording_digest
from ctxlab.evaluation.metrics.cost import CostMetric
from ctxlab.evaluation.metrics.recall import FAR_TOKENS
from ctxlab.evaluation.visibility import measure_need_visibility
from ctxlab.formats import load
from ctxlab.messages.subagents import SUBAGENT, find_subagents, fork_subagent, inline_subagents
from ctxlab.messages.types import Recording
from ctxlab.strategies import parse_strategy
from ctxlab.tokens.cache_timeline import CostSettings
from ctxlab.tokens.counter import TokenCounter

_Array = npt.NDArray[np.float64]

PAGE = Path(__file__).parents[1] / "docs" / "subagents.md"
WINDOW = 200_000
"context window of most recorded models, in tokens"
SMALL = 100_000
"a limit at which a strategy has to remove messages"
STRATEGIES = {
    f"Full history, {WINDOW:,} tokens": ("full", WINDOW),
    f"`tool_stubs(keep=3) | sliding_window()`, {SMALL:,} tokens": (
        "tool_stubs(keep=3) | sliding_window()",
        SMALL,
    ),
}
VARIANTS = ("answer", "alone", "forks")
SOURCES = ("answer", "read again", "said", "never")

INTRO = """\
A subagent works in a context of its own, and the agent that started it sees only its answer. What does
this save, and what does the agent miss? Recorded agents are replayed with the same messages in three
arrangements:

- **answer**: as recorded. The agent sees the answer of each subagent.
- **alone**: the agent does the work of its subagents itself, in its own context.
- **forks**: each subagent begins with a copy of the agent's context. The agent sees only its answer.

In all three, the requests are as many, and every message but the prompt of a subagent is the same. All
are counted and priced with the model of the agent; the row *answer, own models* prices each subagent
with its own model, which is often smaller. The replay is an open loop: the agent acts as recorded. An
agent that had done the work itself might not have worked in the same way, and might not have repeated
what it had seen."""
READING = """\
*Tokens* are those of all requests of the agent and its subagents, with the system prompts and tool
definitions that the bills reveal; *dollars* are their input costs with 5-minute cache writes. Both are
divided by those of *answer*. The first request of a recording reads from the cache what its bill says.
*Over* is the share of requests that exceed the limit, which includes these unlogged tokens. *Longest*
is the median over agents of their longest request. *Held far* is the share of the far needs of the agent
that its requests hold: names that its tool calls use, that the user or a tool mentioned first, and that
an agent working alone would have seen more than 4,000 tokens before (see [Recall](recall.md); here each
need has the same weight). A need that only a subagent saw is not held as recorded. An agent that waits
for a subagent for more than 5 minutes loses its cache. Intervals are 95 % intervals over clusters."""
MISSED = """\
The last table has the needs of agents that a subagent's work mentions before any message of the agent
does. It says where the agent had the name from when it used it, which is the first of its own messages
with the name: the *answer* of a subagent; a tool result (*read again*); a text or call of its own, or of
the user (*said*); or nowhere (*never*)."""


class Family(NamedTuple):
    """An agent and its subagents."""

    parent: Recording
    children: list[Recording]

    @property
    def cluster(self) -> str:
        """Cluster of the agent."""
        return self.parent.cluster or self.parent.id


class Part(NamedTuple):
    """A replayed recording, of which the first requests may belong to another one."""

    prepared: PreparedRecording
    trace: Trace
    first: int
    "number of the first request that counts"

    def measure(self) -> dict[str, _Array]:
        """Return the columns of the metric ``cost``, one value per request that counts."""
        figures = CostMetric().measure(self.prepared, [self.trace])
        return {name: values[0, self.first :] for name, values in figures.items()}


def load_families(paths: Sequence[str]) -> list[Family]:
    """Load the agents whose subagents gave an answer, with bills of all of them; each only once."""
    recordings = list(load(paths))
    known = {recording.id: recording for recording in recordings}
    found, seen = [], set[str]()
    for id, children in find_subagents(recordings).items():
        parent = known[id]
        digest = recording_digest(parent)
        answered = [child for child in children if _is_answered(parent, child)]
        if digest in seen or not answered or parent.meta.get("parent"):
            continue
        seen.add(digest)
        family = Family(parent, answered)
        if all(_unlogged(each) is not None for each in (parent, *answered)):
            found.append(family)
    return found


def _is_answered(parent: Recording, child: Recording) -> bool:
    """Return whether the result of the call contains the last message of the subagent."""
    call, last = child.meta["call_id"], child.messages[-1]
    if last.role != "assistant" or last.tool_calls or not last.text.strip():
        return False
    results = (m.text for m in parent.messages if m.role == "tool" and m.tool_call_id == call)
    return any(last.text.strip() in text for text in results)


def _unlogged(recording: Recording) -> int | None:
    """Return the tokens of each request that the log does not contain; None if no bill tells them."""
    return PreparedRecording(recording, TokenCounter(recording.model or "")).unlogged_tokens


def _replay(
    recording: Recording,
    model: str,
    unlogged: int,
    strategy: str,
    limit: int,
    first_bill: Recording | None,
    first: int = 0,
) -> Part:
    """Replay a recording with a model. ``first_bill`` has the bill of its first request."""
    costs = CostSettings("5m", max(unlogged, 0), fixed_in_limit=True)
    prepared = PreparedRecording(recording, TokenCounter(model), costs=costs)
    if first_bill is not None:
        usages = [m.usage for m in first_bill.messages if m.role == "assistant"]
        read = usages[0].cache_read if usages and usages[0] else 0
        shared = np.zeros(len(prepared.request_positions))
        shared[:1] = read
        prepared.cache_timeline = prepared.cache_timeline._replace(shared=shared)
    trace = replay_trace(prepared, parse_strategy(strategy), prepared.make_budget(limit))
    return Part(prepared, trace, first)


def replay_family(family: Family, strategy: str, limit: int) -> dict[str, list[Part]]:
    """Return the replays of each variant, that of the agent first."""
    parent, children = family
    model = parent.model or ""
    fixed = _unlogged(parent) or 0
    agent = _replay(parent, model, fixed, strategy, limit, parent)
    alone = inline_subagents(parent, children)
    found = {
        "answer": [agent],
        "answer, own models": [agent],
        "alone": [_replay(alone, model, fixed, strategy, limit, parent)],
        "forks": [agent],
    }
    for child in children:
        own = _unlogged(child) or 0
        found["answer"].append(_replay(child, model, own, strategy, limit, child))
        cheaper = child.model or model
        found["answer, own models"].append(_replay(child, cheaper, own, strategy, limit, child))
        fork = fork_subagent(parent, child)
        first = sum(place < fork.meta["forked_at"] for place in fork.request_positions)
        found["forks"].append(_replay(fork, model, fixed, strategy, limit, None, first))
    return found


class Held(NamedTuple):
    """Needs of one agent."""

    far: int
    "number of far needs of the agent that a user or a tool mentioned first, if it works alone"
    alone: int
    "number of these that its requests hold if it works alone"
    answer: int
    "number of these that its requests hold as recorded"
    sources: Counter[str]
    "of the needs that a subagent saw first: where the agent had them from"


def measure_needs(recorded: Part, alone: Part) -> Held:
    """Compare the needs of an agent that works alone with what it held as recorded."""
    index, messages = alone.prepared.needs, alone.prepared.recording.messages
    own_number = _number_requests(alone)
    kept = measure_need_visibility(index, [alone.trace]).held[0]
    held = _held_needs(recorded)
    work, answers = _work_positions(alone.prepared.recording)
    far = both = before = 0
    sources: Counter[str] = Counter()
    for i in range(len(index)):
        need = index.get_need(i)
        number = own_number.get(need.argument.request)
        if number is None:
            continue
        if need.gap_tokens > FAR_TOKENS and need.origin_role != "assistant":
            far += 1
            both += bool(kept[i])
            before += held.get((number, need.argument.path, need.entity.text), False)
        start = index.mention_offsets[index.entity[i]]
        places = index.mentions[start : index.last_mention_row[i] + 1].tolist()
        if places[0] in work:
            own = next((place for place in places if place not in work), None)
            if own is None:
                sources["never"] += 1
            elif own in answers:
                sources["answer"] += 1
            else:
                sources["read again" if messages[own].role == "tool" else "said"] += 1
    return Held(far, both, before, sources)


def _number_requests(alone: Part) -> dict[int, int]:
    """Return the number of each request that the recorded agent made too, by its number alone."""
    messages = alone.prepared.recording.messages
    places = enumerate(alone.prepared.request_positions)
    own = [number for number, place in places if SUBAGENT not in messages[place].extra]
    return {number: recorded for recorded, number in enumerate(own)}


def _held_needs(part: Part) -> dict[tuple[int, str, str], bool]:
    index = part.prepared.needs
    held = measure_need_visibility(index, [part.trace]).held[0]
    needs = [index.get_need(i) for i in range(len(index))]
    return {
        (need.argument.request, need.argument.path, need.entity.text): bool(kept)
        for need, kept in zip(needs, held, strict=True)
    }


def _work_positions(recording: Recording) -> tuple[set[int], set[int]]:
    """Return the positions of the work of subagents, and those of their answers."""
    last: dict[str, int] = {}
    work = set()
    for position, message in enumerate(recording.messages):
        if SUBAGENT in message.extra:
            work.add(position)
            last[message.extra[SUBAGENT]] = position
    answers = set(last.values())
    return work - answers, answers


# --- the page -------------------------------------------------------------------------------------


class Row(NamedTuple):
    """Sums over the requests of one family in one variant."""

    tokens: float
    dollars: float
    requests: int
    over: int
    longest: float

    @classmethod
    def of(cls, parts: Sequence[Part], limit: int) -> Row:
        """Sum up the replays of a family."""
        measured = [part.measure() for part in parts]
        tokens = np.concatenate([each["priced_tokens"] for each in measured])
        dollars = sum(float(each["cost_usd"].sum()) for each in measured)
        longest = float(measured[0]["priced_tokens"].max(initial=0))
        over = int((tokens > limit).sum())
        return cls(float(tokens.sum()), dollars, len(tokens), over, longest)


def _sum_by_cluster(families: Sequence[Family], values: Sequence[float]) -> _Array:
    names = list(dict.fromkeys(family.cluster for family in families))
    sums = np.zeros(len(names))
    np.add.at(sums, [names.index(family.cluster) for family in families], values)
    return sums


def _ratio(
    families: Sequence[Family], top: Sequence[float], bottom: Sequence[float], form: str
) -> str:
    a, b = (_sum_by_cluster(families, each) for each in (top, bottom))
    if not b.sum():
        return "–"
    (low,), (high,) = ratio_interval(a[:, None], b[:, None])
    return with_bounds(a.sum() / b.sum(), low, high, form)


class Block(NamedTuple):
    """Results of all families under one strategy."""

    cells: dict[str, list[str]]
    "cells of the table by name of the variant"
    gain: str
    "difference of the held far needs: alone minus as recorded"
    needs: list[Held]
    "needs of each family"


def measure_block(families: Sequence[Family], strategy: str, limit: int) -> Block:
    """Replay all families under one strategy."""
    rows: dict[str, list[Row]] = {}
    needs = []
    for family in families:
        parts = replay_family(family, strategy, limit)
        for name, replays in parts.items():
            rows.setdefault(name, []).append(Row.of(replays, limit))
        needs.append(measure_needs(parts["answer"][0], parts["alone"][0]))
    total = [each.far for each in needs]
    held = {
        "answer": [each.answer for each in needs],
        "alone": [each.alone for each in needs],
    }
    cells = {}
    base = rows["answer"]
    for name, found in rows.items():
        seen = held["alone" if name == "alone" else "answer"]
        cells[name] = [
            _ratio(families, [r.tokens for r in found], [r.tokens for r in base], ".2f"),
            _ratio(families, [r.dollars for r in found], [r.dollars for r in base], ".2f"),
            _ratio(families, [r.over for r in found], [r.requests for r in found], ".1%"),
            f"{np.median([r.longest for r in found]):,.0f}",
            _ratio(families, seen, total, ".3f"),
        ]
    sums = [_sum_by_cluster(families, each) for each in (held["alone"], held["answer"], total)]
    more = ratio_difference(sums[0], sums[2], sums[1], sums[2])
    gain = f"{more.estimate:.3f}"
    if more.low < more.high:
        gain += f" ({more.low:.3f}–{more.high:.3f})"
    return Block(cells, gain, needs)


def write_page(paths: Sequence[str]) -> str:
    """Return the page as Markdown."""
    families = load_families(paths)
    return "\n\n".join(_sections(families)) + "\n"


def _sections(families: Sequence[Family]) -> Iterator[str]:
    yield "<!-- Generated by evals/subagents.py; do not edit. -->"
    yield "# Subagents"
    yield INTRO
    children = sum(len(family.children) for family in families)
    requests = sum(
        len(each.request_positions) for family in families for each in (*family[1], family[0])
    )
    clusters = len({family.cluster for family in families})
    smaller = sum(
        child.model != family.parent.model for family in families for child in family.children
    )
    yield (
        f"{pluralize(len(families), 'agent')} in {pluralize(clusters, 'cluster')} started "
        f"{pluralize(children, 'subagent')}, {smaller} of them with another model. They made "
        f"{requests:,} requests."
    )
    blocks = {title: measure_block(families, *how) for title, how in STRATEGIES.items()}
    needs = next(iter(blocks.values())).needs
    totals = [float(sum(each.sources.values())) for each in needs]
    sources = {
        name: _ratio(families, [each.sources[name] for each in needs], totals, ".1%")
        for name in SOURCES
    }
    yield "\n".join(f"- {line}" for line in _conclusions(blocks, sources))
    yield READING
    for title, block in blocks.items():
        yield f"## {title}"
        heads = ["variant", "tokens", "dollars", "over", "longest", "held far"]
        yield markdown_table(heads, [[name, *row] for name, row in block.cells.items()])
    yield "## What a subagent saw first"
    yield MISSED
    yield markdown_table(["needs", *SOURCES], [[f"{sum(totals):,.0f}", *sources.values()]])


def _conclusions(blocks: Mapping[str, Block], sources: Mapping[str, str]) -> Iterator[str]:
    """Yield sentences on what subagents save and lose."""
    for title, block in blocks.items():
        tokens, dollars, *_ = block.cells["alone"]
        forked, paid, *_ = block.cells["forks"]
        yield (
            f"{title}: an agent that works alone sends {tokens} times the tokens and pays {dollars} "
            f"times the dollars. It holds {block.gain} more of its far needs. With forks, the agent "
            f"sends {forked} times the tokens and pays {paid} times the dollars."
        )
    yield (
        f"Of the names that a subagent saw first and the agent used later, {sources['answer']} came "
        f"with the answer, and the agent read {sources['read again']} again itself."
    )


if __name__ == "__main__":
    print_or_write(write_page, PAGE, __doc__)
