"""Tests of ``ctxlab sessions``: it lists, shows, searches and deletes stored sessions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from running import Run, Said, on_a_terminal

from ctxlab.formats import load, write
from ctxlab.messages.types import Message, ToolCall
from ctxlab.sessions.jsonl.store import JsonlStore
from ctxlab.sessions.sqlite.store import SqliteStore

WHEN = datetime(2026, 11, 20, 9, 30).timestamp()
TITLES = ("Fix the delegation", "Write about fish", "Explain retries")


def fill(store: SqliteStore | JsonlStore, topic: str, agent: str | None, turns: int = 4) -> str:
    id = store.create(model="gpt-4o-mini", agent=agent).id
    for number in range(turns):
        call = ToolCall(f"c{number}", "read_file", f'{{"path": "src/part_{number}.py"}}')
        store.append(
            id,
            Message("user", f"{topic}, part {number}", time=WHEN + number),
            Message("assistant", "I look at it.", tool_calls=(call,)),
            Message("tool", f"value = {number}", tool_call_id=call.id),
            Message("assistant", f"Part {number} of it is done."),
        )
    store.save(id)
    return id


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder with three sessions; the first two belong to the agent "tester"."""
    folder = tmp_path / "project"
    folder.mkdir()
    store = SqliteStore(folder)
    for topic, agent in zip(TITLES, ("tester", "tester", None), strict=True):
        id = fill(store, topic, agent)
        store.retitle(id, topic)
    store.close()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def ids(workspace: Path) -> dict[str, str]:
    """Return the session ids by title."""
    return {session.title: session.id for session in SqliteStore(workspace).sessions()}


@pytest.fixture
def listed(run: Run) -> Callable[..., list[str]]:
    """Return the titles that ``sessions list`` prints."""

    def call(*options: object) -> list[str]:
        said = run("sessions", "list", *options, "--json")
        assert said.code == 0, said.err
        return [row["title"] for row in json.loads(said.out)]

    return call


Listed = Callable[..., list[str]]


def test_sessions_are_listed_newest_first_with_what_is_known_of_them(
    workspace: Path, run: Run
) -> None:
    said = run("sessions", "list")
    lines = said.out.splitlines()
    assert lines[0].split() == ["title", "id", "updated", "messages", "status", "agent", "model"]
    assert [line[: len(t)] for line, t in zip(lines[1:], TITLES[::-1], strict=True)] == [
        *TITLES[::-1]
    ]
    assert "16" in lines[1]
    assert "gpt-4o-mini" in lines[1]
    assert said.err == "ctxlab: 3 sessions\n"


@pytest.mark.e2e
def test_a_search_by_words_of_the_title_and_agent_filters(workspace: Path, listed: Listed) -> None:
    """Seed 002, criterion 9: ``sessions tester --search "delegation"`` filters sessions.

    Here it is ``sessions list --agent tester --search delegation``.
    """
    assert listed("--agent", "tester", "--search", "delegation") == [TITLES[0]]
    assert listed("--search", "FISH write") == [TITLES[1]]
    assert listed("--agent", "tester") == [TITLES[1], TITLES[0]]
    assert listed("--agent", "nobody") == []


@pytest.mark.e2e
def test_dates_bound_when_a_session_was_updated(workspace: Path, listed: Listed, run: Run) -> None:
    """Seed 002, section 10.10: by date range, in local time."""
    tomorrow = (datetime.now() + timedelta(days=1)).strftime("%Y-%m-%d")
    assert len(listed("--since", "1h")) == 3
    assert len(listed("--before", tomorrow)) == 3
    assert listed("--since", tomorrow) == []
    assert listed("--before", "yesterday") == []
    assert "expected a date, got 'soon'" in run("sessions", "list", "--since", "soon").err


@pytest.mark.e2e
def test_all_of_an_agents_sessions_are_deleted_and_no_others(
    workspace: Path, listed: Listed, run: Run, ids: dict[str, str]
) -> None:
    """Seed 002, criterion 10: ``sessions tester --delete-all`` removes all sessions.

    Here it is ``sessions delete-all --agent tester``. Archived ones are sessions too.
    """
    run("sessions", "archive", ids[TITLES[0]])
    said = run("sessions", "delete-all", "--agent", "tester", "--yes")
    assert said == (0, "2 sessions of tester deleted\n", "")
    assert listed("--all") == [TITLES[2]]
    assert run("sessions", "delete-all", "-y").out == "1 session deleted\n"
    assert listed("--all") == []
    assert run("sessions", "delete-all", "-y").out == "0 sessions deleted\n"


