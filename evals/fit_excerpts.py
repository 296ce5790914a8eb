"""Fit the model of ``excerpt_memory`` that predicts reuse: ``python evals/fit_excerpts.py PATH…``.

Each recording is replayed with ``excerpt_memory`` under several limits. At each compaction, every
entity that only the folded messages mention is one case: its features, and whether the recorded agent
uses it before the next compaction. A logistic regression is fitted to these cases. All families of
recordings have the same weight, where a family is a folder: one product in one repository.

The script prints the weights, and for each family those fitted without it, with the share of the used
entities among the likeliest 5 % and 15 % of its candidates. With ``--write``, the file
``ctxlab/strategies/helpers/entity_memory.toml`` is written. With ``--without FILE``, the weights fitted
without each family, of the model and of its ablations, are stored as JSON for
``evals/excerpt_frontier.py``; the empty key has those fitted on all, for families with few cases.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import ctxlab
from ctxlab._utils.progress import track
from ctxlab._utils.tables import markdown_table
from ctxlab.context.context import Context
from ctxlab.evaluation.engine import PreparedRecording, replay_trace
from ctxlab.evaluation.fingerprint import recording_digest
from ctxlab.evaluation.references import NeedIndex
from ctxlab.messages.entities import find_entities
from ctxlab.messages.types import Recording
from ctxlab.strategies import excerpt_memory
from ctxlab.strategies.excerpt_memory import replaced_span
from ctxlab.strategies.helpers.entity_memory import FEATURES, EntityMemory, Weights
from ctxlab.tokens.counter import TokenCounter

_Array = npt.NDArray[np.float64]

DATA = Path(__file__).parents[1] / "ctxlab" / "strategies" / "helpers" / "entity_memory.toml"
LIMITS = (8_000, 16_000, 32_000)
MODEL = "claude-opus-4-6"
UNUSED_PER_CASE = 20
"number of entities that are not used again of which one is a case"
MIN_USED = 100
"number of used entities below which a family is not fitted"
ABLATIONS: dict[str, tuple[str, ...]] = {
    "all": FEATURES,
    "age": ("age",),
    "uses": ("short_uses",),
    "constant": (),
}
"features of the model and of its ablations"
_RIDGE = 1.0


class Cases(NamedTuple):
    """Entities at the compactions of one family. The arrays have one row per case."""

    features: _Array
    "array of shape ``(cases, len(FEATURES))``"
    used: _Array
    "share of the needs of an argument that the entity is, summed over arguments; at most 1"
    weights: _Array
    "number of entities for which a case stands"


class _Compaction(NamedTuple):
    request: int
    first: int
    stop: int
    entities: list[str]
    features: _Array


@dataclass(frozen=True, repr=False)
class _recorder(excerpt_memory):  # noqa: N801
    """Strategy that stores the candidates of each compaction in ``strategy_state``."""

    def candidates(self, context: Context, memory: EntityMemory, start: int) -> list[str]:
        """Store and return the entities that only the folded messages mention."""
        found = super().candidates(context, memory, start)
        tokens = context.history.tokens_before[context.history_length]
        places = replaced_span(context, start)
        made = _Compaction(context.request_index, *places, found, memory.features(found, tokens))
        context.strategy_state.setdefault("compactions", {})[made.request] = made
        return found


def load_families(paths: Sequence[str]) -> dict[str, list[Recording]]:
    """Load the recordings of each folder. The same session in several folders is used once.

    A path is a folder of recordings, or a folder of such folders. A folder with an ``INDEX.tsv``
    takes its clusters from there.
    """
    known: set[str] = set()
    families: dict[str, list[Recording]] = {}
    for path in map(Path, paths):
        inside = sorted(each for each in path.iterdir() if each.is_dir())
        for folder in inside or [path]:
            index = folder / "INDEX.tsv"
            clusters = index if index.is_file() else None
            for each in ctxlab.load(folder, on_error="skip", clusters=clusters):
                digest = recording_digest(each)
                if each.request_positions and digest not in known:
                    known.add(digest)
                    families.setdefault(folder.name, []).append(each)
    return families


def has_room(prepared: PreparedRecording, limit: int) -> bool:
    """Return whether a recording is longer than a limit, and its head takes at most half of it.

    No strategy drops the head: the system prompt, the tool definitions and the first user message.
    Where it takes more than the limit, each request overflows under every strategy.
    """
    history = prepared.history
    head = history.tokens_before[history.head_length] + prepared.fixed_tokens
    return prepared.longest_request_tokens > limit and head <= limit / 2


def choose_recordings(
    family: Iterable[PreparedRecording],
    limit: int,
    number: int,
    suits: Callable[[PreparedRecording, int], bool] = has_room,
) -> list[Recording]:
    """Return at most a number of recordings that suit a limit, of as many clusters as possible."""
    seen: Counter[str] = Counter()
    ranked: list[tuple[int, Recording]] = []
    for prepared in family:
        if suits(prepared, limit):
            cluster = prepared.recording.cluster or prepared.recording.id
            ranked.append((seen[cluster], prepared.recording))
            seen[cluster] += 1
    ranked.sort(key=itemgetter(0))
    return [recording for _, recording in ranked[:number]]


def choose_by_limit(
    families: Mapping[str, Sequence[Recording]],
    limits: Iterable[int],
    model: str,
    number: int,
    suits: Callable[[PreparedRecording, int], bool] = has_room,
) -> dict[int, list[Recording]]:
    """Return the recordings that suit each limit, at most a number of each family."""
    counter, found = TokenCounter(model), {limit: list[Recording]() for limit in limits}
    for family in families.values():
        prepared = [PreparedRecording(each, counter) for each in family]
        for limit, chosen in found.items():
            chosen += choose_recordings(prepared, limit, number, suits)
    return found


def collect_cases(
    prepared: PreparedRecording, limit: int, rng: np.random.Generator
) -> Iterator[Cases]:
    """Yield the cases of each compaction of a recording."""
    trace = replay_trace(prepared, _recorder(), prepared.make_budget(limit))
    found: dict[int, _Compaction] = trace.context.strategy_state.get("compactions", {})
    needs = prepared.needs
    if not found or not len(needs):
        return
    last = needs.mentions[needs.last_mention_row].tolist()
    shares = 1 / np.bincount(needs.argument)[needs.argument]
    stops = [*list(found)[1:], len(prepared.request_positions)]
    for here, stop in zip(found.values(), stops, strict=True):
        used: dict[str, float] = {}
        for i in range(*needs.request_offsets[[here.request, stop]].tolist()):
            if here.first <= last[i] < here.stop:
                text = needs.entities[needs.entity[i]].text
                used[text] = used.get(text, 0.0) + shares[i]
        values = (used.get(_normalize(needs, each), 0.0) for each in here.entities)
        labels = np.minimum(np.fromiter(values, float, len(here.entities)), 1.0)
        is_used = labels > 0
        kept = is_used | (rng.random(len(labels)) * UNUSED_PER_CASE < 1)
        stands_for = np.where(is_used[kept], 1.0, UNUSED_PER_CASE)
        yield Cases(here.features[kept], labels[kept], stands_for)


def _normalize(needs: NeedIndex, text: str) -> str:
    """Return an entity in the form that the index of needs uses."""
    found = find_entities(text)
    return needs.normalize(found[0]).text if len(found) == 1 else text


def collect_families(families: Mapping[str, Sequence[Recording]]) -> dict[str, Cases]:
    """Return the cases of the families in which at least ``MIN_USED`` entities are used again."""
    counter, rng, cases = TokenCounter(MODEL), np.random.default_rng(0), {}
    for name, recordings in track(families.items(), "families"):
        every: list[Cases] = []
        for recording in recordings:
            prepared = PreparedRecording(recording, counter)
            for limit in LIMITS:
                if has_room(prepared, limit):
                    every += collect_cases(prepared, limit, rng)
        if sum(np.count_nonzero(each.used) for each in every) >= MIN_USED:
            cases[name] = Cases(*(np.concatenate(part) for part in zip(*every, strict=True)))
    return cases


def fit_weights(families: Sequence[Cases], features: Sequence[str] = FEATURES) -> Weights:
    """Fit a logistic regression on some features, in which all families have the same weight."""
    mask = np.array([True, *(name in features for name in FEATURES)])
    design = np.concatenate([_with_intercept(each.features) for each in families]) * mask
    used = np.concatenate([each.used for each in families])
    total = np.mean([each.weights.sum() for each in families])
    weights = np.concatenate([each.weights * total / each.weights.sum() for each in families])
    penalty = _RIDGE * np.diag([0.0, *np.ones(len(FEATURES))])  # also for features left out
    fitted = np.zeros(len(FEATURES) + 1)
    for _ in range(50):  # iteratively reweighted least squares
        chance = 1 / (1 + np.exp(-design @ fitted))
        curvature = (design * (weights * chance * (1 - chance))[:, None]).T @ design + penalty
        slope = design.T @ (weights * (used - chance)) - penalty @ fitted
        step = np.linalg.solve(curvature, slope)
        fitted += step
        if np.abs(step).max() < 1e-8:
            break
    return tuple(round(float(each), 3) for each in fitted)


def fit_without_each(
    cases: Mapping[str, Cases], features: Sequence[str] = FEATURES
) -> dict[str, Weights]:
    """Return for each family the weights that are fitted without it."""
    return {
        name: fit_weights([each for other, each in cases.items() if other != name], features)
        for name in cases
    }


def share_found(cases: Cases, weights: Weights, share: float) -> float:
    """Return the share of the use that falls on the likeliest share of the candidates."""
    order = np.argsort(-(_with_intercept(cases.features) @ np.array(weights)), kind="stable")
    rank = np.cumsum(cases.weights[order]) / cases.weights.sum()
    return float(cases.used[order][rank <= share].sum() / cases.used.sum())


def _with_intercept(features: _Array) -> _Array:
    return np.column_stack([np.ones(len(features)), features])


def format_data(weights: Weights, families: Sequence[str]) -> str:
    """Return the file of weights."""
    names = ("intercept", *FEATURES)
    lines = [f"{name} = {value}" for name, value in zip(names, weights, strict=True)]
    return "\n".join(
        (
            "# Weights of the logistic model that predicts if an agent will use an entity again.",
            "# Written by evals/fit_excerpts.py; do not edit.",
            f"date = {date.today().isoformat()}",
            f"families = {len(families)}",
            "",
            "[weights]",
            *lines,
            "",
        )
    )


def weights_table(cases: Mapping[str, Cases], without: Mapping[str, Weights]) -> str:
    """Return a table of the weights that are fitted without each family."""
    rows = [
        (
            *(name, str(np.count_nonzero(each.used))),
            *(f"{value:.2f}" for value in without[name]),
            *(f"{share_found(each, without[name], share):.2f}" for share in (0.05, 0.15)),
        )
        for name, each in cases.items()
    ]
    heads = ("fitted without", "used again", "intercept", *FEATURES, "top 5 %", "top 15 %")
    return markdown_table(heads, rows)


def main() -> None:
    """Fit, print and store the weights."""
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--without", type=Path)
    given = parser.parse_args()
    cases = collect_families(load_families(given.paths))
    if len(cases) < 2:
        sys.exit(f"expected two families with {MIN_USED} used entities, got {len(cases)}")
    print(weights_table(cases, fit_without_each(cases)))
    data = format_data(fit_weights(list(cases.values())), list(cases))
    print(f"\n{data}")
    if given.write:
        DATA.write_text(data, encoding="utf-8")
    if given.without:
        every = list(cases.values())
        fitted = {
            name: {"": fit_weights(every, part), **fit_without_each(cases, part)}
            for name, part in ABLATIONS.items()
        }
        given.without.write_text(json.dumps(fitted, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
