"""Tests of turns over HTTP: events arrive as they happen, and the session stays valid."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Union
from weakref import WeakSet

import httpx
import pytest
from http_serving import (
    Event,
    answer,
    bearer,
    chat,
    commands,
    created,
    events_of,
    said,
    scripted,
    serving,
    sessions_at,
    stored,
    until,
)
from pydantic import TypeAdapter

from ctxlab.agent.loop import Agent
from ctxlab.errors import ModelRequestRejected, ModelUnavailable
from ctxlab.llm.base import Request
from ctxlab.messages.types import Message
from ctxlab.messages.validation import find_violations
from ctxlab.serve.http.sse import TurnEvent
from ctxlab.serve.http.turn_runner import TurnRunner
from ctxlab.sessions.sqlite.store import SqliteStore

# --- a turn as events -----------------------------------------------------------------------------


def test_a_turn_is_told_as_events(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("forty-two")
    with serving(tmp_path) as client:
        events = said(client, created(client, tmp_path), "$ cat a.txt")
    assert list(dict.fromkeys(event.name for event in events)) == [
        *("tool_call", "tool_result", "text", "done")
    ]
    assert "".join(e.data["text"] for e in events if e.name == "text") == events[-1].data["text"]
    assert all(event.data["type"] == event.name for event in events)
    assert events[1].data["ok"] is True
    assert "forty-two" in events[-1].data["text"]
    assert events[-1].data["finish"] == "answered"


def test_events_have_the_shapes_of_the_document(tmp_path: Path) -> None:
    shapes: TypeAdapter[object] = TypeAdapter(Union[*TurnEvent.__subclasses__()])

    def script(request: Request) -> Message | str | Exception:
        text = request.messages[-1].text
        return ModelUnavailable("busy") if text == "fail" else answer(request)

    with serving(tmp_path, agent_for=scripted(script)) as client:
        id = created(client, tmp_path)
        events = [e for text in ("$ echo", "hello", "fail") for e in said(client, id, text)]
    assert {event.name for event in events} == {
        *("text", "tool_call", "tool_result", "done", "error")
    }
    for event in events:
        shapes.validate_python(event.data)


def test_a_text_of_any_letters_arrives_as_it_was_said(tmp_path: Path) -> None:
    strange = "line\none\r\nevent: done\ndata: {}\n\n\u2028 é \x00 \U0001f600"
    with serving(tmp_path) as client:
        id = created(client, tmp_path)
        assert said(client, id, strange)[-1].data["text"] == f"You said: {strange}"
    assert stored(tmp_path, id)[0].text == strange


@pytest.mark.e2e
def test_events_come_as_they_happen(tmp_path: Path) -> None:
    with serving(tmp_path) as client:
        id = created(client, tmp_path)
        body = {"message": "$ sleep 1; echo over"}
        with client.stream("POST", f"/sessions/{id}/messages", json=body) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            times = {event.name: time.monotonic() for event in events_of(response)}
    assert times["tool_result"] - times["tool_call"] > 0.5


@pytest.mark.e2e(smoke=True)
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ModelRequestRejected("the key is wrong: see the settings"), 502),
        (ModelUnavailable("the model is busy"), 503),
        (RuntimeError("secret of the inside"), 500),
    ],
)
def test_a_failure_of_a_turn_is_told_and_the_session_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception, status: int
) -> None:
    def script(request: Request) -> str | Exception:
        return error if request.messages[-1].text.endswith("fail") else "fine"

    with serving(tmp_path, agent_for=scripted(script)) as client:
        id = created(client, tmp_path)
        (event,) = said(client, id, "fail")
        assert (event.name, event.data["status"]) == ("error", status)
        response = chat(client, "fail")
        assert (response.status_code, response.json()["status"]) == (status, status)
        assert response.headers["content-type"] == "application/problem+json"
        assert "secret" not in response.text + str(event.data)
        assert ("secret" in caplog.text) == (status == 500)
        assert said(client, id, "again")[-1].data["text"] == "fine"


@pytest.mark.e2e
def test_a_second_message_is_refused_while_one_is_at_work(tmp_path: Path) -> None:
    with serving(tmp_path) as client, ThreadPoolExecutor() as pool:
        id, other = created(client, tmp_path), created(client, tmp_path)
        work = pool.submit(said, client, id, "$ sleep 1; echo over")
        until(lambda: commands("sleep 1; echo over"))
        for response in (
            client.post(f"/sessions/{id}/messages", json={"message": "hello"}),
            client.post(f"/sessions/{other}/messages", json={"message": "hello"}),
            client.post("/sessions", json={"workspacePath": str(tmp_path)}),
            chat(client, "hello"),
        ):
            assert response.status_code == 409
            assert id in response.json()["detail"]
        assert client.get(f"/api/v1/sessions/{id}/toc").status_code == 200
        assert work.result()[-1].name == "done"
        assert said(client, other, "hello")[-1].name == "done"


def test_the_session_is_free_as_soon_as_done_is_told(tmp_path: Path) -> None:
    with serving(tmp_path) as client:
        id = created(client, tmp_path)
        for number in range(20):
            assert said(client, id, f"message {number}")[-1].name == "done"


def test_sessions_of_several_workspaces_are_at_work_side_by_side(tmp_path: Path) -> None:
    workspaces = [tmp_path / str(number) for number in range(3)]
    for each in workspaces:
        each.mkdir()
    meet = threading.Barrier(3, timeout=60)

    def script(request: Request) -> str:
        meet.wait()
        return "all are here"

    with serving(*workspaces, agent_for=scripted(script)) as client, ThreadPoolExecutor() as pool:
        ids = [created(client, each) for each in workspaces]
        for events in pool.map(lambda id: said(client, id, "hello"), ids):
            assert events[-1].data["text"] == "all are here"


def test_a_message_that_no_window_holds_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path, max_body=10**7) as client:
        response = chat(client, "word " * 130_000)
        assert response.status_code == 422
        assert "larger limit" in response.json()["detail"]
        assert chat(client, "hello").status_code == 200


def test_a_turn_that_could_not_be_begun_keeps_nobody_from_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(turn: TurnRunner) -> None:
        raise RuntimeError("can't start new thread")

    with serving(tmp_path) as client:
        with monkeypatch.context() as patched:
            patched.setattr(TurnRunner, "start", no_thread)
            assert chat(client, "hello").status_code == 500
        assert chat(client, "hello").status_code == 200


# --- ends -----------------------------------------------------------------------------------------


def left_whole(client: httpx.Client, workspace: Path, id: str) -> None:
    """Assert that the session is valid for a provider and accepts another message."""
    messages = stored(workspace, id)
    assert not find_violations(messages, "openai")
    until(lambda: client.post(f"/sessions/{id}/messages", json={"message": "x"}).status_code == 200)
    assert said(client, id, "still there?")[-1].data["text"] == "You said: still there?"


def test_a_client_that_goes_away_cancels_the_turn_and_kills_what_it_began(tmp_path: Path) -> None:
    mark = f"sleep 61.{os.getpid()}"
    with serving(tmp_path) as client:
        id = created(client, tmp_path)
        body = {"message": f"$ {mark} & {mark}; echo over"}
        with client.stream("POST", f"/sessions/{id}/messages", json=body) as response:
            stream = events_of(response)  # kept: the connection ends with it
            assert next(stream).name == "tool_call"
            until(lambda: len(commands(mark)) >= 2)
        until(lambda: not commands(mark))
        until(lambda: stored(tmp_path, id)[-1].role == "tool")
        left_whole(client, tmp_path, id)


@pytest.mark.e2e
def test_a_chat_that_is_not_waited_for_is_cancelled(tmp_path: Path) -> None:
    mark = f"sleep 62.{os.getpid()}"
    with serving(tmp_path) as client:
        with pytest.raises(httpx.ReadTimeout):
            client.post("/chat", json={"message": f"$ {mark}"}, timeout=0.5)
        until(lambda: not commands(mark))
        until(lambda: chat(client, "still there?").status_code == 200)


def test_ending_a_session_ends_its_turn(tmp_path: Path) -> None:
    mark = f"sleep 63.{os.getpid()}"
    with serving(tmp_path) as client, ThreadPoolExecutor() as pool:
        id = created(client, tmp_path)
        work = pool.submit(said, client, id, f"$ {mark}")
        until(lambda: commands(mark))
        assert client.delete(f"/sessions/{id}").json()["status"] == "closed"
        last = work.result()[-1]
        assert (last.name, last.data["status"]) == ("error", 409)
        assert not commands(mark)
        # It is no success that a command was ended.
        (result,) = [json.loads(m.text) for m in stored(tmp_path, id) if m.role == "tool"]
        assert result["error_type"] == "cancelled"
        left_whole(client, tmp_path, id)


@pytest.mark.e2e
def test_a_model_that_does_not_answer_is_given_up_with_its_client(tmp_path: Path) -> None:
    go = threading.Event()

    def script(request: Request) -> str:
        if request.messages[-1].text == "hang":
            go.wait(60)
            return "too late"
        return "You said: still there?"

    with serving(tmp_path, agent_for=scripted(script)) as client:
        id = created(client, tmp_path)
        with pytest.raises(httpx.ReadTimeout):
            client.post(f"/sessions/{id}/messages", json={"message": "hang"}, timeout=0.3)
        left_whole(client, tmp_path, id)
        go.set()
        time.sleep(0.2)
        assert "too late" not in [m.text for m in stored(tmp_path, id)]


SERVER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from http_serving import scripted
from ctxlab.serve.http import make_app, serve
app = make_app([Path(sys.argv[2])], agent_for=scripted())
try:
    serve(app, port=0, on_listening=lambda address, token: print(address, token, flush=True))
except KeyboardInterrupt:
    print("stopped", flush=True)
"""


