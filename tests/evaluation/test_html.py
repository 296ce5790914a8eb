"""Tests of the HTML in which results show themselves."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from running import a_recording

from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.results import Results


class Outline(HTMLParser):
    """Collects the tags, the attributes and the visible text of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture(scope="module")
def results() -> Results:
    hostile = "tool_result_cap(marker='<script>alert(1)</script>')"
    strategies = ["full", "sliding_window | panic", "rolling_summary | panic", hostile]
    return evaluate(map(a_recording, range(6)), strategies, [3000, 0.5], "gpt-4o")


def test_results_show_the_verdict_first_and_all_columns_only_in_a_fold(results: Results) -> None:
    html = results._repr_html_()
    before, _, fold = html.partition("<details>")
    assert html.index(results.verdict()[:30]) < html.index("<table")
    assert "within 3,000 tokens" in before
    assert "recall_far_held_low" not in before
    assert all(f"<th>{column}</th>" in fold for column in results.leaderboard())
    assert len(html.encode()) < 50_000


def test_no_text_becomes_markup(results: Results) -> None:
    outline = Outline(results._repr_html_())
    allowed = {"style", "div", "p", "table", "thead", "tbody", "tr", "th", "td", "br", "details"}
    assert set(outline.tags) <= {*allowed, "summary"}
    assert any("<script>" in text for text in outline.texts)
    assert outline.attributes <= {"class", "title", "colspan", "border", "style"}
