"""Tests of the HTTP server of sessions: its answers, and sessions after a restart."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from uuid import UUID

import pytest
from http_serving import chat, created, said, scripted, serving, sessions_at, stored

from ctxlab.errors import SpecError
from ctxlab.serve.http import make_app
from ctxlab.sessions.sqlite.store import SqliteStore

# --- chat -----------------------------------------------------------------------------------------


def test_a_message_is_answered_with_the_id_of_its_session(tmp_path: Path) -> None:
    """Seed 000, request flow: POST /chat routes by file and answers with the session's UUID."""
    with serving(tmp_path) as client:
        response = chat(client, "hello", "notes.md")
        assert response.status_code == 200
        answer = response.json()
    assert UUID(answer["session_id"])
    assert answer["response"] == "You said: [file: notes.md] hello"
    assert (answer["active_file"], answer["finish"], answer["iterations"]) == (
        "notes.md",
        "answered",
        1,
    )
    assert [(m.role, m.file) for m in stored(tmp_path, answer["session_id"])] == [
        ("user", "notes.md"),
        ("assistant", None),
    ]


def test_the_same_file_continues_its_session(tmp_path: Path) -> None:
    """Seed 000, testing 1: the same file continues its session."""
    with serving(tmp_path) as client:
        first = chat(client, "my cat is called Tom", "a.md").json()
        second = chat(client, "what did I say", "a.md", session_id="of another").json()
    assert second["session_id"] == first["session_id"]
    assert "Tom" in second["response"]


def test_a_session_that_is_chosen_by_its_id_is_one_conversation(tmp_path: Path) -> None:
    """Seed 004, criterion 2: it continues, whatever files the messages are about."""
    with serving(tmp_path) as client:
        id = created(client, tmp_path)
        for file in ("a.md", "b.md", None):
            body = {"message": f"my cat is called Tom {file}", "active_file": file}
            client.post(f"/sessions/{id}/messages", json=body).raise_for_status()
        answer = said(client, id, "what did I say")[-1].data["text"]
    assert "[file: a.md] my cat is called Tom a.md" in answer
    assert "Tom b.md" in answer
    assert "Tom None" in answer


def test_a_different_file_starts_a_new_session(tmp_path: Path) -> None:
    """Seed 000, testing 2: a different file starts a new session, whatever id the client sends."""
    with serving(tmp_path) as client:
        first = chat(client, "my cat is called Tom", "a.md").json()
        second = chat(client, "what did I say", "b.md", session_id=first["session_id"]).json()
        third = chat(client, "what did I say", None, session_id=first["session_id"]).json()
    assert len({first["session_id"], second["session_id"], third["session_id"]}) == 3
    assert "Tom" not in second["response"] + third["response"]


@pytest.mark.parametrize("agents", [16, 0], ids=["from memory", "from the store"])
def test_switching_back_to_a_file_resumes_its_session(tmp_path: Path, agents: int) -> None:
    """Seed 000, testing 3: switching back to the previous file resumes it."""
    with serving(tmp_path, max_agents=agents) as client:
        first = chat(client, "my cat is called Tom", "a.md").json()
        other = chat(client, "hello", None).json()
        back = chat(client, "what did I say", "a.md", session_id=other["session_id"]).json()
        again = chat(client, "and now", None).json()
    assert back["session_id"] == first["session_id"] != other["session_id"] == again["session_id"]
    assert "Tom" in back["response"]


def test_files_find_their_sessions_after_a_restart(tmp_path: Path) -> None:
    with serving(tmp_path) as client:
        before = {f: chat(client, f"I am {f}", f).json()["session_id"] for f in ("a.md", None)}
    with serving(tmp_path) as client:
        for file, id in before.items():
            answer = chat(client, "what did I say", file).json()
            assert answer["session_id"] == id
            assert f"I am {file}" in answer["response"]


