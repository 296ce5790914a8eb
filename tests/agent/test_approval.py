"""Tests of approval: what is asked, what is remembered, and what a refusal does."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from acting import calls
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ctxlab.agent.approval import ApprovalRequest, Approver, Decision, command_kind
from ctxlab.agent.events import event_to_dict
from ctxlab.agent.loop import Agent
from ctxlab.agent.tools.processes import ProcessManager
from ctxlab.agent.tools.result import ToolResult
from ctxlab.agent.tools.tool import Tool
from ctxlab.agent.tools.workspace import workspace_tools
from ctxlab.errors import SpecError
from ctxlab.llm import ScriptedClient
from ctxlab.messages.types import ToolCall


class User:
    """A user who gives the decisions of a list, and remembers what was asked."""

    def __init__(self, *decisions: Decision) -> None:
        self.decisions = list(decisions)
        self.asked: list[ApprovalRequest] = []

    def __call__(self, request: ApprovalRequest) -> Decision:
        self.asked.append(request)
        return self.decisions.pop(0)


def run(
    folder: Path, approver: Approver, *made: tuple[str, Mapping[str, object]]
) -> list[dict[str, object]]:
    """Run an agent that makes calls, one in each reply; return the data of all events of the turn."""
    script = [calls((name, json.dumps(arguments))) for name, arguments in made]
    with ProcessManager() as processes:
        agent = Agent(
            "gpt-4o",
            tools=workspace_tools(folder, processes),
            client=ScriptedClient(*script, "Done."),
            approver=approver,
            max_iterations=20,
        )
        return [event_to_dict(event) for event in agent.stream("Go.")]


def outcomes(events: list[dict[str, object]]) -> list[object]:
    results = [each for each in events if each["type"] == "tool_result"]
    return [each.get("error_type", "ok") for each in results]


YES, NO = Decision(True), Decision(False, reason="keep it")


def test_only_calls_that_change_something_are_asked(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    user = User(YES, YES, NO)
    events = run(
        tmp_path,
        Approver("ask", user),
        ("read_file", {"path": "a.txt"}),
        ("list_files", {}),
        ("edit_file", {"path": "a.txt", "old": "one", "new": "two"}),
        ("run_command", {"command": "echo run > made"}),
        ("write_file", {"path": "b.txt", "content": "x"}),
        ("edit_file", {"path": "a.txt", "old": "not there", "new": "x"}),
        ("run_command", {"nonsense": 1}),
    )
    assert outcomes(events) == [*["ok"] * 4, "refused", "invalid_args", "invalid_args"]
    assert (tmp_path / "a.txt").read_text() == "two\n"
    assert (tmp_path / "made").exists()
    assert not (tmp_path / "b.txt").exists()
    edit, command, write = user.asked
    assert edit.change is not None
    assert edit.change.diff().splitlines()[-2:] == ["-one", "+two"]
    assert command.command == "echo run > made"
    assert write.change is not None
    assert (write.change.before, write.change.after) == (None, "x")
    refused = next(each for each in events if each.get("error_type") == "refused")
    assert refused["error"] == "The call was not allowed: keep it. Do not try it again."
    decided = [each for each in events if each["type"] == "approval_decided"]
    assert [each["decision"] for each in decided] == ["once", "once", "no"]
    assert decided[2]["reason"] == "keep it"
    asked = [each for each in events if each["type"] == "approval_required"]
    assert asked[1] == {
        "type": "approval_required",
        "id": command.call.id,
        "name": "run_command",
        "arguments": command.call.arguments,
        "command": "echo run > made",
        "diff": None,
        "hidden": None,
        "kind": None,
        "choices": ["once", "tool", "no"],
    }


def test_the_question_comes_before_the_call_and_after_its_event(tmp_path: Path) -> None:
    made: list[str] = []

    def ask(request: ApprovalRequest) -> Decision:
        made.append("asked" if not (tmp_path / "made").exists() else "too late")
        return YES

    events = run(tmp_path, Approver("ask", ask), ("run_command", {"command": "touch made"}))
    assert made == ["asked"]
    kinds = [each["type"] for each in events]
    assert kinds[:4] == ["tool_call", "approval_required", "approval_decided", "tool_result"]


def test_what_the_user_allowed_for_good_is_not_asked_again(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1")
    user = User(Decision(True, "kind"), Decision(True, "kind"), YES, Decision(True, "tool"))
    events = run(
        tmp_path,
        Approver("ask", user),
        ("run_command", {"command": "echo one"}),
        ("run_command", {"command": "echo one two"}),
        ("edit_file", {"path": "a.txt", "old": "1", "new": "2"}),
        ("edit_file", {"path": "a.txt", "old": "2", "new": "3"}),
        ("run_command", {"command": "echo one; touch made"}),
        ("write_file", {"path": "b.txt", "content": "x"}),
        ("write_file", {"path": "c.txt", "content": "x"}),
    )
    assert outcomes(events) == ["ok"] * 7
    assert [each.call.name for each in user.asked] == [
        "run_command", "edit_file", "run_command", "write_file"
    ]  # fmt: skip


def test_modes_without_a_question(tmp_path: Path) -> None:
    call = ("run_command", {"command": "touch made"})
    for approver, outcome in (
        (Approver("auto"), "ok"),
        (Approver("read-only", User(YES)), "refused"),
        (Approver("ask", None, "nobody is here"), "refused"),
    ):
        events = run(tmp_path, approver, call)
        assert outcomes(events) == [outcome]
        assert "approval_required" not in {each["type"] for each in events}
    assert "nobody is here" in str(events)
    with pytest.raises(SpecError, match="Expected approval ask, auto, read-only, got 'maybe'"):
        Approver("maybe")


@pytest.mark.parametrize(
    "failure", [PermissionError("cannot be read"), RuntimeError("a bug")], ids=["file", "bug"]
)
def test_a_write_whose_diff_cannot_be_shown_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    def fail(*_: object) -> str:
        raise failure

    monkeypatch.setattr("ctxlab.agent.tools.changes._read_text", fail)
    user = User(NO)
    events = run(tmp_path, Approver("ask", user), ("write_file", {"path": "a", "content": "x"}))
    assert outcomes(events) == ["refused"]
    assert len(user.asked) == 1
    assert not (tmp_path / "a").exists()


def test_a_file_that_is_no_text_is_asked_as_one_that_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"\xff\x00")
    user = User(NO)
    events = run(tmp_path, Approver("ask", user), ("write_file", {"path": "a.bin", "content": "x"}))
    asked = next(each for each in events if each["type"] == "approval_required")
    assert asked["hidden"] == "a.bin is not UTF-8 text"
    assert str(asked["diff"]).startswith("--- a.bin\n+++ a.bin\n")
    assert (tmp_path / "a.bin").read_bytes() == b"\xff\x00"


def test_a_call_that_cannot_make_its_change_is_not_made(tmp_path: Path) -> None:
    made = []
    tool = Tool(
        "edit",
        "",
        {},
        lambda: made.append("called"),
        preview=lambda: ToolResult(ok=False, error="not there", error_type="invalid_args"),
    )
    client = ScriptedClient(calls(("edit", "{}")), "Done.")
    agent = Agent("gpt-4o", tools=[tool], client=client, approver=Approver("ask", User()))
    agent.run("Go.")
    assert made == []
    assert "not there" in client.requests[-1].messages[-1].text


def test_a_file_that_changes_while_the_user_is_asked_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")

    def ask(request: ApprovalRequest) -> Decision:
        (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
        return YES

    for name, arguments in (
        ("edit_file", {"path": "a.txt", "old": "one", "new": "1"}),
        ("write_file", {"path": "a.txt", "content": "1\n"}),
    ):
        (tmp_path / "a.txt").write_text("one\ntwo\n")
        events = run(tmp_path, Approver("ask", ask), (name, arguments))
        assert outcomes(events) == ["execution_error"]
        assert "a.txt changed while the user was asked" in str(events)
        assert (tmp_path / "a.txt").read_text() == "one\ntwo\nthree\n"


def test_refusals_do_not_block_a_tool(tmp_path: Path) -> None:
    user = User(*[NO] * 4, YES)
    made: list[tuple[str, Mapping[str, object]]] = [("run_command", {"command": "touch made"})] * 5
    events = run(tmp_path, Approver("ask", user), *made)
    assert outcomes(events) == [*["refused"] * 4, "ok"]


def test_only_the_command_of_a_shell_tool_has_a_kind() -> None:
    call = ToolCall("c1", "run", '{"command": "git diff", "host": "prod"}')
    other = Tool("run", "", {}, lambda command, host: "done")
    request = Approver("ask").request(other, call)
    assert isinstance(request, ApprovalRequest)
    assert (request.command, request.kind) == (None, None)


WORDS = st.lists(
    st.text("abgit -./='\"*", min_size=1, max_size=6)
    | st.sampled_from(["git", "ls", "diff", "difference", "sudo", "-c", "rev-parse", "gitk"]),
    min_size=1,
    max_size=4,
)
OPERATORS = st.sampled_from(
    [
        ";",
        "&&",
        "|",
        "`id`",
        "$(id)",
        "> a",
        "< a",
        "\n",
        "&",
        "$HOME",
        "\\\n",
        "\r",
        "\u202e",
        "\x1b",
    ]
)


@given(WORDS, WORDS, OPERATORS)
def test_a_remembered_kind_never_allows_an_operator_or_words_that_only_begin_alike(
    words: list[str], others: list[str], operator: str
) -> None:
    tool = Tool("sh", "", {}, lambda command: "done", command_argument="command")

    def call(command: str) -> ToolCall:
        return ToolCall("c1", "sh", json.dumps({"command": command}))

    approver = Approver("ask", lambda request: Decision(True, "kind"))
    command, other = " ".join(words), " ".join(others)
    first = approver.request(tool, call(command))
    assert isinstance(first, ApprovalRequest)
    approver.decide(first)
    assert approver.request(tool, call(f"{command} {operator} {other}")) is not None
    if first.kind is None:
        assert approver.request(tool, call(command)) is not None
        return
    assert approver.request(tool, call(f"{first.kind}x")) is not None
    if approver.request(tool, call(other)) is None:  # it is allowed without a question
        remembered = first.kind.split()
        assert shlex.split(other)[: len(remembered)] == remembered


PIECES = st.sampled_from(
    ["git", "ls", "diff", "rev-parse", "-c", " ", "\t", "'", '"', "#", "=", "*"]
)
ODD = st.text("ab []{}!~^%@,:?#'\"=*\t\x0b\x85\u00a0", max_size=3)
UNSAFE = st.text(";&|$`()<>\\\n\r", max_size=2)


@given(
    st.sampled_from(["git", "ls", "a", "./a", "'git'", "gi''t"]),
    st.lists(PIECES | ODD | UNSAFE, max_size=5).map("".join),
)
@settings(deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_a_shell_runs_only_the_program_and_subcommand_of_the_kind(first: str, rest: str) -> None:
    command = first + rest
    kind = command_kind(command)
    assume(kind is not None)
    done = subprocess.run(
        ["/bin/sh", "-xc", command],
        env={"PATH": "/nonexistent", "PS4": "ran: "},
        cwd="/proc" if Path("/proc").is_dir() else "/dev",  # nothing can be written there
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    ran = [
        line.removeprefix("ran: ") for line in done.stderr.split("\n") if line.startswith("ran: ")
    ]
    assert len(ran) <= 1  # 0 if the command has a syntax error
    assert all(f"{each} ".startswith(f"{kind} ") for each in ran)


@pytest.mark.parametrize(
    ("allowed", "other"),
    [
        ("git diff", "git difftool -x reboot"),
        ("git diff", "git -c core.pager=reboot diff"),
        ("git rev-parse HEAD", "git -c alias.x=!reboot x"),
        ("git rev-parse HEAD", "git cherry-pick x"),
        ("ls", "lsof"),
        ("ls -la", "ls-R"),
        ("pytest", "pytest-watch"),
        ("./check", "check"),
        ("echo a", "echo\u00a0a"),
    ],
)
def test_a_kind_does_not_allow_another_program_or_subcommand(allowed: str, other: str) -> None:
    kind = command_kind(allowed)
    assert kind is not None
    assert command_kind(other) != kind


@pytest.mark.parametrize(
    "command",
    [
        *(
            "sudo ls",
            "python -m a",
            "python3.12 a.py",
            "sh -c ls",
            "env A=1 ls",
            "A=1 ls",
            "xargs rm",
        ),
        *("./env ls", "'", "timeout 5 ls", "nohup ls", "command ls", ". a", "npm test", "uv run a"),
        *("git -C .. diff", "git --version", "git config a b", "git rebase -x reboot", "cargo run"),
        *(
            "rm -rf a",
            "curl -d @a b",
            "g?t diff",
            "{ls,-l}",
            "~/ls",
            "! ls",
            "ls\x0b-l",
            "'git diff' x",
        ),
    ],
)
def test_commands_that_do_what_their_arguments_say_have_no_kind(command: str) -> None:
    assert command_kind(command) is None


def test_an_interrupted_question_cancels_the_turn_with_a_valid_conversation(tmp_path: Path) -> None:
    def ask(request: ApprovalRequest) -> Decision:
        raise KeyboardInterrupt

    call = calls(("run_command", '{"command": "touch made"}'))
    client = ScriptedClient(call, "Done.", "Done.")
    with ProcessManager() as processes:
        agent = Agent(
            "gpt-4o",
            tools=workspace_tools(tmp_path, processes),
            client=client,
            approver=Approver("ask", ask),
        )
        with pytest.raises(KeyboardInterrupt):
            agent.run("Go.")
        assert agent.run("And now?").text == "Done."
    assert not (tmp_path / "made").exists()
    assert [m.role for m in client.requests[-1].messages] == ["user", "assistant", "tool", "user"]


def test_the_library_asks_nobody_unless_it_is_told(tmp_path: Path) -> None:
    with ProcessManager() as processes:
        agent = Agent("gpt-4o", tools=workspace_tools(tmp_path, processes))
    assert agent.approver is None
    call = ToolCall("c1", "list_files", "{}")
    assert Approver("ask").request(agent.tools["list_files"], call) is None
