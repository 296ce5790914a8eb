"""Tests of ``ctxlab chat`` in a real terminal, from the first message to the evaluation of the chat."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from running import PROGRAM
from talking import Action, Call, Refusal, Talker, talking
from talking import Said as Answer
from terminals import PROMPT, Terminal, appears, gone, terminal

from ctxlab.messages.types import Message, ToolCall
from ctxlab.messages.validation import find_violations
from ctxlab.sessions.sqlite.store import SqliteStore

pytestmark = pytest.mark.skipif(os.name == "nt", reason="tmux is for POSIX")

MODEL = "openai/gpt-4o-mini"
FACT = "The harbour master is called Odalys Brandt"
CHAT = (*PROGRAM, "chat", "-m", MODEL, "--approval", "auto")
ASKING = CHAT[:-2]
STATUS = r"openai/gpt-4o-mini · [\d,]+ of 128,000 tokens \(<?\d+ %\) · \$0\.\d{4} · \d+\.\d s"
MARKDOWN = """\
# A heading

Some **bold** text with `code`.

1. first
2. second

```python
def add(a, b):
    return a + b
```

The end \x1b]0;pwned\x07 &#x202e;.
"""


def script(call: Call) -> Action:
    """Scripted model that follows instructions and knows only the messages of the request."""
    last = call.messages[-1]
    if last.role == "tool":
        return f"It said: {last.text.splitlines()[-1]}"
    asked = last.text
    if asked.startswith("run "):
        arguments = json.dumps({"command": asked[4:]})
        made = ToolCall(f"r{call.number}", "run_command", arguments)
        return Message("assistant", "Let me see.", tool_calls=(made,))
    if asked.startswith("edit "):
        arguments = json.dumps({"path": asked[5:], "old": "two", "new": "three"})
        return Message("assistant", None, tool_calls=(ToolCall("e1", "edit_file", arguments),))
    if asked == "hostile":
        command = "touch made.txt \x1b]0;pwned\x07\x1b[2J\x1b[1A\r\u202els\u200b"
        made = ToolCall(f"h{call.number}", "run_command", json.dumps({"command": command}))
        return Message("assistant", "\x1b]0;pwned\x07Hidden: \u202e\x1b[8m", tool_calls=(made,))
    if asked == "slow":
        made = ToolCall(f"s{call.number}", "run_command", '{"command": "touch made.txt"}')
        said = Message("assistant", "Wait for it " * 20, tool_calls=(made,))
        return Answer(said, pieces=20, pace=0.1)
    if asked == "markdown":
        return Answer(MARKDOWN, pieces=7, pace=0.01)
    if asked == "count":
        return Answer(" ".join(map(str, range(200))), pieces=4, pace=0.05)
    if asked == "fail":
        return Refusal(401, says="no such key")
    if "who" in asked.lower():
        known = re.search(r"is called (\w+ \w+)", call.text)
        return f"It is {known[1]}." if known else "I do not know."
    return "Noted."


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def server() -> Iterator[Talker]:
    with talking(script) as talker:
        yield talker


@pytest.fixture
def screen(workspace: Path, server: Talker) -> Iterator[Terminal]:
    """Open a terminal in the workspace, in which ctxlab uses the server."""
    addresses = dict.fromkeys(("OPENAI_API_BASE", "OPENAI_BASE_URL"), server.address)
    path = os.environ.get("PYTHONPATH", "")
    with terminal(
        workspace, OPENAI_API_KEY="sk-test", NO_PROXY="127.0.0.1", PYTHONPATH=path, **addresses
    ) as made:
        yield made


def chats(workspace: Path) -> list[psutil.Process]:
    """Return the processes of ``ctxlab chat`` that were started in a folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if MODEL in process.cmdline() and Path(process.cwd()) == workspace:
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.e2e
def test_a_chat_is_interrupted_left_resumed_and_evaluated(
    screen: Terminal, workspace: Path, server: Talker
) -> None:
    """Seed 004, testing 2: create session, exit, restart, resume, verify continuity via summary.

    Seed 002, criterion 4: Ctrl+C during tool execution kills managed processes and shows "Cancelled".
    Seed 004, criterion 1: after a restart, prior sessions of the workspace can be listed.
    Seed 004, criterion 2: the user can resume one, and the agent continues from summary and window.
    Seed 004, picker: the picker of prior sessions; Enter begins a new one.
    Issue, done when: all of it in a terminal, then ``ctxlab eval`` on that store.
    """
    # There is nothing to pick, so a new session begins.
    screen.run(CHAT)
    shown = screen.wait_end(">")
    assert "new session" in shown
    assert "Number" not in shown
    screen.type(f"{FACT}.")
    screen.wait("Noted.")

    # Tools work in the folder, and a line says so.
    screen.wait_end(">")
    screen.type("run echo from the shell > made.txt; cat made.txt; exit 3")
    shown = screen.wait("It said: from the shell")
    assert re.search(
        r"run_command echo from .* · ✗ failed: exit code 3(, \d+\.\d s)?$", shown, re.M
    )
    assert (workspace / "made.txt").read_text() == "from the shell\n"

    # Ctrl+C in the middle of a command ends it with its children, and leads back to the prompt.
    screen.wait_end(">")
    screen.type("run sleep 7311 & setsid sleep 7312 & sleep 7313")
    for number in (7311, 7312, 7313):
        appears(f"sleep {number}")
    screen.press("C-c")
    screen.wait("Cancelled")
    screen.wait_end(">")
    assert all(gone(f"sleep {number}") for number in (7311, 7312, 7313))
    (session,) = SqliteStore(workspace).sessions()
    assert find_violations(list(SqliteStore(workspace).read_messages(session.id)), "openai") == []

    # The conversation goes on; so much of it that the first turn leaves the window.
    for number in range(24):
        screen.type(f"part {number}")
        screen.wait_end(">")
        _until_asked(server, f"part {number}")
    screen.clear()
    screen.type("/context")
    shown = screen.wait("free")
    assert re.search(r"tools +\d", shown)
    assert re.search(r"messages +\d", shown)
    screen.type("/title Harbour work")
    screen.wait("title set: Harbour work")
    screen.wait_end(">")
    screen.press("C-d")
    screen.wait("resume it with: ")
    screen.wait_end(PROMPT)

    # Another day: the session is picked by number, and the fact is known through the summary.
    screen.clear()
    screen.run(CHAT)
    shown = screen.wait("Number to resume, Enter for a new session:")
    assert re.search(r"1  Harbour work +\d{4}-\d\d-\d\d \d\d:\d\d +\d+ +openai/gpt-4o-mini", shown)
    screen.type("7")
    screen.wait("matches no session")
    screen.type("1")
    screen.wait("resumed Harbour work (")
    shown = screen.wait_end(">")
    assert "\n> part 23\n" in shown  # the last exchange, on lines of its own
    before = len(server.calls)
    screen.type("Who is the harbour master?")
    screen.wait("It is Odalys Brandt.")
    sent = server.calls[before].messages
    said = [m for m in sent if m.role == "user" and m.text.startswith(FACT)]
    assert said == [], "the first turn left the window"
    engines = [m for m in sent if m.text.startswith("This conversation is resumed.")]
    assert len(engines) == 1
    assert FACT in engines[0].text
    screen.wait_end(">")
    screen.type("/quit")
    screen.wait_end(PROMPT)

    # What was said is data.
    (again,) = SqliteStore(workspace).sessions()
    assert (again.id, again.status) == (session.id, "closed")
    screen.clear()
    screen.run([*PROGRAM, "eval", ".ctxlab/sessions.db", "-l", "4k", "-s", "full", "-s", "panic"])
    shown = screen.wait("1 recording in 1 cluster")
    assert "panic" in shown


