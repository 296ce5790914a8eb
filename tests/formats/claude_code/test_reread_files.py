"""Tests of the files that Claude Code reads again after a compaction, which old logs do not contain."""

from __future__ import annotations

from typing import Any

from claude_rows import Read, Row, boundary, call, result, said, text, user

COMPACTION = [boundary(trigger="auto"), user("In short", isCompactSummary=True)]


def used(path: str, **outcome: Any) -> list[Row]:
    """Return a call that used a file, and its result with the structured outcome."""
    id = f"c {path} {outcome}"
    return [said(id, call(id)), user([result(id)], toolUseResult=outcome)]


def read_file(path: str, content: str, total: int | None = None) -> list[Row]:
    lines = content.count("\n") + 1
    file = {"filePath": path, "content": content, "numLines": lines, "totalLines": total or lines}
    return used(path, type="text", file=file)


def reread(read: Read, *rows: Row) -> list[str]:
    """Return the texts of the messages that the last compaction added besides its summary."""
    recording, *_ = read(user("go"), *rows, *COMPACTION, user("go on"), said("z", text("ok")))
    return [each.message.text for each in recording.compactions[-1].substitutes[1:]]


def test_the_five_files_used_last_follow_the_summary(read: Read) -> None:
    rows = [row for n in range(7) for row in read_file(f"{n}.py", f"text {n}")]
    texts = reread(read, *rows, *read_file("3.py", "text 3"))
    assert [text.split()[2] for text in texts] == ["3.py", "6.py", "5.py", "4.py", "2.py"]
    assert "     1→text 3" in texts[0]


def test_edits_are_applied_and_a_written_file_is_known(read: Read) -> None:
    first = read_file("a.py", "one\ntwo")
    edit = used("a.py", filePath="a.py", oldString="one", newString="uno", originalFile="one\ntwo")
    write = used("b.py", type="create", filePath="b.py", content="new")
    made, edited = reread(read, *first, *edit, *write)
    assert "→uno\n" in edited
    assert "→new\n" in made


def test_of_a_file_read_in_parts_the_longest_part_is_known(read: Read) -> None:
    (known,) = reread(read, *read_file("a.py", "long part\n2", 9), *read_file("a.py", "short", 9))
    assert "long part" in known


def test_a_large_file_is_only_named(read: Read) -> None:
    (named,) = reread(read, *read_file("a.py", "x" * 20_000))
    assert "a.py" in named
    assert len(named) < 200


def test_files_used_before_an_earlier_compaction_stay_only_if_they_were_read_again(
    read: Read,
) -> None:
    old = [row for n in range(6) for row in read_file(f"{n}.py", "x")]
    texts = reread(read, *old, *COMPACTION, user("more"))
    assert [text.split()[2] for text in texts] == ["5.py", "4.py", "3.py", "2.py", "1.py"]


def test_a_log_with_attachments_contains_the_files_itself(read: Read) -> None:
    skills = {"type": "attachment", "uuid": "at", "sessionId": "s"}
    skills["attachment"] = {"type": "skill_listing", "content": "- test"}  # type: ignore[assignment]
    assert reread(read, skills, *read_file("a.py", "text")) == []


def test_inferred_messages_are_marked(read: Read) -> None:
    recording, *_ = read(user("go"), *read_file("a.py", "text"), *COMPACTION, user("go on"))
    summary, file = recording.compactions[0].substitutes
    assert (summary.message.extra, file.message.extra) == ({}, {"inferred": True})


def test_a_log_that_lacks_the_start_of_its_session_says_so(read: Read) -> None:
    late, *_ = read(user("go on", parentUuid="before"), said("m", text("a")))
    whole, *_ = read(user("go", parentUuid=None), said("m", text("a")))
    assert late.meta["starts_after"] == "before"
    assert "starts_after" not in whole.meta
