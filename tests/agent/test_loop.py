"""Tests of the agent loop: what it sends, what it keeps, and when it ends."""

from __future__ import annotations

import json
import logging
import math
import random
import time
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pytest
from acting import Heard, Streaming, calls, whole
from hypothesis import given
from hypothesis import strategies as st
from talking import talking

from ctxlab import count_tokens
from ctxlab.agent.events import (
    TextDelta,
    ToolCallFinished,
    ToolCallStarted,
    TurnFinished,
    event_to_dict,
)
from ctxlab.agent.loop import DEFAULT_STRATEGY, Agent
from ctxlab.errors import ModelRequestRejected, ModelUnavailable, SpecError
from ctxlab.llm import LiteLLMClient, ScriptedClient
from ctxlab.llm.base import Reply, Request
from ctxlab.messages.openai_format import message_from_dict
from ctxlab.messages.types import Message, ToolCall, Usage
from ctxlab.messages.validation import find_violations
from ctxlab.sessions.resume_messages import pair_tool_results
from ctxlab.strategies import full


def search_vault(query: str, size: int = 5) -> dict[str, Any]:
    """Searches the notes."""
    return {"results": [{"path": f"Notes/{query}{i}.md", "text": "…" * 99} for i in range(size)]}


def read(path: str = "a.py", size: int = 10) -> str:
    """Reads a file."""
    return path[:1] * size


TOOLS = [search_vault, read]
FOUND = calls(("search_vault", '{"query": "n"}'))


def agent_of(*answers: Any, **options: Any) -> tuple[Agent, ScriptedClient]:
    client = ScriptedClient(*answers)
    return Agent("gpt-4o", tools=TOOLS, client=client, system="You help.", **options), client


def sent(client: ScriptedClient, number: int = -1) -> list[str]:
    return [m.text for m in client.requests[number].messages]


# --- a turn ----------------------------------------------------------------------------------------


def test_a_turn_is_told_as_it_happens() -> None:
    """Seed 002, criterion 1: what a tool answers is a ToolResult, all the way to the events."""
    agent, client = agent_of(calls(("read", '{"size": 3}'), text="Looking."), "It says aaa.")
    heard = Heard(agent)
    events = list(agent.stream("What is in a.py?"))
    call = ToolCall("c0", "read", '{"size": 3}')
    kinds = [kind for kind, _ in groupby(type(e) for e in events)]
    assert kinds == [TextDelta, ToolCallStarted, ToolCallFinished, TextDelta, TurnFinished]
    assert ToolCallStarted(call) in events
    returned = next(e for e in events if isinstance(e, ToolCallFinished))
    assert (returned.result.data, returned.result.tool_name) == ("aaa", "read")
    assert isinstance(events[-1], TurnFinished)
    outcome = events[-1].result
    assert (outcome.text, outcome.finish, outcome.iterations) == ("It says aaa.", "answered", 2)
    assert [m.role for m in outcome.messages] == ["user", "assistant", "tool", "assistant"]
    assert client.requests[0].tools == agent.tool_definitions
    whole(agent, heard)
    told = [event_to_dict(e) for e in events]
    assert json.loads(json.dumps(told)) == told
    assert [type for type, _ in groupby(e["type"] for e in told)] == [
        "text", "tool_call", "tool_result", "text", "done",
    ]  # fmt: skip


def test_usage_price_and_time_are_kept_with_each_reply() -> None:
    bill = Usage(100, cache_read=20, output=7)
    reply = Reply(Message("assistant", "Hello."), bill, 0.5)
    agent, _ = agent_of(Reply(FOUND, bill, 0.25), reply)
    before = time.time()
    outcome = agent.run("Hi")
    assert outcome.usage == Usage(200, cache_read=40, output=14)
    assert outcome.usd == 0.75
    answers = [m for m in outcome.messages if m.role == "assistant"]
    assert [(m.usage, m.extra["usd"]) for m in answers] == [(bill, 0.25), (bill, 0.5)]
    assert all(m.time is not None and before <= m.time <= time.time() for m in outcome.messages)
    nameless, _ = agent_of(Reply(Message("assistant", "Hm."), bill, math.nan))
    assert math.isnan(nameless.run("Hi").usd)


