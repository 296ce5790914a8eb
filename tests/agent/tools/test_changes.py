"""Tests of changes to files that are shown before they are written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxlab.agent.tools.changes import FileChange

TEXTS = st.text(st.sampled_from("ab\n\r\x0b\x1c\u2028 \\"), max_size=12)


@given(TEXTS, TEXTS)
def test_a_diff_contains_all_of_both_texts(before: str, after: str) -> None:
    """Applied to the old text, a diff with all lines of context gives the new one."""
    lines = FileChange("a", before, after).diff().split("\n")[2:]
    if before == after:
        assert lines == []
        return
    old, new, ended = "", "", ""
    for line in lines:
        if line.startswith("\\"):  # the line before it has no line feed
            old, new = old.removesuffix("\n") if ended in " -" else old, new
            new = new.removesuffix("\n") if ended in " +" else new
            continue
        if line.startswith("@@"):
            continue
        ended = line[0]
        old += f"{line[1:]}\n" if ended in " -" else ""
        new += f"{line[1:]}\n" if ended in " +" else ""
    assert (old, new) == (before, after)


@pytest.mark.parametrize(
    ("before", "after", "end"),
    [
        ("a\r\n", "a\n", ["-a\r", "+a"]),
        ("a", "a\n", ["-a", r"\ No newline at end of file", "+a"]),
        ("a\u2028b\n", "a\u2028c\n", ["-a\u2028b", "+a\u2028c"]),
    ],
)
def test_a_diff_shows_changed_line_ends(before: str, after: str, end: list[str]) -> None:
    assert FileChange("a", before, after).diff().split("\n")[3:] == end


def test_a_path_cannot_add_lines_to_a_diff() -> None:
    assert FileChange("a\n+evil", "1\n", "2\n").diff().split("\n")[1] == r"+++ a\n+evil"


def test_added_and_removed_lines_are_counted_by_line_feeds() -> None:
    assert FileChange("a", "one\n", "one\rtwo\nthree").line_counts == (2, 1)
