"""Tests of imports between packages, of ``__all__``, and of side effects of an import."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

import ctxlab

ROOT = Path(ctxlab.__file__).parent
FILES = sorted(p for p in ROOT.rglob("*.py") if "bundled" not in p.relative_to(ROOT).parts)
# The code of other packages is imported by these, and not all of it need be installed.
FOREIGN = {
    p
    for p in FILES
    if p.parent.name in ("upstream", "adapters") and p.stem not in ("__init__", "base")
}


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_packages_import_downward_only() -> None:
    """The contract is in pyproject.toml; lazy imports and those for types alone count."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"]
    clone = Path(__file__).parents[1]  # the package may be installed elsewhere
    found = subprocess.run(command, cwd=clone, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout[found.stdout.find("Contracts") :]


def imports(path: Path) -> Iterator[str]:
    """Yield the modules of ctxlab that a file imports at import time."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            below = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [n if (ROOT.parent / (n.replace(".", "/") + ".py")).is_file() else node.module
                     for n in below]  # fmt: skip
        else:
            continue
        yield from (name for name in names if name.split(".")[0] == "ctxlab")


def packages(name: str) -> set[str]:
    """Return a module and its parent packages: ``ctxlab.llm.cached`` and ``ctxlab.llm``."""
    parts = name.split(".")
    return {".".join(parts[:n]) for n in range(2, len(parts) + 1)}


@pytest.mark.e2e
def test_no_two_files_import_each_other() -> None:
    graph = {
        name_of(path): set().union(*map(packages, imports(path))) - packages(name_of(path))
        for path in FILES
    }
    TopologicalSorter(graph).prepare()


@pytest.mark.e2e
def test_every_module_has_a_docstring_and_only_packages_list_their_names() -> None:
    for path in set(FILES) - FOREIGN:
        module = import_module(name_of(path))
        listed = getattr(module, "__all__", [])
        assert module.__doc__, path
        assert not listed or path.name == "__init__.py", path
        assert len(set(listed)) == len(listed), path
        assert set(listed) <= set(dir(module)), path


def test_everything_that_the_package_offers_is_found() -> None:
    offered = ast.parse((ROOT / "__init__.pyi").read_text(encoding="utf-8"))
    typed = {
        alias.asname or alias.name
        for node in offered.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed == set(ctxlab.__all__)
    assert all(getattr(ctxlab, name) is not None for name in ctxlab.__all__)
    assert set(ctxlab.__all__) <= set(dir(ctxlab))
    assert (ROOT / "py.typed").is_file()


LOOKS = """
import socket, sys
def refuse(*_, **__): raise AssertionError("a socket was opened")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
before = set(sys.modules)
{imported}
print(*sorted(set(sys.modules) - before))
"""


def loaded_by(imported: str) -> set[str]:
    """Return the modules that a new interpreter loads for an import, which must not print."""
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", LOOKS.format(imported=imported)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert run.stderr == ""
    assert run.stdout.count("\n") == 1
    return set(run.stdout.split())


def test_importing_the_package_loads_nothing_heavy_opens_no_socket_and_prints_nothing() -> None:
    loaded = loaded_by("import ctxlab")
    assert not loaded & {"litellm", "matplotlib", "pandas", "numpy", "tiktoken", "msgspec", "rich"}


@pytest.mark.e2e
def test_no_module_loads_litellm_or_matplotlib_when_it_is_imported() -> None:
    names = [name_of(p) for p in FILES if p.stem != "__main__" and p not in FOREIGN]
    loaded = loaded_by("import " + ", ".join(names))
    assert not loaded & {"litellm", "matplotlib", "tiktoken", "PIL", "diskcache"}


@pytest.mark.e2e
def test_describing_and_evaluating_recordings_loads_no_model_client_plots_or_widgets() -> None:
    steps = (
        "import ctxlab; recordings = list(ctxlab.load('bundled:support-desk'))[:1]",
        "ctxlab.describe(recordings, workers=1)",
        "results = ctxlab.evaluate(recordings, 'panic', 4000, workers=1); results._repr_html_()",
    )
    loaded = loaded_by("; ".join(steps))
    assert not loaded & {"litellm", "matplotlib", "ipywidgets", "IPython", "typer", "requests"}