def test_what_streams_comes_in_pieces_and_is_kept_whole() -> None:
    client = Streaming("Hello there, friend.")
    agent = Agent("gpt-4o", client=client)
    heard = Heard(agent)
    pieces = [e.text for e in agent.stream("Hi") if isinstance(e, TextDelta)]
    assert pieces == ["Hello", " ther", "e, fr", "iend."]
    assert heard.messages[-1].text == "Hello there, friend."
    assert client.open == 0
    whole(agent, heard)


def test_the_message_that_is_answered_is_neither_summarized_nor_dropped() -> None:
    """Seed 000, request flow: the model gets the user's message in each request of a long turn."""

    def look() -> str:
        return "line of a file " * 200

    asked = f"{'Mind the rules. ' * 80} Finally, write the report."
    answers = calls(("look", "{}")), "Done.", *[calls(("look", "{}"))] * 9, "Done."
    client = ScriptedClient(*answers)
    agent = Agent("gpt-4o", tools=[look], client=client, limit="6k")
    agent.run("Begin")
    agent.run(asked)
    assert len(client.requests) == 12
    assert any(
        "Summary of the conversation" in (m.text or "") for m in client.requests[-1].messages
    )
    for request in client.requests[2:]:
        assert asked in [m.text for m in request.messages if m.role == "user"]


def test_seed_000_5_at_the_cap_the_partial_answer_comes_back_with_its_marker() -> None:
    """Seed 000, testing 5: agent loop cap returns partial response."""
    asking = calls(("read", "{}"), text="Still reading.")
    agent, client = agent_of(*[asking] * 10, "never asked")
    heard = Heard(agent)
    events = list(agent.stream("Read all"))
    assert isinstance(events[-1], TurnFinished)
    outcome = events[-1].result
    assert outcome.text == "Still reading.\n\n[Tool call limit reached]"
    assert (outcome.finish, outcome.iterations, len(client.requests)) == ("limit", 10, 10)
    assert outcome.messages[-1] == heard.messages[-1]
    assert outcome.messages[-1].text == "[Tool call limit reached]"  # the rest is stored already
    said = "".join(e.text for e in events if isinstance(e, TextDelta))
    assert said.endswith(outcome.text)
    whole(agent, heard)


def test_the_cap_is_the_callers_and_stands_where_nothing_was_said() -> None:
    agent, client = agent_of(FOUND, FOUND, "Done.", max_iterations=2)
    assert agent.run("Go").text == "[Tool call limit reached]"
    assert agent.run("Go on").text == "Done."
    assert find_violations(client.requests[-1].messages) == []
    with pytest.raises(SpecError, match="max_iterations"):
        Agent("gpt-4o", max_iterations=0)


# --- the default strategy, as seed 000 wants it ----------------------------------------------------


def turn_on(agent: Agent, text: str, file: str | None) -> None:
    agent.run(text, file=file)


def test_seed_000_1_the_same_file_continues_its_session() -> None:
    """Seed 000, testing 1: same file continues session."""
    agent, client = agent_of("A1.", "A2.")
    turn_on(agent, "one", "a.md")
    turn_on(agent, "two", "a.md")
    assert sent(client) == ["You help.", "one", "A1.", "two"]


def test_seed_000_2_another_file_starts_with_the_system_prompt_and_what_was_asked() -> None:
    """Seed 000, testing 2: different file starts new session; no file is a file of its own."""
    agent, client = agent_of("A1.", "B1.", "N1.")
    for text, file in (("one", "a.md"), ("two", "b.md"), ("three", None)):
        turn_on(agent, text, file)
        assert sent(client) == ["You help.", text]


def test_seed_000_3_switching_back_resumes_whatever_files_the_tools_touched() -> None:
    """Seed 000, testing 3: switching back to previous file resumes it."""
    touching = calls(("read", '{"path": "b.md"}'))
    agent, client = agent_of(touching, "A1.", "B1.", "A2.", "N1.", "B2.")
    turn_on(agent, "one", "a.md")
    turn_on(agent, "two", "b.md")
    turn_on(agent, "three", "a.md")
    assert sent(client) == ["You help.", "one", "", "b" * 10, "A1.", "three"]
    turn_on(agent, "four", None)
    turn_on(agent, "five", "b.md")
    assert sent(client) == ["You help.", "two", "B1.", "five"]
    assert find_violations(client.requests[-1].messages) == []


