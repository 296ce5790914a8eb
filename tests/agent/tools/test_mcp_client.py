"""The MCP client: real servers in processes, over standard input and output and over HTTP."""

from __future__ import annotations

import json
import logging
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from ctxlab.agent.loop import Agent
from ctxlab.agent.session import AgentSession
from ctxlab.agent.tools.mcp_client import McpServers
from ctxlab.agent.tools.result import ToolResult
from ctxlab.agent.tools.tool import call_tool
from ctxlab.errors import CtxlabError, SpecError
from ctxlab.llm.scripted import ScriptedClient
from ctxlab.messages.types import Message, ToolCall
from ctxlab.sessions.jsonl.store import JsonlStore
from ctxlab.sessions.sqlite.store import SqliteStore

pytest.importorskip("mcp")

from navigating import PARSER, STDIO, TOKEN, listening, stored

PROGRAM = Path(__file__).parents[2] / "helpers" / "mcp_server.py"
SERVER = f"{sys.executable} {PROGRAM}"


def call(servers: McpServers, name: str, arguments: str = "{}") -> ToolResult:
    (tool,) = (each for each in servers.tools if each.name.endswith(f"__{name}"))
    return call_tool(tool, arguments)


def until(done: Callable[[], Any]) -> Any:
    while not (value := done()):
        time.sleep(0.02)
    return value


@pytest.fixture(scope="module")
def server() -> Iterator[McpServers]:
    with McpServers([SERVER]) as opened:
        yield opened


class TestTools:
    def test_a_tool_has_the_name_of_its_server_and_its_schema(self, server: McpServers) -> None:
        tool = server.tools[0]
        assert (tool.name, tool.description) == ("test_server__add", "Add two numbers.")
        assert tool.parameters["required"] == ["a"]
        assert tool.parameters["properties"]["a"]["minimum"] == 0

    def test_names_are_valid_and_unique_for_two_equal_servers(self) -> None:
        with McpServers([SERVER, SERVER]) as both:
            names = [tool.name for tool in both.tools]
            assert call_tool(both.tools[-1], "{}").data == "called"
        assert len({*names}) == len(names)
        assert all(len(name) <= 64 and name.replace("-", "_").isidentifier() for name in names)
        assert {name.partition("__")[0] for name in names} == {"test_server", "test_server_2"}

    def test_a_tool_is_read_only_only_if_its_server_says_so(self, server: McpServers) -> None:
        assert [tool.name for tool in server.tools if tool.read_only] == ["test_server__add"]


class TestResults:
    def test_text_is_the_data_of_a_result(self, server: McpServers) -> None:
        assert call(server, "add", '{"a": 3, "b": 4}').data == "sum 7"

    def test_structured_content_without_text_is_written_as_json(self, server: McpServers) -> None:
        assert call(server, "facts").data == '{"port":8080}'

    def test_an_image_is_an_image_part_of_the_tool_message(self, server: McpServers) -> None:
        result = call(server, "picture")
        assert result.images is not None
        assert result.images[0].startswith("data:image/png;base64,iVBOR")
        call_ = ToolCall("c1", "test_server__picture", "{}")
        asking = Message("assistant", None, tool_calls=(call_,))
        client = ScriptedClient(asking, "It is red.")
        agent = Agent("claude-opus-4-8", tools=server.tools, client=client, limit=50_000)
        agent.run("What does it show?")
        (message,) = (m for m in client.requests[1].messages if m.role == "tool")
        assert [part["type"] for part in message.content] == ["text", "image_url"]
        assert "[audio/wav" in message.text

    @pytest.mark.parametrize("arguments", ['{"broken": true}', '{"sides": 8001}'])
    def test_an_image_that_providers_reject_is_only_named(
        self, server: McpServers, arguments: str
    ) -> None:
        result = call(server, "picture", arguments)
        assert result.images is None
        assert "[image/png" in result.data

    def test_an_error_of_a_tool_is_a_failed_result(self, server: McpServers) -> None:
        result = call(server, "fail")
        assert (result.ok, result.error) == (False, "the disk is full")
        assert result.error_type == "execution_error"

    def test_the_server_validates_arguments(self, server: McpServers) -> None:
        result = call(server, "add", '{"a": -1}')
        assert not result.ok
        assert "greater than or equal to 0" in str(result.error)


