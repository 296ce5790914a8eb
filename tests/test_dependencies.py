"""Tests of the direct dependencies: each has its line in the documentation, and is used."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]
SCRIPT = runpy.run_path(str(ROOT / "docs" / "dependencies.py"))
NAMES = {
    "backports.zstd": "backports",
    "markdown-it-py": "markdown_it",
    "pillow": "PIL",
    "typing-extensions": "typing_extensions",
}
"""Names by which packages are imported, where they are not the names of the packages."""


def test_every_direct_dependency_has_a_line_in_the_page_of_dependencies() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\S+)` \|.*\| (\w+) \|$", page, re.MULTILINE)
    known = SCRIPT["list_dependencies"]()
    assert sorted(listed) == sorted(known.items()), "run: python docs/dependencies.py"
    assert set(SCRIPT["PURPOSES"]) == set(known)


def test_every_dependency_of_the_core_is_imported() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in ROOT.glob("ctxlab/**/*.py"))
    used = set(re.findall(r"^\s*(?:import|from) (\w+)", code, re.MULTILINE))
    used |= set(re.findall(r"import_module\(\"(\w+)", code))
    core = [name for name, where in SCRIPT["list_dependencies"]().items() if where == "core"]
    unused = {name for name in core if NAMES.get(name, name.replace("-", "_")) not in used}
    assert unused == {"ipywidgets"}  # rich imports it in notebooks
