"""Tests of the commands and files that ``evals/README.md`` shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from ctxlab.cli import app
from ctxlab.evaluation.gate.config import read_gate_config

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "evals" / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)


def commands() -> list[str]:
    """Return all ctxlab commands in the workflows of the page."""
    github, _, gitlab = map(yaml.safe_load, blocks("yaml"))
    steps = [step["run"] for step in github["jobs"]["gate"]["steps"] if "run" in step]
    return [line for line in (*steps, *gitlab["gate"]["script"]) if line.startswith("ctxlab")]


def test_the_commands_of_the_workflows_exist() -> None:
    known: Any = typer.main.get_command(app)
    assert len(commands()) == 2
    for line in commands():
        _, name, *arguments = shlex.split(line)
        command = known.commands[name]
        with command.make_context(name, arguments) as context:  # raises for what it does not know
            assert str(context.params["file"]) == "evals/budgets.toml"


def test_the_workflow_runs_the_gate_on_pull_requests_and_keeps_its_report() -> None:
    github = yaml.safe_load(blocks("yaml")[0])
    steps = github["jobs"]["gate"]["steps"]
    assert github[True] == ["pull_request"]  # YAML reads `on` so
    assert all(("uses" in step) != ("run" in step) for step in steps)
    files = steps[-1]["with"]["path"].split()
    assert files == ["gate.xml", "gate.md"]
    assert all(file in commands()[0] for file in files)
    assert steps[-1]["if"] == steps[-2]["if"] == "always()"
    assert "pull-requests" not in github["permissions"]


GH = """#!/bin/sh
printf '%s\\n' "$*" >> "$LOG"
case "$*" in
    "pr view "*) echo 7 ;;
    *--paginate*) printf "$COMMENTS" ;;
    *body*) cp comment.md posted.md ;;
esac
"""
"stand-in for GitHub's program: it writes its arguments to a file and answers the two questions"


@pytest.mark.parametrize(
    ("own", "comments", "asked", "wrote"),
    [
        ("true", "", "pr view fix --json number", "pr comment 7 --body-file comment.md"),
        ("false", "11\\n12\\n", "pr view eve:fix --json number", "--method PATCH .*comments/12 "),
    ],
)
def test_the_second_workflow_posts_one_comment_and_then_replaces_it(
    tmp_path: Path, own: str, comments: str, asked: str, wrote: str
) -> None:
    workflow = yaml.safe_load(blocks("yaml")[1])
    first = yaml.safe_load(blocks("yaml")[0])
    assert workflow[True]["workflow_run"]["workflows"] == [first["name"]]
    steps = workflow["jobs"]["comment"]["steps"]
    assert not any("checkout" in step.get("uses", "") for step in steps)  # runs no code of a fork
    (script,) = (step["run"] for step in steps if "run" in step)
    assert "${{" not in script  # names of branches reach the shell only as variables
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "gh").write_text(GH)
    (tmp_path / "bin" / "gh").chmod(0o755)
    (tmp_path / "gate").mkdir()
    (tmp_path / "gate" / "gate.md").write_text("| a |\n")
    names = {"OWN": own, "OWNER": "eve", "BRANCH": "fix", "GH_REPO": "o/r", "COMMENTS": comments}
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    env = {**names, "PATH": path, "LOG": str(tmp_path / "log")}
    subprocess.run(["bash", "-eo", "pipefail", "-c", script], cwd=tmp_path, env=env, check=True)
    view, listed, last = (tmp_path / "log").read_text().splitlines()
    assert view.startswith(asked)
    assert "repos/o/r/issues/7/comments" in listed
    assert re.search(wrote, last)
    assert (tmp_path / "posted.md").read_text() == "<!-- ctxlab gate -->\n| a |\n"


def test_the_budgets_of_the_page_can_be_read(tmp_path: Path) -> None:
    (text,) = blocks("toml")
    (tmp_path / "budgets.toml").write_text(text, encoding="utf-8")
    (tmp_path / "logs.toml").write_text('data = ["logs"]\nlimits = [8000]\n')
    (experiment,) = read_gate_config(tmp_path / "budgets.toml").experiments
    bounds = {(b.kind, b.score.name): b.value for b in experiment.budgets[0].bounds}
    assert bounds[("max", "tokens_mean")] == 6000
    assert len(bounds) == 6


def test_every_key_of_a_file_of_budgets_stands_on_the_page() -> None:
    from ctxlab.evaluation.gate import config as budgets

    keys = {*budgets._FILE_KEYS, *budgets._EXPERIMENT_KEYS, *budgets._BUDGET_KEYS}
    table = PAGE.partition("| key |")[2].partition("\n\n")[0]
    assert keys == set(re.findall(r"`(\w+)`", re.sub(r"\|[^|]*\|\n", "|\n", table)))


@pytest.mark.evals
def test_the_tests_of_the_page_pass(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not list((ROOT / "datasets" / "support-desk").glob("*.jsonl")):
        pytest.skip("the bundled data sets are not built: python -m datasets.make")
    from importlib.metadata import entry_points

    here = any(each.value == "ctxlab.pytest_plugin" for each in entry_points(group="pytest11"))
    options = () if here else ("-p", "ctxlab.pytest_plugin")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makepyfile(*blocks("python"))
    result = pytester.runpytest_subprocess("--strict-markers", "--ctxlab-update", *options)
    result.assert_outcomes(passed=2)


def test_links_within_the_repository_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", PAGE):
        assert (ROOT / "evals" / target).exists(), target