@pytest.mark.e2e
class TestFailures:
    def test_a_call_that_takes_too_long_is_a_timeout_and_the_next_one_works(self) -> None:
        with McpServers([SERVER], call_timeout=1) as servers:
            result = call(servers, "hang")
            assert (result.ok, result.error_type) == (False, "timeout")
            assert "did not answer within 1 s" in str(result.error)
        with McpServers([SERVER]) as servers:
            assert call(servers, "add", '{"a": 1}').ok

    def test_a_server_that_never_answers_is_an_error_in_a_sentence(self) -> None:
        with (
            pytest.raises(CtxlabError, match=r"'sleep 600' did not answer within 0\.5 s; check"),
            McpServers(["sleep 600"], start_timeout=0.5),
        ):
            pass

    def test_a_command_that_does_not_exist_is_an_error_in_a_sentence(self) -> None:
        with (
            pytest.raises(
                CtxlabError, match=r"'no-such-program': .*no-such-program: not found'; ch"
            ),
            McpServers(["no-such-program"]),
        ):
            pass

    def test_a_server_that_ends_in_a_call_is_started_again_at_the_next_call(self) -> None:
        with McpServers([SERVER]) as servers:
            result = call(servers, "die")
            assert (result.ok, result.error_type) == (False, "network_error")
            assert "ended during the call" in str(result.error)
            assert call(servers, "add", '{"a": 1}').data == "sum 2"

    def test_a_server_that_ends_between_two_calls_is_started_again(self) -> None:
        with McpServers([SERVER]) as servers:
            pid = json_of(call(servers, "environment"))["pid"]
            os.kill(pid, signal.SIGKILL)
            until(lambda: servers._servers[0]._connection.ended)  # type: ignore[union-attr]
            assert call(servers, "add", '{"a": 1}').data == "sum 2"

    def test_ctrl_c_cancels_a_call_and_the_server_stays(self) -> None:
        with McpServers([SERVER]) as servers:
            pid = json_of(call(servers, "environment"))["pid"]
            main = threading.main_thread().ident
            assert main is not None
            threading.Timer(0.5, signal.pthread_kill, (main, signal.SIGINT)).start()
            with pytest.raises(KeyboardInterrupt):
                call(servers, "hang")
            assert psutil.pid_exists(pid)

    def test_a_stopped_agent_does_not_wait_for_a_call(self) -> None:
        hanging = Message(
            "assistant", None, tool_calls=(ToolCall("c1", "test_server__hang", "{}"),)
        )
        client = ScriptedClient(hanging, "Never said.")
        with McpServers([SERVER], call_timeout=600) as servers:
            agent = Agent("gpt-4o", tools=servers.tools, client=client, limit=50_000)
            running = servers._servers[0]._running
            threading.Thread(target=lambda: until(lambda: running) and agent.stop()).start()
            with pytest.raises(KeyboardInterrupt):
                agent.run("Wait.")
            assert [message.role for message in agent.manager.history][-1] == "tool"
            assert call(servers, "add", '{"a": 1}').ok

    def test_an_address_without_encryption_gets_no_token(self) -> None:
        with pytest.raises(SpecError, match="Expected an https:// address for a token"):
            McpServers(["http://example.org/mcp"], token="t" * 32)


