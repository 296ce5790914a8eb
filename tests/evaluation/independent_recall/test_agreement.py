"""Tests that ctxlab and the implementation written from ``docs/recall.md`` find the same recall."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from agreement import Agreement, compare_files

MIN_SHARE = 0.99
BUNDLED = Path(__file__).parents[3] / "datasets"
# One edit of each kind: messages dropped, cut, replaced by stubs, summarised, listed and quoted.
STRATEGIES = (
    "sliding_window()",
    "tool_result_cap(chars=500)",
    "observation_mask(keep=3)",
    "rolling_summary()",
    "contents()",
    "oracle",
)


def compare(paths: list[Path], limits: tuple[int, ...], sample: int) -> Agreement:
    total = Agreement()
    for _, found in compare_files(paths, STRATEGIES, limits, sample):
        total.update(found)
    return total


def check(total: Agreement) -> None:
    assert total.compared["needs"] > 500
    for what in total.compared:
        differences = [each for each in total.differences if each.startswith(f"[{what}]")]
        assert total.share(what) >= MIN_SHARE, "\n".join(differences[:20])


def test_the_implementation_shares_no_code_with_ctxlab() -> None:
    tree = ast.parse((Path(__file__).parent / "recall.py").read_text("utf-8"))
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else alias.name) or ""
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    standard = {"__future__", "collections.abc", "dataclasses", "functools", "json", "re", "typing"}
    assert imported <= standard


@pytest.mark.properties
def test_needs_and_tiers_agree_on_bundled_recordings() -> None:
    folders = [path for path in BUNDLED.iterdir() if (path / "CARD.md").is_file()]
    check(compare(folders, limits=(2_000,), sample=3))


@pytest.mark.recordings
def test_needs_and_tiers_agree_on_real_recordings(recorded: Path) -> None:
    beside = recorded.parent / "corpus"
    paths = [path for folder in (recorded, beside) for path in sorted(folder.glob("*"))]
    conversations = ("locomo", "longmemeval")  # without tool calls, and so with few needs
    folders = [path for path in paths if path.is_dir() and path.name not in conversations]
    check(compare(folders, limits=(8_000,), sample=2))
