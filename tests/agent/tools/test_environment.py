"""Tests that commands of an agent do not inherit keys, tokens and passwords."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.agent.tools.environment import SECRET_NAMES, without_secrets
from ctxlab.agent.tools.processes import ProcessManager
from ctxlab.agent.tools.tool import call_tool
from ctxlab.agent.tools.workspace import workspace_tools
from ctxlab.errors import SpecError

SECRETS = {
    "CTXLAB_TOKEN": "of-the-server",
    "OPENAI_API_KEY": "sk-one",
    "AWS_SECRET_ACCESS_KEY": "two",
    "aws_session_token": "three",
    "PGPASSWORD": "four",
    "Smtp_Passwd": "five",
    "GOOGLE_APPLICATION_CREDENTIALS": "six",
    "GITHUB_TOKEN": "seven",
}


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, f"hidden-{value}")
    monkeypatch.setenv("HARMLESS", "shown")


@given(st.text(max_size=8), st.sampled_from(SECRET_NAMES), st.text(max_size=8))
def test_a_name_that_says_secret_is_left_out_wherever_it_says_so(
    before: str, word: str, after: str
) -> None:
    for said in (word, word.lower(), word.title()):
        name = before + said + after
        assert without_secrets({name: "x", "PATH": "/bin"}) == {"PATH": "/bin"}
        assert name in without_secrets({name: "x"}, keep=[name])


def test_a_command_of_the_agent_sees_no_secret_but_all_else(tmp_path: Path) -> None:
    with ProcessManager() as processes:
        tools = {tool.name: tool for tool in workspace_tools(tmp_path, processes)}
        said = str(call_tool(tools["run_command"], '{"command": "env"}').data)
    assert "hidden-" not in said
    assert "HARMLESS=shown" in said
    assert f"PATH={os.environ['PATH']}" in said


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="there is no /proc")
def test_no_process_between_a_command_and_this_program_has_a_secret() -> None:
    looks = "tr '\\0' '\\n' < /proc/$PPID/environ"
    with ProcessManager() as processes:
        said = processes.run(looks, timeout=60).output
    assert "HARMLESS=shown" in said
    assert "hidden-" not in said


def test_a_secret_that_is_named_is_inherited_and_no_other(tmp_path: Path) -> None:
    with ProcessManager(keep_env=["GITHUB_TOKEN", "NOT_THERE"]) as processes:
        said = processes.run("env", timeout=60).output
    assert [line for line in said.splitlines() if "hidden-" in line] == [
        "GITHUB_TOKEN=hidden-seven"
    ]


@pytest.mark.parametrize("names", ["GITHUB_TOKEN", [""], ["A=secret"], ["a\0b"]])
def test_names_that_are_none_are_refused_and_no_value_is_told(names: object) -> None:
    with pytest.raises(SpecError, match="Expected") as told:
        ProcessManager(keep_env=names)  # type: ignore[arg-type]
    assert "secret" not in str(told.value)
