"""What the seed designs ask for has a test that names it; ``SEEDS.md`` is the table of them."""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).parent
ASKED = tomllib.loads((HERE / "seeds.toml").read_text(encoding="utf-8"))
TITLES = {seed: asked.pop("title") for seed, asked in ASKED.items()}
PAGE = HERE / "SEEDS.md"
TAG = re.compile(r"Seed (\d{3}), ([\w-]+(?: \w+)*(?:\.\d+)?)")


@functools.cache
def named() -> dict[tuple[str, str], list[str]]:
    """What is asked for → the tests that name it in their docstring."""
    found = defaultdict(list)
    for path in sorted(HERE.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for seed, what in TAG.findall(ast.get_docstring(node) or ""):
                    test = (
                        f"`{path.relative_to(HERE).as_posix()}` {node.name[5:].replace('_', ' ')}"
                    )
                    found[seed, what].append(test)
    return found


def page() -> str:
    tests = named()
    lines = [
        "# The seed designs and their tests",
        "",
        "What the five documents ask for that ctxlab grew from, and the tests that hold it. A test",
        "names what it holds in its docstring; `python tests/test_seed_table.py` writes this page.",
    ]
    for seed, asked in ASKED.items():
        lines += ["", f"## {seed} {TITLES[seed]}", "", "| | asked for | held by |", "|---|---|---|"]
        for key, meaning in asked.items():
            lines.append(f"| {key} | {meaning} | {'<br>'.join(tests[seed, key])} |")
    return "\n".join(lines) + "\n"


def test_what_the_seeds_ask_for_is_held_by_tests() -> None:
    tests = named()
    missing = [(s, key) for s, asked in ASKED.items() for key in asked if (s, key) not in tests]
    assert missing == []


def test_a_test_names_only_what_is_asked_for() -> None:
    assert {(seed, key) for seed, asked in ASKED.items() for key in asked} >= set(named())


def test_the_page_is_what_the_tests_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python tests/test_seed_table.py"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
