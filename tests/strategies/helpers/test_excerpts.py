"""Tests of the composed excerpts: verbatim, within the budget, in order, and the likeliest first."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from generated import conversations, history_of, strange_conversations
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies.helpers.entity_memory import EntityMemory
from ctxlab.strategies.helpers.excerpts import EXCERPTS_HEADER, compose_excerpts
from ctxlab.tokens.counter import TokenCounter


def compose(
    messages: Sequence[Message],
    counter: TokenCounter,
    tokens: int = 1000,
    said: float = 0.0,
    chances: dict[str, float] | None = None,
) -> list[str]:
    memory = EntityMemory(history_of(list(messages), counter))
    memory.add(range(len(messages)))
    likely = dict.fromkeys(memory.records, 0.5) if chances is None else chances
    text, used = compose_excerpts(
        memory, range(len(messages)), likely, tokens, said, counter.count_text
    )
    assert used == counter.count_text(text) <= tokens
    assert not text or text.startswith(EXCERPTS_HEADER)
    return text.removeprefix(EXCERPTS_HEADER).splitlines()


def call(id: str, arguments: str, name: str = "read") -> Message:
    return Message("assistant", None, tool_calls=(ToolCall(id, name, arguments),))


@pytest.mark.properties(smoke=True)
@pytest.mark.parametrize("said", [0.0, 0.3, 1.0])
@given(
    messages=conversations(turns=4) | strange_conversations(),
    tokens=st.sampled_from([0, 10, 40, 100, 300, 2000]),
)
def test_the_text_fits_whatever_the_messages(
    said: float, messages: tuple[Message, ...], tokens: int, counter: TokenCounter
) -> None:
    compose(messages, counter, tokens, said)


def test_the_likeliest_lines_are_chosen_and_stand_in_the_order_of_the_messages(
    counter: TokenCounter,
) -> None:
    lines = [f"HAT{n}36 is the number of the seat" for n in range(100, 140)]
    messages = [Message("user", line) for line in lines]
    chances = {f"HAT{n}36": 0.9 if n in (103, 120, 138) else 0.01 for n in range(100, 140)}
    found = compose(messages, counter, 90, chances=chances)
    quoted = [line for line in found if not line.startswith("#")]
    assert [line for line in quoted if line in (lines[3], lines[20], lines[38])] == [
        lines[3], lines[20], lines[38],
    ]  # fmt: skip
    assert quoted == sorted(quoted)


def test_a_call_is_not_shown_twice_if_its_result_is_quoted(counter: TokenCounter) -> None:
    messages = [call("c", '{"path": "src/io.py"}')]
    messages += [Message("tool", "def read_all opens the stream", tool_call_id="c")]
    assert compose(messages, counter) == [
        "### read(src/io.py) gave", "def read_all opens the stream",
    ]  # fmt: skip


def test_a_call_without_a_quoted_result_stands_as_a_line(counter: TokenCounter) -> None:
    messages = [call("c", '{"path": "src/io.py"}'), Message("tool", "ok", tool_call_id="c")]
    assert compose(messages, counter) == ["### read(src/io.py)"]


@pytest.mark.parametrize("name", [None, "search"])
def test_a_result_without_a_call_is_quoted_under_the_name_of_its_tool(
    name: str | None, counter: TokenCounter
) -> None:
    messages = [Message("tool", "def read_all opens the stream", tool_call_id="x", name=name)]
    assert compose(messages, counter) == [
        f"### {name or 'tool'} gave", "def read_all opens the stream",
    ]  # fmt: skip


def test_arguments_that_are_no_json_are_quoted_as_text(counter: TokenCounter) -> None:
    broken = '{"text": "def read_all opens the stream\nand ' + "so on " * 40
    assert compose([call("c", broken)], counter)[:2] == [
        "### read(…) with", '{"text": "def read_all opens the stream',
    ]  # fmt: skip


def test_an_argument_that_does_not_fit_the_call_is_quoted_by_itself(counter: TokenCounter) -> None:
    many = ", ".join(f'"a{n}": "word number {n} of many"' for n in range(12))
    (line,) = compose(
        [call("c", "{" + many + ', "z": "HAT136"}')], counter, chances={"HAT136": 0.5}
    )[1:]
    assert line == "HAT136"


def test_a_name_that_is_an_entity_only_as_an_argument_is_quoted(counter: TokenCounter) -> None:
    messages = [call("c", '{"name": "Mia Li"}'), Message("tool", "none", tool_call_id="c")]
    assert compose(messages, counter, chances={"Mia Li": 0.5}) == ["### read(Mia Li)"]


def test_all_names_of_a_line_count(counter: TokenCounter) -> None:
    line, other = "Mia Li and Bo Chen fly to Rome", "HAT136 is the number of the other seat"
    messages = [Message("tool", line, name="a"), Message("tool", other, name="b")]
    chances = {"Mia Li": 0.3, "Bo Chen": 0.3, "HAT136": 0.4}
    memory = EntityMemory(history_of(messages, counter))
    memory.add(range(2))
    named = [call("c", '{"a": "Mia Li", "b": "Bo Chen"}'), *messages]
    found = compose(named, counter, 43, chances=chances)
    assert line not in found  # the call names both
    memory = EntityMemory(history_of([*named[:1], messages[0], messages[1]], counter))
    memory.add(range(3))
    for text in ("Mia Li", "Bo Chen"):
        memory.records[text] = memory.records[text]._replace(mentions=(1,))
    tokens = counter.count_text(EXCERPTS_HEADER + f"### a gave\n{line}")
    text, _ = compose_excerpts(memory, range(1, 3), chances, tokens, 0.0, counter.count_text)
    assert text.endswith(line)


def test_a_clipped_user_message_does_not_hide_what_it_no_longer_shows(
    counter: TokenCounter,
) -> None:
    text = "Look at the reader first of all, " * 8 + "HAT136 is the seat of it"
    found = compose([Message("user", text)], counter, 100, said=0.3)
    assert found[0] == "### user"
    assert found[1].endswith("…")
    assert any("HAT136" in line for line in found)


def test_messages_without_text_have_no_excerpts(counter: TokenCounter) -> None:
    image = {"type": "image_url", "image_url": {"url": "https://ex.org/a.png"}}
    messages = [Message("user", ""), Message("user", (image,)), Message("assistant", None)]
    assert compose(messages, counter, said=1.0) == []