def _until_asked(server: Talker, text: str) -> None:
    end = time.monotonic() + 20
    while not any(call.answer and call.messages[-1].text == text for call in server.calls[-2:]):
        assert time.monotonic() < end, f"{text} was never asked"
        time.sleep(0.02)


@pytest.mark.e2e
def test_an_answer_that_is_stopped_is_kept_and_a_failure_is_one_sentence(
    screen: Terminal, workspace: Path
) -> None:
    """Seed 002, section 10.4: streaming cleans up as well."""
    screen.run(CHAT)
    screen.wait_end(">")
    screen.type("count")
    screen.wait("5 6 7")
    screen.press("C-c")
    screen.wait("Cancelled")
    screen.wait_end(">")
    screen.type("fail")
    shown = screen.wait("no such key")
    assert "Traceback" not in shown
    screen.wait_end(">")
    screen.type("/contxt")
    screen.wait("did you mean /context")
    screen.wait_end(">")
    (session,) = SqliteStore(workspace).sessions()
    kept = list(SqliteStore(workspace).read_messages(session.id))
    assert kept[2].text.startswith("0 1 2 3")
    assert kept[2].text.endswith("\n\n[Cancelled]")
    assert find_violations(kept, "openai") == []


@pytest.mark.e2e
def test_ctrl_c_clears_a_line_and_leaves_an_empty_prompt_with_130(screen: Terminal) -> None:
    screen.run(CHAT)
    screen.wait_end(">")
    screen.type("never said", enter=False)
    screen.wait("never said")
    screen.press("C-c")
    time.sleep(0.3)
    screen.wait_end(">")
    screen.press("C-c")
    screen.wait("Cancelled")
    screen.wait_end(PROMPT)
    screen.type("echo it was $?")
    screen.wait("it was 130")


