"""Tests of the database of opencode."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
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
    assert (parent.cluster, child.cluster, child.meta["parent"]) == ("ses_1", "ses_1", "ses_1")


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


def test_messages_of_opencode_2_are_counted_and_notes_are_not(path: Path) -> None:
    assert not any(recording.skipped for recording in read(path))
    change(path, "UPDATE session_message SET type = 'assistant'")
    told = {"message of opencode 2 (table session_message)": 1}
    assert read(path)[-1].skipped == told


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
