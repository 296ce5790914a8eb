"""Tests of needs: what counts as a need, and that the index equals a plain search."""

from __future__ import annotations

import json
from typing import Any

from generated import TOOLS, conversations, prepare_messages, strange_conversations
from hypothesis import given
from hypothesis import strategies as st
from replaying import mention_positions, text_of

from ctxlab.evaluation.engine import PreparedRecording, replay_trace
from ctxlab.evaluation.visibility import measure_need_visibility
from ctxlab.messages.entities import contains_entity, find_entities, find_entities_in_value
from ctxlab.messages.types import Message, Recording, ToolCall
from ctxlab.strategies import parse_strategy
from ctxlab.tokens.counter import TokenCounter
from ctxlab.tokens.tool_schemas import render_tools


def reads(**arguments: Any) -> Message:
    return Message("assistant", None, tool_calls=(ToolCall("c1", "read", json.dumps(arguments)),))


def needs_of(
    counter: TokenCounter, *messages: Message, **recording: Any
) -> list[tuple[str, str, int]]:
    """Return ``(entity, origin, position of the last mention)`` for each need."""
    needs = PreparedRecording(Recording("r", messages, **recording), counter).needs
    found = [needs.get_need(i) for i in range(len(needs))]
    return [(need.entity.text, need.origin_role, need.last_mention) for need in found]


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
    assert needs_of(counter, GO, said, GO, reads()) == []


def test_the_gap_is_the_tokens_between_the_last_mention_and_the_use(counter: TokenCounter) -> None:
    between = [Message("user", "word " * 50), Message("assistant", "fine")]
    prepared = PreparedRecording(Recording("r", (GO, *between, reads(path="src/io.py"))), counter)
    assert prepared.needs.get_need(0).gap_tokens == sum(map(counter.count_message, between))
    assert prepared.needs.get_need(0).argument == (1, "read", "path")
    at_start = Message("user", "src/io.py first, then " + "word " * 500)
    long = PreparedRecording(Recording("r", (at_start, reads(path="src/io.py"))), counter)
    assert 0.9 < long.needs.get_need(0).gap_tokens / counter.count_message(at_start) < 1


def test_one_file_has_one_path(counter: TokenCounter) -> None:
    at_repo = {"meta": {"cwd": "/repo"}}
    for said in ("src/io.py", "./src/io.py", "/repo/src/io.py", "--- a/src/io.py"):
        for used in ("src/io.py", "./src/io.py", "/repo/src/io.py"):
            told = Message("user", f"look at {said}")
            assert needs_of(counter, told, reads(path=used), **at_repo) == [
                ("src/io.py", "user", 0)
            ]


def test_the_end_of_a_longer_path_is_another_path(counter: TokenCounter) -> None:
    at_repo = {"meta": {"cwd": "/repo"}}
    for longer, used in (
        ("lib/src/io.py", "src/io.py"),
        ("build/tmp", "/tmp"),
        ("lib/store", "./store"),  # one word, which the index finds without a search
        ("old.data.json", ".data.json"),
    ):
        assert needs_of(counter, Message("user", longer), reads(path=used), **at_repo) == []
        told = Message("user", f"look at {used}")
        assert len(needs_of(counter, told, reads(path=used), **at_repo)) == 1


def test_the_first_folder_of_a_shell_is_the_workspace(counter: TokenCounter) -> None:
    runs = Message(
        "assistant", None, tool_calls=(ToolCall("c0", "bash", '{"c": "cd /repo && ls"}'),)
    )
    listed = Message("tool", "src/io.py", tool_call_id="c0")
    assert needs_of(counter, runs, listed, reads(path="/repo/src/io.py")) == [
        ("src/io.py", "tool", 1)
    ]


def test_names_of_tools_and_parameters_are_no_needs(counter: TokenCounter) -> None:
    told = Message("user", "use read_file with its file_path")
    call = ToolCall("c1", "read_file", '{"file_path": "read_file", "mode": "file_path"}')
    assert needs_of(counter, told, Message("assistant", None, tool_calls=(call,))) == []
    listing = Message("assistant", None, tool_calls=(ToolCall("c1", "list_files", "{}"),))
    told = Message("user", "use list_files")
    assert needs_of(counter, told, listing, told, reads(text="list_files")) == []