def test_of_several_workspaces_a_message_names_one_or_the_session_of_one(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    with serving(one, two) as client:
        neither = chat(client, "hello")
        assert neither.status_code == 422
        assert "workspace" in neither.json()["detail"]
        named = chat(client, "hello", workspace=str(two)).json()
        again = chat(client, "hello", session_id=named["session_id"]).json()
        assert again["session_id"] == named["session_id"]
        assert len(client.get(sessions_at(two)).json()) == 1
        assert client.get(sessions_at(one)).json() == []


# --- sessions of a workspace ----------------------------------------------------------------------


def test_the_sessions_of_a_workspace_are_listed_newest_first(tmp_path: Path) -> None:
    """Seed 004, list: sessionId, title, model, status and updatedAt of each."""
    with serving(tmp_path) as client:
        assert client.get(sessions_at(tmp_path)).json() == []
        ids = []
        for title in ("Fix the parser", "Write the docs"):
            ids.append(created(client, tmp_path))
            said(client, ids[-1], title)
        response = client.get(sessions_at(tmp_path))
        listed = response.json()
    assert response.headers["x-total-count"] == "2"
    assert [each["sessionId"] for each in listed] == ids[::-1]
    assert [each["title"] for each in listed] == ["Write the docs", "Fix the parser"]
    assert [each["status"] for each in listed] == ["active", "closed"]
    assert {each["model"] for each in listed} == {"gpt-4o"}
    assert all(each["updatedAt"].endswith("Z") and each["messages"] == 2 for each in listed)


@pytest.mark.e2e(smoke=True)
@pytest.mark.parametrize(
    "name", ["plain", "with space", "100%", "a?b#c&d=e", "sessions", "ümläut", "a+b"]
)
def test_the_path_of_a_workspace_is_percent_encoded(tmp_path: Path, name: str) -> None:
    """Seed 004, list: with %2F, and with the slashes as they are."""
    workspace = tmp_path / name
    workspace.mkdir()
    with serving(workspace) as client:
        id = created(client, workspace)
        encoded = sessions_at(workspace)
        assert "%2F" in encoded
        for address in (encoded, encoded.replace("%2F", "/"), encoded.replace("/%2F", "/", 1)):
            assert [each["sessionId"] for each in client.get(address).json()] == [id], address
        token = client.headers["authorization"]
        url = f"{client.base_url}{encoded}".replace("//w", "/w")
        curl = subprocess.run(
            ["curl", "-s", "--noproxy", "*", "-H", f"Authorization: {token}", url],
            capture_output=True,
            text=True,
            check=True,
        )
        assert id in curl.stdout


def test_a_page_of_the_sessions_says_how_many_there_are(tmp_path: Path) -> None:
    with serving(tmp_path) as client:
        ids = [created(client, tmp_path) for _ in range(5)][::-1]
        address = sessions_at(tmp_path)
        page = client.get(address, params={"limit": 2, "offset": 1})
        assert [each["sessionId"] for each in page.json()] == ids[1:3]
        assert page.headers["x-total-count"] == "5"
        active = client.get(address, params={"status": "active"}).json()
        assert [each["sessionId"] for each in active] == ids[:1]


def test_after_a_restart_of_the_server_sessions_are_listed_and_resumed(tmp_path: Path) -> None:
    """Seed 004, criterion 1: after a restart the sessions of a workspace are listed."""
    with serving(tmp_path) as client:
        id = created(client, tmp_path)
        said(client, id, "my cat is called Tom")
    with serving(tmp_path) as client:
        assert [each["sessionId"] for each in client.get(sessions_at(tmp_path)).json()] == [id]
        response = client.post("/sessions", json={"workspacePath": str(tmp_path), "sessionId": id})
        assert (response.status_code, response.json()["sessionId"]) == (200, id)
        assert "Tom" in said(client, id, "what did I say")[-1].data["text"]


def test_a_session_is_created_or_resumed(tmp_path: Path) -> None:
    """Seed 004, create: without sessionId a new one, with it the stored one."""
    with serving(tmp_path) as client:
        response = client.post("/sessions", json={"workspacePath": str(tmp_path)})
        assert response.status_code == 201
        session = response.json()
        assert UUID(session["sessionId"])
        assert (session["status"], session["messages"]) == ("active", 0)
        client.delete(f"/sessions/{session['sessionId']}")
        body = {"workspacePath": str(tmp_path), "sessionId": session["sessionId"]}
        resumed = client.post("/sessions", json=body)
        assert resumed.status_code == 200
        assert resumed.json()["status"] == "active"
        missing = client.post("/sessions", json={**body, "sessionId": "no-such"})
        assert missing.status_code == 404


def test_a_new_session_does_not_overwrite_older_ones(tmp_path: Path) -> None:
    """Seed 004, criterion 3: a new session overwrites no older one."""
    with serving(tmp_path) as client:
        ids = [created(client, tmp_path) for _ in range(4)]
        for id in ids:
            said(client, id, f"I am {id}")
        listed = client.get(sessions_at(tmp_path)).json()
    assert {each["sessionId"] for each in listed} == set(ids)
    for id in ids:
        assert stored(tmp_path, id)[0].text == f"I am {id}"


def test_one_session_of_a_workspace_is_active_and_others_can_be_resumed(tmp_path: Path) -> None:
    """Seed 004, criterion 4: one session a workspace is active, and the one before is closed."""
    with serving(tmp_path) as client:
        first = created(client, tmp_path)
        said(client, first, "my cat is called Tom")
        second = created(client, tmp_path)
        said(client, second, "hello")
        assert "Tom" in said(client, first, "what did I say")[-1].data["text"]
        listed = client.get(sessions_at(tmp_path)).json()
    assert {each["sessionId"]: each["status"] for each in listed} == {
        first: "active",
        second: "closed",
    }


def test_ending_a_session_closes_it(tmp_path: Path) -> None:
    """Seed 004, end: it is let go of in memory, and status and updatedAt change in the store."""
    with serving(tmp_path) as client:
        id = created(client, tmp_path)
        said(client, id, "hello")
        before = client.get(sessions_at(tmp_path)).json()[0]
        time.sleep(0.01)
        ended = client.delete(f"/sessions/{id}")
        assert (ended.status_code, ended.json()["status"]) == (200, "closed")
        after = client.get(sessions_at(tmp_path)).json()[0]
        assert after["status"] == "closed"
        assert after["updatedAt"] > before["updatedAt"]
        assert client.delete("/sessions/no-such").status_code == 404


# --- contents -------------------------------------------------------------------------------------


def test_the_contents_of_a_session_are_a_numbered_list(tmp_path: Path) -> None:
    """Seed 003, toc: GET /api/v1/sessions/{id}/toc."""
    with serving(tmp_path) as client:
        id = created(client, tmp_path)
        for text in ("Fix the parser", "Write the docs", "Release it"):
            said(client, id, text)
        toc = client.get(f"/api/v1/sessions/{id}/toc").json()
        page = client.get(f"/api/v1/sessions/{id}/toc", params={"start": 2, "limit": 1}).json()
    assert (toc["session_id"], toc["total_turns"]) == (id, 3)
    assert [each["turn"] for each in toc["entries"]] == [1, 2, 3]
    assert [each["summary"] for each in toc["entries"]] == [
        *("Fix the parser", "Write the docs", "Release it")
    ]
    assert toc["formatted"].splitlines()[1] == "2. Write the docs"
    assert set(toc["entries"][0]) == {
        *("turn", "id", "summary", "created", "has_prompt", "has_response", "total_steps", "steps")
    }
    assert [each["turn"] for each in page["entries"]] == [2]


def test_a_turn_comes_with_the_ones_before_and_after_it(tmp_path: Path) -> None:
    """Seed 003, turn: GET /api/v1/sessions/{id}/turns/{turn}; what is not there is left out."""
    with serving(tmp_path) as client:
        id = created(client, tmp_path)
        for text in ("Fix the parser", "Write the docs", "Release it"):
            said(client, id, text)
        second, first, none = (
            client.get(f"/api/v1/sessions/{id}/turns/{number}") for number in (2, 1, 4)
        )
        step = client.get(f"/api/v1/sessions/{id}/turns/2.1").json()
    assert second.json()["turn"] == 2
    assert second.json()["interaction"]["prompt"] == "Write the docs"
    assert second.json()["previous"]["summary"] == "Fix the parser"
    assert second.json()["next"]["turn"] == 3
    assert "previous" not in first.json()
    assert (step["label"], step["previous"]["label"], step["next"]["label"]) == (
        "2.1",
        "1.1",
        "3.1",
    )
    assert step["interaction"]["messages"] == second.json()["interaction"]["messages"]
    assert none.status_code == 404
    assert "1 to 3" in none.json()["detail"]


def test_a_session_is_searched_by_words(tmp_path: Path) -> None:
    """Seed 003, search: GET /api/v1/sessions/{id}/search."""
    with serving(tmp_path) as client:
        id = created(client, tmp_path)
        for text in ("the walrus sleeps", "the parser is broken"):
            said(client, id, text)
        other = created(client, tmp_path)
        said(client, other, "another walrus")
        found = client.get(f"/api/v1/sessions/{id}/search", params={"q": "walrus"}).json()
        nothing = client.get(f"/api/v1/sessions/{id}/search", params={"q": "zebra"}).json()
    assert {(hit["turn"], hit["label"]) for hit in found["results"]} == {(1, "1.1")}
    assert all("walrus" in hit["snippet"] for hit in found["results"])
    assert nothing["results"] == []


# --- what is asked for wrongly when it is made ----------------------------------------------------


def test_an_app_is_made_of_folders_that_are_there(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="at least one workspace"):
        make_app([], agent_for=scripted())
    with pytest.raises(SpecError, match="existing folder"):
        make_app([tmp_path / "missing"], agent_for=scripted())


def test_an_app_says_its_token_which_is_random_unless_it_is_given(tmp_path: Path) -> None:
    made = [make_app([tmp_path], agent_for=scripted()).state.token for _ in range(2)]
    assert len({*made}) == 2
    assert all(len(token) >= 43 for token in made)
    assert make_app([tmp_path], agent_for=scripted(), token="secret").state.token == "secret"
    with pytest.raises(SpecError, match="token"):
        make_app([tmp_path], agent_for=scripted(), token="")


def test_without_fastapi_it_says_how_to_get_it(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['fastapi'] = None\n"
        "import ctxlab.serve, ctxlab.serve.http as http\n"
        "from ctxlab.errors import DataMissing\n"
        f"try: http.make_app([{str(tmp_path)!r}], agent_for=print)\n"
        "except DataMissing as error: print(error)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (
        run.stdout
        == "the HTTP server needs fastapi: run pip install '.[serve]' in a clone of ctxlab\n"
    )


def test_a_failure_that_nobody_expected_is_told_without_the_inside(
    tmp_path: Path,
) -> None:
    class Broken(SqliteStore):
        def turn_summaries(self, id: str) -> dict[int, str]:
            raise RuntimeError("secret of the inside")

    with serving(tmp_path, store_for=Broken) as client:
        id = created(client, tmp_path)
        said(client, id, "hello")
        for _ in range(3):
            response = client.get(f"/api/v1/sessions/{id}/toc")
            assert response.status_code == 500
            assert response.headers["content-type"] == "application/problem+json"
            assert "secret" not in response.text
