"""Tests of logs as sessions: all formats that ctxlab reads can be listed, shown and searched."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from samples import SAMPLES, files_of, packed
from storing import STORES, a_store

from ctxlab.errors import ReadError, UnknownFormat, UnknownSession
from ctxlab.formats import load, write
from ctxlab.messages.openai_format import row_from_message
from ctxlab.messages.types import Message, Recording
from ctxlab.sessions import log_index as logfiles
from ctxlab.sessions.base import SessionLibrary, SessionStore
from ctxlab.sessions.log_library import LogLibrary
from ctxlab.sessions.table_of_contents import get_contents, get_interaction, get_turn

SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


def said(*texts: str, at: float | None = None) -> tuple[Message, ...]:
    roles = ("user", "assistant")
    return tuple(
        Message(roles[n % 2], text, time=None if at is None else at + n)  # type: ignore[arg-type]
        for n, text in enumerate(texts)
    )


def logged(path: Path, *texts: str, at: float | None = None) -> Path:
    """Write a file without a metadata line, so that its recording is named after the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [row_from_message(message) for message in said(*texts, at=at)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_logs_are_a_library_and_no_store(tmp_path: Path) -> None:
    logged(tmp_path / "a.jsonl", "Fix the parser")
    assert isinstance(LogLibrary(tmp_path), SessionLibrary)
    assert not isinstance(LogLibrary(tmp_path), SessionStore)


@pytest.mark.e2e(smoke=True)
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_every_format_can_be_listed_read_and_searched(sample: Path, tmp_path: Path) -> None:
    file = tmp_path / sample.name
    file.write_bytes(packed(files_of(sample)))
    logs, loaded = LogLibrary(file), list(load(file, on_error="skip"))
    sessions = logs.sessions()
    assert sorted(s.meta["recording"] for s in sessions) == sorted(
        r.id.split("#")[0] for r in loaded
    )
    assert len({session.id for session in sessions}) == len(sessions)
    assert all(SAFE.fullmatch(session.id) for session in sessions)
    by_name = {r.id: r for r in loaded}
    for session in sessions:
        recording = by_name.get(session.meta["recording"])
        if recording is None or session.messages != len(recording.messages):
            continue
        assert tuple(logs.read_messages(session.id)) == recording.messages
        assert logs.recording(session.id).id == session.id
        assert len(session.title) <= 60
        assert get_contents(logs, session.id).total_turns == logs.count_turns(session.id)


def test_the_real_logs_can_be_listed_read_and_searched(recorded: Path) -> None:
    """Seed 003, list_sessions: a folder of imported logs, read only."""
    logs = LogLibrary(recorded)
    sessions = logs.sessions()
    assert len(sessions) > 400
    assert len({session.id for session in sessions}) == len(sessions)
    assert all(SAFE.fullmatch(session.id) for session in sessions)
    assert [s.updated for s in sessions] == sorted((s.updated for s in sessions), reverse=True)
    assert all(reason for reason in logs.skipped_files.values())
    for session in sessions[::40]:
        listed = get_contents(logs, session.id)
        assert all(len(entry.summary) <= 100 for entry in listed.entries)
        if listed.total_turns:
            last = get_turn(logs, session.id, listed.total_turns)
            held = get_interaction(logs, last.interaction.id).interaction
            assert held.first_message + held.total_messages == session.messages
    hits = logs.search("error file")
    assert all(h.snippet and len(h.snippet) <= 200 for h in hits)
    assert len(hits) == 20
    for hit in hits:
        start, messages = logs.read_turn(hit.session_id, hit.turn)
        assert start <= hit.position < start + len(messages)


def test_sessions_are_found_by_words_and_by_date(tmp_path: Path) -> None:
    """Seed 002, criterion 9: words of the title, since and before, for logs as well."""
    for number, title in enumerate(("Fix the parser", "Write the docs", "Fix the docs")):
        logged(tmp_path / f"{number}.jsonl", title, at=1_000.0 * number + 1_000)
    logs = LogLibrary(tmp_path)
    assert [s.title for s in logs.sessions()] == [
        "Fix the docs",
        "Write the docs",
        "Fix the parser",
    ]
    assert [s.id for s in logs.sessions("FIX docs")] == ["2"]
    assert [s.id for s in logs.sessions(since=2_000)] == ["2", "1"]
    assert [s.id for s in logs.sessions(before=2_000)] == ["1", "0"]
    assert [s.id for s in logs.sessions("fix", since=1_000, before=1_999)] == ["0"]
    assert logs.sessions(status="active") == []
    assert logs.sessions(agent="someone") == []


def test_times_come_from_the_messages_or_from_the_file(tmp_path: Path) -> None:
    logged(tmp_path / "timed.jsonl", "One", "Two", "Three", at=1_000.0)
    os.utime(logged(tmp_path / "plain.jsonl", "One"), (5_000, 5_000))
    logs = LogLibrary(tmp_path)
    assert [(s.id, s.created, s.updated) for s in logs.sessions()] == [
        ("plain", 5_000.0, 5_000.0),
        ("timed", 1_000.0, 1_002.0),
    ]


def test_a_title_is_what_the_user_said_first(tmp_path: Path) -> None:
    messages = (Message("system", "Be brief."), *said("Fix the\nparser " + "x" * 99, "Done."))
    write([Recording("a", messages)], tmp_path / "a.jsonl")
    write([Recording("b", (Message("assistant", "Hello!"),))], tmp_path / "b.jsonl")
    logs = LogLibrary(tmp_path)
    assert logs.get("a").title == "Fix the parser " + "x" * 35 + "..."
    assert logs.get("b").title == ""


@pytest.mark.parametrize("kind", STORES)
def test_a_stored_session_keeps_its_title_and_when_it_was_created(
    kind: str, tmp_path: Path
) -> None:
    """Whether the store itself lies among the logs or what was exported from it."""
    store = a_store(kind, tmp_path / "stored")
    made = store.create(title="Harbour work")
    store.append(made.id, *said("When?", "At six.", at=made.created + 100))
    write([store.recording(made.id)], tmp_path / "exported" / "a.jsonl")
    store.close()
    for folder in ("stored", "exported"):
        (session,) = LogLibrary(tmp_path / folder).sessions()
        assert session.title == "Harbour work"
        assert session.created == pytest.approx(made.created, abs=0.002)
        assert session.updated == made.created + 101


@pytest.mark.parametrize(
    "meta", [{"title": "\x1b \n"}, {"title": 7, "created": "now"}, {"created": True}]
)
def test_a_title_and_a_time_that_are_none_are_not_taken(
    meta: dict[str, object], tmp_path: Path
) -> None:
    write([Recording("a", said("Fix it", at=1_000.0), meta=meta)], tmp_path / "a.jsonl")
    (session,) = LogLibrary(tmp_path).sessions()
    assert (session.title, session.created, session.updated) == ("Fix it", 1_000.0, 1_000.0)


def test_a_session_that_is_not_there_is_missed_where_it_was_looked_for(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        logged(tmp_path / folder / "a.jsonl", "Hi")
    one, two = tmp_path / "one", tmp_path / "two"
    for paths, where in ((one, str(one)), ([one, two], "2 paths")):
        with pytest.raises(UnknownSession) as raised:
            LogLibrary(paths).get("zz")
        assert str(raised.value).startswith(f"no session 'zz' in {where};")


def test_ids_are_safe_and_stay_whatever_files_come_and_go(tmp_path: Path) -> None:
    names = ("-home-me/a b", "-home-me/a-b", ".hidden", "ü", "x" * 200, "..%2f..%2fetc", "a:1")
    for name in names:
        logged(tmp_path / f"{name}.jsonl", name)
    logs = LogLibrary(tmp_path)
    known = {session.title: session.id for session in logs.sessions()}
    assert len(known) == len(set(known.values())) == len(names)
    assert all(SAFE.fullmatch(id) for id in known.values())
    logged(tmp_path / "-home-me" / "a  b.jsonl", "another that looks alike")
    (tmp_path / "ü.jsonl").unlink()
    after = {session.title: session.id for session in logs.sessions()}
    assert {t: id for t, id in after.items() if t in known} == {
        t: id for t, id in known.items() if t != "ü"
    }


def test_two_folders_with_files_of_one_name_have_ids_of_their_own(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        logged(tmp_path / folder / "a.jsonl", f"from {folder}")
    logs = LogLibrary([tmp_path / "one", tmp_path / "two"])
    assert {logs.get(s.id).title for s in logs.sessions()} == {"from one", "from two"}


def test_a_file_that_changed_is_read_again_and_others_are_not(tmp_path: Path) -> None:
    path = logged(tmp_path / "a.jsonl", "One", "Two")
    other = logged(tmp_path / "b.jsonl", "Other")
    logs = LogLibrary(tmp_path)
    assert logs.count_turns("a") == 1
    kept = logs.recording("b").messages[0]
    with path.open("a") as file:
        file.write('{"role":"user","content":"Three"}\n')
    assert logs.count_turns("a") == 2
    assert logs.get("a").messages == 3
    assert [hit.session_id for hit in logs.search("three")] == ["a"]
    assert logs.recording("b").messages[0] is kept
    other.unlink()
    assert [session.id for session in logs.sessions()] == ["a"]
    with pytest.raises(UnknownSession):
        logs.get("b")
    logged(tmp_path / "deep" / "c.jsonl", "New")
    assert logs.get("deep-c-" + logs.sessions("new")[0].id[-10:]).title == "New"


def test_a_log_that_grows_while_its_turns_are_counted_has_them_all_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = logged(tmp_path / "a.jsonl", "One", "Two")
    logs, more = LogLibrary(tmp_path), ['{"role":"user","content":"Three"}\n']
    assert logs.get("a").messages == 2
    recordings = logs._files.recordings

    def grown(file: logfiles.LogFile) -> Iterator[Recording]:
        read = list(recordings(file))
        if more:
            with path.open("a") as log:
                log.write(more.pop())
        return iter(read)

    monkeypatch.setattr(logs._files, "recordings", grown)
    assert logs.count_turns("a") == 1
    assert logs.count_turns("a") == 2
    assert [m.text for m in logs.read_turn("a", 2)[1]] == ["Three"]


def test_a_log_that_is_being_written_ends_where_its_last_whole_line_ends(tmp_path: Path) -> None:
    path = logged(tmp_path / "a.jsonl", "One", "Two")
    with path.open("a") as file:
        file.write('{"role":"user","content":"Thr')
    logs = LogLibrary(tmp_path)
    assert [m.text for m in logs.read_messages("a")] == ["One", "Two"]
    assert sum(logs.get("a").meta["skipped"].values()) == 1
    with path.open("a") as file:
        file.write('ee"}\n')
    assert [m.text for m in logs.read_messages("a")] == ["One", "Two", "Three"]


def test_a_folder_that_cannot_be_listed_is_reported_unless_it_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged(tmp_path / "a.jsonl", "One")
    logged(tmp_path / "deep" / "b.jsonl", "Two")
    scan = os.scandir

    def scandir(path: str) -> object:  # permissions do not stop a test that runs as root
        if str(path).endswith("deep"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)
    logs = LogLibrary(tmp_path)
    assert [session.id for session in logs.sessions()] == ["a"]
    assert logs.skipped_files == {str(tmp_path / "deep"): "Permission denied"}
    with pytest.raises(ReadError, match="deep: Permission denied"):
        LogLibrary(tmp_path / "deep").sessions()


def test_what_is_broken_is_reported_and_fatal_to_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logged(tmp_path / "a.jsonl", "One")
    (tmp_path / "notes.md").write_text("# Notes")
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n" + bytes(range(256)) * 9)
    meta = {"type": "meta", "format": "ctxlab", "version": 99, "id": "x"}
    (tmp_path / "broken.jsonl").write_text(json.dumps(meta) + "\n{]\n")
    logs = LogLibrary(tmp_path)
    with caplog.at_level(logging.WARNING, "ctxlab.sessions"):
        ids = [session.id for session in logs.sessions()]
    assert "a" in ids
    left = {Path(path).name: reason for path, reason in logs.skipped_files.items()}
    assert {"notes.md", "empty.jsonl", "picture.png"} <= set(left)
    assert all(left.values())
    if "broken" not in ids:
        assert "broken.jsonl" in left
        assert any("broken.jsonl" in record.message for record in caplog.records)
    caplog.clear()
    logs.sessions()
    assert caplog.records == []  # it is said once


def test_a_path_that_is_missing_or_no_log_is_said(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="no such file"):
        LogLibrary(tmp_path / "none").sessions()
    (tmp_path / "notes.md").write_text("# Notes")
    with pytest.raises(UnknownFormat):
        LogLibrary(tmp_path / "notes.md").sessions()
    logged(tmp_path / "a.jsonl", "One")
    for call in (
        LogLibrary(tmp_path).get,
        LogLibrary(tmp_path).recording,
        LogLibrary(tmp_path).count_turns,
    ):
        with pytest.raises(UnknownSession, match=r"no session '\.\./etc'"):
            call("../etc")
    with pytest.raises(UnknownSession):
        LogLibrary(tmp_path).search("one", "b")
    assert (
        LogLibrary(tmp_path).read_turn("a", 2)[1] == LogLibrary(tmp_path).read_turn("a", 0)[1] == ()
    )


def test_a_folder_that_goes_is_said_and_comes_again(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    logged(folder / "a.jsonl", "One")
    logs = LogLibrary(folder)
    assert logs.get("a").title == "One"
    shutil.rmtree(folder)
    with pytest.raises(ReadError):
        logs.get("a")
    logged(folder / "a.jsonl", "Two")
    assert logs.get("a").title == "Two"


def test_memory_holds_a_bounded_part_of_the_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logfiles, "MAX_CACHED_BYTES", 3_000)
    for number in range(10):
        logged(tmp_path / f"{number}.jsonl", f"number {number}", "x" * 900)
    logged(tmp_path / "large.jsonl", "large", "x" * 9_000)
    logs = LogLibrary(tmp_path)
    assert len(logs.search("number")) == 10
    assert next(logs.read_messages("large")).text == "large"
    kept = logs._files._cache
    assert 0 < sum(file.size for file in kept) <= 3_000
    assert all(file.size < 9_000 for file in kept)


def test_several_threads_may_ask_at_once(tmp_path: Path) -> None:
    for number in range(20):
        logged(tmp_path / f"{number}.jsonl", f"number {number}", "answer", "more")
    logs, failures = LogLibrary(tmp_path), []

    def ask(number: int) -> None:
        try:
            for _ in range(5):
                assert len(logs.sessions()) == 20
                assert logs.get(str(number)).title == f"number {number}"
                assert logs.count_turns(str(number)) == 2
                assert [h.session_id for h in logs.search(f"{number}")] == [str(number)]
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.e2e
def test_files_that_are_read_together_are_one_session(tmp_path: Path) -> None:
    store = a_store("chunks", tmp_path)
    for id in ("one", "two"):
        store.create(id=id)
    for number in range(450):
        for id in ("one", "two"):
            store.append(id, Message("user", f"{id} {number}"))
    assert len(list(tmp_path.glob("session-one.*.jsonl"))) == 3
    logs = LogLibrary(tmp_path)
    assert sorted(session.messages for session in logs.sessions()) == [450, 450]
    assert {tuple(m.text for m in logs.read_messages(s.id)) for s in logs.sessions()} == {
        tuple(f"{id} {number}" for number in range(450)) for id in ("one", "two")
    }
    before = {session.id for session in logs.sessions()}
    store.append("one", *(Message("user", "more") for _ in range(300)))
    assert sorted(session.messages for session in logs.sessions()) == [450, 750]
    assert {session.id for session in logs.sessions()} == before