@pytest.mark.e2e
def test_lines_are_found_again_and_may_be_long(screen: Terminal, server: Talker) -> None:
    screen.run(CHAT)
    screen.wait_end(">")
    screen.type("first \\")
    screen.wait_end("…")
    screen.type("second")
    screen.wait("Noted.")
    assert server.calls[-1].messages[-1].text == "first \nsecond"
    screen.wait_end(">")
    screen.tmux("set-buffer", "pasted one\npasted two")
    screen.tmux("paste-buffer", "-p")
    screen.press("Enter")
    _until_asked(server, "pasted one\npasted two")
    screen.wait_end(">")
    screen.press("C-d")
    screen.wait_end(PROMPT)
    screen.run([*CHAT, "--new"])
    screen.wait_end(">")
    screen.press("Up")
    screen.wait_end("… pasted two")


@pytest.mark.e2e
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
def test_a_chat_that_is_ended_from_outside_leaves_nothing_running(
    screen: Terminal, workspace: Path, how: signal.Signals
) -> None:
    screen.run(CHAT)
    screen.wait_end(">")
    screen.type(f"run sleep 741{how.value}")
    appears(f"sleep 741{how.value}")
    (chat,) = chats(workspace)
    chat.send_signal(how)
    screen.wait("Cancelled")
    screen.wait_end(PROMPT)
    assert gone(f"sleep 741{how.value}")
    (session,) = SqliteStore(workspace).sessions()
    assert session.status == "closed"
    assert find_violations(list(SqliteStore(workspace).read_messages(session.id)), "openai") == []


@pytest.mark.e2e
def test_the_context_fits_a_narrow_terminal(screen: Terminal) -> None:
    screen.resize(44, 50)
    screen.run([*CHAT, "--new"])
    screen.wait_end(">")
    screen.clear()
    screen.type("/context")
    screen.wait("free")
    shown = screen.wait_end(">")
    lines = shown.splitlines()
    assert any(re.fullmatch(r"[█▓▒■░·]{30,44}", line) for line in lines)
    assert any(re.fullmatch(r". tools +[\d,]+ +<?\d+ %", line) for line in lines)


