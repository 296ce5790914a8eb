"""Settings of agents: an option holds before a session, the environment, the file and the default."""

from __future__ import annotations

import json
import tomllib
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.agent import AgentSession
from ctxlab.cli.agent_options import AgentOptions
from ctxlab.cli.app import main
from ctxlab.cli.settings import SETTINGS, env_var, resolve_settings, settings_template
from ctxlab.errors import SpecError
from ctxlab.llm import ScriptedClient
from ctxlab.sessions.sqlite.store import SqliteStore
from ctxlab.strategies.base import models_used


@pytest.fixture(autouse=True)
def settings_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let ``CTXLAB_CONFIG`` name an empty file, and unset the variables of all settings."""
    for name in SETTINGS:
        monkeypatch.delenv(env_var(name), raising=False)
    path = tmp_path / "config.toml"
    path.touch()
    monkeypatch.setenv("CTXLAB_CONFIG", str(path))
    return path


def test_the_first_source_that_is_set_holds(
    settings_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def used(**sources: Any) -> tuple[Any, str]:
        return resolve_settings(**sources)["model"]

    option, session = {"model": "a"}, {"model": "b"}
    assert used() == (None, "default")
    settings_file.write_text('model = "d"\nmax_iterations = 20\n')
    assert used() == ("d", str(settings_file))
    monkeypatch.setenv("CTXLAB_MODEL", "c")
    assert used() == ("c", "CTXLAB_MODEL")
    assert used(session=session) == ("b", "session")
    assert used(options=option, session=session) == ("a", "--model")
    assert used(options={"model": None}, session={"model": None}) == ("c", "CTXLAB_MODEL")
    assert resolve_settings()["max_iterations"].value == 20


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("modle = 'x'", "unknown setting 'modle'.*model"),
        ("model = \nretries = 1", r"expected TOML, got .*line 1"),
        ("model = ['x']", "model: expected a text in quotes"),
        ("retries = -1", "retries: expected a whole number of 0 or more, got -1"),
        ("retries = 1.5", "retries: expected a whole number"),
        ("max_iterations = 0", "max_iterations: expected a whole number of 1 or more"),
        ("retry_delay = 'soon'", "retry_delay: expected a number"),
        ("retry_delay = nan", "retry_delay: expected a number"),
        ("retries = true", "retries: expected a whole number"),
    ],
)
def test_a_fault_in_the_file_is_told_with_the_file(
    text: str, complaint: str, settings_file: Path
) -> None:
    settings_file.write_text(text)
    with pytest.raises(SpecError, match=complaint) as caught:
        resolve_settings()
    assert str(settings_file) in str(caught.value)


def test_a_fault_in_the_environment_is_told_with_the_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CTXLAB_RETRIES", "many")
    with pytest.raises(SpecError, match="CTXLAB_RETRIES: expected a whole number of 0 or more"):
        resolve_settings()
    monkeypatch.setenv("CTXLAB_CONFIG", str(tmp_path / "none.toml"))
    with pytest.raises(SpecError, match="CTXLAB_CONFIG: expected an existing file"):
        resolve_settings()


@given(st.sampled_from(sorted(SETTINGS)), st.integers(1, 10**6))
def test_the_environment_and_the_file_mean_the_same(name: str, number: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(env_var(name), str(number))
        assert resolve_settings()[name].value == SETTINGS[name].kind(number)


def test_the_template_is_a_valid_file_with_every_setting(settings_file: Path) -> None:
    shown = settings_template()
    assert tomllib.loads(shown) == {}
    lines = [line.removeprefix("# ") for line in shown.splitlines() if " = " in line]
    settings_file.write_text("\n".join(lines))
    assert {each.source for each in resolve_settings().values()} == {str(settings_file)}


def test_config_shows_values_and_sources(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CTXLAB_SUMMARY_MODEL", "gpt-5-nano")
    assert main(["config", "--json"]) == 0
    settings = json.loads(capsys.readouterr().out)["settings"]
    assert settings["summary_model"] == {"value": "gpt-5-nano", "source": "CTXLAB_SUMMARY_MODEL"}
    assert main(["config"]) == 0
    (line,) = (row for row in capsys.readouterr().out.splitlines() if row.startswith("summary"))
    assert line.split()[1:3] == ["gpt-5-nano", "CTXLAB_SUMMARY_MODEL"]


def test_init_writes_a_private_file_and_replaces_none(
    settings_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "--init"]) == 2
    assert "expected no file" in capsys.readouterr().err
    settings_file.unlink()
    assert main(["config", "--init"]) == 0
    assert settings_file.read_text() == settings_template()
    assert settings_file.stat().st_mode & 0o077 == 0


def options(**given: Any) -> AgentOptions:
    """Return the options of a command line on which only the given options are named."""
    return AgentOptions(**{field.name: given.get(field.name) for field in fields(AgentOptions)})


def test_a_resumed_session_keeps_its_limit_model_and_strategy(tmp_path: Path) -> None:
    given = options(model="gpt-4o", limit="16k", strategy="tool_stubs() | panic()")
    agent = given.resolve().make_agent(tmp_path, ScriptedClient([]))
    with closing(SqliteStore(tmp_path)) as store:
        started = AgentSession.start(store, agent, meta=given.resolve().stored)
        kept = options().resolve(started.session)
    resumed = kept.make_agent(tmp_path, ScriptedClient([]))
    assert resumed.model == "gpt-4o"
    assert repr(resumed.manager.strategy) == repr(agent.manager.strategy)
    assert resumed.manager.budget == agent.manager.budget


@pytest.mark.parametrize(
    ("stored", "own", "option", "expected"),
    [
        ("auto", None, None, "ask"),
        ("auto", "read-only", None, "read-only"),
        ("ask", "read-only", None, "read-only"),
        ("ask", "auto", None, "ask"),
        ("read-only", None, None, "read-only"),
        ("read-only", "auto", None, "read-only"),
        ("read-only", None, "auto", "auto"),
        (["auto"], None, None, "ask"),
    ],
)
def test_a_session_can_only_make_approval_stricter(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    stored: object,
    own: str | None,
    option: str | None,
    expected: str,
) -> None:
    monkeypatch.delenv("CTXLAB_APPROVAL", raising=False)
    if own is not None:
        monkeypatch.setenv("CTXLAB_APPROVAL", own)
    meta = {"settings": {"approval": stored, "system_prompt": "of a stranger"}}
    with closing(SqliteStore(tmp_path)) as store:
        settings = options(approval=option).resolve(store.create(meta=meta))
    assert settings.values["approval"] == expected
    assert settings.values["system_prompt"] is None


def test_the_summary_model_also_writes_the_rolling_summary_of_the_agent(tmp_path: Path) -> None:
    given = options(model="gpt-4o", summary_model="gpt-4o-mini")
    agent = given.resolve().make_agent(tmp_path, ScriptedClient([]))
    assert models_used(agent.manager.strategy) == ("gpt-4o-mini",)
