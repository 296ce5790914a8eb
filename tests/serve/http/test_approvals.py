"""Approval over HTTP: an event asks, the client answers, and nothing happens without an answer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from http_serving import answer, chat, created, events_of, serving, stored, until

from ctxlab.agent.approval import Approver
from ctxlab.agent.loop import Agent
from ctxlab.agent.tools.processes import ProcessManager
from ctxlab.agent.tools.workspace import workspace_tools
from ctxlab.llm import ScriptedClient
from ctxlab.messages.types import Message, ToolCall
from ctxlab.serve.http import turn_runner


def asking(workspace: Path) -> Agent:
    processes = ProcessManager()
    tools = workspace_tools(workspace, processes)
    return Agent(
        "gpt-4o",
        tools=tools,
        client=ScriptedClient(answer),
        processes=processes,
        approver=Approver("ask", refusal="there is no stream of events"),
    )


def turn(
    client: httpx.Client, id: str, message: str, decision: str | None, reason: str = ""
) -> list[dict[str, Any]]:
    """Send a message, answer each question, and return the events; answer nothing if it is None."""
    found = []
    with client.stream("POST", f"/sessions/{id}/messages", json={"message": message}) as response:
        for event in events_of(response):
            found.append(event.data)
            if event.name == "approval_required" and decision is not None:
                url = f"/sessions/{id}/approvals/{event.data['id']}"
                if "kind" not in event.data["choices"]:
                    wrong = client.post(url, json={"decision": "kind"})  # it is not offered
                    assert wrong.status_code == 422
                body = {"decision": decision, "reason": reason}
                assert client.post(url, json=body).json() == body
                assert client.post(url, json=body).status_code == 409  # answered already
    return found


def test_a_client_allows_refuses_and_allows_for_good(tmp_path: Path) -> None:
    with serving(tmp_path, agent_for=asking) as client:
        id = created(client, tmp_path)
        first = turn(client, id, "$ echo first; touch made", "once")
        question = next(each for each in first if each["type"] == "approval_required")
        assert (question["command"], question["kind"]) == ("echo first; touch made", None)
        assert (tmp_path / "made").exists()
        second = turn(client, id, "$ touch other", "no", "not here")
        result = next(each for each in second if each["type"] == "tool_result")
        assert result["error_type"] == "refused"
        assert result["error"] == "The call was not allowed: not here. Do not try it again."
        assert not (tmp_path / "other").exists()
        decided = next(each for each in second if each["type"] == "approval_decided")
        assert (decided["decision"], decided["reason"]) == ("no", "not here")
        turn(client, id, "$ echo again", "kind")
        third = turn(client, id, "$ echo again", None)
        assert "approval_required" not in {each["type"] for each in third}
        assert (
            client.post(f"/sessions/{id}/approvals/c1", json={"decision": "once"}).status_code
            == 409
        )
        assert client.post("/sessions/x/approvals/c1", json={"decision": "once"}).status_code == 404
        assert (
            client.post(f"/sessions/{id}/approvals/c1", json={"decision": "?"}).status_code == 422
        )


def test_without_a_stream_what_needs_approval_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path, agent_for=asking) as client:
        said = chat(client, "$ touch made").json()["response"]
    assert "there is no stream of events" in said
    assert not (tmp_path / "made").exists()


def test_a_question_that_nobody_answers_is_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn_runner, "APPROVAL_TIMEOUT", 0.2)
    with serving(tmp_path, agent_for=asking) as client:
        events = turn(client, created(client, tmp_path), "$ touch made", None)
    assert "nobody answered within 0.2 s" in str(events)
    assert not (tmp_path / "made").exists()


def test_a_client_that_leaves_with_a_question_open_cancels_the_turn(tmp_path: Path) -> None:
    with serving(tmp_path, agent_for=asking) as client:
        id = created(client, tmp_path)
        body = {"message": "$ touch made"}
        with client.stream("POST", f"/sessions/{id}/messages", json=body) as response:
            for event in events_of(response):
                if event.name == "approval_required":
                    break
        until(lambda: stored(tmp_path, id)[-1].role == "tool")
        until(lambda: chat(client, "hello").status_code == 200)
    assert not (tmp_path / "made").exists()


def test_of_many_clients_that_answer_at_once_one_is_heard(tmp_path: Path) -> None:
    with serving(tmp_path, agent_for=asking) as client:
        id = created(client, tmp_path)
        body = {"message": "$ touch made"}
        with client.stream("POST", f"/sessions/{id}/messages", json=body) as response:
            for event in events_of(response):
                if event.name == "approval_required":
                    url = f"/sessions/{id}/approvals/{event.data['id']}"
                    answers = [{"decision": "no", "reason": str(n)} for n in range(8)]
                    with ThreadPoolExecutor(8) as pool:
                        sent = [pool.submit(client.post, url, json=each) for each in answers]
                    said = [each.result() for each in sent]
                if event.name == "approval_decided":
                    decided = event.data
    heard = [each.json()["reason"] for each in said if each.status_code == 200]
    assert heard == [decided["reason"]]
    assert sorted(each.status_code for each in said) == [200, *[409] * 7]


def test_an_id_with_reserved_characters_can_be_answered(tmp_path: Path) -> None:
    made = ToolCall("functions/run:0?#", "run_command", '{"command": "touch made"}')
    script = Message("assistant", None, tool_calls=(made,))

    def agent_for(workspace: Path) -> Agent:
        processes = ProcessManager()
        return Agent(
            "gpt-4o",
            tools=workspace_tools(workspace, processes),
            client=ScriptedClient(script, "Done."),
            processes=processes,
            approver=Approver("ask"),
        )

    with serving(tmp_path, agent_for=agent_for) as client:
        id = created(client, tmp_path)
        body = {"message": "Go."}
        with client.stream("POST", f"/sessions/{id}/messages", json=body) as response:
            for event in events_of(response):
                if event.name == "approval_required":
                    url = f"/sessions/{id}/approvals/{quote(event.data['id'], safe='')}"
                    assert client.post(url, json={"decision": "once"}).status_code == 200
    assert (tmp_path / "made").exists()
