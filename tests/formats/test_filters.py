"""Tests of filters and of samples, which are reproducible."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.errors import SpecError
from ctxlab.formats import load
from ctxlab.formats.filters import parse_condition, sample_recordings
from ctxlab.messages.types import Message, Recording

HI, HO = Message("user", "hi"), Message("assistant", "ho")
SHORT = Recording("runs/short", (HI, HO), model="gpt-5")
LONG = Recording("runs/long", (HI, HO) * 30, model="claude-opus-4-5", cluster="task", format="pi")


@pytest.mark.parametrize(
    ("text", "short", "long"),
    [
        ("messages>=50", False, True),
        ("messages < 50", True, False),
        ("requests=1", True, False),
        ("requests!=1", False, True),
        ("tokens>=0.1k", False, True),
        ("model=claude*", False, True),
        ("model!=claude*", True, False),
        ("id=runs/*", True, True),
        ("cluster==task", False, True),
        ("format=pi", False, True),
        ("compactions>0", False, False),
    ],
)
def test_a_condition_lets_through_what_meets_it(text: str, short: bool, long: bool) -> None:
    holds = parse_condition(text)
    assert (holds(SHORT), holds(LONG)) == (short, long)


def test_only_the_asterisk_stands_for_anything() -> None:
    odd = Recording("task-[a]?", (HI,))
    assert parse_condition("id=task-[a]?")(odd)
    assert parse_condition("id=*[a]*")(odd)
    assert not parse_condition("id=task-[b]?")(odd)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("many", "expected a condition"),
        ("mesages>1", "did you mean messages"),
        ("messages>=a few", "expected a number"),
        ("messages>=5%", "expected a number"),
        ("model>=claude", "expected = or !="),
    ],
)
def test_a_condition_that_makes_no_sense_says_why(text: str, reason: str) -> None:
    with pytest.raises(SpecError, match=reason):
        parse_condition(text)


many = st.integers(1, 60).map(lambda count: [Recording(f"r{n}", (HI, HO)) for n in range(count)])


@given(many, st.integers(1, 70), st.integers(0, 5))
def test_a_sample_is_as_many_as_asked_for_in_their_order(
    recordings: list[Recording], count: int, seed: int
) -> None:
    drawn = list(sample_recordings(recordings, count, seed))
    assert len(drawn) == min(count, len(recordings))
    places = [recordings.index(each) for each in drawn]
    assert places == sorted(places)


@given(many, st.integers(1, 20), st.integers(0, 5), st.randoms())
def test_a_sample_does_not_depend_on_the_order_and_grows_with_the_data(
    recordings: list[Recording], count: int, seed: int, chance: object
) -> None:
    drawn = {r.id for r in sample_recordings(recordings, count, seed)}
    assert {r.id for r in sample_recordings(recordings[::-1], count, seed)} == drawn
    more = [*recordings, Recording("new", (HI,))]
    assert {r.id for r in sample_recordings(more, count, seed)} <= drawn | {"new"}
    assert {r.id for r in sample_recordings(recordings, count + 1, seed)} >= drawn


def test_another_seed_draws_another_sample() -> None:
    recordings = [Recording(f"r{n}", (HI, HO)) for n in range(60)]
    draws = [{r.id for r in sample_recordings(recordings, 10, seed)} for seed in range(5)]
    assert len(set(map(frozenset, draws))) == 5


def test_a_sample_of_none_is_refused() -> None:
    with pytest.raises(SpecError, match="expected 1 or more"):
        list(sample_recordings([SHORT], 0, seed=0))


def test_load_applies_conditions_and_then_samples(
    write_lines: Callable[..., Path], tmp_path: Path
) -> None:
    chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
    for n in range(8):
        write_lines(*chat * (n + 1), name=f"{n}.jsonl")
    assert [r.id for r in load(tmp_path, where="messages>=14")] == ["6", "7"]
    assert len(list(load(tmp_path, where=["messages>=6", lambda r: r.id != "7"]))) == 5
    drawn = list(load(tmp_path, where="messages>=6", sample=3, seed=1))
    assert len(drawn) == 3
    assert min(len(r.messages) for r in drawn) >= 6
