"""Tests of the examples in README and CONTRIBUTING."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from talking import talking

from ctxlab import formats, strategies
from ctxlab.errors import ReadError
from ctxlab.evaluation.tuning import SearchSpace
from ctxlab.formats import registry as table

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def test_the_quick_start_holds_exactly_two_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.split("## Quick start\n", 1)[1].split("\n## ", 1)[0]
    commands = re.findall(r"^```sh\n(.+)\n```$", section, flags=re.MULTILINE)
    assert section.count("```") == 4
    assert len(commands) == 2
    assert "ctxlab eval" in commands[0]
    assert "pytest" in commands[1]


def test_the_python_of_the_readme_runs_in_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not any((ROOT / "datasets" / "coding-agent").glob("*.jsonl")):
        pytest.skip("the bundled recordings are not there")
    monkeypatch.chdir(tmp_path)
    mpl.use("Agg")
    space: dict[str, object] = {}
    with talking("Twelve lines.") as server:
        monkeypatch.setenv("OPENAI_API_BASE", server.address)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        for page in ("README.md", "docs/live.md"):
            for code in blocks(page, "python"):
                exec(code, space)
    assert [call.messages[-1].text for call in server.calls] == ["How long is a.py?", "And b.py?"]
    assert len(space["lost"]) > 0  # type: ignore[arg-type]


def test_the_strategies_of_the_readme_parse() -> None:
    pages = [(ROOT / page).read_text(encoding="utf-8") for page in ("README.md", *PAGES)]
    console = "\n".join(
        code
        for text in pages
        for code in re.findall(r"^```console\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    )
    lines = re.findall(r"^\$ (.*)", console.replace("\\\n", " "), flags=re.MULTILINE)
    commands = [shlex.split(line) for line in lines]
    written = [(c[1], c[i + 1]) for c in commands for i, word in enumerate(c) if word == "-s"]
    assert written
    for command, strategy in {*written}:
        if command == "tune":
            assert len(SearchSpace(strategy)) > 1
        elif strategy not in ("lineup", "baselines", "metric_controls"):
            strategies.parse_strategy(strategy)


def test_the_generated_pages_are_what_the_code_says() -> None:
    space = runpy.run_path(str(ROOT / "docs" / "generate.py"))
    for name, make in space["PAGES"].items():
        page = (ROOT / "docs" / name).read_text(encoding="utf-8")
        assert page == make(), "run: python docs/generate.py"


def test_the_readme_is_read_in_three_minutes() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 1200


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", *PAGES])
def test_a_link_within_the_repository_leads_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)(?:#[\w-]+)?\)", text):
        assert ((ROOT / page).parent / target).exists(), target


def test_what_contributing_shows_is_read_and_named_as_it_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(table, "FORMATS", dict(table.FORMATS))
    strategy, reader, metric = blocks("CONTRIBUTING.md", "python")
    space: dict[str, Any] = {}
    for code in (strategy, reader, metric):
        exec(code, space)
    assert repr(space["first_lines"]()) == "first_lines()"
    assert space["images"].columns[0].unit == "pictures"
    table.register_format(space["FORMAT"])
    (tmp_path / "log").write_text('{"question": "who?", "answer": "me"}\n')
    (recording,) = formats.load(tmp_path / "log")
    assert [message.content for message in recording.messages] == ["who?", "me"]
    (tmp_path / "log").write_text('{"question": "who?", "answer": "me"}\n{"question": 1}\n')
    with pytest.raises(ReadError, match=r":2: .*'answer' is missing"):
        list(formats.load(tmp_path / "log"))


@pytest.mark.e2e
def test_a_file_and_a_line_add_a_strategy_a_format_and_a_metric(tmp_path: Path) -> None:
    """In a copy of the package, as CONTRIBUTING says; the commands then show them."""
    shutil.copytree(ROOT / "ctxlab", tmp_path / "ctxlab")
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    files = re.findall(r"^Create `(.+?)`", text, flags=re.MULTILINE)
    lines = re.findall(r"one line to `(.+?)`[^`]*`(\".+?)`", text)
    assert len(files) == len(lines) == 3
    for file, code in zip(files, blocks("CONTRIBUTING.md", "python"), strict=True):
        (tmp_path / file).write_text(code)
    for file, line in lines:
        registry = tmp_path / file
        before = registry.read_text()
        after = re.sub(r"^(_MODULES = .)$", rf"\1\n    {line},", before, flags=re.MULTILINE)
        assert len(after.splitlines()) == len(before.splitlines()) + 1
        registry.write_text(after)
    log = tmp_path / "pairs.jsonl"
    log.write_text('{"question": "who?", "answer": "me"}\n{"question": "you?", "answer": "yes"}\n')

    def run(*words: str) -> str:
        command = [sys.executable, "-m", "ctxlab", *words]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "COLUMNS": "120"}
        return subprocess.check_output(command, cwd=tmp_path, env=environment, text=True)

    assert "first_lines" in run("strategies")
    assert "pairs" in run("formats")
    assert "images" in run("metrics")
    printed = run("eval", str(log), "-s", "first_lines | panic", "-l", "1k", "--no-progress")
    assert "images" in printed.splitlines()[0]
    assert "first_lines | panic" in printed