@pytest.mark.e2e
def test_enter_in_the_picker_begins_a_new_session(screen: Terminal, workspace: Path) -> None:
    store = SqliteStore(workspace)
    for number in range(11):
        store.create(title=f"Session {number}")
    store.close()
    screen.run(CHAT)
    shown = screen.wait("Number to resume")
    assert "9  Session 2" in shown
    assert "and 2 older sessions; to resume one, type its id (see ctxlab sessions list)" in shown
    screen.press("Enter")
    screen.wait("new session")
    screen.wait_end(">")
    screen.press("C-d")
    screen.wait_end(PROMPT)
    screen.clear()
    screen.run(CHAT)
    screen.wait("Number to resume")
    screen.press("C-c")
    shown = screen.wait("Cancelled")
    assert "Cancelled" in shown.splitlines()
    screen.wait_end(PROMPT)
    screen.clear()
    screen.run(CHAT)
    screen.wait("Number to resume")
    screen.press("C-d")
    shown = screen.wait_end(PROMPT)
    assert "new session;" not in shown
    screen.type("echo it was $?")
    screen.wait("it was 0")
    assert len(SqliteStore(workspace).sessions()) == 11


@pytest.mark.e2e
def test_pressing_twice_means_the_answer_and_ends_what_does_not_want_to(
    screen: Terminal, workspace: Path
) -> None:
    screen.run(CHAT)
    screen.wait_end(">")
    screen.type("run trap '' TERM INT; sleep 7511; sleep 7512; sleep 7513")
    appears("sleep 7511")
    screen.press("C-c")
    time.sleep(0.15)
    screen.press("C-c")
    screen.wait("Cancelled")
    screen.wait_end(">")
    assert all(gone(f"sleep {number}") for number in (7511, 7512, 7513))
    time.sleep(1)
    screen.type("still there?")
    screen.wait("Noted.")
    (session,) = SqliteStore(workspace).sessions()
    assert find_violations(list(SqliteStore(workspace).read_messages(session.id)), "openai") == []


@pytest.mark.e2e
def test_a_terminal_that_is_closed_ends_the_chat_and_its_commands(
    screen: Terminal, workspace: Path
) -> None:
    screen.run(CHAT)
    screen.wait_end(">")
    screen.type("run sleep 7611")
    appears("sleep 7611")
    screen.tmux("kill-server")
    assert gone("sleep 7611")
    end = time.monotonic() + 10
    while chats(workspace) and time.monotonic() < end:
        time.sleep(0.05)
    assert chats(workspace) == []
    (session,) = SqliteStore(workspace).sessions()
    assert session.status == "closed"


@pytest.mark.e2e
def test_a_second_chat_closes_the_session_of_the_first_which_can_go_on(
    screen: Terminal, workspace: Path, server: Talker
) -> None:
    """Seed 004, criterion 4: only one session is active per workspace at a time."""
    screen.run(CHAT)
    screen.wait_end(">")
    screen.type("one")
    screen.wait("Noted.")
    (first,) = SqliteStore(workspace).sessions()
    store = SqliteStore(workspace)
    second = store.create(title="second")
    assert store.get(first.id).status == "closed"
    screen.wait_end(">")
    screen.clear()
    screen.type("two")
    screen.wait("Noted.")
    assert {s.id: s.status for s in store.sessions()}[second.id] in ("active", "closed")
    assert sum(s.status == "active" for s in store.sessions()) == 1
    assert [m.text for m in store.read_messages(first.id) if m.role == "user"] == ["one", "two"]
    store.close()


@pytest.mark.e2e
def test_a_command_is_shown_while_it_runs_without_colours_too(screen: Terminal) -> None:
    screen.run(["env", "NO_COLOR=1", *CHAT])
    screen.wait_end(">")
    screen.type("run sleep 7711")
    appears("sleep 7711")
    screen.wait("run_command sleep 7711")
    screen.press("C-c")
    screen.wait("Cancelled")
    assert gone("sleep 7711")


