"""The agent's memory: it finds what a strategy has dropped, and what earlier sessions contain."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from generated import strange_conversations
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ctxlab._utils.jsonio import dump_json
from ctxlab.agent.loop import Agent
from ctxlab.agent.memory import SessionMemory, memory_tools
from ctxlab.agent.session import AgentSession
from ctxlab.agent.tools.result import PAGE_CHARS, ToolResult
from ctxlab.agent.tools.tool import call_tool
from ctxlab.llm.base import Request
from ctxlab.llm.scripted import ScriptedClient
from ctxlab.messages.types import Message, ToolCall
from ctxlab.sessions.base import SessionStore
from ctxlab.sessions.jsonl.store import JsonlStore
from ctxlab.sessions.sqlite.store import SqliteStore
from ctxlab.tokens.counter import get_counter

FACT = "The harbour master's code word is albatross-71."
NAMES = ("session_contents", "search_sessions", "get_turn")


@pytest.fixture(params=["sqlite", "jsonl"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SessionStore]:
    kind = {"sqlite": SqliteStore, "jsonl": JsonlStore}[request.param]
    with closing(kind(tmp_path)) as made:
        yield made


def calling(name: str, **arguments: object) -> Message:
    call = ToolCall("c1", name, dump_json(arguments))
    return Message("assistant", None, tool_calls=(call,))


def looks_up(request: Request) -> Message | str:
    """Answer a question about the code word with what the memory gives; else say something long."""
    last = request.messages[-1]
    if last.role == "user" and "code word?" in last.text:
        assert "albatross" not in str([each.to_dict() for each in request.messages])
        return calling("search_sessions", query="harbour code word")
    if last.role == "tool" and (
        found := re.search(r"(\S+) \"[^\n]*\", step (\d+)\.\d+", last.text)
    ):
        return calling("get_turn", session=found[1], turn=found[2])
    if last.role == "tool":
        return f"It is {re.findall('albatross-[0-9]+', last.text)[0]}."
    return "I see. " + "So it goes. " * 100


def agent(client: ScriptedClient, strategy: str = "sliding_window(messages=4)") -> Agent:
    return Agent("gpt-4o", client=client, strategy=strategy, limit=20_000, enable_memory=True)


def memory_of(store: SessionStore, id: str, **options: int) -> SessionMemory:
    return SessionMemory(store, id, **options)


class TestForgetting:
    def test_an_old_fact_is_found_after_the_strategy_has_dropped_it(
        self, store: SessionStore
    ) -> None:
        """Seed 003: what was said long ago can be found."""
        with AgentSession.start(store, agent(ScriptedClient(looks_up))) as session:
            session.run("Hello.")
            session.run(FACT)
            for number in range(5):
                session.run(f"Tell me story {number}.")
            assert session.run("What is the code word?").text == "It is albatross-71."

    def test_a_fact_of_an_earlier_session_is_found(self, store: SessionStore) -> None:
        with AgentSession.start(store, agent(ScriptedClient(looks_up))) as session:
            session.run(FACT)
        with AgentSession.start(store, agent(ScriptedClient(looks_up))) as session:
            assert session.run("What is the code word?").text == "It is albatross-71."

    def test_the_question_itself_is_no_match(self, store: SessionStore) -> None:
        client = ScriptedClient(calling("search_sessions", query="zebra"), "Nothing.")
        with AgentSession.start(store, agent(client)) as session:
            session.run("Did I mention a zebra?")
        assert client.requests[1].messages[-1].text == "No message contains all of these words."

    def test_many_matches_in_the_current_turn_hide_no_earlier_one(
        self, store: SessionStore
    ) -> None:
        store.create(id="a")
        store.append("a", Message("user", "the zebra is called Kim, says the keeper of the zoo"))
        store.append("a", Message("user", "zebra?"), *[Message("assistant", "zebra")] * 30)
        assert "step 1.1" in memory_of(store, "a").search("zebra").data


class TestTools:
    def test_one_get_turn_serves_the_memory_and_the_strategy_contents(
        self, store: SessionStore
    ) -> None:
        made = agent(ScriptedClient(calling("get_turn", turn="1"), "Done."), "contents()")
        with AgentSession.start(store, made) as session:
            result = session.run(FACT).messages[-2]
        assert [name for name in made.tools if name == "get_turn"] == ["get_turn"]
        assert "session" in made.tools["get_turn"].parameters["properties"]
        assert FACT in result.text

    def test_the_definitions_cost_few_tokens(self) -> None:
        tools = memory_tools(lambda: None)
        counter = get_counter("gpt-4o")
        assert tuple(tool.name for tool in tools) == NAMES
        assert counter.count_tools([tool.definition for tool in tools]) < 350

    def test_the_tools_change_nothing(self) -> None:
        assert all(tool.read_only for tool in memory_tools(lambda: None))

    def test_without_a_store_a_call_fails(self) -> None:
        (_, search, _) = memory_tools(lambda: None)
        result = call_tool(search, '{"query": "a"}')
        assert (result.ok, result.error_type) == (False, "execution_error")

    @pytest.mark.parametrize(
        ("name", "arguments", "error"),
        [
            ("get_turn", '{"turn": 9}', "9"),
            ("get_turn", '{"turn": "one"}', "one"),
            ("get_turn", '{"turn": 1, "session": "../x"}', "../x"),
            ("search_sessions", '{"query": "?!"}', "no words"),
            ("session_contents", '{"session": "none"}', "none"),
        ],
    )
    def test_an_invalid_argument_is_a_sentence(
        self, store: SessionStore, name: str, arguments: str, error: str
    ) -> None:
        store.create(id="a")
        store.append("a", Message("user", "hello"))
        tools = {tool.name: tool for tool in memory_tools(lambda: memory_of(store, "a"))}
        result = call_tool(tools[name], arguments)
        assert (result.ok, result.error_type) == (False, "invalid_args")
        assert error in str(result.error)


def test_sessions_for_internal_use_are_left_out(store: SessionStore) -> None:
    store.create(id="hidden", system=True)
    store.append("hidden", Message("user", "albatross"))
    store.create(id="own")
    store.append("own", Message("user", "hello"), Message("assistant", "hi"))
    tools = {tool.name: tool for tool in memory_tools(lambda: memory_of(store, "own"))}
    for name, arguments in (
        ("session_contents", '{"session": "hidden"}'),
        ("search_sessions", '{"query": "albatross", "session": "hidden"}'),
        ("get_turn", '{"turn": 1, "session": "hidden"}'),
    ):
        result = call_tool(tools[name], arguments)
        assert not result.ok
        assert "albatross" not in str(result)
    assert "hidden" not in call_tool(tools["session_contents"], '{"session": "all"}').data
    assert "hidden" not in call_tool(tools["search_sessions"], '{"query": "albatross"}').data


class TestPages:
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
    @given(strange_conversations(), st.integers(600, 1_500))
    @pytest.mark.properties
    def test_every_page_fits(
        self, tmp_path_factory: pytest.TempPathFactory, messages: tuple[Message, ...], size: int
    ) -> None:
        with closing(SqliteStore(tmp_path_factory.mktemp("s"))) as store:
            store.create(id="a", title="x" * 300)
            store.append("a", *messages)
            memory = memory_of(store, "a", page_chars=size)
            results = [memory.contents(), memory.contents("all"), memory.search("a")]
            results += [memory.turn(n + 1) for n in range(min(3, store.count_turns("a")))]
        assert all(len(each.data) <= size for each in results)

    def test_the_pages_of_a_turn_contain_all_of_it(self, store: SessionStore) -> None:
        lines = [f"line {number}" for number in range(2_000)]
        store.create(id="a")
        store.append("a", Message("user", "\n".join(lines)))
        text = "".join(pages(lambda offset: memory_of(store, "a").turn(1, offset=offset)))
        assert all(f"{line}\n" in f"{text}\n" for line in ("line 0", "line 999", "line 1999"))

    def test_the_pages_of_a_search_contain_each_match_once(self, store: SessionStore) -> None:
        store.create(id="a", title="Fruit")
        for number in range(60):
            store.append("a", Message("user", f"apple number {number} " + "and a pear " * 20))
        store.append("a", Message("user", "end"))
        text = "".join(pages(lambda offset: memory_of(store, "a").search("apple", offset=offset)))
        numbers = re.findall(r"apple number (\d+)", text)
        assert sorted(map(int, numbers)) == list(range(60))

    def test_the_contents_continue_where_they_end(self, store: SessionStore) -> None:
        store.create(id="a", title="Weather")
        for number in range(150):
            store.append("a", Message("user", f"question {number} " + "about the weather " * 5))
        seen, start = "", 1
        while start:
            data = memory_of(store, "a").contents(start=start).data
            assert len(data) <= PAGE_CHARS
            seen += data
            start = int((re.findall(r"Continue with start=(\d+)", data) or [0])[0])
        assert [int(n) for n in re.findall(r"question (\d+)", seen)] == list(range(150))


def pages(read: Callable[[int], ToolResult]) -> Iterator[str]:
    offset: int | None = 0
    while offset is not None:
        data = read(offset).data
        assert len(data) <= PAGE_CHARS
        more = re.findall(r"Continue with offset=(\d+)", data)
        offset = int(more[0]) if more else None
        yield re.sub(r"^> ", "", data, flags=re.MULTILINE)
