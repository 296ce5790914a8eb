"""Tests of ``ctxlab chat`` in a pipe: the answer is on standard output, and messages are stored."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from running import PROGRAM, Run, Said
from talking import Action, Call, Refusal, Talker, talking
from talking import Said as Answer

from ctxlab.messages.types import Message, ToolCall
from ctxlab.messages.validation import find_violations
from ctxlab.sessions.base import Session
from ctxlab.sessions.file_router import FileRouter
from ctxlab.sessions.sqlite.store import SqliteStore

MODEL = "openai/gpt-4o-mini"
Chat = Callable[..., Said]


def calling(name: str, **arguments: Any) -> Message:
    return Message("assistant", None, tool_calls=(ToolCall("c1", name, json.dumps(arguments)),))


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "notes.txt").write_text("The harbour opens at six.\n")
    monkeypatch.chdir(folder)
    for name in ("CTXLAB_MODEL", "OPENAI_API_BASE", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    return folder


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Talker]]:
    """Run a scripted server in place of the provider."""
    from contextlib import ExitStack

    with ExitStack() as stack:

        def begin(script: Action | Sequence[Action]) -> Talker:
            talker = stack.enter_context(talking(script))
            for name in ("OPENAI_API_BASE", "OPENAI_BASE_URL"):
                monkeypatch.setenv(name, talker.address)
            return talker

        yield begin


@pytest.fixture
def chat(run: Run, monkeypatch: pytest.MonkeyPatch, workspace: Path) -> Chat:
    """Return a function that runs the command with text on standard input."""

    def call(text: str, *options: object) -> Said:
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        return run("chat", "-m", MODEL, "--approval", "auto", *options)

    return call


class Typed(io.StringIO):
    """Lines that a user types: an input that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def typed(run: Run, monkeypatch: pytest.MonkeyPatch, workspace: Path) -> Chat:
    """Return a function that runs the command with lines that a user types, in a new session."""

    def call(text: str, *options: object) -> Said:
        monkeypatch.setattr("sys.stdin", Typed(text))
        said = run("chat", "-m", MODEL, "--approval", "auto", "--new", *options)
        return said._replace(err=said.err.replace("> ", ""))

    return call


def stored(workspace: Path) -> list[Session]:
    return SqliteStore(workspace).sessions()


def messages(workspace: Path) -> list[Message]:
    (session,) = stored(workspace)
    return list(SqliteStore(workspace).read_messages(session.id))


@pytest.mark.e2e
def test_a_pipe_gets_the_answer_and_nothing_else(
    chat: Chat, served: Callable[..., Talker], workspace: Path
) -> None:
    server = served("Forty-two.")
    assert chat("What is it?\n") == (0, "Forty-two.\n", "")
    assert server.calls[0].messages[-1].content == "What is it?"
    assert [m.role for m in messages(workspace)] == ["system", "user", "assistant"]
    assert stored(workspace)[0].status == "closed"


def test_tools_work_in_the_folder_and_are_told_on_standard_error(
    chat: Chat, served: Callable[..., Talker], workspace: Path
) -> None:
    first = calling("read_file", path="notes.txt").replace(content="I look.")
    server = served([first, calling("run_command", command="exit 3"), "At six."])
    said = chat("When does the harbour open?\n")
    assert (said.code, said.out) == (0, "At six.\n")
    lines = [re.sub(r", \d+\.\d s$", "", line) for line in said.err.splitlines()]
    assert lines == [
        "  read_file notes.txt · 1 line",
        "  run_command exit 3 · failed: exit code 3",
    ]
    assert server.calls[1].messages[-1].content == "The harbour opens at six.\n"
    assert find_violations(messages(workspace), "openai") == []


def test_every_typed_line_is_a_turn_of_one_session(
    typed: Chat, served: Callable[..., Talker], workspace: Path
) -> None:
    server = served(lambda call: f"Answer {call.number}.")
    said = typed("one\n\ntwo\nthree")
    assert said.out == "Answer 0.\nAnswer 1.\nAnswer 2.\n"
    assert [m.content for m in server.calls[2].messages if m.role == "user"] == [
        "one",
        "two",
        "three",
    ]
    (session,) = stored(workspace)
    assert session.messages == 7


