"""Tests of the HTML in which objects show themselves in a notebook."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from asked import with_questions
from continuing import asked
from running import a_recording

import ctxlab
from ctxlab.evaluation.experiment import evaluate
from ctxlab.evaluation.replay import MESSAGE_STATES, replay
from ctxlab.evaluation.replay_html import ContextMap
from ctxlab.evaluation.results import Results
from ctxlab.llm import ScriptedClient
from ctxlab.messages.types import Compaction, Message, Recording, ToolCall, Usage

HOSTILE = "<script>alert(1)</script><img src=x> \x1b[2J \u202eesrever \ud800"
STRATEGIES = ["full", "sliding_window | panic", "rolling_summary | panic"]


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


def a_long_recording(turns: int = 400) -> Recording:
    """Return a recording with hostile texts, bills and a compaction."""
    messages = [Message("system", HOSTILE)]
    for turn in range(turns):
        messages.append(Message("user", f"{HOSTILE} {turn}"))
        call = ToolCall(f"c{turn}", f"read{HOSTILE}", f'{{"path": "src/part_{turn * 7 % 90}.py"}}')
        usage = Usage(input=100, cache_read=1000 + turn, output=10)
        messages.append(Message("assistant", HOSTILE, tool_calls=(call,), usage=usage))
        named = " ".join(f"src/part_{(turn + i) % 90}.py" for i in range(9))
        messages.append(Message("tool", f"{named} {HOSTILE} " * 3, tool_call_id=f"c{turn}"))
    messages.append(Message("assistant", "Done."))
    compaction = Compaction(turns, trigger="auto", tokens_before=999)
    skipped = {HOSTILE: 3}
    return Recording(HOSTILE, tuple(messages), compactions=(compaction,), skipped=skipped)


@pytest.fixture(scope="module")
def results() -> Results:
    hostile = "tool_result_cap(marker='<script>alert(1)</script>')"
    return evaluate(map(a_recording, range(6)), [*STRATEGIES, hostile], [3000, 0.5], "gpt-4o")


@pytest.fixture(scope="module")
def objects(results: Results) -> dict[str, Any]:
    """Return one object of each kind that shows itself; some are long, or have hostile texts."""
    long, some = a_long_recording(), [a_recording(i) for i in range(6)]
    close = replay(long, "observation_mask(keep=9) | rolling_summary | panic", 20_000, "gpt-4o")
    client = ScriptedClient(lambda request: HOSTILE.encode("utf-8", "ignore").decode())
    questions = [with_questions(i, 3, cluster=str(i)) for i in range(2)]
    return {
        "recording": long,
        "replay": close,
        "alternating replay": replay(
            a_long_recording(60), "observation_mask(keep=1)", 90_000, "gpt-4o"
        ),
        "sent": close.sent(-1),
        "descriptions": ctxlab.describe([long], "gpt-4o", workers=1),
        "results": results,
        "comparison": ctxlab.compare_strategies(results, STRATEGIES[1], STRATEGIES[2]),
        "tuning": ctxlab.tune(
            some, ["sliding_window(tokens=[900, 2000])"], [3000], "gpt-4o", holdout=0, workers=1
        ),
        "survival": ctxlab.measure_survival(some, STRATEGIES, [3000], "gpt-4o", n=4, workers=1),
        "questions": ctxlab.run_qa(
            questions, STRATEGIES, [500], "gpt-4o", answer_model="gpt-4o", client=client
        ),
        "actions": asked(),
        "products": ctxlab.compare_products(
            some, 3000, STRATEGIES, "gpt-4o", constraints=0, closed_loop=False, workers=1
        ),
    }


def test_objects_show_themselves_in_50_kb_without_scripts_or_markup_from_logs(
    objects: dict[str, Any],
) -> None:
    allowed = {"style", "div", "p", "b", "table", "thead", "tbody", "tr", "th", "td", "br", "pre"}
    allowed |= {"details", "summary", "bdi", "svg", "path"}
    for kind, each in objects.items():
        html = each._repr_html_()
        assert len(html.encode()) < 50_000, kind  # raises an error for a lone surrogate
        outline = Outline(html)
        assert set(outline.tags) <= allowed, kind
        assert not {name for name in outline.attributes if name.startswith("on")}, kind
        assert not {"href", "src"} & outline.attributes, kind
        assert not re.search("[\x00-\x08\x0e-\x1f\u202a-\u202e\u2066-\u2069]", html), kind


def test_tables_and_sentences_remain_without_style_sheets_and_drawings(
    objects: dict[str, Any],
) -> None:
    for kind, each in objects.items():
        html = re.sub("(?s)<style>.*?</style>|<svg.*?</svg>", "", each._repr_html_())
        outline = Outline(html)
        assert "table" in outline.tags, kind
        assert len("".join(outline.texts).split()) > 30, kind
        assert "<text" not in each._repr_html_(), kind  # it would remain, without its place
    close = re.sub("(?s)<svg.*?</svg>", "", objects["replay"]._repr_html_())
    assert "×" in close.partition("<pre>")[2]  # the map is also there as text


def test_results_show_the_verdict_first_and_all_columns_only_in_a_fold(results: Results) -> None:
    html = results._repr_html_()
    before, _, fold = html.partition("<details>")
    assert html.index(results.verdict()[:30]) < html.index("<table")
    assert "within 3,000 tokens" in before
    assert "recall_far_held_low" not in before
    assert all(f"<th>{column}</th>" in fold for column in results.leaderboard())


def test_a_map_of_a_short_recording_has_the_state_of_each_message_in_each_request() -> None:
    close = replay(a_recording(0), "sliding_window | panic", 3000, "gpt-4o")
    shown = ContextMap(close, 50, 50)
    count = close.prepared.request_positions[-1]
    assert np.array_equal(shown.codes, close.states[:, :count])
    marks = {(row, column) for row, column, _ in shown.missing().itertuples(index=False)}
    absent = close.needs[close.needs["tier"].isin(["pointer", "lost"])]
    assert marks == set(zip(absent["request"], absent["last"], strict=True)) != set()


def test_a_map_of_a_long_recording_has_the_most_frequent_state_of_neighbours(
    objects: dict[str, Any],
) -> None:
    close = objects["replay"]
    shown = ContextMap(close, 36, 180)
    assert shown.codes.shape == (36, 180)
    row, column = 30, 12
    inside = close.states[shown.requests[row], shown.edges[column] : shown.edges[column + 1]]
    assert shown.codes[row, column] == np.bincount(inside, minlength=len(MESSAGE_STATES)).argmax()


def test_recordings_without_messages_or_requests_say_so() -> None:
    assert "no messages" in Recording("empty", ())._repr_html_()
    silent = Recording("silent", (Message("user", "hi"),))
    assert "no model call" in replay(silent, "full", 900)._repr_html_()
    assert "0–0" not in silent._repr_html_()
