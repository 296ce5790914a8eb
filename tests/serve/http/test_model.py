"""Tests of the HTTP server with a model that is called over HTTP and streams."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest
from http_serving import created, events_of, said, serving, sessions_at, until
from talking import Call, Fault, Said, talking

from ctxlab.agent.loop import Agent
from ctxlab.agent.tools.processes import ProcessManager
from ctxlab.agent.tools.workspace import workspace_tools
from ctxlab.errors import SpecError
from ctxlab.llm import LiteLLMClient
from ctxlab.messages.types import Message, ToolCall
from ctxlab.messages.validation import find_violations
from ctxlab.sessions.sqlite.store import SqliteStore

MODEL = "openai/gpt-4o"


def asked(address: str, *, system: str | None = None, writable: bool = True) -> dict[str, object]:
    """Return settings of a server whose agents use the model at ``address``."""
    client = LiteLLMClient(api_base=address, api_key="secret", retries=0)

    def agent_for(folder: Path) -> Agent:
        processes = ProcessManager()
        tools = workspace_tools(folder, processes, writable=writable)
        return Agent(MODEL, tools=tools, client=client, system=system, processes=processes)

    return {"agent_for": agent_for}


@pytest.mark.e2e
def test_text_is_told_as_the_model_says_it(tmp_path: Path) -> None:
    with (
        talking(
            Said("one two three four", pieces=("one ", "two ", "three ", "four"), pace=0.15)
        ) as model,
        serving(tmp_path, **asked(model.address)) as client,
    ):
        id = created(client, tmp_path)
        body = {"message": "count"}
        said(client, id, "load what is imported with the first call")
        with client.stream("POST", f"/sessions/{id}/messages", json=body) as response:
            told = [(time.monotonic(), event) for event in events_of(response)]
    pieces = [(at, event.data["text"]) for at, event in told if event.name == "text"]
    assert "".join(text for _, text in pieces) == told[-1][1].data["text"] == "one two three four"
    assert len(pieces) == 4
    assert pieces[-1][0] - pieces[0][0] > 0.3


def test_the_agent_has_the_tools_of_its_workspace_and_the_strategy_of_the_server(
    tmp_path: Path,
) -> None:
    (tmp_path / "long.txt").write_text("word " * 4000)

    def script(call: Call) -> Message | str:
        if call.messages[-1].role == "user":
            read = ToolCall("c1", "read_file", '{"path": "long.txt"}')
            return Message("assistant", tool_calls=(read,))
        return "It is long."

    with (
        talking(script) as model,
        serving(tmp_path, **asked(model.address, system="Be brief.")) as client,
    ):
        answer = client.post("/chat", json={"message": "read it"}).json()
        client.post("/chat", json={"message": "and again"})
        first, then, *_ = model.calls
        assert answer["response"] == "It is long."
        assert first.messages[0].text == "Be brief."
        assert {tool["function"]["name"] for tool in first.body["tools"]} >= {
            *("list_files", "search_files", "read_file", "write_file", "run_command")
        }
        assert first.key == "secret"
        sent = next(m for m in then.messages if m.role == "tool")
        assert len(sent.text) <= 4000 + len("\n\n[truncated]")
        assert not any(call.violations for call in model.calls)


def test_without_the_right_to_write_the_agent_only_reads(tmp_path: Path) -> None:
    with (
        talking("ok") as model,
        serving(tmp_path, **asked(model.address, writable=False)) as client,
    ):
        client.post("/chat", json={"message": "hi"})
        tools = {tool["function"]["name"] for tool in model.calls[0].body["tools"]}
    assert "read_file" in tools
    assert not tools & {"write_file", "run_command"}


def test_a_client_that_goes_away_in_the_middle_of_an_answer_leaves_what_was_said(
    tmp_path: Path,
) -> None:
    slow = Said("word " * 200, pieces=5, pace=0.05)
    with talking([slow, "fine"]) as model, serving(tmp_path, **asked(model.address)) as client:
        id = created(client, tmp_path)
        body = {"message": "tell me"}
        with client.stream("POST", f"/sessions/{id}/messages", json=body) as response:
            stream = events_of(response)
            assert next(stream).name == "text"
        until(lambda: said_or_refused(client, id) == "fine")
        store = SqliteStore(tmp_path)
        messages = list(store.read_messages(id))
        store.close()
    assert not find_violations(messages, "openai")
    assert messages[1].text.startswith("word ")
    assert messages[1].text.endswith("[Cancelled]")
    assert len(messages[1].text) < 500


def said_or_refused(client: httpx.Client, id: str) -> str:
    response = client.post(f"/sessions/{id}/messages", json={"message": "again"})
    return "fine" if response.status_code == 200 and "fine" in response.text else ""


@pytest.mark.e2e(smoke=True)
@pytest.mark.parametrize(("action", "status"), [(401, 502), (500, 503), (Fault.DROP, 503)])
def test_a_model_that_refuses_or_fails_is_told_with_its_status(
    tmp_path: Path, action: object, status: int
) -> None:
    with talking(action) as model, serving(tmp_path, **asked(model.address)) as client:  # type: ignore[arg-type]
        response = client.post("/chat", json={"message": "hi"})
        assert response.status_code == status
        assert response.headers["content-type"] == "application/problem+json"
        assert "secret" not in response.text
        assert len(client.get(sessions_at(tmp_path)).json()) == 1


def test_a_server_without_a_model_says_so_and_serves_what_is_stored(tmp_path: Path) -> None:
    def none(workspace: Path) -> Agent:
        raise SpecError("no model is named")

    with serving(tmp_path) as client:
        id = created(client, tmp_path)
        said(client, id, "hello")
    with serving(tmp_path, agent_for=none) as client:
        for path, body in (
            ("/chat", {"message": "hi"}),
            ("/sessions", {"workspacePath": str(tmp_path)}),
            ("/sessions", {"workspacePath": str(tmp_path), "sessionId": id}),
            (f"/sessions/{id}/messages", {"message": "hi"}),
        ):
            response = client.post(path, json=body)
            assert (response.status_code, response.json()["detail"]) == (503, "no model is named")
        assert [each["sessionId"] for each in client.get(sessions_at(tmp_path)).json()] == [id]
        assert client.get(f"/api/v1/sessions/{id}/toc").status_code == 200
        document = client.get("/openapi.json").json()["paths"]
    for path in ("/chat", "/sessions", "/sessions/{id}/messages"):
        assert "No model" in document[path]["post"]["responses"]["503"]["description"]