@pytest.mark.e2e
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_server_that_is_stopped_leaves_sessions_whole_and_no_process(
    tmp_path: Path, number: signal.Signals
) -> None:
    mark = f"sleep 64.{int(number)}{os.getpid()}"
    arguments = [
        sys.executable,
        "-c",
        SERVER,
        str(Path(__file__).parents[2] / "helpers"),
        str(tmp_path),
    ]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address, token = process.stdout.readline().split()
        with httpx.Client(
            base_url=address, headers=bearer(token), timeout=60, trust_env=False
        ) as client:
            id = created(client, tmp_path)
            events: list[Event] = []
            body = {"message": f"$ {mark}"}
            with client.stream("POST", f"/sessions/{id}/messages", json=body) as response:
                stream = events_of(response)
                assert next(stream).name == "tool_call"
                until(lambda: commands(mark))
                process.send_signal(number)
                try:
                    events += stream
                except httpx.HTTPError:
                    events = []
        assert process.wait(60) in (0, -number)
    until(lambda: not commands(mark))
    with serving(tmp_path) as client:
        assert client.get(sessions_at(tmp_path)).json()[0]["sessionId"] == id
        assert said(client, id, "hello")[-1].name == "done"
        assert not find_violations(stored(tmp_path, id), "openai")


# --- memory ---------------------------------------------------------------------------------------