@pytest.mark.e2e
def test_nothing_is_deleted_where_nobody_can_be_asked(
    workspace: Path, program: Run, listed: Listed
) -> None:
    said = program("sessions", "delete-all", cwd=workspace)
    assert said.code == 2
    assert said.err == "ctxlab: nothing was deleted; to delete 3 sessions, add --yes\n"
    assert len(listed()) == 3


@pytest.mark.e2e
def test_several_are_deleted_together_or_none(
    workspace: Path, run: Run, listed: Listed, ids: dict[str, str]
) -> None:
    said = run("sessions", "delete", ids[TITLES[0]], "zzz")
    assert said.code == 2
    assert "no session 'zzz'" in said.err
    assert len(listed()) == 3
    assert run("sessions", "delete", ids[TITLES[0]][:12], ids[TITLES[1]]).code == 0
    assert listed() == [TITLES[2]]


@pytest.mark.e2e
def test_a_session_that_is_named_twice_is_one(
    workspace: Path, run: Run, ids: dict[str, str], tmp_path: Path
) -> None:
    twice = (ids[TITLES[0]][:12], ids[TITLES[0]][:14])
    said = run("sessions", "export", *twice, "-o", tmp_path / "one.jsonl")
    assert said == (0, "", "ctxlab: 1 session written as native\n")
    assert len(list(load(tmp_path / "one.jsonl"))) == 1
    assert run("sessions", "archive", *twice).err == f"ctxlab: archived: {TITLES[0]}\n"
    assert run("sessions", "delete", *twice).err == f"ctxlab: deleted: {TITLES[0]}\n"


@pytest.mark.e2e
def test_an_archived_session_is_out_of_sight_until_it_is_brought_back(
    workspace: Path, run: Run, listed: Listed, ids: dict[str, str]
) -> None:
    """Seed 004, open question 2: closed sessions are resumable, with an archive/delete command."""
    assert run("sessions", "archive", ids[TITLES[1]]).code == 0
    assert TITLES[1] not in listed()
    assert TITLES[1] in listed("--all")
    assert "; 1 archived session hidden (--all)" in run("sessions", "list").err
    assert "0 messages found" in run("sessions", "search", "fish").err
    assert run("sessions", "search", "fish", "--session", ids[TITLES[1]]).out
    assert run("sessions", "archive", "--undo", ids[TITLES[1]]).code == 0
    assert TITLES[1] in listed()


def test_what_was_not_archived_is_not_brought_back(
    workspace: Path, run: Run, ids: dict[str, str]
) -> None:
    run("sessions", "archive", ids[TITLES[1]])
    before = SqliteStore(workspace).get(ids[TITLES[0]])
    said = run("sessions", "archive", "--undo", ids[TITLES[0]], ids[TITLES[1]])
    assert said == (
        0,
        "",
        f"ctxlab: restored: {TITLES[1]}\nctxlab: not archived, so unchanged: {TITLES[0]}\n",
    )
    assert SqliteStore(workspace).get(ids[TITLES[0]]) == before


@pytest.mark.e2e
def test_a_search_is_for_whole_words_and_says_so(workspace: Path, run: Run) -> None:
    said = run("sessions", "search", "fis")
    assert said == (0, "", "ctxlab: 0 messages found; only whole words match\n")
    assert "whole words" not in run("sessions", "search", "fish").err
    assert "hole words" in run("sessions", "search", "--help").out


@pytest.mark.e2e
def test_what_was_said_is_found_by_all_words_of_a_query(workspace: Path, run: Run) -> None:
    said = run("sessions", "search", "fish", "part 2", "--json")
    (hit,) = json.loads(said.out)
    assert (hit["turn"], hit["label"], hit["position"], hit["role"]) == (3, "3.1", 8, "user")
    assert hit["time"].endswith("Z")
    assert "Write about fish, part 2" in run("sessions", "search", "fish part 2").out
    everywhere = json.loads(run("sessions", "search", "done", "-n", "50", "--json").out)
    assert len(everywhere) == 12


@pytest.mark.e2e(smoke=True)
@pytest.mark.parametrize("query", ['"', "a OR b", "fish'; DROP TABLE messages", "NEAR(", "*", "-"])
def test_a_query_is_words_whatever_it_looks_like(workspace: Path, run: Run, query: str) -> None:
    assert run("sessions", "search", "--", query).code == 0
    assert run("sessions", "list", "--search", query).code == 0


def test_a_search_for_nothing_is_said(workspace: Path, run: Run) -> None:
    said = run("sessions", "search", " ")
    assert (said.code, said.out) == (2, "")
    assert "expected words to search for" in said.err


