"""Tests of the commands and files that ``evals/README.md`` shows."""

from __future__ import annotations

import re
import shlex
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
    github, gitlab = map(yaml.safe_load, blocks("yaml"))
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
    assert steps[-1]["with"]["path"] in commands()[0]
    assert steps[-1]["if"] == "always()"


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