def test_seed_000_4_results_of_earlier_turns_are_sent_as_stubs() -> None:
    """Seed 000, testing 4: tool compaction produces valid stubs, once the turn is over."""
    agent, client = agent_of(FOUND, "Found 5.", "You are welcome.")
    agent.run("Search")
    in_turn = next(m for m in client.requests[1].messages if m.role == "tool")
    assert json.loads(in_turn.text)["results"][0]["path"] == "Notes/n0.md"
    agent.run("Thanks")
    stub = json.loads(next(m.text for m in client.requests[2].messages if m.role == "tool"))
    assert (stub["tool"], stub["status"], stub["summary"]) == (
        "search_vault",
        "success",
        "5 results",
    )
    assert stub["files"] == [f"Notes/n{i}.md" for i in range(5)]
    assert len(agent.manager.history[3].text) > 500  # the conversation keeps all of it


def test_a_failed_call_is_stubbed_as_a_failure() -> None:
    agent, client = agent_of(calls(("search_vault", '{"quarry": 1}')), "Hm.", "So?")
    agent.run("Search")
    agent.run("And?")
    failed = json.loads(next(m.text for m in client.requests[2].messages if m.role == "tool"))
    assert failed.get("status") == "error" or failed.get("error_type") == "invalid_args"


@pytest.mark.parametrize("size", [3999, 4000, 4001])
def test_seed_000_6_a_result_is_cut_at_4000_characters(size: int) -> None:
    """Seed 000, testing 6: tool result truncation at boundary.

    The seed keeps the first 4,000 characters. The agent keeps the first and the last 2,000, because
    programs say at the end how they failed; ``tool_result_cap()`` alone does as the seed says.
    """
    agent, client = agent_of(calls(("read", json.dumps({"size": size}))), "Long.")
    agent.run("Read")
    middle = f"\n\n[truncated] 1 of {size:,} characters left out here\n\n"
    expected = "a" * size if size <= 4000 else "a" * 2000 + middle + "a" * 2000
    assert client.requests[1].messages[-1].text == expected
    assert agent.manager.history[-2].text == "a" * size


def test_seed_000_7_marks_of_ours_never_reach_a_provider() -> None:
    """Seed 000, testing 7: ``_compacted`` is stripped before LLM calls; the server refuses it."""
    old: list[dict[str, Any]] = [
        {"role": "user", "content": "Search", "_mine": 1},
        {**FOUND.to_dict(), "_shown": True},
        {"role": "tool", "tool_call_id": "c0", "content": "{}", "_compacted": True},
        {"role": "assistant", "content": "None.", "_note": {"a": 1}},
    ]
    script = [calls(ToolCall("c9", "search_vault", '{"query": "x"}')), "Found.", "Bye."]
    with talking(script) as server:
        client = LiteLLMClient(server.address, "key", retries=0)
        agent = Agent("openai/gpt-4o", tools=TOOLS, client=client, system="You help.")
        agent.load_history([message_from_dict(m) for m in old])
        assert agent.run("Again").text == "Found."
        assert agent.run("Thanks").text == "Bye."
        assert [c.outcome for c in server.calls] == ["answered"] * 3
        bodies = json.dumps([c.body for c in server.calls])
    assert "_compacted" not in bodies
    assert not any(mark in bodies for mark in ("_mine", "_shown", "_note"))
    assert '\\"status\\":\\"success\\"' in bodies  # a stub was sent, whose message has the mark


