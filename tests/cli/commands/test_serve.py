"""Tests of ``ctxlab serve``: servers start, print their address, and stop on a signal."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

import pytest
from http_serving import until
from navigating import HELLO
from running import PROGRAM, Run
from talking import Call, talking

from ctxlab.messages.types import Message, ToolCall
from ctxlab.sessions.jsonl.store import JsonlStore
from ctxlab.sessions.sqlite.store import SqliteStore

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals are sent as POSIX has it")

TOKEN = "s3cret"
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}
LIST = {
    "jsonrpc": "2.0",
    "id": 2,
    "method": "tools/call",
    "params": {"name": "list_sessions", "arguments": {}},
}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    store = SqliteStore(folder)
    id = store.create(title="Harbour work").id
    store.append(id, Message("user", "When?"), Message("assistant", "At six."))
    store.close()
    return folder


@contextmanager
def serving(*arguments: str, cwd: Path, **variables: str) -> Iterator[str]:
    """Start a server and yield its address; assert that it exits with 130 after SIGTERM.

    Its token is ``TOKEN``, unless ``CTXLAB_TOKEN`` is another one.
    """
    env = {**os.environ, "NO_PROXY": "127.0.0.1", "CTXLAB_TOKEN": TOKEN, **variables}
    process = subprocess.Popen(
        [*PROGRAM, "serve", *arguments], cwd=cwd, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
        encoding="utf-8", env=env,
    )  # fmt: skip
    with process:
        assert process.stderr is not None
        try:
            said = process.stderr.readline()
            found = re.search(r"http://[\w.:/]+", said)
            assert found, said + process.stderr.read()
            yield found[0]
        finally:
            process.terminate()
            rest = process.stderr.read()
        assert process.wait(60) == 130, rest
        hint = re.escape("to read sessions in a browser, open ")
        assert re.fullmatch(rf"(ctxlab: {hint}.*\n)?(ctxlab: )?Cancelled", rest.strip())


def asked(address: str, body: object = None, token: str | None = TOKEN) -> tuple[int, str]:
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.e2e
def test_an_agent_starts_the_mcp_server_and_talks_over_its_streams(
    workspace: Path, tmp_path: Path
) -> None:
    chunks = JsonlStore(tmp_path / "chunks")
    chunks.append(chunks.create(title="Harbour work").id, Message("user", "When?"))
    chunks.close()
    served = ((), workspace), ((), chunks.folder), ((str(workspace),), workspace.parent)
    for where, cwd in served:
        with subprocess.Popen(
            [*PROGRAM, "serve", "mcp", *where], cwd=cwd, encoding="utf-8",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as process:  # fmt: skip
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            answers = []
            for message in (HELLO, READY, LIST):
                process.stdin.write(json.dumps(message) + "\n")
                process.stdin.flush()
                if "id" in message:
                    answers.append(json.loads(process.stdout.readline()))
            process.stdin.close()
            assert process.wait(60) == 0
            assert process.stderr.read() == ""
        assert answers[0]["result"]["serverInfo"]["name"] == "ctxlab-sessions"
        assert "Harbour work" in json.dumps(answers[1]["result"])


@pytest.mark.e2e
def test_a_served_agent_has_the_tools_of_an_mcp_server(workspace: Path) -> None:
    pytest.importorskip("mcp")
    program = Path(__file__).parents[2] / "helpers" / "mcp_server.py"
    adding = ToolCall("c1", "test_server__add", '{"a": 41}')
    replies = [Message("assistant", None, tool_calls=(adding,)), "42."]
    with talking(replies) as provider:
        options = ("--model", "openai/gpt-4o", "--mcp", f"{sys.executable} {program}")
        keys = {"OPENAI_API_KEY": "sk-test", "OPENAI_API_BASE": provider.address}
        with serving("http", "--port", "0", *options, cwd=workspace, **keys) as address:
            status, said = asked(f"{address}/chat", {"message": "What is 41 + 1?"})
        assert (status, json.loads(said)["response"]) == (200, "42.")
        assert "sum 42" in str(provider.calls[1].body["messages"][-1]["content"])


@pytest.mark.e2e
def test_a_folder_is_served_before_its_first_chat(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "notes.md").write_text("# Notes")
    with serving("mcp", str(folder), "--http", "--port", "0", cwd=tmp_path) as address:
        assert asked(address, body=LIST)[0] == 200
        store = SqliteStore(folder)
        store.append(store.create(title="Harbour work").id, Message("user", "When?"))
        store.close()
        assert "Harbour work" in asked(address, body=LIST)[1]


@pytest.mark.e2e
def test_recorded_logs_are_served_too(logs: Path, tmp_path: Path) -> None:
    two = [str(logs / "0.jsonl"), str(logs / "1.jsonl")]
    for paths in ([str(logs)], two):
        with serving("mcp", *paths, "--http", "--port", "0", cwd=tmp_path) as address:
            status, said = asked(address, body=LIST)
            assert status == 200
            assert "Repair order" in said


@pytest.mark.e2e
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_the_token_comes_from_the_environment_and_is_needed(host: str, workspace: Path) -> None:
    with serving("mcp", "--http", "--port", "0", "--host", host, cwd=workspace) as address:
        address = address.replace("0.0.0.0", "127.0.0.1")
        assert asked(address, LIST, token=None)[0] == 401
        assert asked(address, LIST, token="wrong")[0] == 401
        assert asked(address, LIST, token=TOKEN)[0] == 200


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("arguments", "path"), [(("mcp", "--http"), ""), (("http",), "/health")], ids=["mcp", "http"]
)
@pytest.mark.parametrize("variable", [{}, {"CTXLAB_TOKEN": ""}], ids=["unset", "empty"])
def test_where_no_token_is_given_a_random_one_is_made_and_printed(
    arguments: tuple[str, ...], path: str, variable: dict[str, str], workspace: Path
) -> None:
    env = {k: v for k, v in os.environ.items() if k != "CTXLAB_TOKEN"} | variable
    command = [*PROGRAM, "serve", *arguments, "--port", "0"]
    tokens = []
    for _ in range(2):
        with subprocess.Popen(
            command, cwd=workspace, stderr=subprocess.PIPE, encoding="utf-8", env=env
        ) as process:
            assert process.stderr is not None
            said = [process.stderr.readline() for _ in range(2)]
            address = re.search(r"http://[\w.:/]+", said[0])
            token = re.search(r"Authorization: Bearer ([\w-]{43,})$", said[1])
            assert address, said
            assert token, said
            tokens.append(token[1])
            body = None if path else LIST
            assert asked(address[0] + path, body, token=None)[0] == 401
            assert asked(address[0] + path, body, token=token[1])[0] == 200
            process.terminate()
            assert process.wait(60) == 130
    assert tokens[0] != tokens[1]


@pytest.mark.e2e
@pytest.mark.parametrize("token", [None, "a/chosen&token"], ids=["random", "chosen"])
def test_the_page_is_opened_in_the_browser_with_the_token(
    token: str | None, workspace: Path, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    browser = tmp_path / "browser"
    # The file is deleted when the server stops, so the browser reads it now.
    script = f"""#!/bin/sh
    file="${{1#file://}}"
    (echo "$1"; cat "$file"; stat -c %a "$(dirname "$file")") > {seen}.new
    mv {seen}.new {seen}
    """
    browser.write_text(script)
    browser.chmod(0o700)
    env = {k: v for k, v in os.environ.items() if k != "CTXLAB_TOKEN"} | {
        "BROWSER": f"{browser} %s"
    }
    command = [*PROGRAM, "serve", "http", "--port", "0", "--open"]
    with subprocess.Popen(
        command, cwd=workspace, stderr=subprocess.PIPE, encoding="utf-8",
        env=env | ({"CTXLAB_TOKEN": token} if token else {}),
    ) as process:  # fmt: skip
        assert process.stderr is not None
        printed = "".join(process.stderr.readline() for _ in range(2 if token else 3))
        until(seen.exists)
        process.terminate()
        assert process.wait(60) == 130
    opened, *page, mode = seen.read_text().splitlines()
    assert mode == "700"
    assert not Path(opened.removeprefix("file://")).exists()
    link = re.search(r'href="(http://127\.0\.0\.1:\d+/#token=([^"]+))"', "\n".join(page))
    assert link
    if token:
        assert unquote(link[2]) == token
        assert token not in printed + opened
        assert "/#token=" in printed
    else:
        assert link[1] in printed
        assert link[2] not in opened


def test_chats_and_sessions_are_served_by_http(workspace: Path) -> None:
    with serving("http", "--port", "0", cwd=workspace, CTXLAB_MODEL="") as address:
        status, said = asked(f"{address}/openapi.json")
        assert (status, "/chat" in json.loads(said)["paths"]) == (200, True)
        (id,) = [session.id for session in SqliteStore(workspace).sessions()]
        status, said = asked(f"{address}/api/v1/sessions/{id}/toc")
        assert status == 200
        assert "When?" in said


@pytest.mark.e2e
def test_sessions_of_another_folder_are_served_by_http(workspace: Path, tmp_path: Path) -> None:
    (empty := tmp_path / "empty").mkdir()
    (id,) = [session.id for session in SqliteStore(workspace).sessions()]
    arguments = ("http", "--port", "0", "--store", str(workspace))
    with serving(*arguments, cwd=empty, CTXLAB_MODEL="") as address:
        assert asked(f"{address}/api/v1/sessions/{id}/toc")[0] == 200


@pytest.mark.e2e
def test_a_chat_by_http_is_answered_and_its_contents_are_written_by_a_model(
    workspace: Path,
) -> None:
    asks = "When does it open?"

    def script(call: Call) -> str:
        return "At six." if call.messages[-1].text == asks else "The harbour opens at six"

    with talking(script) as model:
        to_it = dict.fromkeys(("OPENAI_BASE_URL", "OPENAI_API_BASE"), model.address)
        to_it |= {"CTXLAB_MODEL": "openai/gpt-4o-mini", "OPENAI_API_KEY": "sk-test"}
        options = ("--summary-model", "openai/gpt-4o-mini", "--max-iterations", "3")
        with serving("http", "--port", "0", *options, cwd=workspace, **to_it) as address:
            status, said = asked(f"{address}/chat", body={"message": asks})
            assert (status, json.loads(said)["response"]) == (200, "At six.")
            contents = f"{address}/api/v1/sessions/{json.loads(said)['session_id']}/toc"
            until(lambda: "The harbour opens at six" in asked(contents)[1])


@pytest.mark.e2e
@pytest.mark.parametrize("option", ["--approval=read-only", "--no-tools"])
def test_what_the_tools_may_do_by_http_can_be_bounded(workspace: Path, option: str) -> None:
    with talking("At six.") as model:
        to_it = dict.fromkeys(("OPENAI_BASE_URL", "OPENAI_API_BASE"), model.address)
        to_it |= {"CTXLAB_MODEL": "openai/gpt-4o-mini", "OPENAI_API_KEY": "sk-test"}
        with serving("http", "--port", "0", option, cwd=workspace, **to_it) as address:
            assert asked(f"{address}/chat", body={"message": "When?"})[0] == 200
        offered = {tool["function"]["name"] for tool in model.calls[0].body.get("tools", ())}
        reading = {"list_files", "search_files", "read_file", "update_plan"}
        memory = {"session_contents", "search_sessions", "get_turn"}
        assert offered == (reading | memory if option == "--approval=read-only" else set())


@pytest.mark.e2e
def test_a_served_agent_changes_nothing_that_nobody_allowed(workspace: Path) -> None:
    call = ToolCall("c1", "run_command", '{"command": "touch made"}')
    with talking([Message("assistant", tool_calls=(call,)), "I could not."]) as model:
        env = dict.fromkeys(("OPENAI_BASE_URL", "OPENAI_API_BASE"), model.address)
        env |= {"CTXLAB_MODEL": "openai/gpt-4o-mini", "OPENAI_API_KEY": "sk-test"}
        with serving("http", "--port", "0", cwd=workspace, **env) as address:
            assert asked(f"{address}/chat", body={"message": "Go."})[0] == 200
    told = model.calls[1].messages[-1].text
    assert "--approval auto" in told
    assert "refused" in told
    assert not (workspace / "made").exists()


@pytest.mark.e2e
def test_an_agent_served_by_http_finds_what_an_earlier_session_contains(workspace: Path) -> None:
    look = ToolCall("c1", "search_sessions", '{"query": "harbour master"}')
    with talking(["Noted.", Message("assistant", tool_calls=(look,)), "Albatross."]) as model:
        env = dict.fromkeys(("OPENAI_BASE_URL", "OPENAI_API_BASE"), model.address)
        env |= {"CTXLAB_MODEL": "openai/gpt-4o-mini", "OPENAI_API_KEY": "sk-test"}
        with serving("http", "--port", "0", cwd=workspace, **env) as address:
            asked(f"{address}/chat", body={"message": "The harbour master says albatross."})
            asked(f"{address}/chat", body={"message": "What does he say?", "file": "other.txt"})
    found = model.calls[2].body["messages"][-1]["content"]
    assert "The harbour master says albatross." in found


@pytest.mark.e2e
@pytest.mark.parametrize("kept", [False, True], ids=["none", "one is kept"])
@pytest.mark.parametrize("command", ["serve", "chat"])
def test_commands_of_the_agent_see_no_secret_but_those_that_are_named(
    command: str, kept: bool, workspace: Path
) -> None:
    option = ("--approval", "auto", *(("--keep-env", "GITHUB_TOKEN") if kept else ()))
    call = ToolCall("c1", "run_command", '{"command": "env"}')
    with talking([Message("assistant", tool_calls=(call,)), "Done."]) as model:
        env = dict.fromkeys(("OPENAI_BASE_URL", "OPENAI_API_BASE"), model.address)
        env |= {"CTXLAB_MODEL": "openai/gpt-4o-mini", "OPENAI_API_KEY": "hidden-1"}
        env |= {"CTXLAB_TOKEN": "hidden-2", "GITHUB_TOKEN": "hidden-3", "HARMLESS": "shown"}
        if command == "serve":
            with serving("http", "--port", "0", *option, cwd=workspace, **env) as address:
                status, said = asked(f"{address}/chat", {"message": "Go."}, token="hidden-2")
                assert (status, json.loads(said)["response"]) == (200, "Done.")
        else:
            done = subprocess.run(
                [*PROGRAM, "chat", "--new", *option], input="Go.\n", cwd=workspace,
                env={**os.environ, **env}, capture_output=True, encoding="utf-8", timeout=120,
            )  # fmt: skip
            assert done.stdout.strip() == "Done.", done.stderr
        result = model.calls[1].messages[-1]
    assert result.role == "tool"
    assert "HARMLESS=shown" in result.text
    secrets = [line for line in result.text.splitlines() if "hidden-" in line]
    assert secrets == (["GITHUB_TOKEN=hidden-3"] if kept else [])


@pytest.mark.e2e
def test_a_chat_without_a_model_says_which_to_name(workspace: Path) -> None:
    with serving("http", "--port", "0", cwd=workspace, CTXLAB_MODEL="") as address:
        body = {"workspace": str(workspace), "message": "hi"}
        status, said = asked(f"{address}/chat", body=body)
        assert status >= 400
        assert "CTXLAB_MODEL" in said, said


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mcp", "--host", "127.0.0.1"], "add --http"),
        (["mcp", "--port", "1"], "add --http"),
        (["mcp", "--http", "--token", "two words"], "printable ASCII"),
        (["mcp", "nowhere"], "nowhere"),
        (["mcp", "--session", "x"], "no session 'x'"),
        (["http", "--token", "two words"], "printable ASCII"),
        (["http", "--keep-env", "A=1"], "Expected the name of an environment variable, got A=…"),
        (["http", "--workspace", "nowhere"], "expected an existing folder, got 'nowhere'"),
        (["http", "-s", "panick", "-m", "gpt-5"], "did you mean panic"),
        (["http", "-l", "x", "-m", "gpt-5"], "limit"),
        (["http", "--port", "70000"], "65535"),
        (["ftp"], "No such command"),
    ],
)
def test_what_is_written_wrongly_is_one_sentence(
    arguments: list[str], words: str, run: Run, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace)
    monkeypatch.delenv("CTXLAB_TOKEN", raising=False)
    said = run("serve", *arguments)
    assert (said.code, said.out) == (2, "")
    assert said.err.count("\n") == 1
    assert words in said.err


@pytest.mark.e2e
@pytest.mark.parametrize("which", ["mcp", "http"])
def test_a_missing_extra_is_named(which: str, workspace: Path) -> None:
    """An interpreter in which nothing of the extra can be imported."""
    code = (
        "import sys\n"
        "for name in ('mcp', 'fastapi', 'uvicorn', 'starlette'): sys.modules[name] = None\n"
        "from ctxlab.cli import main; sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "serve", which], cwd=workspace, capture_output=True,
        encoding="utf-8", timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "run pip install '.[serve]' in a clone of ctxlab" in done.stderr


@pytest.mark.e2e
def test_ctrl_c_ends_a_server(workspace: Path) -> None:
    with subprocess.Popen(
        [*PROGRAM, "serve", "http", "--port", "0"], cwd=workspace, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