@pytest.mark.parametrize(
    ("question", "piped", "message"),
    [
        (None, "/help\n\nline 2\nline 3\n", "/help\n\nline 2\nline 3"),
        ("Review this.", "-old\n+new\n", "Review this.\n\n-old\n+new"),
        ("Only this.", "", "Only this."),
        ("/context", "", "/context"),
    ],
)
def test_a_question_and_all_of_the_input_are_one_message(
    question: str | None,
    piped: str,
    message: str,
    chat: Chat,
    served: Callable[..., Talker],
    workspace: Path,
) -> None:
    server = served("Fine.")
    said = chat(piped, *([] if question is None else [question]))
    assert said == (0, "Fine.\n", "")
    assert server.calls[0].messages[-1].content == message
    assert len(server.calls) == len(stored(workspace)) == 1


def test_without_a_question_and_input_there_is_an_error_and_no_session(
    chat: Chat, workspace: Path
) -> None:
    for said in (chat(""), chat(" \n"), chat("", "--json")):
        assert (said.code, said.out) == (2, "")
        assert "expected a message" in said.err
    assert not (workspace / ".ctxlab").exists()


def test_json_prints_each_event_as_a_line(
    chat: Chat, served: Callable[..., Talker], workspace: Path
) -> None:
    served([calling("run_command", command="exit 3"), "It failed."])
    said = chat("", "--json", "Try it.")
    rows = [json.loads(line) for line in said.out.splitlines()]
    (session,) = stored(workspace)
    assert rows[0] == {"type": "session", "id": session.id, "model": MODEL}
    kinds = [row["type"] for row in rows[1:] if row["type"] != "text"]
    assert kinds == ["tool_call", "tool_result", "done"]
    result = next(row for row in rows if row["type"] == "tool_result")
    assert (result["ok"], result["error_type"]) == (False, "command_failed")
    assert rows[-1]["text"] == "It failed."
    served(Refusal(401, says="No key."))
    failed = chat("", "--json", "Again.")
    assert failed.code == 2
    assert json.loads(failed.out.splitlines()[-1])["type"] == "error"