@pytest.mark.e2e
class TestProcesses:
    def test_servers_do_not_inherit_secrets(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SOME_API_KEY", "secret")
        monkeypatch.setenv("GITHUB_TOKEN", "wanted")
        with McpServers([SERVER], keep_env=["GITHUB_TOKEN"]) as servers:
            names = json_of(call(servers, "environment"))["names"]
        assert "GITHUB_TOKEN" in names
        assert "SOME_API_KEY" not in names

    def test_standard_error_goes_to_the_logger(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.INFO, "ctxlab.mcp"), McpServers([SERVER]):
            until(lambda: "the server is here" in caplog.text)

    def test_no_process_of_a_server_survives(self) -> None:
        with McpServers([SERVER]) as servers:
            pids = [int(call(servers, "start_child").data)]
            pids.append(json_of(call(servers, "environment"))["pid"])
        assert not any(map(is_running, pids))

    def test_no_process_of_a_server_survives_kill_9(self, tmp_path: Path) -> None:
        code = (
            "import sys, time\n"
            "from ctxlab.agent.tools.mcp_client import McpServers\n"
            "from ctxlab.agent.tools.tool import call_tool\n"
            f"servers = McpServers([{SERVER!r}]).__enter__()\n"
            "tool = {t.name: t for t in servers.tools}['test_server__start_child']\n"
            "print(call_tool(tool, '{}').data, flush=True)\n"
            "time.sleep(600)\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
        ) as program:
            assert program.stdout
            child = int(program.stdout.readline())
            servers = psutil.Process(program.pid).children(recursive=True)
            assert len(servers) > 1
            program.kill()
        until(lambda: not any(map(is_running, [child, *(each.pid for each in servers)])))


@pytest.mark.e2e
class TestCtxlabServers:
    @pytest.mark.parametrize("transport", ["stdio", "http"])
    def test_the_session_server_works_over_both_transports(
        self, transport: str, tmp_path: Path
    ) -> None:
        stored("workspace", tmp_path)
        with (
            session_server(transport, tmp_path) as address,
            McpServers([address], token=TOKEN) as servers,
        ):
            assert len(servers.tools) == 9
            found = call(servers, "search_all_sessions", '{"query": "brackets"}')
            refused = call(servers, "get_turn", '{"turn": 99}')
        assert PARSER in found.data
        assert not refused.ok

    def test_a_wrong_token_is_an_error_in_a_sentence(self, tmp_path: Path) -> None:
        stored("workspace", tmp_path)
        with (
            listening(tmp_path) as address,
            pytest.raises(CtxlabError, match="cannot connect to MCP server http://"),
            McpServers([address], token="wrong" * 8),
        ):
            pass

    def test_an_http_server_that_was_restarted_is_used_again(self, tmp_path: Path) -> None:
        stored("workspace", tmp_path)
        with listening(tmp_path) as address:
            servers = McpServers([address], token=TOKEN).__enter__()
            assert call(servers, "list_sessions").ok
        try:
            assert call(servers, "list_sessions").error_type == "network_error"
            port = int(address.partition("127.0.0.1:")[2].partition("/")[0])
            with listening(tmp_path, port):
                assert call(servers, "list_sessions").ok
        finally:
            servers.__exit__()


@contextmanager
def session_server(transport: str, folder: Path) -> Iterator[str]:
    if transport == "http":
        with listening(folder) as address:
            yield address
    else:
        yield shlex.join([*STDIO, str(folder)])


def json_of(result: ToolResult) -> dict[str, Any]:
    return dict(json.loads(result.data))


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("kind", ["workspace", "jsonl"])
def test_an_image_of_a_result_is_stored_and_counted(
    kind: str, server: McpServers, tmp_path: Path
) -> None:
    store = SqliteStore(tmp_path) if kind == "workspace" else JsonlStore(tmp_path)
    asking = Message("assistant", None, tool_calls=(ToolCall("c1", "test_server__picture", "{}"),))
    client = ScriptedClient(asking, "It is red.", "As I said.")
    agent = Agent("gpt-4o", tools=server.tools, client=client, limit=50_000, strategy="full()")
    with closing(store), AgentSession.start(store, agent) as session:
        session.run("What does it show?")
        kept = next(m for m in store.read_messages(session.id) if m.role == "tool")
    assert isinstance(kept.content, tuple)
    assert kept.content == client.requests[1].messages[-1].content
    assert agent.manager.history.counter.count_message(kept) > 85  # tokens of the smallest image
