"""Tests of the databases of opencode 1 and 2."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from compacting import Summary, described
from reading import shape
from samples import HERE, files_of, packed

from ctxlab.errors import ReadError
from ctxlab.formats import detect_format, load
from ctxlab.messages.types import Recording, Usage


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "opencode.db"
    file.write_bytes(packed(files_of(HERE / "opencode-db.sqlite")))
    return file


def change(path: Path, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement, values)


def read(path: Path, **options: Any) -> list[Recording]:
    return list(load(path, **options))


def test_every_session_is_a_recording_with_its_parts_in_order(path: Path) -> None:
    parent, child = read(path)
    assert (parent.id, child.id) == ("opencode/ses_1", "opencode/ses_2")
    call = "+call_1"
    assert [*shape(parent)] == [
        "u:Where are the tests?",
        f"a:{call}",
        "t:tests/=call_1",
        "a:In tests/.",
    ]
    assert parent.messages[1].reasoning == "Ask a helper."
    assert parent.messages[1].usage == Usage(input=50, output=12, reasoning=3)
    assert (parent.model, parent.meta["cost"], parent.meta["agent"]) == ("gpt-5", 0.02, "build")


def test_a_subagent_is_in_the_cluster_of_its_parent(path: Path) -> None:
    parent, child = read(path)
    assert (parent.cluster, child.cluster) == ("ses_1", "ses_1")


def test_a_subagent_is_tied_to_the_call_that_started_it(path: Path) -> None:
    parent, child = read(path)
    assert (child.meta["parent"], child.meta["call_id"]) == (parent.id, "call_1")
    assert "parent" not in parent.meta


def test_a_subagent_whose_parent_has_no_messages_names_the_session(path: Path) -> None:
    change(path, "DELETE FROM message WHERE session_id = 'ses_1'")
    (child,) = read(path, on_error="skip")
    assert (child.meta["parent"], child.meta.get("call_id")) == ("ses_1", None)


def test_a_subagent_of_a_call_that_was_taken_back_has_a_parent_without_a_call(path: Path) -> None:
    change(path, "UPDATE session SET revert = ? WHERE id = 'ses_1'", '{"messageID": "msg_2"}')
    _, child = read(path)
    assert (child.meta["parent"], child.meta.get("call_id")) == ("opencode/ses_1", None)


@pytest.fixture
def deep(path: Path) -> Path:
    """A database in which the subagent belongs to a session that is itself a subagent's."""
    change(path, "UPDATE session SET parent_id = 'ses_0' WHERE id = 'ses_1'")
    columns = "project_id, slug, directory, title, version, time_created, time_updated"
    added = f"INSERT INTO session (id, parent_id, {columns}) SELECT ?, ?, {columns} FROM session LIMIT 1"
    change(path, added, "ses_0", None)
    return path


def test_the_cluster_is_the_first_session_of_all(deep: Path) -> None:
    assert {recording.cluster for recording in read(deep)} == {"ses_0"}
    change(deep, "UPDATE session SET parent_id = 'ses_2' WHERE id = 'ses_0'")
    assert {recording.cluster for recording in read(deep)} <= {"ses_0", "ses_1", "ses_2"}


def test_messages_that_the_user_took_back_are_left_out(path: Path) -> None:
    revert = json.dumps({"messageID": "msg_3"})
    change(path, "UPDATE session SET revert = ? WHERE id = 'ses_1'", revert)
    assert len(read(path)[0].messages) == 3


# --- opencode 2 --------------------------------------------------------------------------------------


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    file = tmp_path / "newer.db"
    file.write_bytes(packed(files_of(HERE / "opencode-db.version-2.sqlite")))
    return file


def test_a_session_of_opencode_2_reads_as_the_model_reads_it(newer: Path) -> None:
    (recording,) = read(newer)
    assert [*shape(recording)] == [
        "u:What does the picture show?\nAttached file: a.txt\n\none line",
        "a:I will look.+call_1+call_2",
        "t:a.png\n\nCommand exited with code 0.=call_1",
        "t:File not found=call_2",
        "u:The tool read was removed.",
        "u:Shell command: pwd\n\n/app\n",
        "u:Go on with the picture.",
        "a:It shows a cat.",
    ]
    summary = "What did we do so far?\n\nThe user asks about a.png.\n\n[Assistant]: I will look."
    assert described(recording) == (Summary(4, summary=summary, trigger="auto"),)
    assert recording.skipped == {"row of type model-switched": 1, "row of type idle": 1}


