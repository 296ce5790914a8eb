"""Tests of the workspace tools: readable results, limits, and no access outside the workspace."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hostile import PARTS, SECRET, hostile, state
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.agent.messages import result_message
from ctxlab.agent.tools import text_files as texts
from ctxlab.agent.tools.changes import plan_edit, plan_write
from ctxlab.agent.tools.processes import ProcessManager
from ctxlab.agent.tools.result import ERROR_TYPES, ToolResult
from ctxlab.agent.tools.safe_paths import MAX_DEPTH, SafeRoot
from ctxlab.agent.tools.tool import call_tool
from ctxlab.agent.tools.workspace import workspace_tools
from ctxlab.messages.types import Message, ToolCall
from ctxlab.strategies import tool_result_cap
from ctxlab.strategies.tool_stubs import make_stub

Ask = Callable[..., ToolResult]


def asking(root: Path, processes: ProcessManager, **settings: Any) -> Ask:
    tools = {tool.name: tool for tool in workspace_tools(root, processes, **settings)}
    return lambda name, **arguments: call_tool(tools[name], json.dumps(arguments))


@pytest.fixture
def processes() -> Iterator[ProcessManager]:
    with ProcessManager() as made:
        yield made


@pytest.fixture
def ask(tmp_path: Path, processes: ProcessManager) -> Ask:
    return asking(tmp_path, processes, timeout=30.0)


def test_there_are_six_tools_and_three_that_only_read(tmp_path: Path) -> None:
    names = [tool.name for tool in workspace_tools(tmp_path, ProcessManager())]
    assert names == [
        *("list_files", "search_files", "read_file"),
        *("write_file", "edit_file", "run_command"),
    ]
    reading = workspace_tools(tmp_path, ProcessManager(), writable=False)
    assert [tool.name for tool in reading] == names[:3]
    for tool in workspace_tools(tmp_path, ProcessManager()):
        about = tool.definition["function"]
        assert about["description"]
        assert all("description" in each for each in about["parameters"]["properties"].values())


@pytest.mark.parametrize(
    ("name", "arguments", "kind"),
    [
        ("read_file", {"path": "../outside/secret.txt"}, "permission_denied"),
        ("read_file", {"path": "/etc/passwd"}, "permission_denied"),
        ("read_file", {"path": "to_file"}, "permission_denied"),
        ("read_file", {"path": "fifo"}, "permission_denied"),
        ("read_file", {"path": "socket"}, "permission_denied"),
        ("read_file", {"path": "absolute"}, "permission_denied"),
        ("read_file", {"path": "loop"}, "invalid_args"),
        ("read_file", {"path": "dangling"}, "invalid_args"),
        ("read_file", {"path": "none.txt"}, "invalid_args"),
        ("read_file", {"path": "sub"}, "invalid_args"),
        ("read_file", {"path": "x" * 300}, "invalid_args"),
        ("read_file", {"path": "x/" * 5000}, "invalid_args"),
        ("read_file", {"path": "a\0b"}, "invalid_args"),
        ("read_file", {"path": ""}, "invalid_args"),
        ("read_file", {"path": "b.txt", "start": 0}, "invalid_args"),
        ("read_file", {"path": "b.txt", "start": 5, "end": 4}, "invalid_args"),
        ("read_file", {"file": "b.txt"}, "invalid_args"),
        ("read_file", {"path": 7}, "invalid_args"),
        ("write_file", {"path": "new_outside", "content": "x"}, "permission_denied"),
        ("write_file", {"path": "to_folder/x", "content": "x"}, "permission_denied"),
        ("write_file", {"path": "fifo", "content": "x"}, "permission_denied"),
        ("write_file", {"path": ".git/hooks/pre-commit", "content": "x"}, "permission_denied"),
        ("write_file", {"path": "sub", "content": "x"}, "invalid_args"),
        ("write_file", {"path": "b.txt/x", "content": "x"}, "invalid_args"),
        ("write_file", {"path": "x", "content": "\ud800"}, "invalid_args"),
        ("edit_file", {"path": "new_outside", "old": "a", "new": "b"}, "permission_denied"),
        ("edit_file", {"path": "to_file", "old": "secret", "new": "b"}, "permission_denied"),
        ("edit_file", {"path": ".git/config", "old": "a", "new": "b"}, "invalid_args"),
        ("edit_file", {"path": "b.txt", "old": "none of this", "new": "b"}, "invalid_args"),
        ("edit_file", {"path": "b.txt", "old": "", "new": "b"}, "invalid_args"),
        ("list_files", {"folder": ".."}, "permission_denied"),
        ("list_files", {"folder": "to_folder"}, "permission_denied"),
        ("list_files", {"folder": "b.txt"}, "invalid_args"),
        ("list_files", {"glob": "*" * 600}, "invalid_args"),
        ("search_files", {"text": "x", "folder": "to_root"}, "permission_denied"),
        ("search_files", {"text": "(", "regex": True}, "invalid_args"),
        ("search_files", {"text": ""}, "invalid_args"),
        ("run_command", {"command": "sleep 60", "timeout": 0.2}, "timeout"),
        ("run_command", {"command": "a\0b"}, "invalid_args"),
        ("run_command", {"command": "x" * 300_000}, "invalid_args"),
        ("run_command", {"command": "ls", "timeout": -1}, "invalid_args"),
    ],
    ids=str,
)
def test_every_failure_is_a_result_with_its_kind(
    tmp_path: Path, processes: ProcessManager, name: str, arguments: dict[str, Any], kind: str
) -> None:
    """Seed 002, section 10.1: errors are classified, so that an agent knows what to do."""
    work, outside = hostile(tmp_path)
    before, started = state(tmp_path), time.monotonic()
    result = asking(work, processes)(name, **arguments)
    assert time.monotonic() - started < 30
    assert (result.ok, result.error_type) == (False, kind), result
    assert kind in ERROR_TYPES
    assert result.error
    assert str(tmp_path) not in result.error
    assert state(tmp_path) == before
    assert state(outside) == state(outside)


def test_all_tools_answer_with_a_tool_result(ask: Ask) -> None:
    """Seed 002, criterion 1: all tool execution returns a ``ToolResult``, as a dict too."""
    for name, arguments in {
        "write_file": {"path": "a.txt", "content": "one\n"},
        "read_file": {"path": "a.txt"},
        "edit_file": {"path": "a.txt", "old": "one", "new": "one two"},
        "list_files": {},
        "search_files": {"text": "one"},
        "run_command": {"command": "true"},
    }.items():
        result = ask(name, **arguments)
        assert isinstance(result, ToolResult)
        assert (result.ok, result.tool_name) == (True, name)
        assert result.duration_ms is not None
        assert result.model_dump()["ok"] is True
    assert result.process_id == "p1"


# --- list ----------------------------------------------------------------------------------------


def test_what_lies_too_deep_to_be_entered_is_told_with_the_depth_that_counts(
    tmp_path: Path, processes: ProcessManager
) -> None:
    at, made = os.open(tmp_path, os.O_RDONLY), []
    for _ in range(MAX_DEPTH + 1):
        os.mkdir("d", dir_fd=at)
        made.append(at)
        at = os.open("d", os.O_RDONLY, dir_fd=at)
    for number in [*made, at]:
        os.close(number)
    said = asking(tmp_path, processes, page_chars=10**6)("list_files", depth=10**9).data
    assert f"\n[1 folder not entered: deeper than {MAX_DEPTH} levels]\n" in said


def test_files_are_listed_in_order_with_what_is_left_out(tmp_path: Path, ask: Ask) -> None:
    for path in ("b.py", "a/x.py", "a/b/c/d/deep.py", ".git/config", ".env", "a/.hidden/y"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "two\nlines").touch()
    lines = ask("list_files").data.splitlines()
    assert lines[:3] == [
        "[7 entries]",
        "[3 hidden names (starting with a dot) left out]",
        "[1 folder not entered: deeper than 3 levels]",
    ]
    assert lines[3:] == ["a/", "a/b/", "a/b/c/", "a/x.py", "b.py", "link (link)", r"two\nlines"]
    assert ask("list_files", glob="*.py", depth=9).data.splitlines()[-3:] == [
        *("a/b/c/d/deep.py", "a/x.py", "b.py")
    ]
    assert ask("list_files", folder="a", glob="x*").data.endswith("\nx.py")
    assert ask("list_files", glob="*.c").data.startswith("[0 entries]")


def test_a_listing_is_bounded_and_says_so(
    tmp_path: Path, ask: Ask, processes: ProcessManager
) -> None:
    for number in range(600):
        (tmp_path / f"{number:03}").touch()
    roomy = asking(tmp_path, processes, page_chars=50_000)
    lines = roomy("list_files").data.splitlines()
    assert (len(lines), lines[-1]) == (501, "499")
    assert lines[0] == "[the first 500 entries; narrow the list with folder, glob or depth]"


# --- search --------------------------------------------------------------------------------------


def test_lines_are_found_with_their_places_and_files_left_out_are_counted(
    tmp_path: Path, ask: Ask
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.txt").write_text("Alpha\nbeta\r\nalphabet [x]\n")
    (tmp_path / "sub" / "b.md").write_text("alpha in é\n")
    (tmp_path / "c.bin").write_bytes(b"alpha\0")
    (tmp_path / "d.txt").write_bytes(b"\xff alpha\n")
    (tmp_path / ".hidden").write_text("alpha\n")
    found = ask("search_files", text="alpha").data.splitlines()
    assert found[:3] == [
        "[3 matches in 3 files]",
        "[1 file left out: binary]",
        "[1 hidden name (starting with a dot) left out]",
    ]
    assert found[3:] == ["a.txt:3: alphabet [x]", "d.txt:1: � alpha", "sub/b.md:1: alpha in é"]
    assert "a.txt:1: Alpha" in ask("search_files", text="ALPHA", ignore_case=True).data
    assert "\na.txt:3" in ask("search_files", text="[x]").data
    assert "\na.txt:2: beta" in ask("search_files", text="^[ab]\\w+a$", regex=True).data
    assert ask("search_files", text="alpha", glob="**/*.md").data.startswith("[1 match in 1 file]")
    assert ask("search_files", text="no such").data.startswith("[0 matches in 0 files]")


def test_a_search_is_bounded_and_long_lines_are_cut(tmp_path: Path, ask: Ask) -> None:
    (tmp_path / "a").write_text("x\n" * 1000)
    lines = ask("search_files", text="x").data.splitlines()
    assert len(lines) == 201
    assert "the first 200 matches in 1 file; narrow" in lines[0]
    (tmp_path / "a").write_text("y" * 100_000)
    assert len(ask("search_files", text="yy").data) < 400


def test_an_expression_that_would_take_for_ever_is_a_timeout(
    tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctxlab.agent.tools.workspace._SEARCH_TIMEOUT", 0.3)
    (tmp_path / "a").write_text("a" * 5000 + "!\n")
    started = time.monotonic()
    result = ask("search_files", text="^(a|aa)+$", regex=True)
    assert time.monotonic() - started < 30
    assert (result.ok, result.error_type) == (False, "timeout")


# --- read and write ------------------------------------------------------------------------------


def test_a_file_is_read_as_it_is_or_in_numbered_lines(tmp_path: Path, ask: Ask) -> None:
    (tmp_path / "a").write_text("one\n\ttwo\nthree")
    assert ask("read_file", path="a").data == "one\n\ttwo\nthree"
    assert ask("read_file", path="a", start=2, end=2).data == "[lines 2-2 of 3]\n\ttwo\n"
    numbered = ask("read_file", path="a", start=2, numbered=True).data
    assert numbered == "[lines 2-3 of 3]\n     2\t\ttwo\n     3\tthree"
    assert ask("read_file", path="a", start=9).data == "[the file ends with line 3]"
    (tmp_path / "empty").touch()
    assert ask("read_file", path="empty").data == "[the file is empty]"


@given(
    st.lists(st.integers(0, 300), max_size=80), st.booleans(), st.integers(200, 5000), st.booleans()
)
def test_a_large_file_is_read_in_pages_that_say_how_to_go_on(
    widths: list[int], ended: bool, page_chars: int, numbered: bool
) -> None:
    text = "\n".join("x" * width for width in widths) + ("\n" if ended else "")
    with TemporaryDirectory() as folder:
        (Path(folder) / "a").write_text(text)
        ask = asking(Path(folder), ProcessManager(), page_chars=page_chars)
        read, start = "", 1
        while start:
            data = ask("read_file", path="a", start=start, numbered=numbered).data
            assert len(data) <= page_chars
            note, content = "", data
            if data.startswith("["):
                note, _, content = data.partition("\n")
            if numbered:
                content = "".join(line[7:] for line in content.splitlines(keepends=True))
            start = int(note.rpartition("=")[2].rstrip("]")) if "continue with" in note else 0
            read += content
            if "is cut here" in note or "the file " in note:
                return
    assert read == text


def test_a_line_longer_than_a_page_is_cut(tmp_path: Path, ask: Ask) -> None:
    (tmp_path / "a").write_text("z" * 3_000_000)
    data = ask("read_file", path="a").data
    assert 3_000 < len(data) <= 4_000
    assert data.startswith("[line 1 of 1 is cut here")


def test_results_fit_the_request_of_an_agent(tmp_path: Path, ask: Ask) -> None:
    """Seed 000, testing 6: what the built-in tools return is not cut at 4,000 characters."""
    for number in range(300):
        (tmp_path / f"a file with a rather long name {number:03}").write_text("a line\n" * 900)
    for name, arguments in (
        ("list_files", {}),
        ("search_files", {"text": "line"}),
        ("read_file", {"path": "a file with a rather long name 007"}),
    ):
        data = ask(name, **arguments).data
        assert 3_000 < len(data) <= 4_000
        assert tool_result_cap().cut(Message("tool", data), None) is None


def test_a_binary_file_is_not_read(tmp_path: Path, ask: Ask) -> None:
    (tmp_path / "a").write_bytes(b"\x7fELF\0\0")
    result = ask("read_file", path="a")
    assert (result.error_type, result.error) == ("invalid_args", "binary")


def test_what_was_written_is_what_is_read(tmp_path: Path, ask: Ask) -> None:
    text = "é\r\n\n😀 no end"
    assert "a new file" in ask("write_file", path="x/y.txt", content=text).data
    assert ask("read_file", path="x/y.txt").data == text
    assert "replaced" in ask("write_file", path="x/y.txt", content="").data


# --- edit ----------------------------------------------------------------------------------------


@given(st.text("ab\n", max_size=40), st.text("ab\n", min_size=1, max_size=3), st.text("abc\n"))
def test_an_edit_replaces_a_text_that_occurs_once_and_nothing_else(
    text: str, old: str, new: str
) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "a"
        file.write_text(text)
        file.chmod(0o640)
        result = asking(Path(folder), ProcessManager())("edit_file", path="a", old=old, new=new)
        once = text.count(old) == 1 and old != new
        assert result.ok == once
        assert file.read_text() == (text.replace(old, new) if once else text)
        assert file.stat().st_mode & 0o777 == 0o640


def test_an_edit_keeps_windows_line_ends_and_tells_where_a_text_occurs(
    tmp_path: Path, ask: Ask
) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"one\r\ntwo\r\none\r\n")
    refused = ask("edit_file", path="a", old="one", new="1")
    assert (refused.error_type, "occurs 2 times in a (lines 1, 3)" in str(refused.error)) == (
        "invalid_args",
        True,
    )
    assert ask("edit_file", path="a", old="one\ntwo", new="1\n2").ok
    assert file.read_bytes() == b"1\r\n2\r\none\r\n"
    everywhere = ask("edit_file", path="a", old="\n", new=" ", everywhere=True)
    assert everywhere.data == "[edited a: 3 places, 1 line added, 3 removed]"
    (tmp_path / "b").write_bytes(b"\xff")
    assert "not UTF-8" in str(ask("edit_file", path="b", old="a", new="b").error)


def test_a_planned_change_is_what_the_tool_writes(tmp_path: Path, ask: Ask) -> None:
    (tmp_path / "a").write_text("one\ntwo\n")
    root = SafeRoot(tmp_path)
    planned = plan_edit(root, "a", "two", "2", False)
    assert planned.diff().splitlines()[-2:] == ["-two", "+2"]
    assert (tmp_path / "a").read_text() == "one\ntwo\n"
    ask("edit_file", path="a", old="two", new="2")
    assert (tmp_path / "a").read_text() == planned.after
    whole = plan_write(root, "new/b", "x\n")
    assert (whole.before, whole.line_counts) == (None, (1, 0))
    assert not (tmp_path / "new").exists()


# --- run -----------------------------------------------------------------------------------------


def without_duration(text: str) -> str:
    """Leave out the seconds of a command, which it says if it took more than one."""
    return re.sub(r", \d+\.\d s(?=[\];])", "", text)


def test_a_command_says_first_how_it_ended_and_fails_with_its_output(
    tmp_path: Path, ask: Ask
) -> None:
    done = ask("run_command", command="pwd -P")
    assert without_duration(done.data) == f"[exit code 0]\n{tmp_path.resolve()}\n"
    failed = ask("run_command", command='echo "no"; exit 3')
    assert (failed.ok, failed.error_type) == (False, "command_failed")
    assert without_duration(f"[{failed.error}]") == "[exit code 3]"
    assert without_duration(failed.to_llm_content()) == "[exit code 3]\nno\n"
    killed = ask("run_command", command="kill -9 $$")
    assert (killed.ok, without_duration(killed.data)) == (False, "[ended by signal 9]")


@pytest.mark.e2e
def test_a_command_that_took_too_long_gives_what_it_said(
    ask: Ask, processes: ProcessManager
) -> None:
    result = ask("run_command", command="echo begun; sleep 60", timeout=3)
    assert (result.ok, result.error_type, result.process_id) == (False, "timeout", "p1")
    assert result.to_llm_content() == "[stopped after 3 s, the time limit]\nbegun\n"
    assert processes.list_running() == []


def test_stubs_of_the_tools_have_status_counts_and_files(tmp_path: Path, ask: Ask) -> None:
    """Seed 000, testing 4: stubs contain the status, the files and the number of results."""
    (tmp_path / "a.py").write_text("x = 1\n" * 50)
    (tmp_path / "b.py").write_text("x = 2\n")
    shout = "seq 200; echo 'E   assert 1 == 2' >&2; exit 1"

    def stub(name: str, **arguments: Any) -> dict[str, Any]:
        call = ToolCall("c1", name, json.dumps(arguments))
        message = result_message(call, ask(name, **arguments))
        message = message.replace(content=message.text + " " * 500)  # stubs must be shorter
        made = make_stub(message, call)
        assert made is not None
        return json.loads(made.text)

    found = stub("search_files", text="x = 2")
    assert (found["status"], found["count"], found["files"]) == ("success", 1, ["b.py"])
    assert found["summary"] == "1 match in 1 file"
    assert stub("list_files")["files"] == ["a.py", "b.py"]
    read = stub("read_file", path="a.py")
    assert (read["summary"], read["count"], read["files"]) == ("50 lines", 50, ["a.py"])
    wrote = stub("write_file", path="c.py", content="")
    assert (wrote["status"], wrote["files"]) == ("success", ["c.py"])
    failed = stub("run_command", command=shout)
    assert failed["status"] == "error"
    assert failed["summary"].startswith("exit code 1")
    assert failed["summary"].endswith("E   assert 1 == 2")


def test_a_model_may_shorten_the_time_limit_and_not_lengthen_it(
    tmp_path: Path, processes: ProcessManager
) -> None:
    ask, started = asking(tmp_path, processes, timeout=0.3), time.monotonic()
    assert ask("run_command", command="sleep 60", timeout=100).error_type == "timeout"
    assert time.monotonic() - started < 30


def test_what_goes_on_in_the_background_is_told(ask: Ask, processes: ProcessManager) -> None:
    data = ask("run_command", command="sleep 60 & echo up").data
    assert data.startswith("[exit code 0")
    assert data.endswith("; processes in the background keep running as p1]\nup\n")
    assert [each.process_id for each in processes.list_running()] == ["p1"]


# --- whatever a model writes ---------------------------------------------------------------------


@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=5).map("/".join), st.booleans())
def test_no_tool_reads_or_writes_anything_outside(path: str, absolute: bool) -> None:
    with TemporaryDirectory() as folder:
        work, outside = hostile(Path(folder).resolve())
        ask, before = asking(work, ProcessManager()), state(outside)
        path = f"/{path}" if absolute else path
        for name, arguments in (
            ("list_files", {"folder": path, "depth": 3}),
            ("search_files", {"text": "secret", "folder": path}),
            ("read_file", {"path": path}),
            ("write_file", {"path": path, "content": "written"}),
        ):
            result = ask(name, **arguments)
            assert result.ok or result.error_type in ("permission_denied", "invalid_args")
            assert SECRET not in result.to_llm_content()
        assert state(outside) == before
        assert sorted(os.listdir(folder)) == ["outside", "work"]


def test_a_line_without_an_end_is_shown_at_once_and_not_gone_through_for_ever(
    tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts, "_SEEK_TIMEOUT", 0.3)
    with open(tmp_path / "long", "wb") as file:
        file.write(b"a" * 8192)
        file.truncate(200_000_000_000)  # sparse: it takes no room
    begun = time.monotonic()
    assert "line 1 is cut here" in str(ask("read_file", path="long").data)
    assert ask("read_file", path="long", start=2).error_type == "timeout"
    assert time.monotonic() - begun < 30


def test_an_expression_within_which_no_time_is_kept_is_refused(tmp_path: Path, ask: Ask) -> None:
    (tmp_path / "a.txt").write_text("a" * 100_000)
    begun = time.monotonic()
    result = ask("search_files", text="a?" * 20_000 + "a" * 20_000, regex=True)
    assert (result.error_type, time.monotonic() - begun < 30) == ("invalid_args", True)
    assert ask("search_files", text="x" * 5_000).ok  # a plain text may be of any length
