"""What must come out on real recordings: orders of strategies, bounds, and nothing that is refused."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from replaying import fetchable_by_eye, run, seen_by_eye

from ctxlab.evaluation.engine import (
    Tape,
    Trace,
    play,
)
from ctxlab.evaluation.metrics import FAR
from ctxlab.evaluation.metrics.recall import tiers
from ctxlab.formats import load
from ctxlab.messages.validation import check
from ctxlab.strategies import parse
from ctxlab.strategies.registry import (
    CONTROLS,
    LINEUP,
)
from ctxlab.tokens.counter import TokenCounter

LIMIT = 16_000
SETS = ("claude-code-entireio", "mini-swe-agent", "tau-bench")
LONG = SETS[:2]
SAMPLE = 24 if os.environ.get("CTXLAB_HYPOTHESIS") != "thorough" else 10**6
WINDOWS = (
    "sliding_window(tokens=8000)",
    "sliding_window(tokens=16000)",
    "sliding_window(tokens=32000)",
    "full",
)
MASKS = (
    "observation_mask(keep=3)",
    "observation_mask(keep=10)",
    "observation_mask(keep=20)",
    "full",
)


@cache
def tapes_of(folder: Path) -> tuple[Tape, ...]:
    counter = TokenCounter("gpt-4o")
    chosen: dict[str, list[Tape]] = {}
    for recording in load(folder, on_error="skip"):
        if len(chosen) < SAMPLE or recording.cluster in chosen:
            chosen.setdefault(str(recording.cluster), []).append(Tape(recording, counter))
    return tuple(tape for tapes in chosen.values() for tape in tapes)


@pytest.fixture(params=SETS)
def tapes(request: pytest.FixtureRequest, recorded: Path) -> tuple[Tape, ...]:
    return tapes_at(recorded / request.param)


@pytest.fixture(params=LONG)
def long_tapes(request: pytest.FixtureRequest, recorded: Path) -> tuple[Tape, ...]:
    return tapes_at(recorded / request.param)


def tapes_at(folder: Path) -> tuple[Tape, ...]:
    if not folder.is_dir():
        pytest.skip(f"no recordings of {folder.name} beside the others")
    return tapes_of(folder)


@cache
def replayed(tapes: tuple[Tape, ...], spec: str, limit: int = LIMIT) -> tuple[Trace, ...]:
    return tuple(play(tape, parse(spec), tape.budget(limit)) for tape in tapes)


def recall(tapes: Sequence[Tape], spec: str, limit: int = LIMIT, far: int = FAR) -> float:
    """Share of needs with a gap above ``far`` that are in view, argument by argument."""
    seen = total = 0.0
    for tape, trace in zip(tapes, replayed(tuple(tapes), spec, limit), strict=True):
        needs = tape.needs
        chosen = needs.gap > far
        weight = 1 / np.bincount(needs.argument[chosen], minlength=len(needs.arguments) + 1)[
            needs.argument
        ].clip(1)
        seen += (weight * (tiers(needs, [trace]).seen[0] & chosen)).sum()
        total += (weight * chosen).sum()
    return seen / total if total else 1.0


def test_full_history_recalls_everything_and_overflows(long_tapes: tuple[Tape, ...]) -> None:
    assert recall(long_tapes, "full", far=-1) == 1.0
    assert max(max(trace.tokens) for trace in replayed(long_tapes, "full")) > LIMIT


def test_far_needs_are_there_in_plausible_number(recorded: Path) -> None:
    for name, least, most in ((SETS[0], 600, 4000), (SETS[1], 600, 4000)):
        tapes = tapes_at(recorded / name)
        far = sum(int((tape.needs.gap > FAR).sum()) for tape in tapes)
        requests = sum(len(tape.requests) for tape in tapes)
        assert least <= far <= most
        assert sum(len(tape.needs) for tape in tapes) > requests / 2
    assert recall(tapes_at(recorded / SETS[2]), "full") == 1.0


def test_larger_windows_and_larger_masks_recall_more(long_tapes: tuple[Tape, ...]) -> None:
    for specs in (WINDOWS, MASKS):
        found = [recall(long_tapes, spec, 10**7) for spec in specs]
        assert found == sorted(found)
        assert found[0] < found[-1] == 1.0
    assert recall(long_tapes, MASKS[0], 10**7) < recall(long_tapes, MASKS[1], 10**7)
    windows = [recall(long_tapes, spec, 10**7) for spec in WINDOWS]
    assert len(set(windows)) == len(windows)


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize(
    "spec", ["tool_result_cap() | panic()", "observation_mask() | panic()", "panic()"]
)
def test_chance_recalls_less_than_an_idea(recorded: Path, name: str, spec: str) -> None:
    tapes = tapes_at(recorded / name)
    chance = np.mean([recall(tapes, f"random_drop(seed={seed})") for seed in range(3)])
    assert recall(tapes, "nothing") < chance
    # Agents of mini-swe-agent name things again and again: whole pairs kept by chance from all over the
    # conversation recall more there than calls without their outputs (0.80 against 0.74).
    if (name, spec) != ("mini-swe-agent", "observation_mask() | panic()"):
        assert chance < recall(tapes, spec)


def test_nothing_that_fits_recalls_more_than_the_oracle(tapes: tuple[Tape, ...]) -> None:
    oracle = replayed(tapes, "oracle")
    fitting = []
    for spec in LINEUP:
        tokens = [most for trace in replayed(tapes, spec) for most in trace.tokens]
        if spec.split("(")[0] not in CONTROLS and max(tokens, default=0) <= LIMIT:
            fitting.append(spec)
        for tape, best, trace in zip(tapes, oracle, replayed(tapes, spec), strict=True):
            if max(trace.tokens, default=0) <= LIMIT:
                both = tiers(tape.needs, [best, trace]).seen.sum(axis=1)
                assert both[0] >= both[1], (spec, tape.recording.id)
    if any(tape.length > LIMIT for tape in tapes):
        assert fitting
        assert recall(tapes, "oracle") > max(recall(tapes, spec) for spec in fitting)


@pytest.mark.parametrize("spec", [spec for spec in LINEUP if spec.endswith("panic()")])
def test_panic_leaves_no_overflow_that_it_does_not_report(
    tapes: tuple[Tape, ...], spec: str
) -> None:
    for trace in replayed(tapes, spec):
        stuck = {turn for turn, event in trace.context.events if event == "stuck"}
        assert stuck == {turn for turn, tokens in enumerate(trace.tokens) if tokens > LIMIT}


@pytest.mark.parametrize("spec", LINEUP)
def test_no_strategy_breaks_a_request_that_the_recording_did_not(
    tapes: tuple[Tape, ...], spec: str
) -> None:
    for tape in tapes[:40]:
        trace, requests = run(tape, spec, LIMIT)
        messages = tape.recording.messages
        for sent, faults, tokens in zip(requests, trace.faults, trace.tokens, strict=True):
            found = check(sent.messages, tape.provider)
            assert bool(faults) == bool(found)
            assert not found or check(messages[: sent.position], tape.provider)
            assert tokens == sum(map(tape.counter.message, sent.messages)) + tape.fixed


@pytest.mark.parametrize("spec", LINEUP)
def test_recall_is_what_a_reader_finds(recorded: Path, spec: str) -> None:
    smallest = sorted(tapes_at(recorded / SETS[0]), key=lambda tape: tape.length)[:2]
    for tape in (*smallest, *tapes_at(recorded / SETS[1])[:1], *tapes_at(recorded / SETS[2])[:3]):
        trace, sent = run(tape, spec, LIMIT // 2)
        found = tiers(tape.needs, [trace])
        seen, fetchable = seen_by_eye(tape, sent), fetchable_by_eye(tape, sent)
        assert np.array_equal(found.seen[0], seen)
        assert np.array_equal(found.pointer[0], fetchable & ~seen)