@pytest.mark.e2e
def test_a_session_is_shown_with_its_titles_and_its_contents(
    workspace: Path, run: Run, ids: dict[str, str]
) -> None:
    """Seed 003, title history: titles are shown newest first, with the turn to jump to."""
    store = SqliteStore(workspace)
    store.retitle(ids[TITLES[0]], "Delegation works now", 3)
    store.close()
    said = run("sessions", "show", ids[TITLES[0]][:10])
    assert said.code == 0
    assert said.out.startswith("Delegation works now\n")
    assert "16 messages in 4 turns" in said.out
    table = said.out[said.out.index("titles, newest first") :].splitlines()
    assert [line.split()[:2] for line in table[1:3]] == [["Delegation", "works"], ["Fix", "the"]]
    assert "   3 " in table[1]
    assert "3. Fix the delegation, part 2\n   3.1 read_file src/part_2.py\n" in said.out
    (row,) = json.loads(run("sessions", "show", ids[TITLES[0]], "--json").out)
    assert row["turns"] == 4
    assert row["titles"][0]["turn"] == 3


@pytest.mark.e2e
def test_turns_are_shown_in_full_with_the_lines_beside_them(
    workspace: Path, run: Run, ids: dict[str, str]
) -> None:
    """Seed 003, toc: a turn number leads to that interaction."""
    said = run("sessions", "show", ids[TITLES[1]], "--turn", "2")
    assert "user\nWrite about fish, part 1\n" in said.out
    assert '→ read_file {"path": "src/part_1.py"}' in said.out
    assert "tool\nvalue = 1\n" in said.out
    assert "assistant\nPart 1 of it is done.\n" in said.out
    assert said.out.startswith("… 1. ")
    assert "… 3. " in said.out
    adjacent = run("sessions", "show", ids[TITLES[1]], "--turn", "2-3").out
    heads = re.findall(r"^(?:… )?\d\. ", adjacent, re.M)
    assert heads == ["… 1. ", "2. ", "3. ", "… 4. "]
    assert re.search(r"\n\n3\. .*\n\nuser\n", adjacent)
    several = json.loads(run("sessions", "show", ids[TITLES[1]], "--turn", "2-3", "--json").out)
    assert [each["turn"] for each in several] == [2, 3]
    rest = json.loads(run("sessions", "show", ids[TITLES[1]], "--turn", "3-", "--json").out)
    assert [each["turn"] for each in rest] == [3, 4]


@pytest.mark.e2e
def test_a_step_is_shown_in_full_with_the_lines_beside_it(
    workspace: Path, run: Run, ids: dict[str, str]
) -> None:
    said = run("sessions", "show", ids[TITLES[1]], "--turn", "2.2").out
    heads = re.findall(r"^(?:… )?\d\.\d ", said, re.M)
    assert heads == ["… 2.1 ", "2.2 ", "… 3.1 "]
    assert "user\n" not in said
    assert "assistant\nPart 1 of it is done.\n" in said


@pytest.mark.e2e(smoke=True)
@pytest.mark.parametrize(
    "turn", ["9", "0", "-1", "x", "3-2", "", "2.3", "9.1", "2.1-2.2", "1" * 30]
)
def test_a_turn_that_is_not_there_is_said(
    workspace: Path, run: Run, ids: dict[str, str], turn: str
) -> None:
    said = run("sessions", "show", ids[TITLES[1]], f"--turn={turn}")
    assert (said.code, said.out) == (2, "")
    assert "turn" in said.err or "step" in said.err


@pytest.mark.e2e
def test_the_contents_are_the_turns_and_steps_in_a_line_each(
    workspace: Path, run: Run, ids: dict[str, str]
) -> None:
    """Seed 003, turns: numbered turns from 1 with one-line summaries."""
    said = run("sessions", "toc", ids[TITLES[2]])
    assert said.out.splitlines()[:3] == [
        "1. Explain retries, part 0",
        "   1.1 read_file src/part_0.py",
        "   1.2 Part 0 of it is done.",
    ]
    turns = run("sessions", "toc", ids[TITLES[2]], "--max-steps", "0").out.splitlines()
    assert turns == [f"{n}. Explain retries, part {n - 1}" for n in range(1, 5)]
    (made,) = json.loads(run("sessions", "toc", ids[TITLES[2]], "--json").out)
    assert made["total_turns"] == 4
    assert made["formatted"] + "\n" == said.out


@pytest.mark.e2e
def test_the_beginning_of_an_id_will_do_where_it_is_only_one(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path)
    for id in ("aaaa1", "aaaa2", "ab"):
        store.create(id=id)
    store.close()
    monkeypatch.chdir(tmp_path)
    assert run("sessions", "toc", "ab").code == 0
    said = run("sessions", "toc", "aaaa")
    assert said.code == 2
    assert "2 session ids begin with 'aaaa' (aaaa2, aaaa1)" in said.err
    assert run("sessions", "toc", "aaaa2").code == 0
    assert run("sessions", "toc", "").code == 2
    assert "no session 'b'" in run("sessions", "toc", "b").err