@pytest.mark.e2e
def test_agents_in_memory_are_bounded_and_all_sessions_go_on(tmp_path: Path) -> None:
    agents, alive = scripted(), WeakSet[Agent]()

    def made(path: Path) -> Agent:
        alive.add(agent := agents(path))
        return agent

    with serving(tmp_path, agent_for=made, max_agents=3) as client:
        for number in range(12):
            assert chat(client, f"I am {number}", f"{number}.md").status_code == 200
        gc.collect()
        assert len(alive) <= 3
        assert "I am 0" in chat(client, "what did I say", "0.md").json()["response"]


@pytest.mark.e2e
def test_an_idle_agent_is_let_go_and_its_session_resumed(tmp_path: Path) -> None:
    made: list[Path] = []
    agents = scripted()

    def counted(path: Path) -> object:
        made.append(path)
        return agents(path)

    with serving(tmp_path, agent_for=counted, idle_timeout=0.5) as client:
        for _ in range(3):
            chat(client, "my cat is called Tom")
        assert len(made) == 1
        time.sleep(2)
        assert "Tom" in chat(client, "what did I say").json()["response"]
        assert len(made) == 2


def test_what_another_process_wrote_is_known_in_the_next_turn(tmp_path: Path) -> None:
    with serving(tmp_path) as client:
        id = created(client, tmp_path)
        said(client, id, "hello")
        store = SqliteStore(tmp_path)
        store.append(id, Message("user", "my cat is called Tom"), Message("assistant", "Fine."))
        store.save(id)
        store.close()
        assert "Tom" in said(client, id, "what did I say")[-1].data["text"]
