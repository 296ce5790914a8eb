"""Tests of the bar of a context window: its length, and that small shares stay visible."""

from __future__ import annotations

import io
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.agent.manager import CONTEXT_PARTS
from ctxlab.cli.render.context_bar import allocate_cells, render_context_bar

SIZES = st.lists(st.integers(0, 10**7), min_size=1, max_size=6)


@given(SIZES, st.integers(0, 200))
def test_cells_are_shared_out_whole(sizes: list[int], count: int) -> None:
    shared = allocate_cells(sizes, count)
    assert sum(shared) == (count if sum(sizes) else 0)
    assert all(cell >= 0 for cell in shared)
    assert all(cell == 0 for cell, size in zip(shared, sizes, strict=True) if size == 0)
    if count >= len(sizes):
        assert all(cell > 0 for cell, size in zip(shared, sizes, strict=True) if size)


@given(SIZES, st.integers(20, 200))
def test_what_is_larger_has_no_fewer_cells(sizes: list[int], count: int) -> None:
    pairs = sorted(zip(sizes, allocate_cells(sizes, count), strict=True))
    assert all(b[1] >= a[1] - 1 for a, b in pairwise(pairs))


def shown(columns: int, **parts: int) -> list[str]:
    return render_context_bar(parts | {"limit": 10_000}, columns).plain.splitlines()


def test_every_part_has_a_line_with_its_tokens_and_its_share() -> None:
    """Seed 002, section 10.5: the tool token count stands in the output of /context."""
    lines = shown(80, system=200, tools=1500, summary=0, messages=3000, reserve=1000, free=4300)
    assert lines[0] == "4,700 of 10,000 tokens (47 %)"
    assert [line.split()[1] for line in lines[2:]] == list(CONTEXT_PARTS)
    assert lines[3].split()[2:4] == ["1,500", "15"]
    assert len(lines[1]) == 80


@pytest.mark.parametrize("columns", [10, 24, 36, 60, 100, 300])
def test_it_keeps_to_the_width(columns: int) -> None:
    lines = shown(columns, system=200, tools=1500, summary=9, messages=300, reserve=100, free=7891)
    assert len(lines[1]) == min(columns, 80)
    if columns >= 24:
        assert all(len(line) <= max(columns, 31) for line in lines)
        assert all(figure in "\n".join(lines) for figure in ("1,500", "7,891"))


def test_what_does_not_fit_is_said() -> None:
    lines = shown(80, system=200, tools=800, messages=12_000, reserve=1000, free=-4_000)
    assert lines[-1].startswith("4,000 tokens over the limit")
    assert "·" not in lines[1]


def test_an_encoding_without_the_signs_gets_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    lines = shown(20, system=2500, tools=2500, messages=2500, free=2500)
    assert lines[1] == "SSSSSTTTTTMMMMM....."
    assert lines[2].startswith("S system")


def test_a_window_of_nothing_is_shown_all_the_same() -> None:
    assert "0 of 0 tokens" in render_context_bar({"limit": 0}, 40).plain
