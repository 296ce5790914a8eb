"""Tests of the files of the session page and of the API that it uses, without a browser."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from http_serving import created, said, serving
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.messages.types import Message, ToolCall
from ctxlab.serve.http.page import CONTENT_SECURITY_POLICY, PAGE_PATHS, read_page_file
from ctxlab.serve.runner import page_url
from ctxlab.sessions.sqlite.store import SqliteStore

SECRET = "the walrus sleeps"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("workspace")
    store = SqliteStore(folder)
    id = store.create(id="known", model="gpt-5-mini").id
    for number in range(3):
        store.append(id, Message("user", f"{SECRET} {number}"), Message("assistant", "Yes."))
    store.retitle(id, f"About {SECRET}", 2)
    store.close()
    return folder


# --- files ----------------------------------------------------------------------------------------


def test_files_are_read_without_the_token_and_hold_no_data(workspace: Path) -> None:
    with serving(workspace, authorized=False, token="a-secret-token") as client:
        for path in PAGE_PATHS:
            response = client.get(path)
            assert response.status_code == 200
            assert response.text == read_page_file(path)
            for word in (SECRET, "a-secret-token", str(workspace)):
                assert word not in response.text
            assert client.head(path).content == b""


def test_every_response_has_the_security_headers(workspace: Path) -> None:
    asked = ("/", "/page/main.js", "/api/v1/sessions", "/no/such/url", "/health")
    with serving(workspace, authorized=False, token="secret") as client:
        for path in asked:
            for headers in ({}, {"authorization": "Bearer secret"}):
                found = client.get(path, headers=headers).headers
                assert found["content-security-policy"] == CONTENT_SECURITY_POLICY
                assert found["x-content-type-options"] == "nosniff"
                assert found["referrer-policy"] == "no-referrer"
                assert found["cache-control"] == "no-store"
                assert "set-cookie" not in found
                assert "access-control-allow-origin" not in found


def test_the_policy_allows_no_inline_code_and_no_other_server() -> None:
    allowed = dict(part.split(" ", 1) for part in CONTENT_SECURITY_POLICY.split("; "))
    assert allowed == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }


@pytest.mark.parametrize("path", sorted(PAGE_PATHS))
def test_a_file_needs_neither_a_build_step_nor_another_server(path: str) -> None:
    text = read_page_file(path)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    for name in re.findall(r'from "\./([\w.]+)"', text):
        assert f"/page/{name}" in PAGE_PATHS


def test_only_reading_a_file_of_the_page_needs_no_token(workspace: Path) -> None:
    with serving(workspace, authorized=False) as client:
        for path in ("/", "/page/main.js"):
            for method in ("POST", "PUT", "DELETE", "PATCH"):
                assert client.request(method, path).status_code == 401
        others = ("/page", "/page/", "/page/../chat", "/page/__init__.py", "/page/explorer.js")
        for path in others:
            assert client.get(path).status_code == 401, path


def test_a_page_of_another_site_cannot_read_the_files(workspace: Path) -> None:
    with serving(workspace, authorized=False) as client:
        response = client.get("/", headers={"origin": "https://evil.example"})
        assert response.status_code == 403
        assert "sessions" not in response.text.casefold()


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1))
def test_the_url_of_the_page_has_the_token_only_in_the_fragment(token: str) -> None:
    url = urlsplit(page_url("http://127.0.0.1:9879", token))
    assert (url.path, url.query) == ("/", "")
    name, _, value = url.fragment.partition("=")
    assert (name, unquote(value)) == ("token", token)
    assert not set(value) & set("&/#?'\"<>")


# --- API ------------------------------------------------------------------------------------------


def test_the_sessions_of_all_workspaces_are_listed_newest_first(tmp_path: Path) -> None:
    """Seed 003, page: sessions with title, time, turns and model, newest first."""
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    with serving(*folders) as client:
        ids = []
        for number in range(4):
            ids.append(created(client, folders[number % 2]))
            said(client, ids[-1], f"Topic {number}")
        answer = client.get("/api/v1/sessions").json()
        page = client.get("/api/v1/sessions", params={"limit": 2, "offset": 1}).json()
        titled = client.get("/api/v1/sessions", params={"q": "TOPIC 2"}).json()
    assert answer["total_sessions"] == page["total_sessions"] == 4
    assert [each["session_id"] for each in answer["sessions"]] == ids[::-1]
    assert [each["session_id"] for each in page["sessions"]] == ids[::-1][1:3]
    newest = answer["sessions"][0]
    assert (newest["session_name"], newest["model"]) == ("Topic 3", "gpt-4o")
    assert (newest["total_turns"], newest["total_messages"]) == (1, 2)
    assert newest["workspace"] == str(folders[1])
    assert [each["session_id"] for each in titled["sessions"]] == [ids[2]]
    assert titled["total_sessions"] == 1


def test_a_session_that_a_program_uses_is_not_listed(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    store.create(id="inner", system=True)
    store.close()
    with serving(tmp_path) as client:
        assert client.get("/api/v1/sessions").json() == {"total_sessions": 0, "sessions": []}


def test_a_session_has_its_title_history_newest_first(workspace: Path) -> None:
    """Seed 003, title history: each title has its time, turn and interaction."""
    with serving(workspace) as client:
        session = client.get("/api/v1/sessions/known").json()
        assert client.get("/api/v1/sessions/unknown").status_code == 404
    titles = [(each["title"], each["turn"]) for each in session["title_history"]]
    assert titles == [(f"About {SECRET}", 2), (f"{SECRET} 0", 1)]
    assert session["session_name"] == f"About {SECRET}"
    assert session["title_history"][0]["interaction_id"] == "known:2"
    assert session["total_turns"] == 3


def test_a_search_of_all_sessions_finds_messages_of_each_workspace(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
        store = SqliteStore(folder)
        for number in range(3):
            store.append(store.create().id, Message("user", f"walrus {folder.name} {number}"))
        store.close()
    with serving(*folders) as client:
        whole = client.get("/api/v1/search", params={"q": "walrus"}).json()
        pages, offset = [], 0
        while offset is not None:
            query = {"q": "walrus", "limit": 2, "offset": offset}
            page = client.get("/api/v1/search", params=query).json()
            pages += page["results"]
            offset = page["next_offset"]
        nothing = client.get("/api/v1/search", params={"q": "unicorn"}).json()
    assert whole["next_offset"] is None
    assert pages == whole["results"]
    names = [each["session_name"] for each in whole["results"]]
    assert sorted(names) == [f"walrus {folder} {n}" for folder in ("one", "two") for n in range(3)]
    assert {name.split()[1] for name in names[:2]} == {"one", "two"}
    assert (nothing["results"], nothing["next_offset"]) == ([], None)


def test_a_hit_says_at_which_position_of_the_session_the_message_is(workspace: Path) -> None:
    with serving(workspace) as client:
        answer = client.get("/api/v1/sessions/known/search", params={"q": f"{SECRET} 2"}).json()
        hit = answer["results"][0]
        turn = client.get(f"/api/v1/sessions/known/turns/{hit['turn']}").json()["interaction"]
    place = hit["position"] - turn["first_message"]
    assert turn["messages"][place]["content"] == f"{SECRET} 2"


def test_each_message_of_a_page_of_a_turn_has_the_label_of_its_step(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    id = store.create().id
    store.append(id, Message("user", "one"), Message("assistant", "yes"), Message("user", "go"))
    for number in range(3):
        call = ToolCall(f"c{number}", "read", "{}")
        store.append(id, Message("assistant", tool_calls=(call,)))
        store.append(id, Message("tool", "text", tool_call_id=call.id))
    store.close()
    with serving(tmp_path) as client:
        address = f"/api/v1/sessions/{id}/turns"
        whole = client.get(f"{address}/2").json()["interaction"]
        page = client.get(f"{address}/2", params={"start": 2, "limit": 3}).json()["interaction"]
        step = client.get(f"{address}/2.2").json()["interaction"]
    assert whole["labels"] == ["2.1", "2.1", "2.1", "2.2", "2.2", "2.3", "2.3"]
    assert page["labels"] == whole["labels"][2:5]
    assert step["labels"] == ["2.2", "2.2"]
