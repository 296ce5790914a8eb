"""Tests that notebooks run offline from top to bottom and have small committed outputs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LARGEST = 200_000
"bytes of a notebook with its pictures"

SECRET = re.compile(r"_API_KEY$|_TOKEN$|_SECRET$", re.IGNORECASE)
NOWHERE = "http://127.0.0.1:9"

COUNTS = """
import nbclient, nbformat, sys
cell = nbformat.v4.new_code_cell(sys.argv[1])
notebook = nbformat.v4.new_notebook(cells=[cell])
shown = []
client = nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3")
handle = client.process_message
def watch(message, *rest):
    shown.append(str(message["content"].get("data", "")))
    return handle(message, *rest)
client.process_message = watch
client.execute()
print(any("counting" in each for each in shown), [dict(o.data) for o in cell.outputs])
"""
"code that runs a cell and prints whether it showed progress, and what is left of its outputs"

COUNTING = """
import time
from ctxlab._utils.progress import track
for _ in track(range(4), "counting"):
    time.sleep(0.3)
"""

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells(path: Path) -> list[dict[str, Any]]:
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in found if cell["cell_type"] == "code"]


def outputs(path: Path) -> list[dict[str, Any]]:
    return [output for cell in cells(path) for output in cell["outputs"]]


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.notebooks
@each_notebook
def test_it_runs_offline_without_a_key(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("nbclient", "ipykernel", "nbformat"):
        pytest.importorskip(module, reason=f"{module} is not installed: [notebooks]")
    for name in list(os.environ):
        if SECRET.search(name):
            monkeypatch.delenv(name)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, NOWHERE)  # whoever asks the network finds nobody there
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    # A copy of its own, so that a run changes nothing in the repository; and a process of its own, for
    # the client leaves event loops open.
    copy = shutil.copy(path, tmp_path)
    command = [sys.executable, "-P", str(ROOT / "notebooks" / "execute.py"), "--check", copy]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.notebooks
def test_progress_is_shown_and_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("nbclient", "ipykernel", "nbformat"):
        pytest.importorskip(module, reason=f"{module} is not installed: [notebooks]")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-c", COUNTS, COUNTING]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.strip() == "True [{}]", done.stderr[-4000:]


@each_notebook
def test_it_is_numbered(path: Path) -> None:
    assert re.fullmatch(r"\d\d_[a-z0-9_]+", path.stem)


def text(path: Path) -> str:
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n".join("".join(c["source"]) for c in found if c["cell_type"] == "markdown")


@each_notebook
def test_its_links_within_the_repository_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text(path)):
        assert (path.parent / target).exists(), target


def test_the_first_one_leads_to_all_others() -> None:
    first, *others = NOTEBOOKS
    assert all(f"({path.name})" in text(first) for path in others)


@each_notebook
def test_it_begins_with_a_title_and_has_a_picture_or_a_table(path: Path) -> None:
    assert re.match(r"# \w", text(path))
    kinds = {kind for output in outputs(path) for kind in output.get("data", {})}
    assert kinds & {"text/html", "image/png"}


@each_notebook
def test_it_is_committed_as_it_ran_from_top_to_bottom(path: Path) -> None:
    counts = [cell["execution_count"] for cell in cells(path)]
    assert counts == list(range(1, len(counts) + 1))
    assert outputs(path)


@each_notebook
def test_it_keeps_no_timings(path: Path) -> None:
    assert not any("execution" in cell["metadata"] for cell in cells(path))


@each_notebook
def test_no_output_is_an_error_or_a_warning(path: Path) -> None:
    for output in outputs(path):
        assert output["output_type"] != "error"
        assert output.get("name") != "stderr", output["text"]


@each_notebook
def test_no_output_is_a_widget(path: Path) -> None:
    # A saved notebook has no kernel that could show it.
    assert not any("widget" in kind for output in outputs(path) for kind in output.get("data", {}))


@each_notebook
def test_no_output_names_a_place_on_a_machine(path: Path) -> None:
    for output in outputs(path):
        output.get("data", {}).pop("image/png", None)
        assert not re.search(r"/(home|Users|root|tmp|work|private)/|[A-Z]:\\\\", json.dumps(output))


@each_notebook
def test_it_is_small(path: Path) -> None:
    assert path.stat().st_size < LARGEST
