"""Tests of ``EntityMemory``: counts of mentions and uses, a bounded size, and independent copies."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
from generated import conversations, history_of, strange_conversations
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.helpers import entity_memory
from ctxlab.strategies.helpers.entity_memory import FEATURES, WEIGHTS, EntityMemory
from ctxlab.tokens.counter import TokenCounter


def remember(messages: Sequence[Message], counter: TokenCounter) -> EntityMemory:
    memory = EntityMemory(history_of(list(messages), counter))
    memory.add(range(len(messages)))
    return memory


def call(arguments: str, name: str = "read") -> Message:
    return Message("assistant", None, tool_calls=(ToolCall("c", name, arguments),))


TALK = conversations(turns=3) | strange_conversations()


@given(messages=TALK, data=st.data())
def test_messages_may_be_added_one_by_one_or_all_at_once(
    messages: tuple[Message, ...], data: st.DataObject, counter: TokenCounter
) -> None:
    at_once = remember(messages, counter)
    stepwise = EntityMemory(history_of(messages, counter))
    for length in sorted(data.draw(st.lists(st.integers(0, len(messages)), max_size=5))):
        stepwise.add(range(length))
    stepwise.add(range(len(messages)))
    assert stepwise.records == at_once.records
    assert list(stepwise.records) == list(at_once.records)


@given(messages=TALK)
def test_a_record_has_the_newest_three_mentions_and_who_made_them(
    messages: tuple[Message, ...], counter: TokenCounter
) -> None:
    memory = remember(messages, counter)
    for text, record in memory.records.items():
        places = [i for i in range(len(messages)) if text in memory.mentioned_at(i)]
        assert record.mentions == tuple(places[:-4:-1])
        assert record.by_assistant == any(messages[i].role == "assistant" for i in places)
        assert record.crowd == len(memory.mentioned_at(places[-1]))


@given(messages=TALK)
def test_a_copy_and_its_original_do_not_change_each_other(
    messages: tuple[Message, ...], counter: TokenCounter
) -> None:
    memory = EntityMemory(history_of(messages, counter))
    memory.add(range(len(messages) // 2))
    before, copied = dict(memory.records), deepcopy(memory)
    copied.add(range(len(messages)))
    assert memory.records == before
    memory.add(range(len(messages)))
    assert memory.records == copied.records
    for path in [*memory.records, "src/io.py"]:
        assert memory.is_edited_after(path, 0) == copied.is_edited_after(path, 0)


def test_an_edit_of_a_copy_is_not_one_of_the_original(counter: TokenCounter) -> None:
    messages = [call('{"path": "a.py"}', "edit"), Message("tool", "ok", tool_call_id="c")]
    messages += [call('{"path": "a.py"}', "edit"), Message("tool", "ok", tool_call_id="c")]
    memory = EntityMemory(history_of(messages, counter))
    memory.add(range(2))
    deepcopy(memory).add(range(4))
    assert not memory.is_edited_after("a.py", 1)


def test_only_short_arguments_count_as_uses(counter: TokenCounter) -> None:
    long = '{"text": "src/io.py ' + "and more " * 40 + '"}'
    memory = remember([call('{"path": "src/io.py"}'), call(long), call('{"path": "src/')], counter)
    assert memory.records["src/io.py"].short_uses == 1


@pytest.mark.parametrize(
    "arguments", ["", "{", "[1, 2", '"src/io.py"', "null", '{"a": {"b": [[]]}}']
)
def test_any_arguments_are_read(arguments: str, counter: TokenCounter) -> None:
    memory = remember([call(arguments), Message("user", ()), Message("tool", None)], counter)
    assert ("src/io.py" in memory.records) == ("src/io.py" in arguments)


def test_the_number_of_entities_is_bounded_and_used_ones_are_kept(counter: TokenCounter) -> None:
    used = call('{"path": "src/used_often.py"}')
    lists = [Message("tool", "\n".join(f"file_{n}_{i}.py" for i in range(500))) for n in range(40)]
    memory = remember([used, used, *lists], counter)
    assert len(memory.records) <= 7500
    assert "src/used_often.py" in memory.records


def test_features_are_what_their_names_say(counter: TokenCounter) -> None:
    messages = [call('{"path": "src/io.py"}'), Message("tool", "HAT136 " + "word " * 3000)]
    memory = remember(messages, counter)
    tokens = memory.history.tokens_before
    rows = memory.features(["src/io.py", "HAT136"], tokens[2])
    found = [dict(zip(FEATURES, row, strict=True)) for row in rows.tolist()]
    age = np.log((tokens[2] - tokens[1]) / 1000)
    expected = {"short_uses": np.log(2), "age": age, "assistant": 1, "crowd": np.log(2), "path": 1}
    assert found[0] == pytest.approx(expected)
    assert found[1] == pytest.approx(
        {"short_uses": 0, "age": np.log(0.05), "assistant": 0, "crowd": np.log(2), "path": 0}
    )


@pytest.mark.parametrize("intercept", [-1e9, 0.0, 1e9])
def test_chances_are_probabilities_in_the_order_of_the_odds(
    intercept: float, counter: TokenCounter
) -> None:
    memory = remember([call('{"path": "src/io.py"}'), Message("tool", "HAT136")], counter)
    chances = memory.predict(["src/io.py", "HAT136"], 50_000, (intercept, *WEIGHTS[1:]))
    assert 0 <= chances[1] <= chances[0] <= 1


def test_the_file_of_weights_has_the_names_of_the_features() -> None:
    path = Path(entity_memory.__file__).with_suffix(".toml")
    weights = tomllib.loads(path.read_text())["weights"]
    assert list(weights) == ["intercept", *FEATURES]
    assert tuple(weights.values()) == WEIGHTS