@pytest.mark.e2e
def test_an_export_is_a_recording_that_says_the_same(
    workspace: Path, run: Run, ids: dict[str, str], tmp_path: Path
) -> None:
    id = ids[TITLES[0]]
    stored = SqliteStore(workspace).recording(id)
    out = run("sessions", "export", id[:8]).out
    (tmp_path / "out.jsonl").write_text(out)
    (again,) = load(tmp_path / "out.jsonl")
    assert (again.id, again.messages, again.model) == (id, stored.messages, stored.model)
    said = run(
        "sessions", "export", id, ids[TITLES[1]], "-o", tmp_path / "two.jsonl", "--to", "openai"
    )
    assert said.code == 0
    assert "2 sessions written as openai; lost: " in said.err
    assert len(list(load(tmp_path / "two.jsonl"))) == 2
    assert run("sessions", "export", id, "-o", tmp_path / "two.jsonl").err.endswith(
        "two.jsonl: already exists; --force replaces it\n"
    )
    assert run("sessions", "export", id, ids[TITLES[1]], "-o", f"{tmp_path}/new/").code == 0
    assert len(list((tmp_path / "new").iterdir())) == 2


@pytest.mark.e2e
def test_a_store_is_data_for_eval_and_describe(workspace: Path, run: Run) -> None:
    """Issue, part 7: ``ctxlab eval`` accepts a store as data."""
    rows = json.loads(run("eval", ".", "-l", "4k", "-s", "full", "-s", "panic", "--json").out)
    assert [row["strategy"] for row in rows] == ["full()", "panic()"]
    assert rows[0]["requests"] == 3 * 8
    found = json.loads(run("describe", workspace, "--json").out)["recordings"]
    assert sorted(row["messages"] for row in found) == [16, 16, 16]


@pytest.mark.e2e
def test_a_folder_of_chunks_is_a_store_as_well(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = JsonlStore(tmp_path / "chunks", max_history=5)
    id = fill(store, "Mend the roof", "tester")
    store.close()
    where = ("--store", tmp_path / "chunks")
    (row,) = json.loads(run("sessions", "list", *where, "--json").out)
    assert (row["id"], row["messages"]) == (id, 16)
    monkeypatch.chdir(tmp_path / "chunks")
    assert json.loads(run("sessions", "list", "--json").out) == [row]
    assert run("sessions", "show", id, "--turn", "1").code == 0
    found = json.loads(run("describe", tmp_path / "chunks", "--json").out)["recordings"]
    assert [each["messages"] for each in found] == [16]
    assert run("eval", tmp_path / "chunks", "-l", "4k", "-s", "full").code == 0
    assert run("sessions", "delete", id, *where).code == 0
    said = run("sessions", "list", *where)
    assert (said.code, said.out) == (0, "")
    assert "0 sessions" in said.err


@pytest.mark.e2e
def test_what_would_steer_a_terminal_is_not_shown(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path)
    id = store.create(agent="a\x1b[2J", model="m\x1b]0;x\x07").id
    store.append(
        id, Message("user", "look\x1b[2J here\x07 \x9b1A"), Message("assistant", "\x1b[8m")
    )
    store.close()
    monkeypatch.chdir(tmp_path)
    for command in (["list"], ["show", id], ["show", id, "--turn", "1"], ["toc", id],
                    ["search", "look"]):  # fmt: skip
        said = run("sessions", *command)
        assert said.code == 0
        assert not {"\x1b", "\x07", "\x9b"} & set(said.out + said.err)


@pytest.mark.e2e
def test_a_narrow_terminal_loses_columns_and_no_figures(workspace: Path) -> None:
    lines = on_a_terminal(60, "sessions", "list")
    assert all(len(line) <= 60 for line in lines)
    assert {"title", "id", "updated"} <= set(lines[0].split())
    assert "model" not in lines[0]


def test_an_exported_session_is_listed_by_its_title(
    tmp_path: Path, run: Run, workspace: Path, ids: dict[str, str]
) -> None:
    recording = SqliteStore(workspace).recording(ids[TITLES[0]])
    write([recording], tmp_path / "kept.jsonl")
    said: Said = run("sessions", "list", "--store", tmp_path / "kept.jsonl", "--json")
    assert [(row["title"], row["messages"]) for row in json.loads(said.out)] == [(TITLES[0], 16)]
