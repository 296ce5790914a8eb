"""Tests of the text form of strategies in Python, in files and on the command line."""

from __future__ import annotations

import re
import string
from inspect import signature

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.errors import SpecError, UnknownName
from ctxlab.strategies import (
    STRATEGIES,
    FunctionStrategy,
    chunked_window,
    full,
    models_used,
    observation_mask,
    panic,
    parse_strategy,
    random_drop,
    register_strategy,
    rolling_summary,
    sliding_window,
    tool_result_cap,
    tool_stubs,
)
from ctxlab.strategies.base import BaseStrategy
from ctxlab.strategies.baselines import BASELINES
from ctxlab.strategies.introspection import strategy_info
from ctxlab.strategies.registry import CONTROLS, DEFAULT_LINEUP, METRIC_CONTROLS

SIZES = st.integers(0, 10**9)
SHARES = st.floats(0, 2)
MADE: st.SearchStrategy[BaseStrategy] = st.one_of(
    st.builds(sliding_window, st.none() | SIZES, st.none() | SIZES),
    st.builds(chunked_window, st.integers(1, 10**6)),
    st.builds(tool_result_cap, SIZES, st.text()),
    st.builds(tool_stubs, st.none() | SIZES),
    st.builds(observation_mask, SIZES),
    st.builds(rolling_summary, SHARES, SHARES, SIZES, SIZES),
    st.builds(panic, SIZES, SIZES, SIZES, SIZES),
    st.builds(random_drop, SIZES),
    st.just(full()),
)


@given(st.lists(MADE, min_size=1, max_size=4))
def test_what_is_printed_is_read_back_as_the_same(steps: list[BaseStrategy]) -> None:
    strategy = steps[0]
    for step in steps[1:]:
        strategy = strategy | step
    assert parse_strategy(repr(strategy)) == strategy
    assert parse_strategy(repr(strategy).replace(" | ", "|")) == strategy


WRITTEN = [
    f"{name}(panic())" if "strategy" in signature(make).parameters else name
    for name, make in STRATEGIES.items()
]


@pytest.mark.parametrize("text", [*WRITTEN, *DEFAULT_LINEUP])
def test_every_name_and_the_lineup_can_be_written(text: str) -> None:
    strategy = parse_strategy(text)
    assert parse_strategy(f"  {text} ") == strategy
    assert parse_strategy(repr(strategy)) == strategy


def test_the_lineup_holds_known_strategies_once_and_the_controls_that_bound_a_comparison() -> None:
    named = {name for text in DEFAULT_LINEUP for name in re.findall(r"[a-z_]+(?=\(|$)", text)}
    # Most recordings have no compactions; where some do, describe names the strategy.
    asked_for = {"recorded", "random_decay", *(text.split("(")[0] for text in METRIC_CONTROLS)}
    assert set(STRATEGIES) > named
    assert named & CONTROLS == CONTROLS - asked_for
    assert set(STRATEGIES) >= CONTROLS
    assert len(set(map(parse_strategy, DEFAULT_LINEUP))) == len(DEFAULT_LINEUP)
    assert not any(models_used(parse_strategy(text)) for text in DEFAULT_LINEUP)


def test_names_parameters_by_place_and_by_name_mean_the_same() -> None:
    assert (
        parse_strategy("tool_stubs(3)")
        == parse_strategy("tool_stubs(keep=3)")
        == tool_stubs(keep=3)
    )
    assert parse_strategy("full") == parse_strategy("full()") == full()
    assert parse_strategy("panic(large=1_000)") == panic(large=1000)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "   ",
            "|",
            "panic() |",
            "panic() || full()",
            "panic() + full()",
            "3",
            "'panic'",
            "f'x'",
        ),
        *("panic()()", "[panic()]", "panic(protect=x)", "panic(protect=1+1)", "panic(keep=3)"),
        *(
            "panic(1, 2, 3, 4, 5)",
            "panic(protect=1, protect=2)",
            "panic(*[1])",
            "panic(**{'a': 1})",
        ),
        *("panic({[]: 1})", "lambda m: m", "panic() or full()", "__import__('os').system('true')"),
        *("os.nothing", "nosuchmodule.f", "ctxlab.strategies", "os.path", "json.JSONDecoder()"),
        *("(" * 300 + "panic" + ")" * 300, "panic\x00", "\ud800"),
    ],
)
def test_what_cannot_be_read_raises_one_type_of_error(text: str) -> None:
    with pytest.raises(SpecError):
        parse_strategy(text)


@given(st.text(alphabet=string.printable, max_size=30) | st.text(max_size=12))
def test_no_text_at_all_raises_anything_else(text: str) -> None:
    try:
        parse_strategy("panic(" + text + ")")
        parse_strategy(text)
    except SpecError:
        pass


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("tool_stubs(keep='three')", r"expected int \| None for keep, got 'three'"),
        ("panic(protect=full())", r"expected int for protect, got full\(\)"),
        ("rolling_summary(trigger=None)", "expected float for trigger, got None"),
        ("panic(protect=-1)", "expected 0 or more for protect, got -1"),
    ],
)
def test_a_parameter_of_another_kind_is_refused_by_name(text: str, what: str) -> None:
    with pytest.raises(SpecError, match=what):
        parse_strategy(text)


def test_a_name_that_is_close_is_offered() -> None:
    with pytest.raises(UnknownName, match="did you mean tool_stubs") as caught:
        parse_strategy("tool_stub()")
    assert set(caught.value.known) == {*STRATEGIES, *BASELINES}
    with pytest.raises(SpecError, match="unexpected keyword argument 'kep'"):
        parse_strategy("tool_stubs(kep=3)")


def test_a_dotted_path_finds_a_function_or_a_class() -> None:
    assert parse_strategy("ctxlab.strategies.controls.full") == full()
    assert parse_strategy("ctxlab.strategies.controls.full()") == full()
    assert isinstance(
        parse_strategy("ctxlab.messages.validation.is_valid | panic()").steps[0], FunctionStrategy
    )  # type: ignore[attr-defined]


@pytest.mark.usefixtures("tables")
def test_a_name_is_given_once() -> None:
    register_strategy("mine", tool_stubs)
    assert parse_strategy("mine(keep=2)") == tool_stubs(2)
    with pytest.raises(SpecError, match="'mine' is already taken"):
        register_strategy("mine", panic)
    with pytest.raises(SpecError):
        register_strategy("panic", panic)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_says_where_it_is_from_and_shows_what_it_does(name: str) -> None:
    known = strategy_info(name)
    assert known.source
    assert ">>> " in known.docstring
    assert all(parameter.description for parameter in known.parameters)


@pytest.mark.parametrize("name", BASELINES)
def test_every_baseline_says_what_it_imitates_and_where_that_can_be_read(name: str) -> None:
    known = strategy_info(name)
    assert known.source
    assert known.url.startswith("https://")
    assert known.summary
    assert all(parameter.description for parameter in known.parameters)
