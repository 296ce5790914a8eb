"""Tests of the agreement of tool calls, which ignores their order and the formatting of JSON."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.evaluation.probing.call_matching import match_calls, same_arguments
from ctxlab.messages.types import ToolCall

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(width=16)
    | st.text("ab ./", max_size=4)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=8,
)
ARGUMENTS = st.dictionaries(st.sampled_from(["path", "limit", "query"]), VALUES, max_size=3)
TEXTS = ARGUMENTS.map(json.dumps) | st.sampled_from(["", "{broken", "plain text", "[1, 2]"])
CALLS = st.lists(
    st.builds(ToolCall, st.just("c"), st.sampled_from(["read", "edit"]), TEXTS), max_size=4
)


def shuffled(value: Any, chance: random.Random) -> Any:
    """Return a value with the keys of all objects in random order."""
    if isinstance(value, dict):
        keys = list(value)
        chance.shuffle(keys)
        return {key: shuffled(value[key], chance) for key in keys}
    return [shuffled(inner, chance) for inner in value] if isinstance(value, list) else value


@given(CALLS)
def test_calls_agree_with_themselves(calls: list[ToolCall]) -> None:
    found = match_calls(calls, calls)
    assert found[:4] == (1, 1, 1, 1)
    assert math.isnan(found.entities) or found.entities == 1


@given(CALLS, st.randoms(use_true_random=False))
def test_the_order_of_calls_says_nothing(calls: list[ToolCall], chance: random.Random) -> None:
    other = calls.copy()
    chance.shuffle(other)
    assert match_calls(calls, other)[:4] == (1, 1, 1, 1)


@given(ARGUMENTS, st.randoms(use_true_random=False), st.sampled_from([None, 2]))
def test_the_order_of_keys_and_the_white_space_of_json_say_nothing(
    arguments: dict[str, Any], chance: random.Random, indent: int | None
) -> None:
    other = json.dumps(shuffled(arguments, chance), indent=indent)
    assert same_arguments(json.dumps(arguments), other)


@given(CALLS, CALLS)
def test_shares_keep_their_bounds_and_name_and_arguments_bound_both(
    recorded: list[ToolCall], said: list[ToolCall]
) -> None:
    found = match_calls(recorded, said)
    assert 0 <= found.both <= found.leaves + 1e-9
    assert found.leaves <= found.name + 1e-9 <= 1 + 2e-9
    assert found.both <= found.arguments <= 1
    assert math.isnan(found.entities) or 0 <= found.entities <= 1


@given(CALLS, CALLS)
def test_who_is_compared_with_whom_says_nothing(
    recorded: list[ToolCall], said: list[ToolCall]
) -> None:
    one, other = match_calls(recorded, said), match_calls(said, recorded)
    assert one[:3] == other[:3]


@given(CALLS, st.builds(ToolCall, st.just("c"), st.just("write"), TEXTS))
def test_a_call_too_many_is_seen_and_so_is_one_that_is_missing(
    calls: list[ToolCall], more: ToolCall
) -> None:
    share = len(calls) / (len(calls) + 1)
    assert (
        match_calls(calls, [*calls, more]).name == match_calls([*calls, more], calls).name == share
    )
    assert match_calls(calls, [*calls, more]).both == share


@given(TEXTS, TEXTS, TEXTS)
def test_equality_of_arguments_is_an_equivalence(one: str, other: str, third: str) -> None:
    assert same_arguments(one, one)
    assert same_arguments(one, other) == same_arguments(other, one)
    if same_arguments(one, other) and same_arguments(other, third):
        assert same_arguments(one, third)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"n": 1}', '{"n": 1.0}'),
        ('{"q": " a\\n"}', '{"q": "a"}'),
        ("", "{}"),
        ('{"n": NaN}', '{"n": NaN}'),
        ('{"s": "\\u00e9"}', '{"s": "é"}'),
        (" plain ", "plain"),
    ],
)
def test_what_is_written_otherwise_and_means_the_same_is_equal(one: str, other: str) -> None:
    assert same_arguments(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"p": "./a"}', '{"p": "a"}'),
        ('{"p": "A"}', '{"p": "a"}'),
        ('{"n": 1}', '{"n": "1"}'),
        ('{"n": 1}', '{"n": true}'),
        ('{"n": 0}', '{"n": null}'),
        ('{"n": null}', "{}"),
        ('{"l": [1, 2]}', '{"l": [2, 1]}'),
        ('{"l": []}', '{"l": {}}'),
        ('{"q": "a  b"}', '{"q": "a b"}'),
    ],
)
def test_what_may_mean_another_thing_is_not_equal(one: str, other: str) -> None:
    assert not same_arguments(one, other)


def test_arguments_agree_whatever_the_tool_and_leaves_only_within_it() -> None:
    found = match_calls(
        [ToolCall("a", "read", '{"p": "x"}')], [ToolCall("b", "open", '{"p": "x"}')]
    )
    assert found[:4] == (0, 1, 0, 0)


def test_the_call_of_the_same_name_that_is_most_alike_is_the_one_compared() -> None:
    wanted = ToolCall("a", "read", '{"p": "x", "from": 1, "to": 9}')
    near = ToolCall("b", "read", '{"p": "x", "from": 1, "to": 8}')
    far = ToolCall("c", "read", '{"p": "y", "from": 2, "to": 8}')
    assert match_calls([wanted], [far, near]).leaves == pytest.approx(2 / 3 / 2)
    assert match_calls([wanted, wanted], [far, wanted]).leaves == pytest.approx((1 + 0) / 2)


def test_an_entity_is_named_wherever_it_stands_in_the_arguments() -> None:
    recorded = [ToolCall("a", "bash", '{"command": "cat src/io.py | grep read_all"}')]
    said = [ToolCall("b", "edit", '{"path": "src/io.py", "old": "x"}')]
    assert match_calls(recorded, said).entities == 0.5
    assert match_calls(recorded, []).entities == 0
    assert math.isnan(match_calls([ToolCall("a", "bash", '{"command": "ls"}')], said).entities)


def test_arguments_nested_beyond_reach_are_compared_as_text() -> None:
    deep = '{"a": ' + "[" * 5000 + "]" * 5000 + "}"
    assert same_arguments(deep, deep)
    assert not same_arguments(deep, '{"a": 1}')