def test_what_needs_approval_is_refused_in_a_pipe(
    run: Run, served: Callable[..., Talker], workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = served([calling("run_command", command="touch made"), "I could not."])
    monkeypatch.setattr("sys.stdin", io.StringIO("go\n"))
    said = run("chat", "-m", MODEL)
    assert said.out == "I could not.\n"
    assert "nobody can be asked, because the input is a pipe; --approval auto allows it" in said.err
    assert "--approval auto" in server.calls[1].messages[-1].text
    assert not (workspace / "made").exists()


def test_a_session_that_allowed_everything_asks_when_it_goes_on(
    run: Run,
    chat: Chat,
    served: Callable[..., Talker],
    workspace: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served([calling("run_command", command="touch first"), "Done."])
    chat("go\n")  # with --approval auto
    assert (workspace / "first").exists()
    served([calling("run_command", command="touch second"), "I could not."])
    monkeypatch.setattr("sys.stdin", io.StringIO("again\n"))
    said = run("chat", "-m", MODEL, "--session", stored(workspace)[0].id)
    assert "refused" in said.err
    assert not (workspace / "second").exists()


def test_a_session_goes_on_where_it_is_named_and_else_another_begins(
    chat: Chat, served: Callable[..., Talker], workspace: Path
) -> None:
    """Seed 004, criterion 3: starting a new session does not overwrite older sessions.

    Seed 004, picker: ``--session`` resumes directly, by the beginning of an id.
    """
    server = served("Noted.")
    chat("The code is 7319.\n")
    first = stored(workspace)[0].id
    before = list(SqliteStore(workspace).read_messages(first))
    chat("What is the code?\n", "--session", first[:6])
    assert "7319" in server.calls[-1].text
    chat("Something else.\n")
    assert "7319" not in server.calls[-1].text
    chat("Another.\n", "--new")
    assert len(stored(workspace)) == 3
    again = list(SqliteStore(workspace).read_messages(first))
    assert again[: len(before)] == before
    assert len(again) == len(before) + 2


def test_one_session_of_a_workspace_is_active_at_a_time(
    chat: Chat, served: Callable[..., Talker], workspace: Path
) -> None:
    """Seed 004, criterion 4: only one session is active per workspace at a time."""
    served("Noted.")
    left = SqliteStore(workspace).create(title="left open").id
    seen: list[str] = []
    server = served(lambda call: seen.extend(s.status for s in stored(workspace)) or "Yes.")
    chat("Hello.\n")
    assert server.answered == 1
    assert sorted(seen) == ["active", "closed"]
    assert SqliteStore(workspace).get(left).status == "closed"


def test_a_model_is_named_by_option_or_environment_or_it_is_said(
    run: Run, served: Callable[..., Talker], workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = served("Yes.")
    monkeypatch.setattr("sys.stdin", io.StringIO("hi\n"))
    said = run("chat")
    assert (said.code, said.out) == (2, "")
    assert "no model is set; add --model" in said.err
    assert "CTXLAB_MODEL" in said.err
    assert not (workspace / ".ctxlab").exists()
    monkeypatch.setenv("CTXLAB_MODEL", MODEL)
    monkeypatch.setattr("sys.stdin", io.StringIO("hi\n"))
    assert run("chat").out == "Yes.\n"
    id = stored(workspace)[0].id
    monkeypatch.setenv("CTXLAB_MODEL", "")
    monkeypatch.setattr("sys.stdin", io.StringIO("again\n"))
    assert run("chat", "--session", id).out == "Yes.\n"
    assert {call.model for call in server.calls} == {"gpt-4o-mini"}


@pytest.mark.parametrize("status", [401, 404])
def test_a_refusal_is_one_sentence_and_what_was_asked_stays(
    chat: Chat, served: Callable[..., Talker], workspace: Path, status: int
) -> None:
    server = served(Refusal(status, says="Wrong, says the provider."))
    said = chat("hi\n")
    assert (said.code, said.out) == (2, "")
    assert said.err.count("\n") == 1
    assert said.err.startswith("ctxlab: ")
    assert "Traceback" not in said.err
    assert server.attempts == 1
    assert [m.content for m in messages(workspace) if m.role == "user"] == ["hi"]


def test_what_is_written_wrongly_is_said_before_anything_is_stored(
    chat: Chat, workspace: Path
) -> None:
    for options in (
        ("--new", "--session", "x"),
        ("--workspace", "nowhere"),
        ("--workspace", "notes.txt"),
        ("-s", "panick"),
        ("-l", "many"),
        ("--reserve", "x"),
        ("-l", "1k", "--reserve", "2k"),
        ("--max-iterations", "0"),
        ("--session", "x"),
    ):
        said = chat("hi\n", *options)
        assert (said.code, said.out) == (2, ""), options
        assert said.err.startswith("ctxlab: ")
    assert [path.name for path in workspace.iterdir()] == ["notes.txt"]


def test_what_the_tools_may_do_can_be_bounded(
    chat: Chat, served: Callable[..., Talker], workspace: Path
) -> None:
    server = served([calling("run_command", command="touch made"), "No."] * 2)

    def offered(place: int) -> set[str]:
        return {tool["function"]["name"] for tool in server.calls[place].body.get("tools", ())}

    chat("hi\n", "--approval", "read-only")
    memory = {"session_contents", "search_sessions", "get_turn"}
    assert offered(0) == {"list_files", "search_files", "read_file", "update_plan"} | memory
    chat("hi\n", "--no-tools")
    assert offered(2) == set()
    assert not (workspace / "made").exists()


def test_the_limit_of_iterations_gives_the_partial_answer(
    chat: Chat, served: Callable[..., Talker]
) -> None:
    served(calling("list_files").replace(content="Looking."))
    said = chat("hi\n", "--max-iterations", "2")
    assert said.out == "Looking.\n\n[Tool call limit reached]\n"
    assert said.code == 3
    assert said.err.count("list_files") == 2
    assert said.err.endswith(
        "stopped after 2 calls to the model; to allow more, set a larger --max-iterations\n"
    )


def test_the_context_is_shown_by_part_with_the_tool_definitions(typed: Chat) -> None:
    """Seed 002, criterion 5: ``/context`` shows tool definition token usage."""
    said = typed("/context\n", "-l", "16k", "--reserve", "2k")
    assert said.code == 0
    sizes = {
        found[1]: int(found[2].replace(",", ""))
        for line in said.out.splitlines()
        if (found := re.match(r"\S (\w+) +([\d,]+) +<?\d+ %", line))
    }
    assert list(sizes) == ["system", "tools", "summary", "messages", "reserve", "free"]
    assert sizes["tools"] > 200
    assert sizes["reserve"] == 2000
    assert sum(sizes.values()) == 16_000
    assert "\x1b" not in said.out
    without = typed("/context\n", "-l", "16k", "--no-tools")
    assert "tools              0" in without.out


def test_what_is_refused_before_it_is_said_leaves_no_session(chat: Chat, workspace: Path) -> None:
    said = chat("word " * 900, "-l", "800", "--no-tools")
    assert (said.code, said.out, "larger limit" in said.err) == (2, "", True)
    assert stored(workspace) == []


def test_a_slash_command_is_obeyed_and_not_said(
    typed: Chat, served: Callable[..., Talker], workspace: Path
) -> None:
    """Seed 003, toc: in a chat, /toc, /turn and /title."""
    server = served("Done.")
    said = typed("Fix the parser\n/toc\n/turn 1\n/title Parser work\n/title\n/help\n/quit\nnever\n")
    assert said.code == 0
    assert len(server.calls) == 1
    assert "1. Fix the parser\n" in said.out
    assert "user\nFix the parser\n\nassistant\nDone.\n" in said.out
    assert "--max-iterations" not in said.err
    assert "title set: Parser work\nParser work\n" in said.out
    assert "Fix the parser" in said.out.split("title set:")[1]
    assert all(f"/{name}" in said.out for name in ("context", "toc", "turn", "title", "quit"))
    assert stored(workspace)[0].title == "Parser work"


def test_adjacent_turns_are_shown_without_the_lines_of_each_other(
    typed: Chat, served: Callable[..., Talker]
) -> None:
    served("Done.")
    said = typed("Alpha\nBeta\nGamma\n/turn 1-2\n")
    assert [line for line in said.out.splitlines() if re.match(r"(… )?\d\. ", line)] == [
        "1. Alpha",
        "2. Beta",
        "… 3. Gamma",
    ]


def test_a_step_is_shown_by_its_label(typed: Chat, served: Callable[..., Talker]) -> None:
    served("Done.")
    said = typed("Alpha\nBeta\n/turn 2.1\n/turn 2.2\n")
    assert [line for line in said.out.splitlines() if re.match(r"(… )?\d\.\d ", line)] == [
        "… 1.1 Alpha",
        "2.1 Beta",
    ]
    assert "no step 2.2; choose a step from 2.1 to 2.1" in said.err


@pytest.mark.parametrize("leaving", ["/quit", "/exit", "/Q now"])
def test_a_slash_command_ends_the_chat(
    typed: Chat, served: Callable[..., Talker], leaving: str
) -> None:
    server = served("Never.")
    said = typed(f"{leaving}\nnever\n")
    assert (said.code, said.out) == (0, "")
    assert server.calls == []


def test_a_slash_command_that_is_none_says_what_there_is(typed: Chat) -> None:
    said = typed("/contxt\n")
    assert said.code == 0
    assert "did you mean /context" in said.err
    assert "/title" in typed("/zzz\n").err


def test_a_path_and_what_begins_with_a_space_are_said(
    typed: Chat, served: Callable[..., Talker]
) -> None:
    server = served("I see.")
    typed("/etc/hosts is what?\n /help\n")
    said = [m.content for m in server.calls[-1].messages if m.role == "user"]
    assert said == ["/etc/hosts is what?", "/help"]


def test_a_session_that_goes_on_shows_the_last_exchange(
    typed: Chat, served: Callable[..., Talker], workspace: Path
) -> None:
    served(["An older answer.", "The newest answer.\n" * 30])
    typed("An older question\nThe newest question\n")
    (session,) = stored(workspace)
    said = typed(f"/resume {session.id[:6]}\n/new\n").out
    assert "resumed An older question (5 messages)" in said
    shown = said.partition("/help lists commands")[2]
    assert shown.startswith("\n> The newest question\nThe newest answer.\n")
    assert "… (18 more lines)" in shown
    assert "An older answer." not in shown
    assert "new session; model" in shown
    assert len(stored(workspace)) == 1  # nothing was said in the new ones


def test_a_chat_changes_its_session_and_its_model(
    typed: Chat, served: Callable[..., Talker], workspace: Path
) -> None:
    server = served(lambda call: f"Answer {call.number}.")
    typed("first\n/new\nsecond\n/resume 2\n/model openai/gpt-4o\nthird\n/sessions\n/model\n")
    assert [call.model for call in server.calls] == ["gpt-4o-mini", "gpt-4o-mini", "gpt-4o"]
    said = [m.content for m in server.calls[2].messages if m.role != "system"]
    assert said == ["first", "Answer 0.", "third"]
    sessions = {session.title: session for session in stored(workspace)}
    assert sessions["first"].model == "openai/gpt-4o"
    assert (sessions["first"].messages, sessions["second"].messages) == (5, 3)


def test_a_chat_whose_session_another_process_deletes_goes_on_with_a_new_one(
    typed: Chat, served: Callable[..., Talker], workspace: Path
) -> None:
    def delete(call: Call) -> str:
        if call.number == 1:
            with closing(SqliteStore(workspace)) as store:
                store.delete(store.sessions()[0].id)
        return f"Answer {call.number}."

    served(delete)
    said = typed("first\nsecond\nthird\n/model gpt-4o\n/new\nfourth\n")
    assert said.code == 0
    assert said.err.count("deleted the session of this chat; start one with /new") == 3
    assert [m.text for m in messages(workspace)[1:]] == ["fourth", "Answer 2."]


def test_the_conversation_stays_whole_when_the_model_changes_or_a_turn_is_undone(
    typed: Chat, served: Callable[..., Talker]
) -> None:
    server = served(lambda call: f"Answer {call.number}.")
    long = "word " * 2_000
    turns = "".join(f"turn {n}\n" for n in range(30))
    typed(f"{long}\n{turns}/model openai/gpt-4o\nthen\n/undo\nagain\n/retry\n")
    for call in server.calls[31:]:
        said = [m.text for m in call.messages if m.role == "user"]
        assert said[:-1] == [long.strip(), *(f"turn {n}" for n in range(30))]
    assert [call.messages[-1].text for call in server.calls[31:]] == ["then", "again", "again"]


def test_undo_in_a_resumed_session_loses_no_earlier_turn(
    typed: Chat, served: Callable[..., Talker], workspace: Path
) -> None:
    server = served(lambda call: f"Answer {call.number}.")
    typed("".join(f"turn {n}\n" for n in range(30)))
    (session,) = stored(workspace)
    typed(f"/resume {session.id}\n" + "/undo\n" * 5 + "and now?\n")
    sent = "\n".join(message.text for message in server.calls[-1].messages)
    assert [n for n in range(30) if f"turn {n}\n" in sent] == list(range(25))


def test_undo_goes_on_in_a_copy_without_the_last_turn_and_archives_the_session(
    typed: Chat, served: Callable[..., Talker], workspace: Path
) -> None:
    writing = calling("write_file", path="new.txt", content="one")
    server = served(["Yes.", writing, "Written.", "Seen."])
    said = typed("/title Harbour\nfirst\nwrite\n/undo\n/toc\nthird\n")
    (archived,) = SqliteStore(workspace).sessions(status="archived")
    assert (
        "dropped: write\n"
        f"the dropped answer stays in the archived session {archived.id[:8]}\n"
        "changes by write_file are not restored\n"
        "1. first\n"
    ) in said.out
    assert (workspace / "new.txt").read_text() == "one"
    asked = [m.text for m in server.calls[-1].messages if m.role != "system"]
    assert asked == ["first", "Yes.", "third"]
    (session,) = stored(workspace)
    assert (session.title, session.meta["copied_from"]) == ("Harbour", archived.id)
    assert [m.text for m in messages(workspace)[1:]] == ["first", "Yes.", "third", "Seen."]
    store = SqliteStore(workspace)
    assert [m.text for m in store.read_messages(archived.id)][-1] == "Written."
    assert store.search("Written") == []
    assert store.count_turns(archived.id) == store.count_turns(session.id) == 2


def test_undo_of_all_turns_leaves_only_the_archived_session(
    typed: Chat, served: Callable[..., Talker], workspace: Path
) -> None:
    served("Yes.")
    said = typed("/undo\nfirst\nsecond\n/undo\n/undo\n/undo\n")
    assert said.err.count("the conversation has no turn yet") == 2
    (archived,) = SqliteStore(workspace).sessions(status="archived")
    assert said.out.count(f"stays in the archived session {archived.id[:8]}") == 2
    assert stored(workspace) == []
    assert archived.messages == 5


def test_undo_of_the_only_turn_keeps_the_file_of_the_session(
    typed: Chat, served: Callable[..., Talker], workspace: Path
) -> None:
    served("Yes.")
    with closing(SqliteStore(workspace)) as store:
        id = FileRouter(store).route("notes.txt").id
        store.append(id, Message("user", "first", file="notes.txt"), Message("assistant", "No."))
        typed(f"/resume {id}\n/retry\n")
        found = FileRouter(store).find("notes.txt")
        assert found is not None
        assert [m.text for m in store.read_messages(found.id)][1:] == ["first", "Yes."]
        assert store.get(id).status == "archived"


def test_retry_asks_the_last_message_again_without_its_answer(
    typed: Chat, served: Callable[..., Talker], workspace: Path
) -> None:
    served([*("Yes.", "No answer to that."), Refusal(401), "Better."])
    said = typed("first\nsecond\n/model openai/gpt-4o\n/retry\n/retry\n")
    assert said.out.endswith("Better.\n")
    assert said.err.count("asking your last message again") == 2
    (session,) = stored(workspace)
    assert [m.text for m in messages(workspace)[1:]] == ["first", "Yes.", "second", "Better."]
    assert session.model == "openai/gpt-4o"
    archived = SqliteStore(workspace).sessions(status="archived")
    assert [each.messages for each in archived] == [4, 5]  # the first retry got no answer


def test_images_by_path_are_sent_kept_on_retry_and_told(
    typed: Chat, served: Callable[..., Talker], workspace: Path
) -> None:
    Image.new("RGB", (30, 20)).save(workspace / "my shot.png")
    Image.new("RGB", (8_001, 1)).save(workspace / "wide.png")
    (workspace / "text.jpg").write_text("The harbour opens at six.")
    server = served("A shot.")
    said = typed(
        r"Look: my\ shot.png, wide.png, text.jpg, no.png and notes.txt."
        "\n/retry\n/model openai/gpt-4o\nAnd what do you see?\n"
    )
    assert [line for line in said.err.splitlines() if "attached" in line] == [
        "  attached: my shot.png, 30 × 20 pixels",
        "  not attached: wide.png: expected at most 8,000 pixels a side, got 8,001 × 1; "
        "shrink the image",
        "  not attached: text.jpg: expected an image in the format PNG, JPEG, WebP or GIF",
    ]
    first, second = (call.messages[-1].content for call in server.calls[:2])
    assert first == second
    assert first in [message.content for message in server.calls[2].messages]
    assert isinstance(first, tuple)
    assert [part["type"] for part in first] == ["text", "image_url"]
    data = first[1]["image_url"]["url"].removeprefix("data:image/png;base64,")
    assert base64.b64decode(data) == (workspace / "my shot.png").read_bytes()


def test_a_path_that_nobody_typed_attaches_nothing(
    chat: Chat, served: Callable[..., Talker], workspace: Path
) -> None:
    Image.new("RGB", (30, 20)).save(workspace / "shot.png")
    server = served("Yes.")
    assert chat("shot.png\n", "What changed in shot.png?").err == ""
    assert isinstance(server.calls[0].messages[-1].content, str)


@pytest.mark.e2e
def test_a_conversation_is_shortened_on_request(
    typed: Chat, served: Callable[..., Talker], workspace: Path
) -> None:
    server = served("A long answer. " * 200)
    said = typed("/compact\n" + "more\n" * 12 + "/compact\nand now?\n").out
    assert "the strategy shortens nothing of" in said
    before, after = (
        int(n.replace(",", "")) for n in re.findall(r"from ([\d,]+) to ([\d,]+) tok", said)[0]
    )
    assert after < before / 1.5
    assert len(server.calls[-1].messages) < len(server.calls[-2].messages)
    assert len(messages(workspace)) == 27


def test_the_cost_of_a_session_is_the_sum_of_its_replies(
    typed: Chat, served: Callable[..., Talker], workspace: Path
) -> None:
    served(Answer("Yes.", cached=4))
    said = typed("one\ntwo\n/cost\n/plan\nthree\n/undo\n/cost\n").out
    replies = [m for m in messages(workspace) if m.role == "assistant"]
    total = sum(m.usage.total_input for m in replies if m.usage)
    usd = sum(m.extra["usd"] for m in replies)
    assert f"2 replies, ${usd:,.4f}\n" in said
    spent = f"this chat since its start: ${1.5 * usd:,.4f}, with dropped answers"
    assert f"2 replies, ${usd:,.4f}; {spent}\n" in said
    assert re.search(rf"input +{total:,} tokens, 8 of them from the cache", said)
    assert "(no plan)" in said


def test_before_anything_was_said_nothing_is_stored(typed: Chat, workspace: Path) -> None:
    said = typed("/toc\n/title\n/title To come\n/title\n/context\n\n   \n")
    assert said.code == 0
    assert "(no turns yet)\n(no title yet)\ntitle set: To come\nTo come\n" in said.out
    assert stored(workspace) == []


def test_a_title_that_was_given_first_is_the_sessions(
    typed: Chat, served: Callable[..., Talker], workspace: Path
) -> None:
    served("Yes.")
    typed("/title Harbour\nhi\n")
    assert stored(workspace)[0].title == "Harbour"


def test_titles_and_lines_come_from_a_model_where_one_is_named(
    chat: Chat, served: Callable[..., Talker], workspace: Path
) -> None:
    """Seed 003, background: in the background, when a turn is complete."""

    def script(call: Call) -> str:
        if "session title" in call.text:
            return "Harbour hours"
        return "A line about the harbour" if "table of contents" in call.text else "At six."

    served(script)
    assert chat("When does it open?\n", "--summary-model", MODEL).out == "At six.\n"
    (session,) = stored(workspace)
    assert session.title == "Harbour hours"
    assert SqliteStore(workspace).turn_summaries(session.id) == {1: "A line about the harbour"}


def test_a_stream_that_breaks_keeps_what_was_said(
    chat: Chat, served: Callable[..., Talker], workspace: Path
) -> None:
    from talking import Fault

    served(Answer("one two three", pieces=4, breaks=Fault.CUT, after=2))
    said = chat("hi\n")
    assert said.code == 2
    assert said.err.startswith("ctxlab: ")
    assert messages(workspace)[-1].content == "one two \n\n[The answer broke off]"


@pytest.mark.e2e
@pytest.mark.skipif(os.name == "nt", reason="signals are sent as POSIX has it")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_what_is_ended_in_the_middle_has_stored_all_that_was_said(
    served: Callable[..., Talker], workspace: Path, how: signal.Signals
) -> None:
    """Seed 004, criterion 1: after a restart, prior sessions of the workspace are listed."""
    served(calling("run_command", command="echo here > here; sleep 60"))
    command = [*PROGRAM, "chat", "-m", MODEL, "--approval", "auto"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, cwd=workspace, env=os.environ, **pipes) as process:  # type: ignore[call-overload]
        process.stdin.write(b"one\n")
        process.stdin.close()
        while not (workspace / "here").exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(how)
        err = process.stderr.read()
        process.wait(60)
    said = subprocess.run(
        [*PROGRAM, "sessions", "list", "--json"], capture_output=True, cwd=workspace, check=True
    )
    (row,) = json.loads(said.stdout)
    kept = messages(workspace)
    assert row["title"] == "one"
    assert [m.role for m in kept][:3] == ["system", "user", "assistant"]
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert err.decode().splitlines()[-1] == "Cancelled"
        assert row["status"] == "closed"
        assert find_violations(kept, "openai") == []
        assert "Cancelled" in kept[3].text


@pytest.mark.e2e
def test_what_is_no_utf_8_is_said_as_far_as_it_can_be(
    served: Callable[..., Talker], workspace: Path
) -> None:
    server = served("Yes.")
    done = subprocess.run(
        [*PROGRAM, "chat", "-m", MODEL], cwd=workspace, input=b"gr\xfc\xdfe\n", capture_output=True
    )
    assert (done.returncode, done.stdout) == (0, b"Yes.\n")
    assert server.calls[0].messages[-1].content == "gr\ufffd\ufffde"


MCP_SERVER = f"{sys.executable} {Path(__file__).parents[2] / 'helpers' / 'mcp_server.py'}"


def test_tools_of_an_mcp_server_are_called_and_their_images_are_sent(
    chat: Chat, served: Callable[..., Talker], workspace: Path
) -> None:
    provider = served([calling("test_server__picture"), "It is red."])
    said = chat("What does it show?", "--mcp", MCP_SERVER, "--strategy", "full()")
    assert said.out == "It is red.\n"
    tool, user = provider.calls[1].body["messages"][-2:]
    assert (tool["role"], user["role"]) == ("tool", "user")
    assert "a red square" in tool["content"]
    assert user["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")
    assert [m.role for m in messages(workspace)][1:] == ["user", "assistant", "tool", "assistant"]


@pytest.mark.e2e
def test_a_read_only_chat_gets_only_read_only_tools_of_an_mcp_server(
    chat: Chat, served: Callable[..., Talker]
) -> None:
    provider = served("Hello.")
    chat("Hi", "--mcp", MCP_SERVER, "--approval", "read-only")
    names = [tool["function"]["name"] for tool in provider.calls[0].body["tools"]]
    assert [name for name in names if name.startswith("test_server")] == ["test_server__add"]


def test_an_mcp_server_that_cannot_be_started_is_one_sentence(chat: Chat) -> None:
    said = chat("Hi", "--mcp", "no-such-program")
    assert said.code == 2
    assert "cannot connect to MCP server 'no-such-program'" in said.err
    assert "Traceback" not in said.err


def test_the_agent_finds_what_was_said_in_an_earlier_session(
    chat: Chat, served: Callable[..., Talker]
) -> None:
    look = calling("search_sessions", query="harbour master")
    provider = served(["Noted.", look, "Albatross."])
    chat("The harbour master says albatross.")
    chat("What does the harbour master say?", "--new")
    assert "earlier sessions in that folder" in provider.calls[1].body["messages"][0]["content"]
    assert "The harbour master says albatross." in provider.calls[2].body["messages"][-1]["content"]


def test_without_memory_the_agent_has_no_tools_for_it(
    chat: Chat, served: Callable[..., Talker]
) -> None:
    provider = served("Hello.")
    chat("Hi", "--no-memory")
    names = {tool["function"]["name"] for tool in provider.calls[0].body["tools"]}
    assert "read_file" in names
    assert not names & {"session_contents", "search_sessions", "get_turn"}
    assert "earlier sessions" not in provider.calls[0].body["messages"][0]["content"]


@pytest.mark.e2e
def test_nothing_is_saved_on_request_or_where_nothing_can_be_written(
    chat: Chat, served: Callable[..., Talker], workspace: Path
) -> None:
    served(["One.", "Two."])
    code, out, err = chat("Hi", "--no-save")
    assert (code, out) == (0, "One.\n")
    assert "nothing of this chat is saved" in err
    assert not (workspace / ".ctxlab").exists()
    (workspace / ".ctxlab").write_text("a file where the folder would be")
    code, out, err = chat("Hi")
    assert (code, out) == (0, "Two.\n")
    assert f"{workspace} cannot be written: nothing of this chat is saved" in err


@pytest.mark.e2e
def test_sessions_are_stored_in_the_folder_that_is_named(
    chat: Chat, served: Callable[..., Talker], workspace: Path, tmp_path: Path
) -> None:
    served(["One."])
    assert chat("Hi", "--store", tmp_path / "sessions").out == "One.\n"
    assert len(stored(tmp_path / "sessions")) == 1
    assert not (workspace / ".ctxlab" / "sessions.db").exists()


FULL = """
import resource, signal, sys
from ctxlab.agent import Agent, AgentSession
from ctxlab.llm import ScriptedClient
from ctxlab.sessions import JsonlStore, SqliteStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
kind, folder = sys.argv[1:]
store = JsonlStore(folder) if kind == "jsonl" else SqliteStore(folder)
live = AgentSession.start(store, Agent("gpt-4o", client=ScriptedClient("A", "B", "C")), id="s")
live.allow_unsaved = True
live.run("one")
resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
print(live.run("two " * 9000).text, live.unsaved_count)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(live.run("three").text, live.unsaved_count)
print([m.text[:3] for m in store.read_messages("s")])
"""


@pytest.mark.e2e
@pytest.mark.skipif(sys.platform == "win32", reason="there is no limit for the size of a file")
@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
def test_a_full_disk_is_told_once_and_the_conversation_goes_on(tmp_path: Path, kind: str) -> None:
    argv = [sys.executable, "-c", FULL, kind, str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["B 2", "C 0", "['one', 'A', 'two', 'B', 'thr', 'C']"]
    assert done.stderr.count("the conversation goes on, but new messages are not saved") == 1
    assert "all messages are saved again" in done.stderr
    assert "Traceback" not in done.stderr