@pytest.mark.e2e
def test_the_last_line_is_a_command_that_goes_on_with_the_session(
    screen: Terminal, workspace: Path
) -> None:
    store = SqliteStore(workspace / "an other")
    for number in (1, 2):
        store.create(id=f"harbour-work-{number}", model=MODEL, title=f"Harbour work {number}")
    store.close()
    screen.run([*CHAT, "--workspace", "an other", "--session", "harbour-work-2"])
    screen.wait("resumed Harbour work 2 (0 messages)")
    screen.wait_end(">")
    screen.press("C-d")
    found = re.search(r"; resume it with: ctxlab (chat .*)", screen.wait("resume it with: "))
    assert found
    screen.wait_end(PROMPT)
    screen.clear()
    screen.run([*PROGRAM, *shlex.split(found[1])])
    screen.wait("resumed Harbour work 2 (0 messages)")


@pytest.mark.e2e
def test_changes_and_commands_are_shown_and_need_the_users_approval(
    workspace: Path, screen: Terminal, server: Talker
) -> None:
    (workspace / "a.txt").write_text("one\ntwo\n")
    screen.run(ASKING)
    screen.wait_end(">")

    # A command is shown whole, and a refusal with a reason reaches the model.
    screen.type("run echo \u202e\u2066 touched > made.txt")
    shown = screen.wait("Allow?")
    assert "The agent wants to run:" in shown
    assert "echo ⟨U+202E⟩⟨U+2066⟩ touched > made.txt" in shown
    screen.type("use another name")
    screen.wait("It said:")
    assert "use another name" in server.calls[-1].messages[-1].text
    assert not (workspace / "made.txt").exists()

    # A change of a file is shown as a diff; the file is written after a yes.
    screen.wait_end(">")
    screen.clear()
    screen.type("edit a.txt")
    shown = screen.wait("Allow?")
    assert "-two" in shown
    assert "+three" in shown
    assert "\nThe agent wants to change a.txt:\n" in shown
    screen.type("y")
    screen.wait_end(">")
    assert (workspace / "a.txt").read_text() == "one\nthree\n"

    # What is allowed for good is not asked again, and a longer command is.
    screen.clear()
    screen.type("run echo good")
    screen.wait('[a] always for "echo good"')
    screen.type("a")
    screen.wait_end(">")
    screen.clear()
    screen.type("run echo good")
    assert "Allow?" not in screen.wait("It said:")
    screen.wait_end(">")
    screen.clear()
    screen.type("run echo good; touch made.txt")
    screen.wait("Allow?")
    screen.press("C-c")
    screen.wait("Cancelled")
    assert not (workspace / "made.txt").exists()


@pytest.mark.e2e
def test_a_hostile_command_neither_controls_the_terminal_nor_hides(
    workspace: Path, screen: Terminal, server: Talker
) -> None:
    screen.run(ASKING)
    screen.wait_end(">")
    screen.type("hostile")
    shown = screen.wait("Allow?")
    assert (
        "touch made.txt ⟨U+001B⟩]0;pwned⟨U+0007⟩⟨U+001B⟩[2J⟨U+001B⟩[1A⟨U+000D⟩⟨U+202E⟩ls⟨U+200B⟩"
        in ("".join(shown.split("\n")).replace("    touch", "touch"))
    )
    assert "\u202e" not in shown
    assert "pwned" not in screen.tmux("display-message", "-p", "#{pane_title}")
    screen.type("n")
    screen.wait_end(">")
    assert not (workspace / "made.txt").exists()


@pytest.mark.e2e
def test_what_is_typed_before_a_question_does_not_answer_it(
    workspace: Path, screen: Terminal, server: Talker
) -> None:
    screen.run(ASKING)
    screen.wait_end(">")
    screen.type("slow")
    screen.wait("Wait for it")
    screen.type("y")
    screen.wait("Allow?")
    screen.type("not now")
    screen.wait("It said:")
    assert "not now" in server.calls[-1].messages[-1].text
    assert not (workspace / "made.txt").exists()


