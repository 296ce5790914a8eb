"""Tests of validity: each violated rule is reported, and cuts never separate calls and results."""

from __future__ import annotations

import pytest
from cutting import safe_cuts
from generated import conversations, strange_conversations
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.messages.types import Message, ToolCall
from ctxlab.messages.validation import (
    RULES,
    UnitTracker,
    Violation,
    find_violations,
    is_valid,
)


def user(text: str | None = "hi") -> Message:
    return Message("user", text)


def call(*ids: str) -> Message:
    return Message("assistant", None, tool_calls=tuple(ToolCall(id, "f") for id in ids))


def result(id: str | None) -> Message:
    return Message("tool", "42", tool_call_id=id)


SYSTEM, SAID = Message("system", "be good"), Message("assistant", "done")
BROKEN: list[tuple[str, int, list[Message]]] = [
    ("unanswered_call", 1, [user(), call("a"), user()]),
    ("unanswered_call", 1, [user(), call("a")]),
    ("unanswered_call", 1, [user(), call("a", "b"), result("b"), SAID]),
    ("orphaned_result", 1, [user(), result("a")]),
    ("orphaned_result", 4, [user(), call("a"), result("a"), SAID, result("a")]),
    ("orphaned_result", 3, [user(), call("a"), result("a"), result(None)]),
    ("repeated_result", 3, [user(), call("a"), result("a"), result("a")]),
    ("empty_request", 0, [SYSTEM]),
    ("empty_request", 0, []),
    ("empty_message", 0, [user("")]),
    ("empty_message", 1, [user(), Message("assistant", None)]),
    ("empty_message", 1, [user(), Message("user", ())]),
    ("late_system", 1, [user(), SYSTEM]),
    ("starts_with_user", 1, [SYSTEM, SAID, user()]),
]


@pytest.mark.parametrize(("rule", "index", "messages"), BROKEN)
def test_a_broken_rule_is_found_where_it_is_broken_and_no_other(
    rule: str, index: int, messages: list[Message]
) -> None:
    assert find_violations(messages) == [Violation(rule, index)]
    for provider in ("openai", "anthropic"):
        assert is_valid(messages, provider) is (provider not in RULES[rule].providers)


def test_every_rule_is_broken_above() -> None:
    assert {rule for rule, _, _ in BROKEN} == set(RULES)
    assert all(rule.name == name and rule.meaning for name, rule in RULES.items())


def test_ids_may_be_used_again() -> None:
    again = [user(), call("a"), result("a"), SAID, user(), call("a", "b"), result("b"), result("a")]
    assert is_valid(again)
    assert find_violations([*again, user(), call("a"), user()]) == [Violation("unanswered_call", 9)]
    units = UnitTracker()
    for message in again:
        units.add(message)
    assert {place: given.id for place, given in units.calls_by_result.items()} == {
        2: "a",
        6: "b",
        7: "a",
    }


def test_several_violations_come_in_the_order_of_the_messages() -> None:
    found = find_violations([result("x"), user(""), call("a", "b"), SYSTEM])
    assert [v.position for v in found] == sorted(v.position for v in found)
    assert {v.rule for v in found} == {
        "orphaned_result", "starts_with_user", "empty_message", "unanswered_call", "late_system",
    }  # fmt: skip
    assert sum(v.rule == "unanswered_call" for v in found) == 2


@pytest.mark.properties
@given(conversations())
def test_a_suffix_from_a_safe_cut_parts_no_pair(messages: tuple[Message, ...]) -> None:
    pairing = {"orphaned_result", "unanswered_call", "repeated_result"}
    cuts = safe_cuts(messages)
    assert cuts[0] == 0
    for cut in range(len(messages)):
        parted = any(
            v.rule in pairing
            for v in (*find_violations(messages[:cut]), *find_violations(messages[cut:]))
        )
        assert parted is not (cut in cuts)


@pytest.mark.properties
@given(conversations() | strange_conversations(), st.integers(0, 30))
def test_units_are_runs_of_neighbours_and_grow_as_messages_arrive(
    messages: tuple[Message, ...], stop: int
) -> None:
    units, early = UnitTracker(), UnitTracker()
    for message in messages:
        units.add(message)
    for message in messages[:stop]:
        early.add(message)
    assert units.starts == sorted(units.starts)
    for place, start in enumerate(units.starts):
        assert start <= place
        assert units.starts[start] == start
    for place, answered in units.calls_by_result.items():
        message = messages[place]
        assert (message.role, message.tool_call_id or "") == ("tool", answered.id)
        assert answered in [c for m in messages[units.starts[place] : place] for c in m.tool_calls]
    assert early.calls_by_result == {
        place: c for place, c in units.calls_by_result.items() if place < stop
    }


@pytest.mark.properties
@given(strange_conversations())
def test_a_result_without_a_call_stands_alone(messages: tuple[Message, ...]) -> None:
    units = UnitTracker()
    for message in messages:
        units.add(message)
    for place, message in enumerate(messages):
        if message.role == "tool" and place not in units.calls_by_result:
            inside = units.starts[place] != place
            assert not inside or any(
                p > place and units.starts[p] < place for p in units.calls_by_result
            )


def test_a_late_result_keeps_what_stands_between_in_one_unit() -> None:
    assert safe_cuts([user(), call("a", "b"), result("a"), user(), result("b"), SAID]) == [0, 1, 5]
    assert safe_cuts([user(), call("a"), user(), call("b"), result("a"), result("b")]) == [
        0,
        1,
        2,
        3,
    ]