@given(conversations() | strange_conversations())
def test_the_index_is_what_a_search_through_every_text_finds(
    counter: TokenCounter, messages: tuple[Message, ...]
) -> None:
    prepared = prepare_messages(messages, counter, TOOLS)
    needs, tools = prepared.needs, render_tools(TOOLS)
    before = [counter.count_message(m) for m in messages]
    naive, known = [], {}
    arguments = [len(list(c.argument_leaves())) for m in messages for c in m.tool_calls]
    calls = [call for message in messages for call in message.tool_calls]
    schema = {call.name for call in calls} | {
        key for call in calls for path, _ in call.argument_leaves() for key in [path.split("[")[0]]
    }
    request = -1
    for here, message in enumerate(messages):
        if here not in prepared.request_positions:
            continue
        request += 1
        uses = [
            (call.name, path, entity)
            for call in message.tool_calls
            for path, leaf in call.argument_leaves()
            for entity in dict.fromkeys(map(needs.normalize, find_entities_in_value(leaf)))
        ]
        if message.role == "assistant" and not sum(arguments):
            written = map(needs.normalize, find_entities(message.text))
            uses = [("", "text", e) for e in dict.fromkeys(written)]
        for tool, path, used in uses:
            if used.kind == "identifier" and used.text in schema:
                continue
            # A text has one kind, that of its first use.
            entity = known.setdefault(used.text, used)
            places = [
                i for i in range(here) if needs.find_offset(entity, text_of(messages[i])) >= 0
            ]
            if (
                not places
                or messages[places[0]].role == "system"
                or contains_entity(tools, entity.text)
            ):
                continue
            if entity.kind == "value" and messages[places[0]].role == "assistant":
                continue
            last = text_of(messages[places[-1]])
            mentions = [k for k in range(len(last)) if needs.find_offset(entity, last, k) == k]
            rest = len(last) - mentions[-1] - len(entity.text)
            gap = sum(before[places[-1] + 1 : here]) + before[places[-1]] * rest // len(last)
            naive.append((request, tool, path, entity.text, messages[places[0]].role, places, gap))
    found = []
    for i in range(len(needs)):
        need = needs.get_need(i)
        found.append(
            (
                *need.argument,
                need.entity.text,
                need.origin_role,
                mention_positions(needs, i),
                need.gap_tokens,
            )
        )
    assert found == naive


@given(conversations())
def test_a_passage_shows_what_is_needed_in_its_line(
    counter: TokenCounter, messages: tuple[Message, ...]
) -> None:
    needs = prepare_messages(messages, counter).needs
    seen = 0
    for position in range(len(messages) + 1):
        for last, text in needs.needed(position):
            passage = needs.passage(last, text)
            assert last < position
            assert contains_entity(passage, text)
            assert passage in text_of(messages[last])
            assert len(passage) <= 2 * 160 + len(text) + 1
            seen += 1
    assert seen == len(needs)


@given(messages=conversations(), greetings=st.integers(1, 3))
def test_a_greeting_is_no_request_and_an_oracle_still_recalls_all(
    messages: tuple[Message, ...], greetings: int, counter: TokenCounter
) -> None:
    head = [m for m in messages[:1] if m.role == "system"]
    greeting = Message("assistant", "Hello, I know src/io.py and HAT136.")
    begun = (*head, *[greeting] * greetings, *messages[len(head) :])
    prepared = prepare_messages(begun, counter)
    assert len(prepared.request_positions) == sum(m.role == "assistant" for m in messages)
    assert not len(prepared.needs) or int(prepared.needs.request.max()) < len(
        prepared.request_positions
    )
    trace = replay_trace(prepared, parse_strategy("full"), prepared.make_budget(10**6))
    assert measure_need_visibility(prepared.needs, [trace]).in_view.all()
