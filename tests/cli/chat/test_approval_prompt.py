"""Tests of the question on a terminal: everything is shown, and nothing that hides or deceives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxlab._utils.text import show_hidden
from ctxlab.agent.approval import ApprovalRequest, Approver, Decision
from ctxlab.agent.tools.processes import ProcessManager
from ctxlab.agent.tools.tool import Tool
from ctxlab.agent.tools.workspace import workspace_tools
from ctxlab.cli.chat.approval_prompt import ApprovalPrompt
from ctxlab.messages.types import ToolCall


@pytest.fixture
def tools(tmp_path: Path) -> Iterator[dict[str, Tool]]:
    with ProcessManager() as processes:
        yield {tool.name: tool for tool in workspace_tools(tmp_path, processes)}


def request(tool: Tool, **arguments: object) -> ApprovalRequest:
    made = Approver("ask").request(tool, ToolCall("c1", tool.name, json.dumps(arguments)))
    assert isinstance(made, ApprovalRequest)
    return made


def shown(capsys: pytest.CaptureFixture[str], asked: ApprovalRequest) -> str:
    """Return what the user sees before the question."""
    ApprovalPrompt(lambda question: "n").decide(asked)
    return capsys.readouterr().err


def test_each_answer_is_a_decision(
    tools: dict[str, Tool], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = request(tools["run_command"], command="git diff --stat")
    questions: list[str] = []

    def decide(*answers: str) -> Decision:
        given = iter(answers)

        def ask(question: str) -> str:
            questions.append(question)
            return next(given)

        return ApprovalPrompt(ask).decide(asked)

    assert decide("y") == Decision(True)
    assert questions == [
        'Allow? [y] once  [a] always for "git diff"  [t] always run_command  [n] no  '
        "[e] no, and say why: "
    ]
    assert decide("a") == Decision(True, "kind")
    assert decide("T") == Decision(True, "tool")
    assert decide("n") == decide("") == Decision(False)
    assert decide("e", " too early ") == Decision(False, reason="too early")
    assert decide("yes please") == Decision(False, reason="yes please")
    assert decide("?", "y") == Decision(True)
    asked = request(tools["run_command"], command="git diff; reboot")
    assert decide("a", "n") == Decision(False)  # it is not offered
    assert "always for" not in questions[-1]


def test_the_end_of_the_input_refuses_and_ctrl_c_goes_on(tools: dict[str, Tool]) -> None:
    asked = request(tools["run_command"], command="ls")

    def raising(error: type[BaseException]) -> ApprovalPrompt:
        def ask(question: str) -> str:
            raise error

        return ApprovalPrompt(ask)

    assert raising(EOFError).decide(asked) == Decision(False)
    with pytest.raises(KeyboardInterrupt):
        raising(KeyboardInterrupt).decide(asked)


HOSTILE = (
    "ls \x1b]0;title\x07\x1b[2J\x1b[8m \u202ehs.x\u2066 a\u200bb\r\x08\x9b31m\u00a0\u2028"
    "\U000e0041\ufe0f"
)


@pytest.mark.parametrize("name", ["run_command", "write_file", "path", "other"])
def test_hidden_and_controlling_characters_are_shown_by_their_numbers(
    tools: dict[str, Tool], capsys: pytest.CaptureFixture[str], name: str
) -> None:
    if name == "run_command":
        asked = request(tools[name], command=HOSTILE)
    elif name == "other":
        asked = request(Tool("other", "", {}, lambda text: None), text=HOSTILE)
    elif name == "path":
        asked = request(tools["write_file"], path=HOSTILE, content="one\n")
    else:
        asked = request(tools[name], path="a.txt", content=f"one\n{HOSTILE}\n")
    err = shown(capsys, asked)
    assert all(each.isprintable() or each == "\n" for each in err)
    if name == "other":
        return  # JSON has escapes of its own for control characters
    for code in ("1B", "7", "202E", "2066", "200B", "D", "8", "9B", "A0", "2028", "E0041", "FE0F"):
        assert f"⟨U+{int(code, 16):04X}⟩" in err


@given(st.text())
def test_a_shown_text_contains_only_what_can_be_seen(text: str) -> None:
    seen = show_hidden(text)
    assert all(each.isprintable() or each in "\n\t" for each in seen)
    if text.isascii() and text.isprintable():
        assert seen == text


def test_a_name_cannot_pretend_to_be_a_line_of_the_question(
    tools: dict[str, Tool], capsys: pytest.CaptureFixture[str]
) -> None:
    path = "a.txt\nThe agent wants to run:\n    ls"
    asked = request(tools["write_file"], path=path, content="one\n")
    lines = shown(capsys, asked).split("\n")
    assert sum(line.startswith("The agent wants to") for line in lines) == 1
    assert (
        lines[0] == "The agent wants to create a.txt⟨U+000A⟩The agent wants to run:⟨U+000A⟩    ls:"
    )
    assert not any(line.startswith("    ls") for line in lines)


def test_a_command_is_shown_whole_with_its_number_of_lines(
    tools: dict[str, Tool], capsys: pytest.CaptureFixture[str]
) -> None:
    command = "reboot " + "x" * 5_000 + "\n" * 60 + "ls"
    err = shown(capsys, request(tools["run_command"], command=command, timeout=3))
    assert 'The agent wants to run with {"timeout":3.0} (61 lines):\n' in err
    assert "reboot " + "x" * 5_000 in err
    assert err.endswith("\n    ls\n")


def test_a_write_is_shown_as_a_diff(
    tools: dict[str, Tool], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo\r\n")
    (tmp_path / "a.bin").write_bytes(b"\xff")
    edit = request(tools["edit_file"], path="a.txt", old="two", new="three")
    assert shown(capsys, edit) == (
        "The agent wants to change a.txt:\n--- a.txt\n+++ a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n"
    )
    mixed = request(tools["write_file"], path="a.txt", content="one\r\ntwo\n")
    assert "-two⟨U+000D⟩\n+two\n" in shown(capsys, mixed)
    new = request(tools["write_file"], path="b.txt", content="one")
    assert shown(capsys, new) == (
        "The agent wants to create b.txt:\n--- /dev/null\n+++ b.txt\n@@ -0,0 +1 @@\n+one\n"
        "\\ No newline at end of file\n"
    )
    binary = request(tools["write_file"], path="a.bin", content="one\n")
    assert shown(capsys, binary).startswith(
        "The agent wants to replace a.bin; its text is not shown: a.bin is not UTF-8 text:\n"
    )
