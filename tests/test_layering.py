"""The house stands: imports go down, a file is small, a package prints and fetches nothing."""

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
FLOORS = (
    "errors signals quantity private_files jsontext content_parts conversation wire vocabulary "
    "model_data prices models images missing_calls profiles tooldefs tokens model_choice fingerprint "
    "billing calibration validity entities given progress catalog download client budget answers "
    "canary_words canaries",
    "history account context branch needs turns aside questions",
    "formats strategies llm",
    "tape metrics bootstrap verdict results executors experiment closeup survey survival manager "
    "asking exams fetches refetch tabular comparison tuning sessions agent",
    "spec gate view cli serve adapters pytest_plugin __init__",
)
ROOMS = frozenset(FLOORS[2].split())
FLOOR = {name: number for number, names in enumerate(FLOORS) for name in names.split()}
FILES = sorted(p for p in ROOT.rglob("*.py") if "bundled" not in p.relative_to(ROOT).parts)
# The code of other packages is imported by these, and not all of it need be installed.
FOREIGN = {
    p
    for p in FILES
    if p.parent.name in ("peers", "adapters") and p.stem not in ("__init__", "base")
}
LONGEST = 400


def part_of(module: str) -> str:
    """The part of the house that a module belongs to: ``ctxlab.strategies.base`` → ``strategies``."""
    return [*module.split("."), "__init__"][1]


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, *, lazy: bool) -> Iterator[str]:
    """The modules of ctxlab that a file imports; ``lazy``: inside functions too."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = ast.walk(tree) if lazy else iter(tree.body)
    for node in nodes:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            below = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [n if (ROOT.parent / (n.replace(".", "/") + ".py")).is_file() else node.module
                     for n in below]  # fmt: skip
        else:
            assert not (isinstance(node, ast.ImportFrom) and node.level), "imports are absolute"
            continue
        yield from (name for name in names if name.split(".")[0] == "ctxlab")


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_stands_on_a_floor_and_imports_from_no_floor_above(path: Path) -> None:
    part = part_of(name_of(path))
    assert part in FLOOR, f"{part} is on no floor: add it to FLOORS"
    above = [name for name in imports(path, lazy=True) if FLOOR[part_of(name)] > FLOOR[part]]
    assert not above


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_no_room_knows_a_room_beside_it(path: Path) -> None:
    part = part_of(name_of(path))
    beside = [n for n in imports(path, lazy=True) if part_of(n) in ROOMS - {part}]
    assert not (part in ROOMS and beside)


def packages(name: str) -> set[str]:
    """A module and the packages that come with it: ``ctxlab.llm.cached`` → ``ctxlab.llm`` too."""
    parts = name.split(".")
    return {".".join(parts[:n]) for n in range(2, len(parts) + 1)}


def test_no_two_files_import_each_other() -> None:
    graph = {
        name_of(path): set().union(*map(packages, imports(path, lazy=False)))
        - packages(name_of(path))
        for path in FILES
    }
    TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_is_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST


@pytest.mark.parametrize("path", [p for p in FILES if p not in FOREIGN], ids=name_of)
def test_a_module_begins_with_a_claim_and_lists_its_public_names(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree)
    module = import_module(name_of(path))
    listed = list(getattr(module, "__all__", ()))
    assert len(set(listed)) == len(listed)
    assert set(listed) <= set(dir(module))
    if path.name != "__init__.py":
        assert set(listed) == set(public_names(tree))


def public_names(tree: ast.Module) -> Iterator[str]:
    """What a module defines under a name without an underscore."""
    for node in tree.body:
        targets: list[ast.expr] = []
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            if not node.name.startswith("_"):
                yield node.name
        elif isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            for name in ast.walk(target):
                if isinstance(name, ast.Name) and not name.id.startswith("_"):
                    yield name.id


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
    """The modules that a fresh interpreter has loaded after an import that printed nothing."""
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


def test_no_module_loads_litellm_or_matplotlib_when_it_is_imported() -> None:
    names = [name_of(p) for p in FILES if p.stem != "__main__" and p not in FOREIGN]
    loaded = loaded_by("import " + ", ".join(names))
    assert not loaded & {"litellm", "matplotlib", "tiktoken", "PIL", "diskcache"}
