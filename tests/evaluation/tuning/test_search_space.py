"""Tests of search spaces: a space contains exactly the strategies of its text, and runs no code."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.errors import SpecError
from ctxlab.evaluation.tuning.search_space import (
    DEFAULT_SPACES,
    SearchSpace,
    parse_spaces,
    sample_configurations,
)
from ctxlab.evaluation.verdict import control_name
from ctxlab.strategies import models_used, parse_strategy

NUMBERS = st.lists(st.integers(0, 50), min_size=1, max_size=4)
SHARES = st.lists(st.sampled_from([0.6, 0.7, 0.85, 1.0]), min_size=1, max_size=3)


@given(NUMBERS, NUMBERS, SHARES)
def test_a_space_holds_every_combination_in_the_order_of_an_odometer(
    keep: list[int], last: list[int], trigger: list[float]
) -> None:
    text = "in_batches(observation_mask(keep={}), trigger={}) | first_and_last(last={}) | panic"
    space = SearchSpace(text.format(keep, trigger, last))
    assert list(space) == [
        parse_strategy(text.format(*each)) for each in product(keep, trigger, last)
    ]
    assert len(space) == len(list(space))


@given(st.integers(0, 20), st.integers(0, 40), st.integers(1, 9))
def test_a_range_is_the_list_of_its_numbers(start: int, stop: int, step: int) -> None:
    text = "observation_mask(keep={}) | panic"
    numbers = list(range(start, stop, step))
    written = text.format(f"range({start}, {stop}, {step})")
    if not numbers:
        with pytest.raises(SpecError, match=r"one or more integers, got range.*, at character 23"):
            SearchSpace(written)
        return
    assert list(SearchSpace(written)) == list(SearchSpace(text.format(numbers)))


def test_alternatives_of_a_step_are_added_and_those_of_steps_are_multiplied() -> None:
    space = SearchSpace(
        "[tool_stubs(keep=[1, 2]), sliding_window] | [panic, panic(protect=[8, 16])]"
    )
    assert [repr(strategy) for strategy in space] == [
        f"{one} | {other}"
        for one in ("tool_stubs(keep=1)", "tool_stubs(keep=2)", "sliding_window()")
        for other in ("panic()", "panic(protect=8)", "panic(protect=16)")
    ]


def test_a_text_without_alternatives_is_the_one_strategy() -> None:
    text = "shorten_arguments(0, 0, 3, ('read', 'write'), '[x]') | panic"
    assert list(SearchSpace(text)) == [parse_strategy(text)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("observation_mask(keep=[1, 3)", "cannot parse the strategy"),
        ("", "cannot parse the strategy ''"),
        ("observation_mask(keep=[])", "expected at least one alternative, got [], at character 23"),
        (" panic | tool_stubs([])", "expected at least one alternative, got [], at character 21"),
        ("tool_stubs(keep=range('a'))", "one or more integers, got range('a'), at character 17"),
        ("tool_stubs(keep=range(0.5))", "one or more integers, got range(0.5)"),
        ("tool_stubs(keep=range(10**30))", "one or more integers"),
        (f"tool_stubs(keep=range({10**30}))", "has too many configurations"),
        (
            "tool_stubs(kep=[1, 3])",
            "tool_stubs(kep=1) in the search space 'tool_stubs(kep=[1, 3])'",
        ),
        ("nobody(keep=[1, 3])", "unknown strategy 'nobody'"),
        ("[1, 2]", "expected the name of a strategy, got '1'"),
        ("tool_stubs(keep=[i for i in [1]])", "expected literals or strategies as parameters"),
        ("in_batches(panic, trigger=[0.9, 0.3])", "expected target <= trigger (0.3), got"),
        (" | ".join(["panic"] * 2000), "nested too deeply"),
    ],
)
def test_what_is_written_wrongly_is_named_with_its_place(text: str, said: str) -> None:
    with pytest.raises(SpecError) as error:
        list(SearchSpace(text))
    assert said in str(error.value)


def test_nothing_in_a_text_is_run(tmp_path: object) -> None:
    for text in (
        f"tool_stubs(keep=[__import__('os').mkdir({str(tmp_path) + '/made'!r})])",
        f"[open({str(tmp_path) + '/made'!r}, 'w'), panic]",
        f"tool_stubs(keep=range(__import__('os').mkdir({str(tmp_path) + '/made'!r})))",
    ):
        with pytest.raises(SpecError):
            list(SearchSpace(text))
    assert not list(tmp_path.iterdir())  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", DEFAULT_SPACES)
def test_the_spaces_that_are_searched_by_default_fit_ask_nobody_and_are_no_controls(
    name: str,
) -> None:
    (space,) = parse_spaces(name)
    assert len(space) > 1
    for strategy in space:
        assert repr(strategy).endswith("| panic()")
        assert not models_used(strategy)
        assert not control_name(repr(strategy))
        assert parse_strategy(repr(strategy)) == strategy


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=4),
    st.integers(1, 3),
    st.integers(1, 80),
    st.integers(0, 99),
)
def test_a_draw_is_of_so_many_each_once_and_the_same_for_the_same_seed(
    sizes: list[int], bounds: int, trials: int, seed: int
) -> None:
    limits = [1000, 2000, 0.5][:bounds]
    spaces = [
        SearchSpace(f"panic(protect={place}, large=range({size}))")
        for place, size in enumerate(sizes)
    ]
    every = sample_configurations(spaces, limits)
    drawn = sample_configurations(spaces, limits, trials, seed)
    assert len(every) == len(set(every)) == sum(sizes) * bounds
    assert len(drawn) == len(set(drawn)) == min(trials, len(every))
    assert set(drawn) <= set(every)
    assert drawn == sample_configurations(spaces, limits, trials, seed)
    counts = [sum(s.protect == place for s, _ in drawn) for place in range(len(sizes))]  # type: ignore[attr-defined]
    short = [count for count, size in zip(counts, sizes, strict=True) if count < size * bounds]
    assert not short or max(counts) - min(short) <= 1


def test_a_space_of_any_size_can_be_drawn_from_and_is_not_searched_whole() -> None:
    space = SearchSpace("observation_mask(keep=range(100000)) | panic(large=range(100000))")
    assert len(space) == 10**10
    assert len(sample_configurations([space], [1000], trials=5)) == 5
    with pytest.raises(SpecError, match="10,000,000,000 configurations; pass trials=N"):
        sample_configurations([space], [1000])
    with pytest.raises(SpecError, match="trials must be at least 1, got 0"):
        sample_configurations([space], [1000], trials=0)


def test_what_two_spaces_share_is_tried_once() -> None:
    both = parse_spaces(["panic(protect=[2, 4])", "panic(protect=[4, 8])", "panic(protect=[2, 4])"])
    assert len(both) == 2
    assert [repr(s) for s, _ in sample_configurations(both, [1000])] == [
        "panic(protect=2)",
        "panic()",
        "panic(protect=8)",
    ]


def test_a_draw_differs_by_seed() -> None:
    space = SearchSpace("panic(large=range(1000))")
    assert sample_configurations([space], [1000], 20, seed=1) != sample_configurations(
        [space], [1000], 20, seed=2
    )


@pytest.mark.parametrize("given", [print, [print], 7, [None]])
def test_a_space_that_is_no_text_is_refused_with_the_way_to_write_it(given: object) -> None:
    with pytest.raises(SpecError, match=r"spaces: expected a string.*dotted path"):
        parse_spaces(given)  # type: ignore[arg-type]