def test_an_answer_of_opencode_2_has_its_model_usage_and_cost(newer: Path) -> None:
    (recording,) = read(newer)
    answer = recording.messages[1]
    assert (recording.model, recording.meta["provider"]) == ("gpt-5", "openai")
    assert answer.usage == Usage(input=70, output=14, reasoning=5)
    assert (answer.reasoning, answer.extra) == ("Look first.", {"cost": 0.01})
    assert recording.messages[3].extra == {"is_error": True}


def add(path: Path, id: str, kind: str, seq: int, **data: Any) -> None:
    insert = "INSERT INTO session_message VALUES (?, 'ses_1', ?, ?, 0, 0, ?)"
    change(path, insert, id, kind, seq, json.dumps(data))


@pytest.fixture
def upgraded(path: Path) -> Path:
    """The database of opencode 1 after an upgrade to opencode 2, which copied one of the messages."""
    change(path, "DROP TABLE session_message")
    for line in (HERE / "opencode-db.version-2.sqlite" / "tables.jsonl").read_text().splitlines():
        if statement := json.loads(line).get("sql"):
            change(path, statement)
    columns = (
        "id, project_id, parent_id, slug, directory, title, version, time_created, time_updated"
    )
    copied = f"SELECT {columns} FROM session WHERE id = 'ses_1'"
    change(path, f"INSERT INTO session_v2 ({columns}) {copied}")
    add(path, "msg_1", "user", 0, text="Where are the tests?")
    add(path, "msg_7", "user", 1, text="And now?")
    return path


def test_an_upgraded_session_has_its_older_messages_and_the_new_ones(upgraded: Path) -> None:
    parent, child = read(upgraded)
    assert [*shape(parent)][-2:] == ["a:In tests/.", "u:And now?"]
    assert len(parent.messages) == 5
    assert [*shape(child)] == ["u:Find the tests", "a:tests/"]


def test_a_session_that_only_opencode_2_has_stored_is_read(upgraded: Path) -> None:
    change(upgraded, "DELETE FROM session WHERE id = 'ses_1'")
    change(upgraded, "DELETE FROM message WHERE session_id = 'ses_1'")
    change(upgraded, "DELETE FROM part WHERE session_id = 'ses_1'")
    assert [*shape(read(upgraded)[0])] == ["u:Where are the tests?", "u:And now?"]


@pytest.mark.parametrize("key", ["structured", "metadata"])
def test_a_result_of_opencode_2_names_the_session_that_its_call_started(
    newer: Path, key: str
) -> None:
    state = {"status": "completed", "content": [], key: {"sessionID": "ses_9"}}
    call = {"type": "tool", "id": "c9", "name": "subagent", "state": state}
    add(newer, "msg_99", "assistant", 99, content=[call])
    assert read(newer)[0].messages[-1].extra == {"subagent": "ses_9"}


def test_a_note_before_all_messages_is_a_system_message(newer: Path) -> None:
    add(newer, "msg_0", "system", 0, text="Be kind.")
    assert next(shape(read(newer)[0])) == "s:Be kind."


def test_notes_of_opencode_1_are_not_counted(path: Path) -> None:
    assert not any(recording.skipped for recording in read(path))


@pytest.mark.parametrize("kind", ["user", "shell", "assistant"])
def test_an_error_in_a_row_of_opencode_2_names_it(newer: Path, kind: str) -> None:
    add(newer, "msg_0", kind, 0, content=3)
    with pytest.raises(ReadError, match=r"newer\.db.*session ses_1, message 0: "):
        read(newer)
    assert len(read(newer, on_error="skip")[0].messages) == 8


# --- errors ------------------------------------------------------------------------------------------


def test_an_error_names_the_file_the_session_and_the_part(path: Path) -> None:
    change(path, "UPDATE part SET data = '{' WHERE id = 'prt_3'")
    with pytest.raises(ReadError, match=r"opencode\.db.*session ses_1, part 2: "):
        read(path)
    recording = read(path, on_error="skip")[0]
    assert recording.messages[1].reasoning is None
    assert [*recording.skipped.values()] == [1]


def test_parts_without_their_message_are_counted(path: Path) -> None:
    change(path, "DELETE FROM message WHERE id = 'msg_3'")
    assert read(path)[0].skipped == {"part without its message": 2}


def test_a_database_is_read_while_it_is_written_and_nothing_is_left_beside_it(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("UPDATE session SET title = 'new' WHERE id = 'ses_1'")
        assert read(path)[0].meta["title"] == "new"
    assert [each.name for each in path.parent.iterdir()] == ["opencode.db"]


def test_a_database_with_other_tables_is_not_taken_for_one(path: Path) -> None:
    change(path, "DROP TABLE part")
    change(path, "VACUUM")
    assert detect_format(path) is None
