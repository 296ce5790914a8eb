"""Tests of the HTML report of a run: what it says, and that texts of logs stay texts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from running import a_recording

import ctxlab
from ctxlab.cli.app import main
from ctxlab.evaluation.report import make_report
from ctxlab.evaluation.results import Results
from ctxlab.messages.types import Message, Recording

HOSTILE = "</script><script>alert(1)</script>\u202e"
STRATEGIES = ["full", "sliding_window | panic", "rolling_summary | panic", "excerpt_memory | panic"]


def hostile_recording(number: int) -> Recording:
    plain = a_recording(number)
    said = Message("user", f"{HOSTILE} javascript:alert(2)")
    return Recording(f"{HOSTILE} {number}", (*plain.messages, said), cluster=f"{HOSTILE} {number}")


@pytest.fixture(scope="module")
def recordings() -> list[Recording]:
    return [hostile_recording(number) for number in range(6)]


@pytest.fixture(scope="module")
def results(recordings: list[Recording]) -> Results:
    return ctxlab.evaluate(recordings, STRATEGIES, [2000, 4000], "gpt-4o")


@pytest.fixture(scope="module")
def page(results: Results, recordings: list[Recording]) -> str:
    return make_report(results, recordings, title=HOSTILE)


def document_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="document">(.*?)</script>', page, re.S)
    assert found
    return json.loads(found[1])  # type: ignore[no-any-return]


def test_texts_of_logs_end_no_element_and_start_no_script(page: str) -> None:
    assert page.count("<script") == page.count("</script>") == 2
    assert "\u202e" not in page
    names = [recording["name"] for recording in document_of(page)["recordings"]]
    assert names
    assert all(name.startswith(HOSTILE) for name in names)


def test_the_page_contains_no_texts_of_messages_unless_asked(
    results: Results, recordings: list[Recording], page: str
) -> None:
    texts = {ctxlab.messages.types.message_text(m) for r in recordings for m in r.messages[:-1]}
    long = [json.dumps(text)[1:-1] for text in texts if len(text) > 40]
    assert long
    assert not any(text in page for text in long)
    with_text = document_of(make_report(results, recordings, with_text=True, sample=1))
    shown = [m["text"] for each in with_text["recordings"] for m in each["messages"]]
    assert shown
    assert set(shown) <= texts | {ctxlab.messages.types.message_text(recordings[0].messages[-1])}


def test_marks_say_what_the_leaderboard_says(results: Results, page: str) -> None:
    board, rows = results.leaderboard(), document_of(page)["rows"]
    usable = {
        row["id"]
        for row in rows
        if not row["control"]
        and board["overflow_rate"][row["id"]] == 0
        and board["newly_invalid_rate"][row["id"]] == 0
    }

    def beats(a: int, b: int) -> bool:
        cost, held = board["cost_usd"], board["recall_far_held"]
        at_least = cost[a] <= cost[b] and held[a] >= held[b]
        return at_least and (cost[a] < cost[b] or held[a] > held[b])

    for row in rows:
        i, marks = row["id"], row["marks"]
        same = [j for j in usable if board["limit"][j] == board["limit"][i]]
        assert ("pareto" in marks) == (i in usable and not any(beats(j, i) for j in same))
        assert ("over" in marks) == (board["overflow_rate"][i] > 0)
    assert [row["strategy"] for row in rows if row["control"]] == ["full", "full"]


def test_a_context_map_has_the_sizes_and_losses_of_the_replay(
    results: Results, recordings: list[Recording], page: str
) -> None:
    document = document_of(page)
    assert len(document["maps"]) == 6 * 3
    for each in document["maps"][:2]:
        row = document["rows"][each["row"]]
        name = document["recordings"][each["recording"]]["name"]
        (recording,) = (r for r in recordings if r.id == name)
        replay = ctxlab.replay(recording, row["strategy"], int(row["limit"]), "gpt-4o")
        tiers = replay.needs["tier"].value_counts()
        assert each["tokens"] == replay.requests["tokens"].tolist()
        assert sum(each["held"]) == tiers.get("held", 0)
        assert len(each["needs"]) == len(replay.needs) - tiers.get("held", 0)
        assert all(sum(n for _, n in runs) == each["requests"] for runs in each["states"])


def test_what_cannot_be_replayed_is_left_out_and_said(results: Results) -> None:
    document = document_of(make_report(results))
    assert document["maps"] == []
    assert "its file is missing or was changed" in document["mapsNote"]


def test_a_report_imports_no_strategy_of_another_package(recordings: list[Recording]) -> None:
    def spy() -> Results:
        found = ctxlab.evaluate(recordings, ["full", "sliding_window | panic"], 2000, "gpt-4o")
        table = found.runs.assign(strategy=found.runs["strategy"].map(_rename))
        return Results(found.requests, found.scores, found.manifest, found.recordings, runs=table)

    document = document_of(make_report(spy(), recordings))
    assert "nothing is imported because a run names it" in document["mapsNote"]


def _rename(strategy: str) -> str:
    return "antigravity.fly" if strategy != "full()" else strategy


def test_the_command_writes_a_file_and_replaces_none_unasked(
    results: Results, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = str(results.save(tmp_path / "run")), tmp_path / "report.html"
    assert main(["report", run, "-o", str(out), "--sample", "0"]) == 0
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert main(["report", run, "-o", str(out)]) == 2
    assert "pass --force to replace it" in capsys.readouterr().err


def test_the_same_limits_and_reserve_apply_in_a_map(recordings: list[Recording]) -> None:
    found = ctxlab.evaluate(recordings[:1], ["full", "sliding_window | panic"], 0.5, reserve=200)
    (each,) = document_of(make_report(found, recordings))["maps"][:1]
    (budget,) = _budgets(found.runs)
    assert each["limit"] == budget


def test_a_map_counts_with_the_calibration_of_the_run(recordings: list[Recording]) -> None:
    doubled = ctxlab.TokenProfile(ratio=2.0)
    found = ctxlab.evaluate(
        recordings[:1], "sliding_window | panic", 4000, "gpt-4o", profile=doubled
    )
    (each,) = document_of(make_report(found, recordings))["maps"]
    assert each["tokens"] == found.requests["tokens"].tolist()
    plain = ctxlab.replay(recordings[0], "sliding_window | panic", 4000, "gpt-4o")
    assert each["tokens"] != plain.requests["tokens"].tolist()


def _budgets(runs: Mapping[str, Any]) -> set[int]:
    return set(map(int, runs["budget"]))