@pytest.mark.e2e
def test_the_output_of_a_program_and_a_question_are_one_message(
    workspace: Path, screen: Terminal, server: Talker
) -> None:
    git = "git -c user.name=a -c user.email=a@b -c init.defaultBranch=main"
    screen.type(f"{git} init -q; echo one > a; git add a; {git} commit -qm a; echo two > a")
    screen.type(f"git diff | {shlex.join(CHAT)} 'review this'")
    screen.wait("Noted.")
    asked = server.calls[-1].messages[-1].text
    assert asked.startswith("review this\n\ndiff --git a/a b/a\n")
    assert asked.endswith("-one\n+two")
    assert len(server.calls) == 1


@pytest.mark.e2e
def test_markdown_is_rendered_while_it_arrives_and_a_line_tells_the_state(
    screen: Terminal,
) -> None:
    screen.run(CHAT)
    screen.wait_end(">")
    screen.type("markdown")
    screen.wait("The end")
    shown = screen.wait_end(">")
    answer, status = shown.partition("> markdown\n")[2].split("\n")[:-2], shown.split("\n")[-2]
    assert [line.rstrip() for line in answer] == [
        *("A heading", "", "Some bold text with code.", "", "  1 first", "  2 second", ""),
        *("def add(a, b):", "    return a + b", "", "The end �]0;pwned� �."),
    ]
    assert re.fullmatch(STATUS, status.rstrip())
    assert "pwned" not in screen.tmux("display-message", "-p", "#{pane_title}")

    # The block that has not ended is drawn again when the terminal is resized, and is not lost.
    screen.clear()
    screen.type("count")
    screen.wait("5 6 7")
    screen.resize(44, 50)
    screen.wait("198 199")
    shown = screen.wait_end(">")
    shown = re.sub(r"^> *(count)? *\n", "", shown, flags=re.MULTILINE)  # one or two prompts
    assert shown.rpartition("openai")[0].split() == [str(number) for number in range(200)]


@pytest.mark.e2e
def test_commands_files_and_sessions_are_completed(
    screen: Terminal, workspace: Path, server: Talker
) -> None:
    (workspace / "src").mkdir()
    (workspace / "src" / "parser.py").touch()
    store = SqliteStore(workspace)
    store.create(id="harbour-work", title="Harbour \u202e\x1b]0;pwned\x07 work")
    store.close()
    screen.run([*CHAT, "--new"])
    screen.wait_end(">")
    screen.type("/", enter=False)
    screen.wait("/compact   let the strategy shorten the conversation now")
    screen.type("resu", enter=False)
    screen.wait("/resume  continue another session")
    screen.press("Tab")
    screen.type(" har", enter=False)
    screen.press("Tab")
    screen.wait("> /resume harbour-work")
    screen.press("Enter")
    shown = screen.wait("resumed Harbour")
    assert "\u202e" not in shown
    assert "pwned" not in screen.tmux("display-message", "-p", "#{pane_title}")
    screen.wait_end(">")
    screen.type("look at @pars", enter=False)
    screen.wait("src/parser.py")
    screen.press("Tab")
    screen.wait("> look at @src/parser.py")
    screen.press("Enter")
    screen.press("Enter")
    _until_asked(server, "look at @src/parser.py")


@pytest.mark.e2e
def test_keys_during_an_answer_wait_for_the_prompt_and_ctrl_d_ends_nothing(
    screen: Terminal, workspace: Path
) -> None:
    screen.run(CHAT)
    screen.wait_end(">")
    screen.type("count")
    screen.wait("5 6 7")
    screen.press("C-d")
    screen.type("typed ahead", enter=False)
    screen.wait("198 199")
    shown = screen.wait_end("> typed ahead")
    assert shown.count("typed ahead") == 1
    screen.press("C-c")
    screen.wait_end(">")
    screen.press("C-d")
    screen.wait_end(PROMPT)
    assert [session.messages for session in SqliteStore(workspace).sessions()] == [3]


