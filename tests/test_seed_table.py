"""Check that every requirement of the seed designs has a test, and write both to ``SEEDS.md``."""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections import Counter, defaultdict
from pathlib import Path

HERE = Path(__file__).parent
ASKED = tomllib.loads((HERE / "seeds.toml").read_text(encoding="utf-8"))
TITLES = {seed: asked.pop("title") for seed, asked in ASKED.items()}
DEPARTURES = {seed: asked.pop("departures", []) for seed, asked in ASKED.items()}
PAGE = HERE / "SEEDS.md"
TAG = re.compile(r"Seed (\d{3}), ([\w-]+(?: \w+)*(?:\.\d+)?)")


@functools.cache
def named() -> dict[tuple[str, str], Counter[str]]:
    """Return the number of tests by file for each requirement that a docstring names."""
    found: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for path in sorted(HERE.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if TAG.search(text) else ():
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for seed, what in TAG.findall(ast.get_docstring(node) or ""):
                    found[seed, what][path.relative_to(HERE).as_posix()] += 1
    return found


def page() -> str:
    tests = named()
    lines = [
        "# Requirements of the seed designs",
        "",
        "ctxlab grew out of five design documents, the seeds 000 to 004. Each table lists the",
        "requirements of one document. The column *place* says where the document states the",
        "requirement. The column *tests* lists the test files that check it, with the number of tests",
        "if a file has several. The docstring of each of these tests names the requirement:",
        "`git grep 'Seed 002, criterion 3' tests` finds the tests of criterion 3 of document 002.",
        "`python tests/test_seed_table.py` writes this page. Below each table are the points in which",
        "ctxlab departs from the document, with the reason.",
        "",
        "In document 003, an *interaction* is a user message with everything that follows, up to the",
        "next user message. ctxlab numbers interactions, and the steps in them: step 3.2 is the second",
        "one of interaction 3.",
    ]
    for seed, asked in ASKED.items():
        head = ["| place | requirement | tests |", "|---|---|---|"]
        lines += ["", f"## {seed} {TITLES[seed]}", "", *head]
        for key, meaning in asked.items():
            files = ", ".join(
                f"`{file}`" + (f" ({count})" if count > 1 else "")
                for file, count in tests[seed, key].items()
            )
            lines.append(f"| {key} | {meaning} | {files} |")
        if DEPARTURES[seed]:
            lines += ["", "ctxlab departs from this document:", ""]
            lines += [f"- {each}" for each in DEPARTURES[seed]]
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
