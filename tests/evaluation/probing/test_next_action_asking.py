"""Tests of model calls of the next-action evaluation: asked once, within the limit, and kept."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from continuing import MODEL, RECORDINGS, SCRIPT, WINDOW, asked, board
from talking import Call, Fault, Refusal, Talker, talking

from ctxlab.errors import ModelRequestRejected
from ctxlab.evaluation.grid import ExperimentGrid
from ctxlab.evaluation.probing.next_action import NextActionPlan
from ctxlab.llm import CachedClient, LiteLLMClient
from ctxlab.messages.types import Message

# --- a provider -------------------------------------------------------------------------------------


def client_of(server: Talker, folder: Path, **more: Any) -> CachedClient:
    settings = {"api_key": "sk-test", "retries": 1, "delay": 0.01, **more}
    return CachedClient(LiteLLMClient(server.address, **settings), folder)


def reply(call: Call) -> Message:
    return SCRIPT(call.messages)


@pytest.mark.e2e
def test_a_second_run_asks_nothing_and_gives_the_same(tmp_path: Path) -> None:
    with talking(reply) as server:
        first, again = (asked(client_of(server, tmp_path), requests=3) for _ in range(2))
        questions = server.answered
    assert server.attempts == questions
    assert questions < len(first.answers)
    assert all(not call.violations for call in server.calls)
    assert Counter(call.body["tools"][0]["function"]["name"] for call in server.calls) == {
        "read_file": questions
    }
    pd.testing.assert_frame_equal(first.answers, again.answers)
    assert first.equals(again)
    took = [found.manifest["calls"][MODEL] for found in (first, again)]
    assert [each["calls"] - each["cached"] for each in took] == [questions, 0]
    assert took[0]["tokens"] == server.prompt + server.completion
    assert (took[1]["tokens"], took[1]["usd"]) == (0, 0)


@pytest.mark.e2e
def test_a_run_that_was_broken_off_goes_on_without_asking_again(tmp_path: Path) -> None:
    def failing(call: Call) -> Any:
        return Refusal(401) if call.number >= 20 else reply(call)

    with talking(failing) as server:
        with pytest.raises(ModelRequestRejected):
            asked(client_of(server, tmp_path), requests=5)
        before = server.answered
        assert 0 < before <= 20
    with talking(reply) as server:
        found = asked(client_of(server, tmp_path), requests=5)
        calls = found.manifest["calls"][MODEL]
        asked_of_both = [str(call.body["messages"]) for call in server.calls]
    assert len(asked_of_both) == len(set(asked_of_both)) == server.answered
    with talking(reply) as server:
        asked(client_of(server, tmp_path / "other"), requests=5)
        assert server.answered == before + len(asked_of_both)
    assert calls["calls"] - calls["cached"] == len(asked_of_both)


@pytest.mark.e2e
def test_a_question_that_stays_unanswered_counts_in_no_share(tmp_path: Path) -> None:
    def faulty(call: Call) -> Any:
        if "step 20:" in call.messages[-1].text:
            return Refusal(
                400, code="context_length_exceeded", says="This model's maximum context length is 9"
            )
        return reply(call)

    with talking(faulty) as server:
        client = client_of(server, tmp_path)
        found = asked(client, requests=0, recordings=RECORDINGS[:1])
    row = board(found).loc["full()"]
    assert row["unanswered_rate"] == pytest.approx(1 / 30)
    assert (row["agrees_both"], row["answered"]) == (1, 29)
    silent = found.answers[found.answers["unanswered"] == 1]
    assert silent["both"].isna().all()
    assert silent["why"].str.contains("maximum context length").all()


@pytest.mark.e2e
def test_a_fault_in_passing_is_asked_again_and_leaves_no_trace(tmp_path: Path) -> None:
    seen: Counter[str] = Counter()

    def shaky(call: Call) -> Any:
        text = str(call.body["messages"])
        seen[text] += 1
        return (
            reply(call) if seen[text] > 1 or call.number % 3 else (500, Fault.DROP)[call.number % 2]
        )

    with talking(shaky) as server:
        found = asked(client_of(server, tmp_path / "a", retries=3), requests=2)
        assert server.attempts > server.answered
    with talking(reply) as server:
        calm = asked(client_of(server, tmp_path / "b"), requests=2)
    pd.testing.assert_frame_equal(found.answers, calm.answers)


def test_a_provider_that_is_down_ends_the_run(tmp_path: Path) -> None:
    with talking(503) as server, pytest.raises(ModelRequestRejected, match="5 calls in a row"):
        asked(client_of(server, tmp_path, retries=0))


@pytest.mark.e2e
def test_an_answer_that_was_cut_is_counted(tmp_path: Path) -> None:
    with talking("word " * 100) as server:
        found = asked(client_of(server, tmp_path), strategies="full", requests=2, max_tokens=10)
        assert all(call.max_tokens == 10 for call in server.calls)
    assert board(found)["cut_rate"]["full()"] == 1
    assert board(found)["text_only_rate"]["full()"] == 1


# --- what it takes ----------------------------------------------------------------------------------


@pytest.mark.e2e
def test_a_forecast_asks_nothing_and_knows_what_is_on_disk(tmp_path: Path) -> None:
    grid = ExperimentGrid.from_arguments(["full", WINDOW], 100_000, None, 0, ())
    plan = NextActionPlan(grid, MODEL, requests=4)
    with talking(reply) as server:
        client = client_of(server, tmp_path)
        (before,) = plan.estimate_cost(RECORDINGS, client, False)
        assert server.attempts == 0
        plan.run(RECORDINGS[:3], client, progress=False)
        (after,) = plan.estimate_cost(RECORDINGS, client, False)
        done = server.answered
        prompt = server.prompt
        plan.run(RECORDINGS, client, progress=False)
        (whole,) = plan.estimate_cost(RECORDINGS, client, False)
    assert before.known == 0
    assert before.questions == server.answered
    assert (after.questions, after.known) == (before.questions, done)
    assert (whole.questions, whole.known) == (before.questions, before.questions)
    assert prompt < server.prompt
    assert whole.usd == 0 <= after.usd <= before.usd


def test_a_forecast_does_not_ask_for_strategies_either(tmp_path: Path) -> None:
    strategy = f"rolling_summary(model='{MODEL}') | panic()"
    plan = NextActionPlan(
        ExperimentGrid.from_arguments(strategy, 3000, None, 0, ()), MODEL, requests=2
    )
    with talking(
        lambda call: "## Goal\nRepair." if not call.body.get("tools") else reply(call)
    ) as server:
        client = client_of(server, tmp_path)
        plan.estimate_cost(RECORDINGS[:1], client, False)
        assert server.attempts == 0
        found = plan.run(RECORDINGS[:1], client, progress=False)
        assert server.attempts > found.answers["asked"].sum()
    assert found.manifest["calls"][MODEL]["calls"] >= server.answered