@pytest.mark.e2e
def test_a_yes_that_is_typed_with_the_message_does_not_answer_the_question(
    workspace: Path, screen: Terminal, server: Talker
) -> None:
    screen.run(ASKING)
    screen.wait_end(">")
    screen.press("-l", "run touch made.txt\ry\r")
    screen.wait("Allow?")
    screen.type("not now")
    screen.wait("It said:")
    assert "not now" in server.calls[-1].messages[-1].text
    assert not (workspace / "made.txt").exists()


@pytest.mark.e2e
def test_a_resized_terminal_keeps_the_message_that_is_typed(
    screen: Terminal, server: Talker
) -> None:
    words = " ".join(f"word{number}" for number in range(20))
    screen.run(CHAT)
    screen.wait_end(">")
    screen.type(words, enter=False)
    end = f">{words}".replace(" ", "")
    for columns in (44, 120, 60, 100):
        screen.resize(columns, 50)
        screen.wait_for(lambda shown: re.sub(r"[\s…]", "", shown).endswith(end), words)
    screen.type(" end")
    _until_asked(server, f"{words} end")


@pytest.mark.e2e
def test_a_terminal_without_colours_or_cursor_shows_the_text_as_it_is(
    screen: Terminal, workspace: Path, server: Talker
) -> None:
    for number, setting in enumerate(("NO_COLOR=1", "TERM=dumb")):
        screen.run(["env", setting, *CHAT, "--new"])
        screen.wait_end(">")
        screen.type("markdown")
        screen.wait("The end �]0;pwned� &#x202e;.")
        screen.wait_end(">")
        shown = screen.tmux("capture-pane", "-p", "-e")
        assert "# A heading\n\nSome **bold** text" in shown
        assert "\x1b" not in shown.partition("> markdown")[2]
        if setting == "TERM=dumb":
            screen.type("first \\")
            screen.wait_end("…")
            screen.type("second")
            _until_asked(server, "first \nsecond")
            screen.wait_end(">")
        screen.press("C-d")
        screen.wait_end(PROMPT)
        assert len(SqliteStore(workspace).sessions()) == number + 1
        screen.clear()


@pytest.mark.e2e
def test_a_redirected_answer_is_the_text_of_the_model(screen: Terminal, workspace: Path) -> None:
    screen.type(f"{shlex.join(CHAT)} > answer.md")
    screen.wait_end(">")
    screen.type("markdown")
    screen.wait_end(">")
    screen.wait("tokens (")
    screen.wait_end(">")
    screen.press("C-d")
    screen.wait_end(PROMPT)
    assert (workspace / "answer.md").read_text() == f"{MARKDOWN}\n"


@pytest.mark.e2e
def test_an_unknown_model_is_told_while_litellm_is_imported(screen: Terminal) -> None:
    """Seed 002, criterion 6: a warning if the limit of the default is used."""
    screen.run([*PROGRAM, "chat", "-m", "openai/my-unknown"])
    screen.wait_end(">")
    screen.type("/context")
    assert "assuming a limit of" in screen.wait("128,000 tokens (<1 %)")


@pytest.mark.e2e
def test_the_prompt_is_shown_before_the_agent_is_imported(
    screen: Terminal, workspace: Path
) -> None:
    """What is imported when the prompt appears, without the thread that goes on."""
    program = (
        "import sys; from ctxlab.cli.chat import loading; from ctxlab.cli import main; "
        "loading.BackgroundLoader.start = lambda self: print("
        "sorted({'litellm', 'pandas', 'ctxlab.agent.loop'} & {*sys.modules}), file=sys.stderr); "
        "sys.exit(main())"
    )
    screen.run([PROGRAM[0], "-c", program, "chat", "-m", MODEL, "--limit", "16k"])
    screen.wait("[]")
