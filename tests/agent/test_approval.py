"""Tests of approval: what is asked, what is remembered, and what a refusal does."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from acting import calls
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.agent.approval import ApprovalRequest, Approver, Decision, command_kind
from ctxlab.agent.events import event_to_dict
from ctxlab.agent.loop import Agent
from ctxlab.agent.tools.processes import ProcessManager
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
    folder: Path, approver: Approver, *made: tuple[str, dict[str, object]]
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
    assert refused["error"] == "The user did not allow this call: keep it"
    asked = [each for each in events if each["type"] == "approval_required"]
    assert asked[1] == {
        "type": "approval_required",
        "id": command.call.id,
        "name": "run_command",
        "arguments": command.call.arguments,
        "command": "echo run > made",
        "diff": None,
        "kind": None,
    }


def test_the_question_comes_before_the_call_and_after_its_event(tmp_path: Path) -> None:
    made: list[str] = []

    def ask(request: ApprovalRequest) -> Decision:
        made.append("asked" if not (tmp_path / "made").exists() else "too late")
        return YES

    events = run(tmp_path, Approver("ask", ask), ("run_command", {"command": "touch made"}))
    assert made == ["asked"]
    kinds = [each["type"] for each in events]
    assert kinds[:3] == ["tool_call", "approval_required", "tool_result"]


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
    assert "nobody is here" in str(events)
    with pytest.raises(SpecError, match="Expected approval ask, auto, read-only, got 'maybe'"):
        Approver("maybe")


WORDS = st.lists(
    st.text("abgit -./=", min_size=1, max_size=6) | st.sampled_from(["git", "ls", "diff", "sudo"]),
    min_size=1,
    max_size=4,
)
OPERATORS = st.sampled_from(
    [";", "&&", "|", "`id`", "$(id)", "> a", "< a", "\n", "&", "$HOME", "\\\n"]
)


@given(WORDS, WORDS, OPERATORS)
def test_a_kind_never_covers_operators_or_words_that_only_begin_alike(
    words: list[str], others: list[str], operator: str
) -> None:
    command, other = " ".join(words), " ".join(others)
    kind = command_kind(command)
    assert command_kind(f"{command} {operator} {other}") is None
    if kind is not None:
        assert shlex.split(command)[: len(kind.split())] == kind.split()
        if command_kind(other) == kind:
            assert shlex.split(other)[: len(kind.split())] == kind.split()


@pytest.mark.parametrize(
    "command",
    ["sudo ls", "python -m a", "sh -c ls", "env A=1 ls", "A=1 ls", "xargs rm", "./env ls", "'"],
)
def test_programs_that_run_their_arguments_have_no_kind(command: str) -> None:
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