def test_a_system_prompt_of_ones_own_stands_for_the_one_that_was_stored() -> None:
    agent, client = agent_of("Yes.")
    agent.load_history(
        [Message("system", "Old."), Message("user", "hi"), Message("assistant", "ho")]
    )
    agent.run("Still there?")
    assert sent(client) == ["You help.", "hi", "ho", "Still there?"]
    plain = Agent("gpt-4o", client=ScriptedClient("Yes."))
    plain.load_history([Message("system", "Old.")])
    assert [m.text for m in plain.run("Hi").messages] == ["Hi", "Yes."]
    assert plain.manager.history[0].text == "Old."
    with pytest.raises(SpecError, match="already has a conversation"):
        agent.load_history([])


# --- the window ------------------------------------------------------------------------------------


def test_seed_002_7_an_overflow_is_cut_with_a_warning_and_not_sent_as_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Seed 002, criterion 7: what exceeds the window is cut, with a warning.

    Seed 002, scenario 3: the system prompt and the newest messages are kept.
    """
    wanted = calls(*[("read", '{"size": 50000}')] * 6)
    with talking([wanted, "Long."], window=3000) as server:
        client = LiteLLMClient(server.address, "key", retries=0)
        agent = Agent(
            "openai/gpt-4o", tools=[read], client=client, system="You test.", limit=3000,
            max_tokens=200, strategy="panic()",
        )  # fmt: skip
        with caplog.at_level(logging.WARNING, "ctxlab.agent.manager"):
            assert agent.run("Read").text == "Long."
        assert server.answered == 2
        assert server.calls[1].prompt <= 2800
        roles = [m.role for m in server.calls[1].messages]
        assert roles == ["system", "user", "assistant", *["tool"] * 6]
    assert "panic() cut it" in caplog.text
    assert agent.manager.events == [(1, "panic")]


def test_seed_002_4_tool_definitions_take_room_and_are_counted() -> None:
    """Seed 002, scenario 4: with tools fewer messages fit. Seed 002, criterion 5: they are counted."""

    def talk(tools: list[Any]) -> tuple[Agent, ScriptedClient]:
        client = ScriptedClient("Yes.")
        agent = Agent("gpt-4o", tools=tools, client=client, limit=3000, reserve=0)
        agent.load_history([Message("user", f"{i} " + "word " * 40) for i in range(90)])
        return agent, client

    def wide(name: str) -> Any:
        def tool(path: str, depth: int = 1) -> str:
            """Looks through the whole tree of files for what was asked, and tells what it found."""
            return path

        from ctxlab.agent.tools.tool import tool_from_function

        return tool_from_function(tool, name=name)

    many = [wide(f"look_{i}") for i in range(30)]
    (plain, one), (laden, other) = talk([]), talk(many)
    assert plain.context_breakdown()["tools"] == 0
    assert laden.context_breakdown()["tools"] > 500
    plain.run("So?")
    laden.run("So?")
    assert len(other.requests[0].messages) < len(one.requests[0].messages)
    assert count_tokens(other.requests[0].messages, "gpt-4o", other.requests[0].tools) <= 3000


PARTS = ["system", "tools", "summary", "messages", "reserve", "free", "limit"]


def test_seed_002_5_the_parts_of_the_next_request_add_up_to_the_window() -> None:
    """Seed 002, criterion 5: tool definition token usage is shown, beside all other parts."""
    agent, client = agent_of(*["Yes. " * 60] * 30, limit=3000, max_tokens=300)
    for _ in range(30):
        parts = agent.context_breakdown()
        assert list(parts) == PARTS
        assert sum(parts[name] for name in PARTS[:-1]) == parts["limit"] == 3000
        assert parts["reserve"] == 300
        assert parts["tools"] > 0
        before = len(agent.manager.history), len(agent.manager.events)
        assert agent.context_breakdown() == parts
        assert (len(agent.manager.history), len(agent.manager.events)) == before
        agent.run("?")
        request = client.requests[-1]
        told = parts["system"] + parts["tools"] + parts["summary"] + parts["messages"]
        asked = count_tokens([Message("user", "?")], "gpt-4o") - 3
        assert count_tokens(request.messages, "gpt-4o", request.tools) == told + asked
    assert parts["summary"] > 0


def test_the_parts_are_known_where_a_strategy_would_ask_a_model_without_asking_it() -> None:
    agent, client = agent_of("Yes.", strategy="rolling_summary(model='gpt-4o') | panic()")
    agent.run("Hello")
    asked = len(client.requests)
    parts = agent.context_breakdown()
    assert sum(parts[name] for name in PARTS[:-1]) == parts["limit"]
    assert parts["messages"] > 0
    assert len(client.requests) == asked


# --- what goes wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ModelUnavailable("busy"), ModelRequestRejected("no such key")])
def test_a_model_that_does_not_answer_leaves_the_conversation_whole(error: Exception) -> None:
    agent, client = agent_of(FOUND, error, error, "Here again.")
    heard = Heard(agent)
    for text in ("Search", "And now?"):
        with pytest.raises(type(error)):
            agent.run(text)
        whole(agent, heard)
    assert agent.run("Now?").text == "Here again."
    assert [m.text for m in client.requests[-1].messages if m.role == "user"] == [
        "Search", "And now?", "Now?",
    ]  # fmt: skip
    whole(agent, heard)


def test_what_had_come_of_an_answer_that_broke_off_is_kept_and_says_so() -> None:
    client = Streaming(("Half of", ModelUnavailable("gone")), "Whole.")
    agent = Agent("gpt-4o", client=client)
    heard = Heard(agent)
    with pytest.raises(ModelUnavailable):
        agent.run("Hi")
    assert heard.messages[-1].text == "Half of\n\n[The answer broke off]"
    assert agent.run("Again").text == "Whole."
    whole(agent, heard)


def test_a_store_that_fails_ends_the_turn_and_what_it_did_not_take_was_not_said() -> None:
    agent, _ = agent_of(FOUND, "Found.")

    class Disk(Heard):
        full = True

        def on_text(self, text: str) -> None: ...

        def on_messages(self, messages: tuple[Message, ...]) -> None:
            if self.full and len(self.messages) == 3:
                raise OSError(28, "No space left on device")
            super().on_messages(messages)

    disk = Disk(agent)
    with pytest.raises(OSError, match="No space"):
        agent.run("Search")
    assert list(agent.manager.history) == disk.messages  # the call is open, in both alike
    disk.full = False
    assert agent.run("Again").text == "Found."
    assert find_violations(agent.manager.history) == []
    assert [m.role for m in disk.messages[3:]] == ["tool", "user", "assistant"]
    whole(agent, disk)


def test_an_agent_has_one_observer() -> None:
    agent, _ = agent_of("Hello.")
    heard = Heard(agent)
    with pytest.raises(SpecError, match="already has an observer"):
        Heard(agent)
    assert agent.observer is heard
    agent.run("Hi")
    whole(agent, heard)


def test_a_turn_within_a_turn_and_an_empty_message_are_refused() -> None:
    def recurse() -> str:
        """Asks the agent itself."""
        return agent.run("Me again").text

    agent = Agent("gpt-4o", tools=[recurse], client=ScriptedClient(calls(("recurse", "{}")), "Ok."))
    returned = [e for e in agent.stream("Go") if isinstance(e, ToolCallFinished)]
    assert "SpecError: the agent is running a turn" in str(returned[0].result.error)
    for nothing in ("", " \n"):
        with pytest.raises(SpecError, match="empty"):
            agent.run(nothing)


def test_seed_002_7_a_message_larger_than_the_window_is_refused_before_it_is_said() -> None:
    """Seed 002, criterion 7: what exceeds the context is not sent as it is."""
    agent, client = agent_of("Fine.", limit=1000, reserve=100)
    heard = Heard(agent)
    with pytest.raises(
        SpecError, match=r"2,\d{3} tokens.* of 1,000 has room for 8\d\d; shorten the"
    ):
        agent.stream("word " * 2000)
    assert heard.messages == []
    assert agent.run("Hello").text == "Fine."
    assert len(client.requests) == 1


def test_a_message_that_does_not_fit_beside_the_first_one_is_refused() -> None:
    agent, client = agent_of("Fine.", "Fine.", limit=1000, reserve=100)
    agent.run("word " * 500)
    with pytest.raises(SpecError, match=r"5\d\d tokens.* of 1,000 has room for 2\d\d; shorten the"):
        agent.stream("word " * 500)
    agent.run("word " * 250)
    assert len(client.requests) == 2


def test_get_turn_is_there_where_contents_are() -> None:
    asked = [{"turn": turn} for turn in (1, "1", "1.1", "2.1", "9", 1.1)]
    wanted = calls(*[("get_turn", json.dumps(each)) for each in asked])
    client = ScriptedClient("One.", wanted, "It was.")
    agent = Agent("gpt-4o", client=client, strategy="contents() | panic()")
    agent.run("First")
    returned = [e.result for e in agent.stream("What?") if isinstance(e, ToolCallFinished)]
    assert [m["content"] for m in returned[0].data] == ["First", "One."]
    assert returned[0].data == returned[1].data == returned[2].data
    assert [m["role"] for m in returned[3].data][:2] == ["user", "assistant"]
    assert "no turn or step 9" in str(returned[4].error)
    assert "such as 3.2, got 1.1; pass a step as a string" in str(returned[5].error)
    assert "get_turn" not in Agent("gpt-4o", strategy="panic()").tools
    whole = "when_it_pays(contents()) | panic()"
    assert "get_turn" in Agent("gpt-4o", strategy=whole).tools

    @dataclass(frozen=True, repr=False)
    class table_of_contents(full):
        """Called alike, and lists nothing."""

    assert "get_turn" not in Agent("gpt-4o", strategy=table_of_contents()).tools


# --- whatever a model answers ----------------------------------------------------------------------

NAMES = ["read", "search_vault", "fail", "functions.read", "no such tool", "", "read", "é" * 80]
ARGUMENTS = [
    "{}", "", '{"size": 5}', '{"size": "many"}', '{"path":', "[1]", "null", '"\\ud83d"',
    '{"size": 250000}', '{"x": 1}', '{"query": "q"}',
]  # fmt: skip
TEXTS = [None, "", " ", "Looking.", "\ud83d odd", "long " * 3000, "[x]"]


def fail() -> str:
    """Never works."""
    raise RuntimeError("as ever \udcff")


class Unruly:
    """Model with random answers: unknown tools, malformed arguments, reused ids, or nothing."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.asked: list[Request] = []

    def complete(self, request: Request, /) -> Reply:
        assert find_violations(request.messages) == []
        for call in (c for m in request.messages for c in m.tool_calls):
            assert isinstance(json.loads(call.arguments), dict)
        assert json.dumps([m.to_dict() for m in request.messages], ensure_ascii=False).encode()
        self.asked.append(request)
        draw = self.random
        wanted = tuple(
            ToolCall(
                draw.choice(["c0", "c1", "", "c1_0"]), draw.choice(NAMES), draw.choice(ARGUMENTS)
            )
            for _ in range(draw.choice([0, 0, 1, 1, 2, 4]))
        )
        return Reply(Message("assistant", draw.choice(TEXTS), tool_calls=wanted), Usage(1))

    def complete_all(self, requests: Any, /) -> list[Reply | ModelUnavailable]:
        return [self.complete(each) for each in requests]


@given(
    st.integers(0, 10**9),
    st.sampled_from([DEFAULT_STRATEGY, "full", "rolling_summary() | panic()", "contents | panic"]),
)
def test_whatever_a_model_answers_the_conversation_stays_valid(seed: int, strategy: str) -> None:
    client = Unruly(seed)
    agent = Agent(
        "gpt-4o", tools=[read, search_vault, fail], client=client, strategy=strategy, system="Go.",
        max_iterations=4, limit=20_000,
    )  # fmt: skip
    heard = Heard(agent)
    for turn in range(3):
        outcome = agent.run(f"turn {turn}", file=client.random.choice([None, "a", "b"]))
        assert outcome.finish == "limit" or outcome.iterations <= 4
        assert outcome.text.strip()
        whole(agent, heard)
    ids = [c.id for m in agent.manager.history for c in m.tool_calls]
    assert len(ids) == len(set(ids))
    assert all(len(m.text) < 201_000 for m in agent.manager.history)
    assert pair_tool_results(heard.messages) == tuple(agent.manager.history)
