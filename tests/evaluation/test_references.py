"""The index of needs: what counts as a need, and that its index is a plain search."""

from __future__ import annotations

import json
from typing import Any

from generated import TOOLS, conversations, strange_conversations, tape_of
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.evaluation.engine import (
    Tape,
    play,
)
from ctxlab.evaluation.metrics.recall import tiers
from ctxlab.messages.entities import (
    entities_in,
    entities_of_leaf,
    holds,
)
from ctxlab.messages.types import (
    Message,
    Recording,
    ToolCall,
    text_of,
)
from ctxlab.strategies import parse
from ctxlab.tokens.counter import TokenCounter
from ctxlab.tokens.tool_schemas import render_tools


def reads(**arguments: Any) -> Message:
    return Message("assistant", None, tool_calls=(ToolCall("c1", "read", json.dumps(arguments)),))


def needs_of(
    counter: TokenCounter, *messages: Message, **recording: Any
) -> list[tuple[str, str, int]]:
    """``(entity, origin, position of its last mention)`` of every need."""
    needs = Tape(Recording("r", messages, **recording), counter).needs
    found = [needs.need(i) for i in range(len(needs))]
    return [(need.entity.text, need.origin, need.last) for need in found]


GO = Message("user", "look at src/io.py")


def test_a_need_was_said_before_and_is_used_now(counter: TokenCounter) -> None:
    assert needs_of(counter, GO, reads(path="src/io.py")) == [("src/io.py", "user", 0)]
    assert needs_of(counter, GO, reads(path="src/new.py")) == []
    answer = Message("tool", "src/b.py and src/io.py", tool_call_id="c1")
    assert needs_of(counter, GO, reads(path="x"), answer, reads(a="src/b.py", b="src/io.py")) == [
        ("src/b.py", "tool", 2),
        ("src/io.py", "user", 2),
    ]


def test_what_the_system_prompt_or_a_tool_definition_says_cannot_be_lost(
    counter: TokenCounter,
) -> None:
    prompt = Message("system", "read src/io.py")
    assert needs_of(counter, prompt, GO, reads(path="src/io.py")) == []
    use = (GO.replace(content="mind MAX_SIZE"), reads(name="MAX_SIZE"))
    assert needs_of(counter, *use, tools=TOOLS) == []
    assert needs_of(counter, *use) == [("MAX_SIZE", "user", 0)]


def test_a_phrase_of_the_agents_own_is_no_need_but_an_identifier_is(counter: TokenCounter) -> None:
    made = reads(query="Blue whale", name="parse_args")
    again = (GO, made, Message("tool", "nothing", tool_call_id="c1"))
    assert needs_of(counter, *again, made) == [("parse_args", "assistant", 1)]
    told = Message("user", "find Blue whale")
    assert needs_of(counter, told, reads(query="Blue whale")) == [("Blue whale", "user", 0)]


def test_words_count_as_actions_only_where_no_tool_is_ever_called(counter: TokenCounter) -> None:
    said = Message("assistant", "I know src/io.py")
    assert needs_of(counter, GO, said) == [("src/io.py", "user", 0)]
    assert needs_of(counter, GO, said, GO, reads(path="other")) == []


def test_the_gap_is_the_tokens_between_the_last_mention_and_the_use(counter: TokenCounter) -> None:
    between = [Message("user", "word " * 50), Message("assistant", "fine")]
    tape = Tape(Recording("r", (GO, *between, reads(path="src/io.py"))), counter)
    assert tape.needs.need(0).gap == sum(map(counter.message, between))
    assert tape.needs.need(0).argument == (1, "read", "path")
    assert Tape(Recording("r", (GO, reads(path="src/io.py"))), counter).needs.need(0).gap == 0


@given(conversations() | strange_conversations())
def test_the_index_is_what_a_search_through_every_text_finds(
    counter: TokenCounter, messages: tuple[Message, ...]
) -> None:
    tape = tape_of(messages, counter, TOOLS)
    needs, tools = tape.needs, render_tools(TOOLS)
    before = [counter.message(m) for m in messages]
    naive, known = [], {}
    arguments = [len(list(c.leaves())) for m in messages for c in m.tool_calls]
    request = -1
    for here, message in enumerate(messages):
        if here not in tape.requests:
            continue
        request += 1
        uses = [
            (call.name, path, entity)
            for call in message.tool_calls
            for path, leaf in call.leaves()
            for entity in entities_of_leaf(leaf)
        ]
        if message.role == "assistant" and not sum(arguments):
            uses = [("", "text", e) for e in dict.fromkeys(entities_in(message.text))]
        for tool, path, used in uses:
            # A text has one kind, that of its first use.
            entity = known.setdefault(used.text, used)
            places = [i for i in range(here) if holds(text_of(messages[i]), entity.text)]
            if not places or messages[places[0]].role == "system" or holds(tools, entity.text):
                continue
            if entity.kind == "value" and messages[places[0]].role == "assistant":
                continue
            gap = sum(before[places[-1] + 1 : here])
            naive.append((request, tool, path, entity.text, messages[places[0]].role, places, gap))
    found = []
    for i in range(len(needs)):
        need = needs.need(i)
        found.append((*need.argument, need.entity.text, need.origin, needs.places(i), need.gap))
    assert found == naive


@given(conversations())
def test_a_passage_holds_what_is_needed_and_is_a_line_of_what_was_said(
    counter: TokenCounter, messages: tuple[Message, ...]
) -> None:
    needs = tape_of(messages, counter).needs
    seen = 0
    for position in range(len(messages) + 1):
        for last, text in needs.needed(position):
            passage = needs.passage(last, text)
            assert last < position
            assert holds(passage, text)
            assert passage in text_of(messages[last])
            assert "\n" not in passage or "\n" in text
            assert len(passage) <= 160 + len(text)
            seen += 1
    assert seen == len(needs)


@given(messages=conversations(), greetings=st.integers(1, 3))
def test_a_greeting_is_no_request_and_an_oracle_still_recalls_all(
    messages: tuple[Message, ...], greetings: int, counter: TokenCounter
) -> None:
    head = [m for m in messages[:1] if m.role == "system"]
    greeting = Message("assistant", "Hello, I know src/io.py and HAT136.")
    begun = (*head, *[greeting] * greetings, *messages[len(head) :])
    tape = tape_of(begun, counter)
    assert len(tape.requests) == sum(m.role == "assistant" for m in messages)
    assert not len(tape.needs) or int(tape.needs.request.max()) < len(tape.requests)
    trace = play(tape, parse("full"), tape.budget(10**6))
    assert tiers(tape.needs, [trace]).seen.all()
